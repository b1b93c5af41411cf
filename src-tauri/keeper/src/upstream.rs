//! Where a model is: the address a person may set, and what of it is allowed. Pure; both sides judge with it.
//!
//! A key is sent there, so it goes over TLS; plain HTTP only where it never leaves this machine.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The longest name there is.
const LONGEST_HOST: usize = 253;

/// A model's endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Whether it is spoken to over TLS.
    pub is_tls: bool,
    /// A name or an address, the latter without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What every path begins with: empty, or `/…` without a slash at its end.
    pub path: String,
}

/// Why an address is none of a model's. Reads on its own, with what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It is no http(s) address.
    NotAnAddress,
    /// Plain HTTP to another machine.
    PlainHttp,
    /// There is a name or a password in it.
    Password,
    /// There is a query or a fragment in it.
    Query,
    /// Its path leads upwards.
    Path,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnAddress => "this is no address of a model: give it as https://host/path",
            Self::PlainHttp => {
                "the key would cross the network unencrypted: use https:// (http:// is for this machine only)"
            }
            Self::Password => "the address holds a name or password: leave it out, keys are set under Keys",
            Self::Query => "the address holds a query or a fragment: give only the part before it",
            Self::Path => "the address holds the path segment . or ..: give the path it stands for",
        })
    }
}

impl std::error::Error for Invalid {}

impl FromStr for Upstream {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains(['\\', '"', '<', '>']) {
            return Err(Invalid::NotAnAddress);
        }
        let (scheme, rest) = text.split_once("://").ok_or(Invalid::NotAnAddress)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(Invalid::NotAnAddress),
        };
        if rest.contains(['?', '#']) {
            return Err(Invalid::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(Invalid::Password);
        }
        let (host, port) = place(authority, if is_tls { 443 } else { 80 }).ok_or(Invalid::NotAnAddress)?;
        if !is_tls && !is_loopback(&host) {
            return Err(Invalid::PlainHttp);
        }
        let path = path.trim_end_matches('/').to_owned();
        if leads_elsewhere(&path) {
            return Err(Invalid::Path);
        }
        Ok(Self { is_tls, host, port, path })
    }
}

impl Upstream {
    /// As it stands in the header `Host`.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.is_tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }
}

/// Host and port of `host`, `host:port`, `[::1]` or `[::1]:port`.
fn place(authority: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        Some(port) => port.parse().ok().filter(|&number| number != 0 && is_digits(port))?,
        None => default,
    };
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    let is_host = is_name || host.contains(':');
    (is_host && !host.is_empty() && host.len() <= LONGEST_HOST).then(|| (host.to_ascii_lowercase(), port))
}

/// Whether this host can only be this machine.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || host.parse().is_ok_and(|address: Ipv6Addr| address == Ipv6Addr::LOCALHOST)
}

/// How often a path may be percent-encoded over and over.
const MOST_LAYERS: usize = 4;

/// Whether a path has a segment `.` or `..`, however a server may spell it: percent-encoded (once or more), with a
/// backslash for a slash, with parameters behind a semicolon.
pub(crate) fn leads_elsewhere(path: &str) -> bool {
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..MOST_LAYERS {
        let is_dots = |segment: &[u8]| {
            let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
            name == b"." || name == b".."
        };
        if bytes.split(|&byte| matches!(byte, b'/' | b'\\')).any(is_dots) {
            return true;
        }
        let decoded = percent_decoded(&bytes);
        if decoded.len() == bytes.len() {
            return false;
        }
        bytes = decoded;
    }
    // Nobody means what is wrapped so often; and unwrapping it all would take as long as an attacker likes.
    true
}

fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = if bytes[at] == b'%' { digit(at + 1).zip(digit(at + 2)) } else { None };
        match code.and_then(|(high, low)| u8::try_from(high << 4 | low).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Upstream, Invalid> {
        text.parse()
    }

    #[test]
    fn an_address_is_taken_apart() {
        let upstream = parse("https://Api.Example.com/base/v1//").unwrap();
        let expected = Upstream { is_tls: true, host: "api.example.com".into(), port: 443, path: "/base/v1".into() };
        assert_eq!(upstream, expected);
        assert_eq!(upstream.authority(), "api.example.com");
        let local = parse("http://[::1]:8080").unwrap();
        assert_eq!((local.host.as_str(), local.port, local.path.as_str()), ("::1", 8080, ""));
        assert_eq!(local.authority(), "[::1]:8080");
        assert_eq!(parse("https://10.0.0.1:8443/x").unwrap().authority(), "10.0.0.1:8443");
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        for fine in ["http://localhost:1", "http://127.0.0.1", "http://127.8.9.1:80/s/happy", "http://[::1]/"] {
            assert!(parse(fine).is_ok(), "{fine}");
        }
        for bad in [
            "http://example.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "http://[::2]",
            "http://0.0.0.0",
            "http://2130706433",
            "http://127.1",
            "HTTP://example.com",
        ] {
            assert_eq!(parse(bad).unwrap_err(), Invalid::PlainHttp, "{bad}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        use Invalid as I;
        for (bad, why) in [
            ("", I::NotAnAddress),
            ("api.example.com", I::NotAnAddress),
            ("ftp://api.example.com", I::NotAnAddress),
            ("https://", I::NotAnAddress),
            ("https:///path", I::NotAnAddress),
            ("https://a b", I::NotAnAddress),
            ("https://a\r\nX-Evil: 1", I::NotAnAddress),
            ("https://a/b\r\n", I::NotAnAddress),
            ("https://ä.example", I::NotAnAddress),
            ("https://a:0", I::NotAnAddress),
            ("https://a:+80", I::NotAnAddress),
            ("https://a:99999", I::NotAnAddress),
            ("https://a:", I::NotAnAddress),
            ("https://[::1", I::NotAnAddress),
            ("https://[::1]x", I::NotAnAddress),
            ("https://::1", I::NotAnAddress),
            ("https://a%2eb", I::NotAnAddress),
            ("https://user:secret@a", I::Password),
            ("https://a/?key=1", I::Query),
            ("https://a#b", I::Query),
            ("https://a/b/../c", I::Path),
            ("https://a/%2E%2e/c", I::Path),
        ] {
            assert_eq!(parse(bad).unwrap_err(), why, "{bad:?}");
        }
    }

    #[test]
    fn no_spelling_of_dots_leads_elsewhere() {
        for bad in [
            "/..",
            "/../x",
            "/a/..",
            "/a/./b",
            "/%2e%2e/x",
            "/.%2E/x",
            "/%2e./x",
            "/a%2f..%2fb",
            "/a/..%5cb",
            "/..\\x",
            "/..;/x",
            "/..;a=b/x",
            "/%252e%252e/x",
            "/%25252e%25252e%25252fx",
            "/a%2F%2e%2e",
        ] {
            assert!(leads_elsewhere(bad), "{bad}");
        }
        // Unwrapped whole it would be looked at thirty thousand times.
        assert!(leads_elsewhere(&format!("/%{}41", "25".repeat(30_000))));
        for fine in ["", "/", "/v1/messages", "/a..b/...", "/.well-known/x", "/a%20b", "/100%", "/%zz", "/a;b", "//a"] {
            assert!(!leads_elsewhere(fine), "{fine}");
        }
    }
}
