//! What keeper and init say to each other over their socket pair: one JSON value per message.

use std::{
    cell::OnceCell,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::passing;
use crate::{
    keep::{Heard, Leader},
    sys,
};

/// How long init may take to answer. It only ever does what takes microseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The longest message. What could be long (arguments, environment) travels as a file in memory.
pub(super) const MESSAGE_LIMIT: usize = 4096;

/// What the keeper wants of init.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Listen on these ports of the loopback, and hand the sockets over.
    Listen { ports: Vec<u16> },
    /// Start a turn. With it travel: the [`Program`] as a file, then standard input, output and error.
    Start { turn: String },
    /// TERM to the turn, after the grace KILL to all of it. Not answered: its exit is reported as any other.
    End { turn: String, grace_ms: u64 },
    /// Stop everything.
    Suspend,
    /// Let everything go on.
    Continue,
    /// KILL everything; answered when nothing but init is left.
    KillAll,
}

/// What a turn runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Program {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub directory: String,
    pub limits: super::limits::PerProcess,
    /// Whom it becomes, by user and group; `None`: it stays who its parent is.
    #[serde(default)]
    pub user: Option<(u32, u32)>,
}

/// What init says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It is pid 1 and waits for orders.
    Ready,
    /// The order was carried out.
    Done,
    /// It was not; the system's number for why.
    Failed { errno: i32 },
    /// A turn's leader has ended.
    Exited { turn: String, leader: Leader },
}

/// The keeper's end.
pub(super) struct Control {
    socket: Arc<OwnedFd>,
    /// Set once a thread listens. Until then whoever asks listens itself: a sandbox begins without a thread more.
    answers: OnceCell<Receiver<(Word, Vec<OwnedFd>)>>,
}

impl Control {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket), answers: OnceCell::new() }
    }

    /// Begins to listen; `heard` is called for what init says of itself.
    pub(super) fn hear(&self, heard: impl Fn(Heard) + Send + 'static) -> io::Result<()> {
        let (sender, answers) = sync_channel(1);
        let ear = Arc::clone(&self.socket);
        std::thread::Builder::new().name("control".into()).spawn(move || {
            // However it ends, there is nobody to talk to any more.
            _ = listen(ear.as_fd(), &sender, &heard);
            drop(sender);
            heard(Heard::Gone);
        })?;
        self.answers.set(answers).map_err(|_| io::Error::other("somebody listens already"))
    }

    /// Waits for init's first word.
    pub(super) fn wait_until_ready(&self) -> io::Result<()> {
        match self.answer()? {
            (Word::Ready, _) => Ok(()),
            (other, _) => Err(io::Error::other(format!("init began with {other:?}"))),
        }
    }

    /// Gives an order and waits until it was carried out; returns what came with the answer.
    pub(super) fn ask(&self, order: &Order, with: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
        self.tell(order, with)?;
        match self.answer()? {
            (Word::Done, descriptors) => Ok(descriptors),
            (Word::Failed { errno }, _) => Err(io::Error::from_raw_os_error(errno)),
            (other @ (Word::Ready | Word::Exited { .. }), _) => {
                Err(io::Error::other(format!("init answered with {other:?}")))
            }
        }
    }

    /// Gives an order that is not answered.
    pub(super) fn tell(&self, order: &Order, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        passing::send(self.socket.as_fd(), &serde_json::to_vec(order)?, with)
    }

    fn answer(&self) -> io::Result<(Word, Vec<OwnedFd>)> {
        match self.answers.get() {
            Some(answers) => answers.recv_timeout(ANSWER_LIMIT).map_err(|error| match error {
                RecvTimeoutError::Timeout => late(),
                RecvTimeoutError::Disconnected => gone(),
            }),
            None => {
                let deadline = Instant::now() + ANSWER_LIMIT;
                let mut entries = [sys::interest(self.socket.as_raw_fd(), libc::POLLIN)];
                while entries[0].revents == 0 {
                    let left = deadline.checked_duration_since(Instant::now()).ok_or_else(late)?;
                    sys::poll(&mut entries, Some(left))?;
                }
                let mut room = vec![0; MESSAGE_LIMIT];
                let (length, descriptors) = passing::receive(self.socket.as_fd(), &mut room)?.ok_or_else(gone)?;
                Ok((serde_json::from_slice(&room[..length])?, descriptors))
            }
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "init does not answer")
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "init is gone")
}

fn listen(
    socket: BorrowedFd<'_>,
    answers: &SyncSender<(Word, Vec<OwnedFd>)>,
    heard: &impl Fn(Heard),
) -> io::Result<()> {
    let mut room = vec![0; MESSAGE_LIMIT];
    while let Some((length, descriptors)) = passing::receive(socket, &mut room)? {
        match serde_json::from_slice(&room[..length])? {
            Word::Exited { turn, leader } => heard(Heard::Exited { turn, leader }),
            answer @ (Word::Ready | Word::Done | Word::Failed { .. }) => {
                if answers.send((answer, descriptors)).is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}
