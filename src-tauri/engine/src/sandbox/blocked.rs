//! A sandbox whose owner could not store what it decided: the database is full, held by another program, or gone.
//!
//! The owner is given up, since what it knows may be ahead of what is stored, and another one goes on from the database
//! once that takes writes again. Nothing is read from the spool meanwhile, so nothing is lost. Whoever asks is told why;
//! a stop is passed on to the agent at once, and owed.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;

use super::{
    Surroundings,
    actor::{Actor, Reply, Request},
    hindrances::{self, Hindrance},
};
use crate::{
    agent::Agent,
    engine::Error,
    model::TurnId,
    provider::{Provider, ProviderId, TurnSignal},
    store::{self, SandboxRow},
};

/// How long to wait before the database is tried again: at first, and at most.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);
/// How long telling the agent to end may hold up everybody else who asks.
const TELLING: Duration = Duration::from_secs(10);
/// What a sandbox says while an owner that was replaced still makes it.
const BROKEN_OFF: &str = "waiting for what was begun to end";

/// Owns a sandbox until it has ended or the engine shuts down.
pub(super) async fn own(
    around: Surroundings,
    row: SandboxRow,
    agent: &'static dyn Agent,
    provider: Arc<dyn Provider>,
    mut inbox: mpsc::Receiver<Request>,
) {
    let mut blocked = Blocked { around, row, provider, turn: None, stops: 0, wait: SHORTEST };
    loop {
        let began = Instant::now();
        let (around, row, provider) = (blocked.around.clone(), blocked.row.clone(), blocked.provider.clone());
        let mut actor = Actor::new(around, row, agent, provider, inbox, blocked.stops > 0);
        let Err(error) = actor.run().await else {
            blocked.tell(None);
            return;
        };
        inbox = actor.leave(&mut blocked.row, &mut blocked.turn);
        let unanswered = actor.unanswered_stop.take();
        blocked.stops = if actor.owes_stop { blocked.stops } else { 0 };
        let makers = actor.makers.clone();
        // What it was making is broken off with it.
        drop(actor);
        if blocked.around.shutdown.is_cancelled() || matches!(error, store::Error::NotFound(_) | store::Error::Closed) {
            return;
        }
        // What works for a while and fails again is not what fails at once.
        blocked.wait = if began.elapsed() > LONGEST { SHORTEST } else { (blocked.wait * 2).min(LONGEST) };
        tracing::error!(sandbox = %blocked.row.id, %error, "the sandbox waits for the database");
        blocked.tell(Some(hindrances::not_stored(&error)));
        if let Some(reply) = unanswered {
            blocked.stop(reply, &error).await;
        }
        if !blocked.hold(&mut inbox, error).await || !blocked.wait_for(&makers).await {
            return;
        }
        blocked.tell(None);
    }
}

/// What is known while nothing can be stored.
struct Blocked {
    around: Surroundings,
    row: SandboxRow,
    provider: Arc<dyn Provider>,
    /// The turn that was open last.
    turn: Option<TurnId>,
    /// How often a stop was asked for that is not recorded.
    stops: u32,
    wait: Duration,
}

impl Blocked {
    /// Answers until the database takes writes again; `false`: the engine shuts down.
    async fn hold(&mut self, inbox: &mut mpsc::Receiver<Request>, mut error: store::Error) -> bool {
        let shutdown = self.around.shutdown.clone();
        loop {
            let store = self.around.store.clone();
            let wait = self.wait;
            let probe = async move {
                tokio::time::sleep(wait).await;
                store.probe().await
            };
            tokio::pin!(probe);
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return false,
                    request = inbox.recv() => match request {
                        Some(request) => self.answer(request, &error).await,
                        // The supervisor is gone, and with it the engine.
                        None => return false,
                    },
                    found = &mut probe => match found {
                        Ok(()) => return true,
                        Err(newest) => {
                            error = newest;
                            break;
                        }
                    },
                }
            }
            self.wait = SHORTEST;
            self.tell(Some(hindrances::not_stored(&error)));
        }
    }

    /// Waits for what the owner before was making: two would make it in one place, or what comes late would stand behind a
    /// sandbox that has ended. Who asks meanwhile waits too. `false`: the engine shuts down.
    async fn wait_for(&self, makers: &TaskTracker) -> bool {
        makers.close();
        if !makers.is_empty() {
            self.tell(Some(BROKEN_OFF.to_owned()));
        }
        self.around.shutdown.run_until_cancelled(makers.wait()).await.is_some()
    }

    async fn answer(&mut self, request: Request, error: &store::Error) {
        let reply = match request {
            Request::LookAtQueue | Request::Check => return,
            Request::Stop(reply) => return self.stop(reply, error).await,
            Request::Interrupt { reply, .. }
            | Request::Extend(_, reply)
            | Request::Save(_, reply)
            | Request::Restore(_, reply)
            | Request::Pause(reply)
            | Request::Resume(reply)
            | Request::GiveUp(reply) => reply,
        };
        _ = reply.send(Err(Error::not_stored(error)));
    }

    /// Ends what runs without recording it; asked for once more, without a grace. The stop is owed.
    async fn stop(&mut self, reply: Reply, error: &store::Error) {
        self.stops += 1;
        let signal = if self.stops > 1 { TurnSignal::Kill } else { TurnSignal::Interrupt };
        if tokio::time::timeout(TELLING, self.end_turn(signal)).await.is_err() {
            tracing::warn!(sandbox = %self.row.id, "the turn could not be told to end in time");
        }
        // The asker may be gone; the stop is owed all the same.
        _ = reply.send(Err(Error::stop_is_owed(error)));
    }

    async fn end_turn(&self, signal: TurnSignal) {
        let sandbox = self.row.id;
        // Reading works in most of these cases.
        let open = self.around.store.read(move |connection| store::turns::open(connection, sandbox)).await;
        let turn = open.ok().flatten().map(|turn| turn.id).or(self.turn);
        let (Some(turn), Some(id)) = (turn, self.row.provider_id.clone().map(ProviderId)) else { return };
        if let Err(error) = self.provider.signal(&id, turn, signal).await {
            tracing::warn!(%sandbox, %error, "the turn could not be told to end");
        }
    }

    fn tell(&self, words: Option<String>) {
        let hindrance = Hindrance { words, quiet_minutes: None };
        self.around.hindrances.set(self.around.store.feed(), self.row.id, hindrance);
    }
}
