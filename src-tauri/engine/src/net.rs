//! HTTP to the outside: one way to make a client, and what its failures mean.
//!
//! Redirects are never followed: a token goes to the address it was meant for and to no other. Answers are read up to a
//! limit, since a server may send anything.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{Client, Response, Url, redirect::Policy};
use rustls::{ClientConfig, RootCertStore};

/// How long a server may take to be there.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// How long it may say nothing.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// How long one answer may take, however it trickles.
const LIMIT: Duration = Duration::from_secs(90);

/// Why nothing came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Its name is unknown, nobody listens there, or the connection broke.
    Unreachable,
    /// It did not prove who it is, or does not speak TLS.
    Tls,
    TimedOut,
}

/// TLS cannot be set up here.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoTls(String);

/// A client that trusts whom this machine trusts, for one address. The person's proxy is used, but not to reach this very
/// machine.
///
/// # Errors
/// Where TLS cannot be set up.
pub(crate) fn client(user_agent: &str, address: &Url) -> Result<Client, NoTls> {
    let builder = Client::builder()
        .tls_backend_preconfigured(trust()?)
        .redirect(Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(SILENCE_LIMIT)
        .timeout(LIMIT)
        .user_agent(user_agent);
    let builder = if is_loopback(address) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| NoTls(told(&error)))
}

/// A client for answers that may go on for hours: only connecting has a limit, everything else has its caller's.
///
/// # Errors
/// Where TLS cannot be set up.
pub(crate) fn streaming_client(user_agent: &str, is_loopback: bool) -> Result<Client, NoTls> {
    let builder = Client::builder()
        .tls_backend_preconfigured(trust()?)
        .redirect(Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .tcp_keepalive(SILENCE_LIMIT)
        .user_agent(user_agent);
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| NoTls(told(&error)))
}

/// Whom this machine trusts, read when it is first needed.
fn trust() -> Result<ClientConfig, NoTls> {
    static TRUST: OnceLock<ClientConfig> = OnceLock::new();
    if let Some(known) = TRUST.get() {
        return Ok(known.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let trust = versions.map_err(|error| NoTls(error.to_string()))?.with_root_certificates(roots).with_no_client_auth();
    Ok(TRUST.get_or_init(|| trust).clone())
}

/// Whether an address is of this machine.
pub(crate) fn is_loopback(address: &Url) -> bool {
    match address.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// What kind of failure this is.
pub(crate) fn trouble(error: &reqwest::Error) -> Trouble {
    if error.is_timeout() {
        return Trouble::TimedOut;
    }
    if is_tls(error) { Trouble::Tls } else { Trouble::Unreachable }
}

/// Whether TLS is what failed, however deep it lies: errors of reading and writing hold others that are no sources.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>() || held.is_some_and(|held| is_tls(held)) || error.source().is_some_and(is_tls)
}

/// The failure in words: its innermost cause, without the address.
pub(crate) fn told(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    if error.is_timeout() { "no answer in time".to_owned() } else { innermost.to_string() }
}

/// The beginning of an answer's body, at most `limit` bytes; the flag says whether that is all of it.
///
/// # Errors
/// What the connection says.
pub(crate) async fn body(mut response: Response, limit: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = limit - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

/// A server's words for a person: no control characters, no token, not too long.
pub(crate) fn plain(text: &str, secret: Option<&crate::secrets::Secret>, limit: usize) -> String {
    let text = without_sequences(text).replace('\t', " ");
    let text = match secret {
        Some(secret) => {
            let patterns = courier_keeper::redact::Patterns::new([secret.expose()]);
            String::from_utf8_lossy(&patterns.redact(text.as_bytes())).into_owned()
        }
        None => text,
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut plain = lines.join("\n");
    if plain.len() > limit {
        plain.truncate((0..=limit).rev().find(|at| plain.is_char_boundary(*at)).unwrap_or(0));
        plain.push('…');
    }
    plain
}

/// Without terminal sequences and control characters but tabs; a carriage return ends a line, as on a terminal.
pub(crate) fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.peek() == Some(&'[') => {
                characters.next();
                while characters.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {}
            }
            '\n' | '\r' => plain.push('\n'),
            '\t' => plain.push('\t'),
            // Direction marks make words look like others.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            other if other.is_control() => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secret;

    #[test]
    fn a_servers_words_are_made_plain() {
        let token = Secret::new("ghp_canary0123456789");
        let said = "\u{1b}[31mred\u{1b}[0m \u{202e}abc\r\n\r\n  with ghp_canary0123456789 \u{7}inside\n";
        assert_eq!(plain(said, Some(&token), 100), "red abc\nwith [redacted] inside");
        assert_eq!(plain("éééé", None, 3), "é…", "cut between characters");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is = |text: &str| is_loopback(&Url::parse(text).unwrap());
        assert!(
            is("http://127.0.0.1:1/a") && is("http://[::1]/") && is("http://localhost/") && is("http://127.9.9.9/")
        );
        assert!(!is("http://127.0.0.1.example.org/") && !is("https://github.com/") && !is("http://192.168.0.1/"));
        assert!(client("CodeCourier", &Url::parse("https://github.com").unwrap()).is_ok());
    }
}
