//! Where a push goes, and by which way.

use std::fmt;

use reqwest::Url;

use super::{Error, Reason, Token};
use crate::net;

/// How a remote was spoken to, for a person who wonders which of their keys was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Https {
        host: String,
        has_token: bool,
        /// The recorded address is an SSH one; a token is stored for this host, so HTTPS was used.
        is_instead_of_ssh: bool,
    },
    /// With the keys of the person's SSH agent.
    Ssh { user: String, host: String },
    /// A repository on this machine.
    Folder,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Https { host, has_token, is_instead_of_ssh } => {
                let token = if *has_token { "with the stored token" } else { "without a token" };
                write!(f, "HTTPS to {host} {token}")?;
                if *is_instead_of_ssh {
                    f.write_str(", in place of SSH because a token is stored")?;
                }
                Ok(())
            }
            Self::Ssh { user, host } => write!(f, "SSH to {host} as {user}, with the keys of the SSH agent"),
            Self::Folder => f.write_str("a folder of this machine"),
        }
    }
}

/// A remote's address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::work) enum Address {
    Web(Url),
    Ssh { text: String, user: String, host: String, port: u16, path: String },
    Folder(String),
}

impl Address {
    /// Reads the address recorded for a project. `token` is for one host; where that is the address's, HTTPS is the way
    /// also for an address of SSH.
    pub(in crate::work) fn read(text: &str, token: Option<&Token>) -> Result<Self, Error> {
        let refuse = |why: &str| Err(Error::new(Reason::BadAddress, why));
        if text.starts_with("file://") || std::path::Path::new(text).is_absolute() {
            return Ok(Self::Folder(text.to_owned()));
        }
        let Some((scheme, _)) = text.split_once("://") else {
            let Some((authority, path)) = text.split_once(':') else { return refuse("it has no host") };
            let Some((user, host)) = authority.split_once('@') else { return refuse("it has no user") };
            return Self::ssh(text, user, host, 22, path, token);
        };
        let Ok(url) = Url::parse(text) else { return refuse("it cannot be read") };
        if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return refuse("it holds a password or a query");
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        match scheme {
            "https" | "http" if !url.username().is_empty() => refuse("it holds a user name or token"),
            "http" if !net::is_loopback(&url) => {
                refuse("it is plain http: the work would cross the network unencrypted")
            }
            "https" | "http" => Ok(Self::Web(url)),
            "ssh" => {
                let user = if url.username().is_empty() { "git" } else { url.username() };
                Self::ssh(text, user, &host, url.port().unwrap_or(22), url.path(), token)
            }
            _ => refuse("nothing is pushed over this protocol"),
        }
    }

    fn ssh(text: &str, user: &str, host: &str, port: u16, path: &str, token: Option<&Token>) -> Result<Self, Error> {
        // GitHub's way round a closed port 22.
        let web_host = if host.eq_ignore_ascii_case("ssh.github.com") { "github.com" } else { host };
        if token.is_some_and(|token| token.host.eq_ignore_ascii_case(web_host))
            && let Ok(url) = Url::parse(&format!("https://{web_host}/{}", path.trim_start_matches('/')))
        {
            return Ok(Self::Web(url));
        }
        let (user, host) = (user.to_owned(), host.to_ascii_lowercase());
        Ok(Self::Ssh { text: text.to_owned(), user, host, port, path: path.to_owned() })
    }

    /// Whether it is of this machine, so that no proxy leads there.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(self, Self::Web(url) if net::is_loopback(url))
    }

    /// What git is given.
    pub(in crate::work) fn text(&self) -> String {
        match self {
            Self::Web(url) => url.as_str().trim_end_matches('/').to_owned(),
            Self::Ssh { text, .. } | Self::Folder(text) => text.clone(),
        }
    }

    /// The token that may be shown to it: one for this very host.
    pub(in crate::work) fn token<'a>(&self, token: Option<&'a Token>) -> Option<&'a Token> {
        let Self::Web(url) = self else { return None };
        token.filter(|token| url.host_str().is_some_and(|host| token.host.eq_ignore_ascii_case(host)))
    }

    pub(super) fn way(&self, recorded: &str, token: Option<&Token>) -> Way {
        match self {
            Self::Web(url) => Way::Https {
                host: url.host_str().unwrap_or_default().to_owned(),
                has_token: self.token(token).is_some(),
                is_instead_of_ssh: !recorded.starts_with("http"),
            },
            Self::Ssh { user, host, .. } => Way::Ssh { user: user.clone(), host: host.clone() },
            Self::Folder(_) => Way::Folder,
        }
    }

    /// Whether git was asked for credentials by exactly this address: not by one it was led to.
    pub(in crate::work) fn is_same(&self, asked: &str) -> bool {
        match self {
            Self::Web(url) => Url::parse(asked).is_ok_and(|asked| {
                let place = |url: &Url| {
                    let path = url.path().trim_end_matches('/').to_owned();
                    (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default(), path)
                };
                place(&asked) == place(url) && asked.query().is_none()
            }),
            Self::Ssh { text, .. } | Self::Folder(text) => asked == text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secret;

    fn token(host: &str) -> Token {
        Token { host: host.to_owned(), secret: Secret::new("ghp_0123456789abcdefghij") }
    }

    fn read(text: &str) -> Result<Address, Error> {
        Address::read(text, Some(&token("github.com")))
    }

    #[test]
    fn an_ssh_address_becomes_https_where_a_token_is_stored_for_its_host() {
        for text in [
            "git@github.com:owner/name.git",
            "ssh://git@github.com/owner/name.git",
            "ssh://git@ssh.github.com:443/owner/name.git",
        ] {
            let address = read(text).unwrap();
            assert_eq!(address.text(), "https://github.com/owner/name.git", "{text}");
            let way = address.way(text, Some(&token("github.com"))).to_string();
            assert_eq!(way, "HTTPS to github.com with the stored token, in place of SSH because a token is stored");
        }
        let other = read("git@gitlab.com:owner/name.git").unwrap();
        assert_eq!(other.text(), "git@gitlab.com:owner/name.git", "the token is not for this host");
        let way = other.way("git@gitlab.com:owner/name.git", Some(&token("github.com"))).to_string();
        assert_eq!(way, "SSH to gitlab.com as git, with the keys of the SSH agent");
    }

    #[test]
    fn a_token_is_shown_to_its_own_host_only() {
        let token = token("github.com");
        let shown = |text| read(text).unwrap().token(Some(&token)).is_some();
        assert!(shown("https://github.com/a/b"));
        assert!(!shown("https://github.com.example.org/a/b"));
        assert!(!shown("https://example.org/github.com"));
    }

    #[test]
    fn only_the_recorded_address_is_the_same() {
        let address = read("https://github.com/a/b.git").unwrap();
        assert!(address.is_same("https://github.com/a/b.git") && address.is_same("https://github.com:443/a/b.git/"));
        for other in [
            "https://github.com/a/c.git",
            "https://github.com:8443/a/b.git",
            "http://github.com/a/b.git",
            "https://github.com.example.org/a/b.git",
            "https://github.com/a/b.git?x",
            "not an address",
        ] {
            assert!(!address.is_same(other), "{other}");
        }
    }

    #[test]
    fn what_nothing_is_pushed_to_is_refused() {
        for text in [
            "http://example.org/a/b",
            "git://example.org/a/b",
            "https://me:secret@example.org/a/b",
            "https://ghp_0123@github.com/a/b",
            "https://github.com/a/b?token=x",
            "ext::sh -c id",
            "relative/path",
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.reason, Reason::BadAddress, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(matches!(read("http://127.0.0.1:1/a").unwrap(), Address::Web(_)));
        assert!(matches!(read("http://[::1]:1/a").unwrap(), Address::Web(_)));
        assert!(matches!(read("/srv/git/a.git").unwrap(), Address::Folder(_)));
    }
}
