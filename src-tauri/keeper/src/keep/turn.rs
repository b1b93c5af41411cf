//! One turn's thread: copies what the agent prints, and writes how it ended.

use std::{
    io::{self, PipeReader, PipeWriter, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, UNIX_EPOCH},
};

use super::{
    Leader, Pipes,
    stream::Stream,
    waker::{self, Sleeper, Waker},
};
use crate::{
    protocol::{SPOOL_CAP, TurnStatus},
    proxy::gateway::Gateway,
    redact::Patterns,
    spool::{self, ExitRecord},
    sys,
};

/// After the leader's end, a stream somebody holds open counts as over once it was quiet this long.
const QUIET: Duration = Duration::from_millis(500);

/// However talkative what was left running is, the turn is over this long after its leader.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How much of what comes later is kept.
const LATE_LIMIT: u64 = 1 << 20;

/// How long after a failure to write `exit` the next try comes.
const RETRY: Duration = Duration::from_secs(1);

/// An open turn, as the sandbox holds it.
#[derive(Debug)]
pub(crate) struct Turn {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Debug)]
struct Shared {
    id: String,
    state: Mutex<State>,
    out_length: AtomicU64,
    err_length: AtomicU64,
}

#[derive(Debug)]
struct State {
    leader: Option<Leader>,
    cap: u64,
    is_capped: bool,
    trouble: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

/// A turn whose folder was just claimed, before its program runs.
pub(crate) struct Opening {
    turn: Turn,
    copier: Copier,
    stdin: PipeWriter,
}

impl Opening {
    /// Makes the spool, and the agent's ends of the pipes.
    pub(crate) fn new(
        directory: &Path,
        id: &str,
        secrets: &[String],
        gateway: Arc<Gateway>,
    ) -> io::Result<(Self, Pipes)> {
        let place = spool::turn_directory(directory, id);
        let patterns = Patterns::new(secrets);
        let [(stdin, our_stdin), (our_out, out), (our_err, err)] = [io::pipe()?, io::pipe()?, io::pipe()?];
        let stream = |pipe: PipeReader, name| Stream::new(pipe, &place.join(name), &patterns);
        let (waker, sleeper) = waker::pair()?;
        let state = State { leader: None, cap: SPOOL_CAP, is_capped: false, trouble: None };
        let shared = Arc::new(Shared {
            id: id.to_owned(),
            state: Mutex::new(state),
            out_length: AtomicU64::new(0),
            err_length: AtomicU64::new(0),
        });
        let copier = Copier {
            shared: Arc::clone(&shared),
            sleeper,
            out: stream(our_out, spool::OUT)?,
            err: stream(our_err, spool::ERR)?,
            place,
            patterns,
            draining_since: None,
            gateway,
        };
        let pipes = Pipes { stdin: OwnedFd::from(stdin), out: OwnedFd::from(out), err: OwnedFd::from(err) };
        Ok((Self { turn: Turn { shared, waker }, copier, stdin: our_stdin }, pipes))
    }

    /// The program did not start: the turn ends as a shell would end it, with the reason where errors are read.
    pub(crate) fn could_not_start(&mut self, program: &str, error: &io::Error) {
        self.copier.err.inject(&format!("could not start {program}: {error}\n"));
        let code = if error.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 };
        self.turn.exited(Leader::Code(code));
    }

    /// Starts the copying and the feeding. `over` is called when `exit` is written.
    pub(crate) fn run(self, body: Vec<u8>, over: impl FnOnce() + Send + 'static) -> io::Result<Turn> {
        let Self { turn, mut copier, mut stdin } = self;
        let name = std::thread::Builder::new;
        if !body.is_empty() {
            name().name("stdin".into()).spawn(move || {
                // An agent need not read it all.
                _ = stdin.write_all(&body);
            })?;
        }
        name().name("turn".into()).spawn(move || {
            copier.copy();
            over();
            copier.drain_late();
        })?;
        Ok(turn)
    }
}

impl Turn {
    /// Its leader has ended. The first to say so is believed.
    pub(crate) fn exited(&self, leader: Leader) {
        self.shared.state().leader.get_or_insert(leader);
        self.waker.wake();
    }

    /// Lets each stream's spool grow to this length.
    pub(crate) fn allow(&self, bytes: u64) {
        let mut state = self.shared.state();
        state.cap = state.cap.max(bytes);
        drop(state);
        self.waker.wake();
    }

    /// How it is.
    pub(super) fn status(&self) -> TurnStatus {
        let state = self.shared.state();
        TurnStatus {
            turn: self.shared.id.clone(),
            out_len: self.shared.out_length.load(Ordering::Relaxed),
            err_len: self.shared.err_length.load(Ordering::Relaxed),
            capped: state.is_capped,
            blocked: state.trouble.clone(),
        }
    }
}

/// The thread's own part.
struct Copier {
    shared: Arc<Shared>,
    sleeper: Sleeper,
    out: Stream,
    err: Stream,
    place: PathBuf,
    patterns: Patterns,
    /// Since when the leader has ended.
    draining_since: Option<Instant>,
    /// Knows of the limits the turn ran into.
    gateway: Arc<Gateway>,
}

impl Copier {
    /// Copies until the turn is over and `exit` is written.
    fn copy(&mut self) {
        let mut room = Vec::new();
        let leader = loop {
            let (leader, cap) = {
                let state = self.shared.state();
                (state.leader, state.cap)
            };
            if leader.is_some() && self.draining_since.is_none() {
                self.out.leader_exited();
                self.err.leader_exited();
                self.draining_since = Some(Instant::now());
            }
            let is_written = self.write();
            self.report(cap);
            if let (Some(leader), true) = (leader, is_written && self.is_drained()) {
                break leader;
            }
            self.wait(cap, &mut room);
        };
        self.out.finish();
        self.err.finish();
        while !self.write() {
            self.report(u64::MAX);
            self.sleep_until(self.retry_at());
        }
        self.write_exit(leader);
    }

    fn wait(&mut self, cap: u64, room: &mut Vec<u8>) {
        let mut entries = [
            sys::interest(self.sleeper.descriptor(), libc::POLLIN),
            sys::interest(self.out.descriptor(cap), libc::POLLIN),
            sys::interest(self.err.descriptor(cap), libc::POLLIN),
        ];
        // While there is trouble nothing is read, and so nothing can become quiet.
        let until = self.retry_at().or_else(|| self.drained_at());
        let wait = until.map(|at| at.saturating_duration_since(Instant::now()));
        // It fails only for want of kernel memory; then a moment later is as good.
        if sys::poll(&mut entries, wait).is_err() {
            std::thread::sleep(QUIET);
            return;
        }
        if entries[0].revents != 0 {
            self.sleeper.clear();
        }
        if entries[1].revents != 0 {
            self.out.read(room);
        }
        if entries[2].revents != 0 {
            self.err.read(room);
        }
    }

    /// Writes both; one stream's trouble is the other's too, as they share a disk.
    fn write(&mut self) -> bool {
        let is_written = self.out.write() & self.err.write();
        self.shared.out_length.store(self.out.length(), Ordering::Relaxed);
        self.shared.err_length.store(self.err.length(), Ordering::Relaxed);
        is_written
    }

    fn report(&self, cap: u64) {
        let trouble = self.out.trouble().or(self.err.trouble()).map(ToString::to_string);
        let mut state = self.shared.state();
        state.is_capped = self.out.length() >= cap || self.err.length() >= cap;
        state.trouble = trouble;
    }

    /// Whether what belongs to the turn was read: all the leader wrote, and what others did before they paused.
    fn is_drained(&self) -> bool {
        let now = Instant::now();
        self.out.is_settled() && self.err.is_settled() && self.drained_at().is_some_and(|at| at <= now)
    }

    /// When that is so if nothing more comes: at once if nobody can write any more.
    fn drained_at(&self) -> Option<Instant> {
        let since = self.draining_since?;
        let quiet_at = |stream: &Stream| if stream.is_closed() { since } else { stream.last_read() + QUIET };
        Some(quiet_at(&self.out).max(quiet_at(&self.err)).min(since + DRAIN_LIMIT))
    }

    fn retry_at(&self) -> Option<Instant> {
        self.out.retry_at().into_iter().chain(self.err.retry_at()).min()
    }

    fn sleep_until(&mut self, at: Option<Instant>) {
        let wait = at.map_or(RETRY, |at| at.saturating_duration_since(Instant::now()));
        std::thread::sleep(wait);
    }

    fn write_exit(&mut self, leader: Leader) {
        let (code, signal) = match leader {
            Leader::Code(code) => (Some(code), None),
            Leader::Signal(signal) => (None, Some(signal)),
        };
        let limit = self.gateway.limited_until().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let record = ExitRecord {
            code,
            signal,
            out_len: self.out.length(),
            err_len: self.err.length(),
            limited_until: limit.and_then(|since| i64::try_from(since.as_millis()).ok()),
        };
        let json = serde_json::to_vec(&record).expect("plain numbers");
        let write = |copier: &Self| -> io::Result<()> {
            copier.out.sync()?;
            copier.err.sync()?;
            spool::write_whole(&copier.place, spool::EXIT, &json)
        };
        while let Err(error) = write(self) {
            // The folder was taken away under us: there is nobody to write for.
            if error.kind() == io::ErrorKind::NotFound {
                break;
            }
            self.shared.state().trouble = Some(error.to_string());
            std::thread::sleep(RETRY);
        }
    }

    /// Reads on as long as somebody holds the pipes: a full one would stop, a closed one kill, what the turn left
    /// running.
    fn drain_late(&mut self) {
        let mut room = Vec::new();
        for stream in [&mut self.out, &mut self.err] {
            if !stream.is_closed() && stream.become_late(&self.place, &self.patterns).is_err() {
                return;
            }
        }
        while !(self.out.is_closed() && self.err.is_closed()) {
            self.out.write_late(LATE_LIMIT);
            self.err.write_late(LATE_LIMIT);
            let mut entries = [
                sys::interest(self.out.descriptor(u64::MAX), libc::POLLIN),
                sys::interest(self.err.descriptor(u64::MAX), libc::POLLIN),
            ];
            if sys::poll(&mut entries, None).is_err() {
                return;
            }
            if entries[0].revents != 0 {
                self.out.read(&mut room);
            }
            if entries[1].revents != 0 {
                self.err.read(&mut room);
            }
        }
        for stream in [&mut self.out, &mut self.err] {
            stream.finish();
            stream.write_late(LATE_LIMIT);
        }
    }
}
