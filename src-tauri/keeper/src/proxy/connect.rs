//! From a name and a port to a connection, or to a reason why not.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use super::{
    gateway::Gateway,
    neighbours,
    policy::{self, Denial, Policy, Reach},
    refusals::Refusals,
};

/// How long one address may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// The longest name there is.
const LONGEST_HOST: usize = 255;

/// What lies outside, as this sandbox may see it.
#[derive(Debug)]
pub(super) struct Outside {
    pub policy: Policy,
    pub refusals: Refusals,
    pub gateway: Arc<Gateway>,
    pub limits: Limits,
}

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until a client has said what it wants, all of it; and how long one write of that may take.
    pub greeting: Duration,
    /// Without a byte either way. Agents hold quiet connections for long.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { greeting: Duration::from_secs(30), idle: Duration::from_secs(60 * 60) }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is not allowed.
    Denied(Denial),
    /// The name is none, or nobody knows it.
    NoSuchHost(io::Error),
    /// Nobody answers there.
    Unreachable(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => f.write_str(denial.reason()),
            Self::NoSuchHost(error) => write!(f, "the name could not be resolved: {error}"),
            Self::Unreachable(error) => write!(f, "no connection: {error}"),
        }
    }
}

impl Outside {
    /// Connects, if that is allowed. The address that was judged is the one connected to.
    pub(super) fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        self.reach(host, port).inspect_err(|failure| {
            if let Failure::Denied(denial) = failure {
                self.refusals.add(host, port, *denial);
            }
        })
    }

    fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        self.policy.may_ask(host, port).map_err(Failure::Denied)?;
        let mut failure = None;
        for address in resolve(host, port).map_err(Failure::NoSuchHost)? {
            match self.policy.may_connect(host, port, reach(address.ip())) {
                Ok(()) => match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failure = Some(Failure::Unreachable(error)),
                },
                // One refused address of several says nothing about the others.
                Err(denial) => _ = failure.get_or_insert(Failure::Denied(denial)),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::NoSuchHost(io::ErrorKind::NotFound.into())))
    }
}

fn reach(address: IpAddr) -> Reach {
    match policy::reach(address) {
        Reach::Public if neighbours::is_own(address) => Reach::Local,
        other => other,
    }
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() || bare.len() > LONGEST_HOST || bare.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no host's name"));
    }
    Ok((bare, port).to_socket_addrs()?.collect())
}
