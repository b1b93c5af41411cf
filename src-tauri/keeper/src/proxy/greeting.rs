//! What a client says before it is connected: all of it has one deadline, however slowly it trickles.

use std::{
    io::{self, ErrorKind, Read},
    net::TcpStream,
    time::{Duration, Instant},
};

/// A connection that is read until its deadline.
#[derive(Debug)]
pub(super) struct Greeting<'a> {
    client: &'a TcpStream,
    until: Instant,
}

impl<'a> Greeting<'a> {
    pub(super) fn new(client: &'a TcpStream, limit: Duration) -> Self {
        Self { client, until: Instant::now() + limit }
    }
}

impl Read for Greeting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.client.set_read_timeout(Some(left))?;
        self.client.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener};

    use super::*;

    #[test]
    fn a_client_that_trickles_is_not_listened_to_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let heard = listener.accept().unwrap().0;
        let trickling = std::thread::spawn(move || {
            // Each byte comes well within the limit.
            while client.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut bytes = Vec::new();
        let ended = Greeting::new(&heard, Duration::from_millis(60)).read_to_end(&mut bytes).unwrap_err();
        assert!(matches!(ended.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{ended}");
        assert!(!bytes.is_empty(), "until then it was heard");
        drop(heard);
        trickling.join().unwrap();
    }
}
