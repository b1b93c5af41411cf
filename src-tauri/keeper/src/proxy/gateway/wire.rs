//! The connection to the model: TCP, and TLS on it but on this machine. Nothing here waits once it is made.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

use crate::upstream::Upstream;

/// A connection to the model.
pub(super) struct Wire {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// Whom this machine trusts, read when it is first needed. Sharing it lets a later connection take up the session of an
/// earlier one.
#[derive(Default)]
pub(super) struct Trust(Mutex<Option<Arc<ClientConfig>>>);

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut known = self.0.lock().expect("nobody panics while holding it");
        if let Some(config) = &*known {
            return Ok(Arc::clone(config));
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(io::Error::other(format!("this machine has no list of trusted certificates{why}")));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = versions.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        *known = Some(Arc::clone(&config));
        Ok(config)
    }
}

impl Wire {
    /// Connects within `limit`, and begins to speak TLS where that is spoken.
    pub(super) fn open(upstream: &Upstream, trust: &Trust, limit: Duration) -> io::Result<Self> {
        let tls = if upstream.is_tls {
            let name = ServerName::try_from(upstream.host.clone()).map_err(io::Error::other)?;
            Some(Box::new(ClientConnection::new(trust.config()?, name).map_err(io::Error::other)?))
        } else {
            None
        };
        let socket = connect(upstream, limit)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, tls })
    }

    /// Reads what has come; [`ErrorKind::WouldBlock`]: nothing yet. 0 is an end that was meant.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(room) };
        loop {
            match tls.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            // At the end of the stream the reader above says whether it was meant.
            tls.read_tls(&mut self.socket)?;
            if let Err(error) = tls.process_new_packets() {
                // It is told why, if it still listens.
                _ = tls.write_tls(&mut self.socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// Takes some of these bytes; they leave with [`Wire::flush`]. [`ErrorKind::WouldBlock`]: none now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => match tls.writer().write(bytes)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => Ok(count),
            },
        }
    }

    /// Sends what TLS has ready.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the socket's readiness to be written to is awaited, where `has_more` says that there is more to write.
    pub(super) fn wants_out(&self, has_more: bool) -> bool {
        // What TLS holds back may just have gone out, and with it made room for more.
        self.tls.as_ref().map_or(has_more, |tls| tls.wants_write() || (has_more && !tls.is_handshaking()))
    }

    /// Whether who answers has not shown yet who it is.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Says that nothing more is asked, and hangs up.
    pub(super) fn close(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // Whoever has hung up already need not be told.
        _ = self.flush();
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn connect(upstream: &Upstream, limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let addresses = (upstream.host.as_str(), upstream.port)
        .to_socket_addrs()
        .map_err(|error| io::Error::new(error.kind(), format!("the name could not be resolved: {error}")))?;
    // Whatever a hosts file says: without TLS the key does not leave this machine.
    let may_have_it = |address: &SocketAddr| upstream.is_tls || address.ip().is_loopback();
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name stands for no address that may be used");
    for address in addresses.filter(may_have_it) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
