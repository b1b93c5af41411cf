//! Follows a turn's spool in a machine: a process there copies it, from an offset on, to a stream.
//!
//! Streams break: the machine is paused, this one sleeps, something in between gives up. Whatever arrived counts; the next
//! stream begins behind it. Nothing is read twice and nothing is passed over, and at the end the lengths that `exit` names
//! must have been read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use courier_keeper::spool::{self, ExitRecord};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    E2b,
    daemon::{Happened, User},
    error::Failure,
    guest::FOLDER,
    machine::Machine,
};
use crate::{
    agent::Exit,
    model::Stream,
    provider::{Error, Follower, Offsets, Presence, ProviderId, SpoolEvent},
};

/// How much may wait to be taken in.
const WAITING: usize = 8;
/// The first wait before a stream that broke is opened again; each next one is twice as long.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);
/// What the follower in the machine returns where there is no such turn.
const NO_SUCH_TURN: i32 = 4;

/// Follows one turn.
#[derive(Debug)]
pub(super) struct StreamFollower {
    events: mpsc::Receiver<Result<SpoolEvent, Error>>,
    /// The one task that reads; it ends with the follower.
    _reading: JoinSet<()>,
}

impl StreamFollower {
    pub(super) fn new(e2b: E2b, id: ProviderId, turn: String, from: Offsets) -> Self {
        let (sender, events) = mpsc::channel(WAITING);
        let following = Following { e2b, id, turn, read: from, sender };
        let mut reading = JoinSet::new();
        reading.spawn(following.run());
        Self { events, _reading: reading }
    }
}

#[async_trait]
impl Follower for StreamFollower {
    async fn next(&mut self) -> Result<SpoolEvent, Error> {
        // Its task ends after the last event only, or with the runtime.
        self.events.recv().await.unwrap_or(Err(Error::Gone))
    }
}

struct Following {
    e2b: E2b,
    id: ProviderId,
    turn: String,
    read: Offsets,
    sender: mpsc::Sender<Result<SpoolEvent, Error>>,
}

/// How a stream ended.
enum Over {
    /// The turn has, and everything was read.
    Turn(Exit),
    NoSuchTurn,
    /// Whoever wanted it is gone.
    Unwanted,
    /// The machine stands still: there is nothing to read, and no hurry.
    Still,
}

impl Following {
    async fn run(mut self) {
        let mut wait = FIRST;
        loop {
            let before = self.read;
            match self.once().await {
                Ok(Over::Turn(exit)) => return self.last(Ok(SpoolEvent::Ended(exit))).await,
                Ok(Over::NoSuchTurn) => return self.last(Err(Error::NoSuchTurn)).await,
                Ok(Over::Unwanted) => return,
                Ok(Over::Still) => wait = FIRST,
                Err(error) => tracing::debug!(machine = %self.id.0, %error, "a stream broke; following again"),
            }
            match self.e2b.presence(&self.id).await {
                // Nobody writes `exit` in a machine that is no more.
                Ok(Presence::Gone { .. }) => return self.last(Ok(SpoolEvent::Ended(Exit::Unknown))).await,
                Ok(Presence::Alive | Presence::Paused) | Err(_) => {}
            }
            wait = if self.read == before { wait } else { FIRST };
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    async fn last(self, event: Result<SpoolEvent, Error>) {
        // Nobody may want it any more.
        _ = self.sender.send(event).await;
    }

    /// One stream, from where the last one ended.
    async fn once(&mut self) -> Result<Over, Error> {
        let machine = self.e2b.machine(&self.id).await?;
        let mut still = machine.changes();
        // While it stands still, whoever wakes it says so; a machine that somebody else woke is looked at now and then.
        if *still.borrow_and_update() {
            tokio::select! {
                _ = still.changed() => {}
                () = tokio::time::sleep(LONGEST) => {}
                () = self.sender.closed() => return Ok(Over::Unwanted),
            }
            return Ok(Over::Still);
        }
        let program = self.e2b.guest_path()?;
        let offsets = [self.read.out.to_string(), self.read.err.to_string()];
        let argv = [&program, "guest", "follow", FOLDER, &self.turn, &offsets[0], &offsets[1]];
        let mut events = machine.daemon.start(User::Root, &argv, false).await?;
        loop {
            let happened = tokio::select! {
                happened = events.next() => happened?,
                _ = still.changed() => return Ok(Over::Still),
                () = self.sender.closed() => return Ok(Over::Unwanted),
            };
            let (stream, bytes) = match happened {
                Some(Happened::Out(bytes)) => (Stream::Out, bytes),
                Some(Happened::Err(bytes)) => (Stream::Err, bytes),
                Some(Happened::Started { .. }) => continue,
                Some(Happened::Ended(ended)) if ended.exited && ended.exit_code == 0 => {
                    return self.ended(&machine).await;
                }
                Some(Happened::Ended(ended)) if ended.exited && ended.exit_code == NO_SUCH_TURN => {
                    return Ok(Over::NoSuchTurn);
                }
                Some(Happened::Ended(ended)) => {
                    return Err(Error::Unreachable(format!("the follower ended: {}", ended.status)));
                }
                None => return Err(Error::Unreachable("the follower went without a word".to_owned())),
            };
            let read = match stream {
                Stream::Out => &mut self.read.out,
                Stream::Err => &mut self.read.err,
            };
            *read += bytes.len() as u64;
            if self.sender.send(Ok(SpoolEvent::Bytes { stream, bytes })).await.is_err() {
                return Ok(Over::Unwanted);
            }
        }
    }

    /// The follower in the machine says that the turn is over: its record tells how.
    async fn ended(&self, machine: &Arc<Machine>) -> Result<Over, Error> {
        let path = format!("{FOLDER}/{}/{}/{}", spool::TURNS, self.turn, spool::EXIT);
        let record = match machine.daemon.read_short(&path).await {
            Ok(bytes) => serde_json::from_slice::<ExitRecord>(&bytes)
                .map_err(|error| Error::Keeper(format!("its record of the end is none: {error}")))?,
            // Whoever stayed with it was killed.
            Err(Failure::NotFound) if machine.daemon.is_healthy().await.is_ok() => {
                return Ok(Over::Turn(Exit::Unknown));
            }
            Err(failure) => return Err(failure.into()),
        };
        if self.read.out < record.out_len || self.read.err < record.err_len {
            return Err(Error::Unreachable("the end of the output is missing".to_owned()));
        }
        Ok(Over::Turn(match record {
            ExitRecord { code: Some(code), .. } => Exit::Code(code),
            ExitRecord { signal: Some(signal), .. } => Exit::Signal(signal),
            ExitRecord { .. } => Exit::Unknown,
        }))
    }
}
