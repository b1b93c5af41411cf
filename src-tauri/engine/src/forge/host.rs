//! A GitHub: github.com, or an enterprise host.

use std::str::FromStr;

use courier_keeper::upstream::{Invalid, Upstream};

use crate::secrets::CredentialKind;

/// The host of a GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As it stands in addresses: with a port, if it is an odd one.
    name: String,
    domain: String,
    web: String,
    api: String,
}

/// Why a setting is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    #[error("give the host alone, as in github.example.org")]
    NotAHost,
    #[error("github.com needs no setting")]
    GitHub,
    #[error("{0}")]
    Address(Invalid),
}

impl Host {
    /// github.com.
    pub fn github() -> Self {
        Self {
            name: "github.com".to_owned(),
            domain: "github.com".to_owned(),
            web: "https://github.com".to_owned(),
            api: "https://api.github.com".to_owned(),
        }
    }

    /// As a person knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name alone, without a port: whom a token is for.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Where its pages are.
    pub(crate) fn web(&self) -> &str {
        &self.web
    }

    /// Where its API is.
    pub(crate) fn api(&self) -> &str {
        &self.api
    }

    /// Which token is for it.
    pub fn credential(&self) -> CredentialKind {
        if self.name == "github.com" { CredentialKind::GithubToken } else { CredentialKind::GithubEnterpriseToken }
    }

    /// Whether an address's host is this one.
    pub(super) fn is(&self, authority: &str) -> bool {
        authority.eq_ignore_ascii_case(&self.name)
    }
}

/// `github.example.org` or `https://github.example.org`; plain HTTP on this machine only.
impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let text = text.trim().trim_end_matches('/');
        let address = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let upstream: Upstream = address.parse().map_err(InvalidHost::Address)?;
        if !upstream.path.is_empty() {
            return Err(InvalidHost::NotAHost);
        }
        let domain = upstream.host.to_ascii_lowercase();
        if ["github.com", "www.github.com", "api.github.com", "ssh.github.com"].contains(&domain.as_str()) {
            return Err(InvalidHost::GitHub);
        }
        let written = if domain.contains(':') { format!("[{domain}]") } else { domain.clone() };
        let usual = if upstream.is_tls { 443 } else { 80 };
        let name = if upstream.port == usual { written } else { format!("{written}:{}", upstream.port) };
        let web = format!("{}://{name}", if upstream.is_tls { "https" } else { "http" });
        let api = format!("{web}/api/v3");
        Ok(Self { name, domain, web, api })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enterprise_host_is_a_host_and_nothing_else() {
        let host: Host = " GitHub.example.org/ ".parse().unwrap();
        assert_eq!((host.name(), host.api()), ("github.example.org", "https://github.example.org/api/v3"));
        let host: Host = "https://github.example.org:8443".parse().unwrap();
        assert_eq!((host.name(), host.domain()), ("github.example.org:8443", "github.example.org"));
        assert_eq!(host.web(), "https://github.example.org:8443");
        let local: Host = "http://127.0.0.1:3000".parse().unwrap();
        assert_eq!(local.api(), "http://127.0.0.1:3000/api/v3");
        assert!(matches!("http://github.example.org".parse::<Host>(), Err(InvalidHost::Address(Invalid::PlainHttp))));
        assert!(matches!("https://me:x@example.org".parse::<Host>(), Err(InvalidHost::Address(Invalid::Password))));
        assert_eq!("github.example.org/api/v3".parse::<Host>(), Err(InvalidHost::NotAHost));
        assert_eq!("github.com".parse::<Host>(), Err(InvalidHost::GitHub));
        assert!("".parse::<Host>().is_err());
    }
}
