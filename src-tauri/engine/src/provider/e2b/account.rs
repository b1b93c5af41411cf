//! Whose E2B it is, and where.

use reqwest::Url;

use crate::secrets::Secret;

/// The domain of the public service.
const PUBLIC: &str = "e2b.app";
/// The port on which a machine's daemon listens (reference: the SDKs' own constant).
pub(super) const DAEMON_PORT: &str = "49983";

/// An account of E2B's, or of a self-hosted one.
#[derive(Clone, Debug)]
pub struct Account {
    pub key: Secret,
    /// Where the control plane is, without a slash at its end.
    api: String,
    machines: Machines,
    /// Which installation of this app it is: a machine it made carries this.
    pub installation: String,
}

/// How a machine's daemon is reached.
#[derive(Clone, Debug)]
enum Machines {
    /// One address for all, which reads from two headers whom it is for.
    Shared(String),
    /// Each has a name of its own beneath this domain.
    Named(String),
}

/// An address that cannot be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{address:?} is not the address of an E2B: {why}")]
pub struct NoAddress {
    address: String,
    why: String,
}

impl Account {
    /// `domain`: whose service it is, the public one where there is none. `api` and `machines`: where those are, where that
    /// is not told by the domain.
    ///
    /// # Errors
    /// `NoAddress`, for an address that is none, or that is neither on this machine nor encrypted.
    pub fn new(
        key: Secret,
        domain: Option<&str>,
        api: Option<&str>,
        machines: Option<&str>,
        installation: String,
    ) -> Result<Self, NoAddress> {
        let domain = domain.unwrap_or(PUBLIC);
        let api = checked(api.unwrap_or(&format!("https://api.{domain}")))?;
        let machines = match machines {
            Some(address) => Machines::Shared(checked(address)?),
            None if domain == PUBLIC => Machines::Shared(checked(&format!("https://sandbox.{domain}"))?),
            None => {
                checked(&format!("https://{DAEMON_PORT}-x.{domain}"))?;
                Machines::Named(domain.to_owned())
            }
        };
        Ok(Self { key, api, machines, installation })
    }

    pub(super) fn api(&self) -> &str {
        &self.api
    }

    /// Where the daemon of a machine answers. `domain`: what the control plane said of this one.
    pub(super) fn daemon(&self, machine: &str, domain: Option<&str>) -> String {
        match &self.machines {
            Machines::Shared(address) => address.clone(),
            Machines::Named(usual) => format!("https://{DAEMON_PORT}-{machine}.{}", domain.unwrap_or(usual)),
        }
    }

    /// Whether everything is on this machine: then no proxy leads there.
    pub(super) fn is_loopback(&self) -> bool {
        let is = |address: &str| Url::parse(address).is_ok_and(|url| crate::net::is_loopback(&url));
        is(&self.api) && matches!(&self.machines, Machines::Shared(address) if is(address))
    }
}

/// An http address only on this machine: a key travels there.
fn checked(address: &str) -> Result<String, NoAddress> {
    let no = |why: &str| NoAddress { address: address.to_owned(), why: why.to_owned() };
    let url = Url::parse(address).map_err(|error| no(&error.to_string()))?;
    match url.scheme() {
        "https" => {}
        "http" if crate::net::is_loopback(&url) => {}
        "http" => return Err(no("only https, or http on this machine, keeps a key")),
        _ => return Err(no("it must begin with https://")),
    }
    if url.host_str().is_none() || url.query().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(no("it must be a host, and a path at most"));
    }
    Ok(address.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(domain: Option<&str>, api: Option<&str>, machines: Option<&str>) -> Result<Account, NoAddress> {
        Account::new(Secret::new("e2b_0123456789"), domain, api, machines, "i".to_owned())
    }

    #[test]
    fn the_domain_tells_where_everything_is() {
        let public = account(None, None, None).unwrap();
        assert_eq!(public.api(), "https://api.e2b.app");
        assert_eq!(public.daemon("abc", None), "https://sandbox.e2b.app");
        let own = account(Some("e2b.example.org"), None, None).unwrap();
        assert_eq!(own.api(), "https://api.e2b.example.org");
        assert_eq!(own.daemon("abc", None), "https://49983-abc.e2b.example.org");
        assert_eq!(own.daemon("abc", Some("b.example.org")), "https://49983-abc.b.example.org");
        let local = account(None, Some("http://127.0.0.1:7/"), Some("http://localhost:8")).unwrap();
        assert_eq!((local.api(), local.daemon("abc", None).as_str()), ("http://127.0.0.1:7", "http://localhost:8"));
        assert!(local.is_loopback() && !own.is_loopback());
    }

    #[test]
    fn a_key_goes_nowhere_unencrypted() {
        for bad in ["http://e2b.example.org", "ftp://x", "https://u:p@x", "https://x?y", "nothing"] {
            assert!(account(None, Some(bad), None).is_err(), "{bad}");
            assert!(account(None, None, Some(bad)).is_err(), "{bad}");
        }
        assert!(account(Some("not a host"), None, None).is_err());
    }
}
