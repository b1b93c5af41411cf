//! Hears what the app asks. One thread per connection, few at a time.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, sync_channel},
    },
    thread::Builder,
    time::{Duration, Instant},
};

use super::sandbox::Event;
use crate::{
    protocol::{Refusal, Request, Response, read_frame, write_frame},
    sys,
};

/// More connections at once than an app ever has.
const MOST_CONNECTIONS: usize = 64;

/// How long a connection may say nothing.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// How long the last answers may take to be fetched.
const FAREWELL: Duration = Duration::from_millis(500);

/// The connections of the app.
#[derive(Debug)]
pub(super) struct Server {
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Waits until everybody has their answer and has hung up.
    pub(super) fn say_farewell(&self) {
        let deadline = Instant::now() + FAREWELL;
        while self.open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Begins to accept.
pub(super) fn start(listener: UnixListener, events: Sender<Event>) -> io::Result<Server> {
    let count = Arc::new(AtomicUsize::new(0));
    let server = Server { open: Arc::clone(&count) };
    Builder::new().name("server".into()).spawn(move || {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: some will come back.
                    sys::note(&format!("a connection could not be accepted: {error}"));
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if count.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                count.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (events, open) = (events.clone(), Arc::clone(&count));
            let started = Builder::new().name("connection".into()).spawn(move || {
                if let Err(error) = serve(stream, &events) {
                    sys::note(&format!("a connection ended: {error}"));
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = started {
                count.fetch_sub(1, Ordering::Relaxed);
                sys::note(&format!("no thread for a connection: {error}"));
            }
        }
    })?;
    Ok(server)
}

fn serve(mut stream: UnixStream, events: &Sender<Event>) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_LIMIT))?;
    stream.set_write_timeout(Some(IDLE_LIMIT))?;
    loop {
        let (request, body) = match read_frame::<Request>(&mut stream) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(error) => {
                let refusal = match error.kind() {
                    io::ErrorKind::Unsupported => Refusal::Version,
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Refusal::Malformed,
                    _ => return Err(error),
                };
                let message = error.to_string();
                return write_frame(&mut stream, &Response::Refused { refusal, message }, b"");
            }
        };
        let (answer, answers) = sync_channel(1);
        if events.send(Event::Asked { request, body, answer }).is_err() {
            return Ok(());
        }
        // The sandbox drops the sender unanswered only when it ends.
        let Ok(response) = answers.recv() else { return Ok(()) };
        write_frame(&mut stream, &response, b"")?;
    }
}
