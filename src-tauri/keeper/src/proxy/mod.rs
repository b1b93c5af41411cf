//! The way out: an HTTP proxy and a SOCKS 5 proxy on the sandbox's own loopback, which has no other.
//!
//! Init made the listening sockets inside; the keeper, outside, accepts, resolves names, decides ([`policy`]) and
//! connects, to exactly the address it decided about. One thread per connection, a bounded number of them.
//!
//! A third door is the model's endpoint ([`gateway`]): it is no way out, but leads to one place.

mod connect;
pub(crate) mod gateway;
mod greeting;
mod http;
mod neighbours;
mod policy;
mod refusals;
mod relay;
mod socks;

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::Builder,
    time::Duration,
};

use self::{
    connect::{Limits, Outside},
    gateway::Gateway,
    policy::Policy,
    refusals::Refusals,
};
use crate::{
    protocol::{GATEWAY_PORT, HTTP_PROXY_PORT, SOCKS_PROXY_PORT, StartSpec},
    spool, sys,
};

/// Where the sockets listen, in the order of the doors.
pub(crate) const PORTS: [u16; 3] = [HTTP_PROXY_PORT, SOCKS_PROXY_PORT, GATEWAY_PORT];

/// How many connections a sandbox may have open at each door: whoever downloads much does not lose its model by it.
const MOST_CONNECTIONS: usize = 96;

/// What is spoken at one of the listening sockets.
#[derive(Clone, Copy, Debug)]
enum Door {
    Http,
    Socks,
    Model,
}

impl Door {
    /// In the order in which the sockets are handed over.
    const ALL: [Self; PORTS.len()] = [Self::Http, Self::Socks, Self::Model];

    fn serve(self, client: TcpStream, outside: &Outside) -> io::Result<()> {
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(outside.limits.greeting))?;
        client.set_write_timeout(Some(outside.limits.greeting))?;
        match self {
            Self::Http => http::serve(client, outside),
            Self::Socks => socks::serve(client, outside),
            Self::Model => outside.gateway.serve(&client),
        }
    }
}

/// Begins to serve these sockets, one per door.
pub(crate) fn serve(spec: &StartSpec, listeners: Vec<TcpListener>, gateway: &Arc<Gateway>) -> io::Result<()> {
    let outside = Arc::new(Outside {
        policy: Policy::new(spec.network, &spec.allowed_hosts),
        refusals: Refusals::new(spec.directory.join(spool::REFUSED)),
        gateway: Arc::clone(gateway),
        limits: Limits::default(),
    });
    for (door, listener) in Door::ALL.into_iter().zip(listeners) {
        let outside = Arc::clone(&outside);
        Builder::new().name("door".into()).spawn(move || accept(door, &listener, &outside, &Arc::default()))?;
    }
    Ok(())
}

fn accept(door: Door, listener: &TcpListener, outside: &Arc<Outside>, open: &Arc<AtomicUsize>) {
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) => {
                sys::note(&format!("the proxy could not accept: {error}"));
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let slot = Slot::take(open);
        if slot.is_none() {
            continue; // Closed: the client sees a connection that ended, and tries again.
        }
        let outside = Arc::clone(outside);
        let started = Builder::new().name("proxy".into()).spawn(move || {
            let _slot = slot;
            // How a connection ends concerns its two ends, and they know.
            _ = door.serve(client, &outside);
        });
        if let Err(error) = started {
            sys::note(&format!("no thread for a connection: {error}"));
        }
    }
}

/// One of the connections a door may have.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self(Arc::clone(open));
        // Over the limit it is dropped here, and counts itself out again.
        (open.fetch_add(1, Ordering::Relaxed) < MOST_CONNECTIONS).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
