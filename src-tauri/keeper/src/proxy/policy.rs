//! What a sandbox may reach. Pure.
//!
//! Two questions: may this name and port be asked for at all, and, once it is resolved, may this address be connected
//! to. Public addresses may. Those of the machine itself, of its network and of private networks may only if a list
//! entry says so:
//!
//! | entry | private networks | loopback, link-local, metadata, this machine |
//! | --- | --- | --- |
//! | `host:port`, `[::1]:port` | that port | that port |
//! | `host` | yes | only where the host is `localhost` or an address |
//! | `*.suffix`, `*.suffix:port` | no | no |
//!
//! Wildcards open nothing private: whoever owns a name below the suffix could point it there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::protocol::Network;

/// The rules of one sandbox.
#[derive(Debug)]
pub(super) struct Policy {
    network: Network,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Lower case; for a wildcard what follows `*`, with its dot.
    host: String,
    is_wildcard: bool,
    port: Option<u16>,
}

/// Which kind of place an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Anybody's.
    Public,
    /// A private network's.
    Private,
    /// This machine's or its link's; or metadata, or what is no host's at all.
    Local,
}

/// Why something may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    NoNetwork,
    NotListed,
    NotPublic,
}

impl Denial {
    /// For the agent and the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NoNetwork => "this sandbox has no network",
            Self::NotListed => "the host is not on this sandbox's list",
            Self::NotPublic => "the address is private or this machine's own, and the list does not name it",
        }
    }
}

impl Policy {
    pub(super) fn new(network: Network, allowed: &[String]) -> Self {
        Self { network, entries: allowed.iter().filter_map(|text| Entry::parse(text)).collect() }
    }

    /// Whether the name may be resolved at all.
    pub(super) fn may_ask(&self, host: &str, port: u16) -> Result<(), Denial> {
        match self.network {
            Network::None => Err(Denial::NoNetwork),
            Network::Open => Ok(()),
            Network::Listed if self.matching(host, port).next().is_some() => Ok(()),
            Network::Listed => Err(Denial::NotListed),
        }
    }

    /// Whether the address the name stands for may be connected to.
    pub(super) fn may_connect(&self, host: &str, port: u16, reach: Reach) -> Result<(), Denial> {
        self.may_ask(host, port)?;
        let opens = |entry: &Entry| match reach {
            Reach::Public => true,
            Reach::Private => !entry.is_wildcard,
            Reach::Local => !entry.is_wildcard && (entry.port.is_some() || is_literal(&entry.host)),
        };
        if reach == Reach::Public || self.matching(host, port).any(opens) { Ok(()) } else { Err(Denial::NotPublic) }
    }

    fn matching(&self, host: &str, port: u16) -> impl Iterator<Item = &Entry> {
        let host = normal(host);
        self.entries.iter().filter(move |entry| entry.matches(&host, port))
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (host, port) = match text.parse::<Ipv6Addr>() {
            Ok(_) => (text, None),
            Err(_) => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port.parse().ok()?)),
                None => (text, None),
            },
        };
        let host = normal(host);
        let wildcard = host.strip_prefix('*').filter(|suffix| suffix.starts_with('.') && suffix.len() > 1);
        match wildcard {
            Some(suffix) => Some(Self { host: suffix.to_owned(), is_wildcard: true, port }),
            None if host.is_empty() || host.contains('*') => None,
            None => Some(Self { host, is_wildcard: false, port }),
        }
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let is_host = if self.is_wildcard { host.ends_with(&self.host) } else { host == self.host };
        is_host && self.port.is_none_or(|own| own == port)
    }
}

/// One spelling for every host: lower case, without brackets and without the root's dot.
fn normal(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase()
}

fn is_literal(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

/// Which kind of place this address is, as far as its number tells.
pub(super) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, _] = address.octets();
    let is_carrier = a == 100 && (64..128).contains(&b);
    let is_nobody = a == 0 || a >= 240 || (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    let is_test = address.is_documentation() || (a == 198 && (b == 18 || b == 19));
    if address.is_private() || is_carrier {
        Reach::Private
    } else if address.is_loopback() || address.is_link_local() || address.is_multicast() || is_nobody || is_test {
        Reach::Local
    } else {
        Reach::Public
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let [first, second, ..] = address.segments();
    let low = |at: usize| {
        let octets = address.octets();
        reach_v4(Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]))
    };
    match (first, second) {
        // An IPv4 address in another dress is judged as what it is: mapped, NAT64, 6to4.
        _ if address.to_ipv4_mapped().is_some() => low(12),
        (0x0064, 0xff9b) if address.segments()[2..6] == [0; 4] => low(12),
        (0x2002, _) => low(2),
        // Teredo, benchmarks and ORCHID; documentation.
        (0x2001, 0..=0x01ff | 0x0db8) | (0x3fff, _) => Reach::Local,
        (0x2000..=0x3fff, _) => Reach::Public,
        (0xfc00..=0xfdff, _) => Reach::Private,
        _ => Reach::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach_of(text: &str) -> Reach {
        reach(text.parse().unwrap())
    }

    #[test]
    fn every_kind_of_address_is_told_apart() {
        for public in
            ["1.1.1.1", "140.82.121.3", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2001:4860::8"]
        {
            assert_eq!(reach_of(public), Reach::Public, "{public}");
        }
        for private in
            ["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1", "2002:a00:1::"]
        {
            assert_eq!(reach_of(private), Reach::Private, "{private}");
        }
        for local in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "::127.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "fec0::1",
        ] {
            assert_eq!(reach_of(local), Reach::Local, "{local}");
        }
    }

    fn policy(network: Network, entries: &[&str]) -> Policy {
        Policy::new(network, &entries.iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_modes_are_what_they_are_called() {
        assert_eq!(policy(Network::None, &["a.example"]).may_ask("a.example", 443), Err(Denial::NoNetwork));
        assert_eq!(policy(Network::Open, &[]).may_ask("b.example", 443), Ok(()));
        let listed = policy(Network::Listed, &["a.example", "*.c.example", "d.example:8443"]);
        for (host, port) in [("A.example.", 1), ("x.c.example", 443), ("y.x.c.example", 443), ("d.example", 8443)] {
            assert_eq!(listed.may_ask(host, port), Ok(()), "{host}:{port}");
        }
        for (host, port) in [("b.example", 443), ("c.example", 443), ("xc.example", 443), ("d.example", 443)] {
            assert_eq!(listed.may_ask(host, port), Err(Denial::NotListed), "{host}:{port}");
        }
    }

    #[test]
    fn only_an_entry_that_names_it_opens_what_is_not_public() {
        let no = Err(Denial::NotPublic);
        for network in [Network::Open, Network::Listed] {
            let rules =
                policy(network, &["git.corp", "*.corp", "localhost:5432", "127.0.0.1:8080", "10.0.0.5", "[::1]:9"]);
            assert_eq!(rules.may_connect("git.corp", 22, Reach::Private), Ok(()));
            assert_eq!(
                rules.may_connect("git.corp", 22, Reach::Local),
                no,
                "a name without a port opens no local service"
            );
            assert_eq!(rules.may_connect("x.corp", 22, Reach::Private), no, "nor does a wildcard");
            assert_eq!(rules.may_connect("localhost", 5432, Reach::Local), Ok(()));
            assert_eq!(rules.may_connect("127.0.0.1", 8080, Reach::Local), Ok(()));
            assert_eq!(rules.may_connect("[::1]", 9, Reach::Local), Ok(()));
            assert_eq!(rules.may_connect("10.0.0.5", 1, Reach::Private), Ok(()));
        }
        let open = policy(Network::Open, &["127.0.0.1:8080"]);
        assert_eq!(open.may_connect("127.0.0.1", 8081, Reach::Local), no);
        assert_eq!(open.may_connect("rebound.example", 8080, Reach::Local), no);
    }

    #[test]
    fn an_entry_that_means_nothing_opens_nothing() {
        let rules = policy(Network::Listed, &["", "*", "*.", "a.*.b", "host:port", ":80"]);
        assert!(rules.entries.is_empty(), "{:?}", rules.entries);
    }
}
