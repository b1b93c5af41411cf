//! Carries bytes between two connections until both are done, or nothing has moved for too long.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use crate::sys;

/// How much is on its way in each direction.
const BUFFER: usize = 32 << 10;

/// One direction.
struct Flow {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    /// The source has said that it is done.
    is_over: bool,
    /// And the sink was told.
    is_told: bool,
}

impl Flow {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER].into_boxed_slice(), from: 0, to: 0, is_over: false, is_told: false }
    }

    fn wants_in(&self) -> bool {
        !self.is_over && self.from == self.to
    }

    fn wants_out(&self) -> bool {
        self.from < self.to
    }

    /// Moves what can be moved without waiting, and says whether anything did.
    fn step(&mut self, mut source: &TcpStream, mut sink: &TcpStream) -> io::Result<bool> {
        let mut has_moved = false;
        if self.wants_in() {
            match source.read(&mut self.buffer) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    (self.from, self.to) = (0, count);
                    has_moved = true;
                }
                Err(error) if is_soon(&error) => {}
                Err(error) => return Err(error),
            }
        }
        while self.wants_out() {
            match sink.write(&self.buffer[self.from..self.to]) {
                Ok(count) => {
                    self.from += count;
                    has_moved = true;
                }
                Err(error) if is_soon(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.is_over && !self.wants_out() && !self.is_told {
            self.is_told = true;
            // It may have hung up by itself.
            _ = sink.shutdown(Shutdown::Write);
        }
        Ok(has_moved)
    }
}

fn is_soon(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Returns when both directions are over, or one has failed, or no byte has gone either way for `idle`.
pub(super) fn relay(inside: &TcpStream, outside: &TcpStream, idle: Duration) -> io::Result<()> {
    inside.set_nonblocking(true)?;
    outside.set_nonblocking(true)?;
    let (mut out, mut back) = (Flow::new(), Flow::new());
    let mut until = Instant::now() + idle;
    loop {
        let has_moved = out.step(inside, outside)? | back.step(outside, inside)?;
        if out.is_told && back.is_told {
            return Ok(());
        }
        let now = Instant::now();
        if has_moved {
            until = now + idle;
        } else if now >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        let events = |reads: bool, writes: bool| {
            (if reads { libc::POLLIN } else { 0 }) | (if writes { libc::POLLOUT } else { 0 })
        };
        let mut entries = [(inside, &out, &back), (outside, &back, &out)].map(|(socket, from, to)| {
            match events(from.wants_in(), to.wants_out()) {
                // A hang-up would be reported without being asked for, again and again.
                0 => sys::interest(-1, 0),
                events => sys::interest(socket.as_raw_fd(), events),
            }
        });
        sys::poll(&mut entries, Some(until - now))?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn both_directions_arrive_whole_and_one_end_may_stop_talking_first() {
        let ((mut client, inside), (outside, mut server)) = (connected(), connected());
        let relaying = std::thread::spawn(move || relay(&inside, &outside, LONG));
        let question = vec![7; 3 << 20];
        let sent = question.clone();
        let asking = std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            answer
        });
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).unwrap();
        assert!(heard == question, "{} bytes", heard.len());
        server.write_all(&heard).unwrap();
        drop(server);
        assert!(asking.join().unwrap() == question);
        relaying.join().unwrap().unwrap();
    }

    #[test]
    fn a_connection_on_which_nothing_moves_ends() {
        let ((mut client, inside), (outside, mut server)) = (connected(), connected());
        let ended = relay(&inside, &outside, Duration::from_millis(20)).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::TimedOut);
        drop((inside, outside));
        let mut rest = Vec::new();
        assert_eq!((client.read_to_end(&mut rest).unwrap(), server.read_to_end(&mut rest).unwrap()), (0, 0));
    }

    #[test]
    fn one_that_does_not_read_is_not_waited_for_for_ever() {
        let ((mut client, inside), (outside, server)) = (connected(), connected());
        client.set_nonblocking(true).unwrap();
        let stuffed = std::thread::spawn(move || {
            let block = [0; 1 << 16];
            // Until the kernel's buffers are full on both sides, and the other end has hung up.
            loop {
                match client.write(&block) {
                    Ok(_) => {}
                    Err(error) if is_soon(&error) => std::thread::yield_now(),
                    Err(error) => return error.kind(),
                }
            }
        });
        let ended = relay(&inside, &outside, Duration::from_millis(50)).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::TimedOut);
        drop((inside, outside, server));
        assert!(matches!(stuffed.join().unwrap(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
    }
}
