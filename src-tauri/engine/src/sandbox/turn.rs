//! The actor's turns: the next message is given to the agent, its output is followed, its end is recorded.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    actor::{Actor, Done, FollowerSlot, Reading},
    ingest::{Ingest, add_item},
    launch::{internal, prepare},
    saving::Occasion,
};
use crate::{
    agent::{Exit, Failure, Outcome, Session},
    model::{Activity, ErrorKind, Event, Item, MessageId, MessageStatus, Status, TurnId},
    provider::{self, Follower, Offsets, ProviderId, SpoolEvent, TurnSignal},
    secrets::TextRedactor,
    store::{self, SandboxError, TurnEnd, TurnRow, jobs, messages, sandboxes, turns},
};

/// After so many crashes of the agent in a row the sandbox itself has failed.
const CRASHES: u32 = 3;
/// How much of what the agent said is kept with its message, in bytes.
const REPLY: usize = 1 << 20;
/// How long to wait before a spool that could not be read is followed again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// The open turn, if there is one.
#[derive(Debug)]
pub(super) enum Turn {
    None,
    /// Recorded, and being started or joined.
    Starting(TurnRow),
    /// Its output is read.
    Open(Box<Reading>),
}

/// How a start went.
#[derive(Debug)]
pub(super) struct TurnStart {
    turn: TurnId,
    result: Result<Started, NotStarted>,
}

/// Why a turn's process is not followed.
#[derive(Debug)]
enum NotStarted {
    /// It cannot be: the turn has failed.
    Failed(Failure),
    /// The provider does not take it now. The turn stays recorded, and is joined when the sandbox is found alive.
    NotNow,
}

struct Started {
    follower: Box<dyn Follower>,
    /// Where it begins to read.
    from: Offsets,
    redactor: TextRedactor,
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Started")
    }
}

impl FollowerSlot {
    /// Takes a follower that goes on where reading has stopped. Another one, of a start that was late, would give again
    /// what was read, or pass something over; the one that was asked for anew still comes.
    fn take(&mut self, started: Started, read: Offsets) {
        if started.from == read {
            self.0 = Some(started.follower);
        }
    }
}

impl Turn {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(super) fn ingest(&mut self) -> Option<&mut Ingest> {
        match self {
            Self::Open(reading) => Some(&mut reading.ingest),
            Self::None | Self::Starting(_) => None,
        }
    }

    /// The next of the open turn's output; cancel-safe, and for ever where nothing is followed.
    pub(super) async fn next(&mut self) -> Result<SpoolEvent, provider::Error> {
        match self {
            Self::Open(reading) => match &mut reading.follower.0 {
                Some(follower) => follower.next().await,
                None => std::future::pending().await,
            },
            Self::None | Self::Starting(_) => std::future::pending().await,
        }
    }

    pub(super) fn flush_at(&self) -> Option<Instant> {
        match self {
            Self::Open(reading) => reading.flush_at,
            Self::None | Self::Starting(_) => None,
        }
    }

    /// What was read is stored once this long has passed since the last time: what comes after a silence, at once.
    pub(super) fn flush_within(&mut self, delay: Duration) {
        if let Self::Open(reading) = self {
            let now = Instant::now();
            let due = reading.flushed_at.map_or(now, |at| (at + delay).max(now));
            reading.flush_at.get_or_insert(due);
        }
    }

    pub(super) fn flushed(&mut self) {
        if let Self::Open(reading) = self {
            reading.flush_at = None;
            reading.flushed_at = Some(Instant::now());
        }
    }

    pub(super) fn id(&self) -> Option<TurnId> {
        self.row().map(|row| row.id)
    }

    /// The clock was set: its start is moved along.
    pub(super) fn move_start(&mut self, millis: i64) {
        match self {
            Self::None => {}
            Self::Starting(row) => row.started_at = row.started_at.moved_by(millis),
            Self::Open(reading) => {
                reading.ingest.turn.started_at = reading.ingest.turn.started_at.moved_by(millis);
            }
        }
    }

    fn row(&self) -> Option<&TurnRow> {
        match self {
            Self::None => None,
            Self::Starting(row) => Some(row),
            Self::Open(reading) => Some(&reading.ingest.turn),
        }
    }
}

impl Actor {
    /// Gives the agent the next message, where it is idle and one waits: recorded first, then started.
    pub(super) async fn begin_next_turn(&mut self) -> Result<(), store::Error> {
        let is_idle = self.row.lifecycle.status == Status::Running
            && self.row.lifecycle.activity == Activity::None
            && self.making.is_none()
            && self.saves == 0
            && !self.turn.is_open();
        if !is_idle {
            return Ok(());
        }
        let (id, now, session) = (self.row.id, self.around.clock.now(), self.row.agent_session.clone());
        let begun = self
            .around
            .store
            .write(move |tx| {
                if turns::open(tx, id)?.is_some() {
                    // One of an earlier life, not joined yet.
                    return Ok(None);
                }
                let Some(message) = messages::queue(tx, id)?.into_iter().next() else { return Ok(None) };
                messages::deliver(tx, &message)?;
                // What the agent was to go on with later, it goes on with now.
                jobs::cancel(tx, jobs::Kind::Continue, id)?;
                let reply = messages::insert_reply(tx, id, now)?;
                let turn = turns::insert(tx, id, message.id, reply, session.as_deref(), now)?;
                let seq = store::items::next_seq(tx, id)?;
                let item = Item::Message { message: message.id, text: message.content.clone() };
                add_item(tx, id, &turn, seq, item, now)?;
                sandboxes::set_headline(tx, id, "starts the turn")?;
                Ok::<_, store::Error>(Some((turn, message.content)))
            })
            .await?;
        if let Some((turn, prompt)) = begun {
            self.start(turn, prompt, Joining::No);
        }
        Ok(())
    }

    /// Takes up the turn that is recorded as open and that nobody follows: of an earlier life of the app, or one the
    /// provider did not take. Where it was never started it is started now, or ended as interrupted.
    pub(super) async fn join_turn(&mut self, may_start: bool) -> Result<(), store::Error> {
        if self.turn.is_open() {
            return Ok(());
        }
        let id = self.row.id;
        let open = self
            .around
            .store
            .read(move |connection| {
                let Some(turn) = turns::open(connection, id)? else { return Ok(None) };
                let message = messages::get(connection, turn.message)?;
                Ok::<_, store::Error>(Some((turn, message.content)))
            })
            .await?;
        if let Some((turn, prompt)) = open {
            self.start(turn, prompt, if may_start { Joining::MayStart } else { Joining::OnlyFollow });
        }
        Ok(())
    }

    /// Nothing runs any more: the turn that is recorded as open is read to its end, whether it was followed already, is
    /// just being started, or was never taken up. One that never began ends as interrupted.
    pub(super) async fn follow_what_is_left(&mut self) -> Result<(), store::Error> {
        match &self.turn {
            Turn::Open(_) => Ok(()),
            Turn::Starting(turn) => {
                let turn = turn.clone();
                self.start(turn, String::new(), Joining::OnlyFollow);
                Ok(())
            }
            Turn::None => self.join_turn(false).await,
        }
    }

    /// Starts a turn's process, or finds the one that was started, and follows its spool.
    fn start(&mut self, turn: TurnRow, prompt: String, joining: Joining) {
        let (around, agent, provider) = (self.around.clone(), self.agent, self.provider.clone());
        let (row, id) = (self.row.clone(), self.provider_id());
        self.turn = Turn::Starting(turn.clone());
        self.run_effect(async move {
            let started = async {
                let id: ProviderId =
                    id.ok_or_else(|| failed(ErrorKind::Interrupted, "the sandbox was never made".to_owned()))?;
                let is_started = joining != Joining::No && provider.is_started(&id, turn.id).await.map_err(refused)?;
                let secrets = if is_started {
                    // The keeper has the secrets of this turn; here they are needed for assembled text only.
                    around.host.secrets_of(agent).await
                } else if joining != Joining::OnlyFollow && !turn.is_interrupted {
                    let prepared = prepare(&around, agent, row.model.as_deref(), provider.as_ref())
                        .await
                        .map_err(|error| cannot_launch(&error))?;
                    let session = match (&turn.session_before, turn.number) {
                        (Some(session), _) => Session::Resume(session.clone()),
                        (None, 1) => Session::Fresh(turn.id.to_string()),
                        (None, _) => Session::Continue,
                    };
                    let is_key_inside = prepared.is_key_inside(agent, provider.as_ref());
                    if (&row.billed_to, row.is_key_inside) != (&prepared.billed_to, is_key_inside) {
                        let (sandbox, billed_to) = (row.id, prepared.billed_to.clone());
                        let known = around
                            .store
                            .write(move |tx| sandboxes::set_key(tx, sandbox, billed_to.as_deref(), is_key_inside));
                        known.await.map_err(|error| cannot_launch(&internal(&error)))?;
                    }
                    let door = match prepared.credential {
                        Some(_) if !is_key_inside => Some(provider.gateway_address(&id).await.map_err(refused)?),
                        Some(_) | None => None,
                    };
                    let spec = prepared.turn(agent, &row, turn.id, (&prompt, session), door.as_deref());
                    provider.start_turn(&id, &spec).await.map_err(refused)?;
                    prepared.secrets()
                } else {
                    let words = "the sandbox was stopped before the agent started";
                    return Err(failed(ErrorKind::Interrupted, words.to_owned()));
                };
                let follower = provider.follow(&id, turn.id, turn.offsets).await.map_err(refused)?;
                Ok(Started { follower, from: turn.offsets, redactor: TextRedactor::new(&secrets) })
            };
            Done::TurnStarted(TurnStart { turn: turn.id, result: started.await })
        });
    }

    pub(super) async fn turn_started(&mut self, start: TurnStart) -> Result<(), store::Error> {
        let Turn::Starting(turn) = &self.turn else { return self.follow_with(start).await };
        if turn.id != start.turn {
            return Ok(());
        }
        let turn = turn.clone();
        match start.result {
            Ok(started) => {
                let (now, earlier) = (self.around.clock.now(), turn.clone());
                let before = self.around.store.read(move |c| turns::session_usage_before(c, &earlier)).await?;
                let parser = self.agent.parser(before);
                let opened = Ingest::open(&self.around.store, turn.clone(), parser, started.redactor, now).await;
                let ingest = match opened {
                    // What is stored of this turn will not be readable the next time either.
                    Err(store::Error::Damaged { .. } | store::Error::NotFound(_) | store::Error::Io { .. }) => {
                        let words = "what was stored of it cannot be read any more";
                        return self.end_unread(turn, failure(ErrorKind::Other, words)).await;
                    }
                    opened => opened?,
                };
                let is_interrupted = ingest.turn.is_interrupted;
                let follower = FollowerSlot(Some(started.follower));
                self.turn = Turn::Open(Box::new(Reading { ingest, follower, flush_at: None, flushed_at: None }));
                self.heard_at = self.around.clock.steady();
                if is_interrupted {
                    self.signal(TurnSignal::Interrupt);
                }
                Ok(())
            }
            Err(NotStarted::Failed(failure)) => self.end_unread(turn, failure).await,
            // The next check says what became of the sandbox.
            Err(NotStarted::NotNow) => {
                self.turn = Turn::None;
                Ok(())
            }
        }
    }

    /// A new follower for a turn whose old one failed. One that is followed needs no other.
    async fn follow_with(&mut self, start: TurnStart) -> Result<(), store::Error> {
        let Turn::Open(reading) = &mut self.turn else { return Ok(()) };
        if reading.ingest.turn.id != start.turn || reading.follower.0.is_some() {
            return Ok(());
        }
        match start.result {
            Ok(started) => {
                let read = reading.ingest.offsets();
                reading.follower.take(started, read);
                Ok(())
            }
            Err(NotStarted::Failed(failure)) => {
                tracing::error!(sandbox = %self.row.id, message = failure.message, "the turn ends unread");
                self.finish_turn(Exit::Unknown).await
            }
            Err(NotStarted::NotNow) => Ok(()),
        }
    }

    /// Follows the spool again from what was read.
    pub(super) fn follow_again(&mut self) {
        let (provider, id) = (self.provider.clone(), self.provider_id());
        let Turn::Open(reading) = &mut self.turn else { return };
        reading.follower.0 = None;
        let (turn, offsets): (TurnId, Offsets) = (reading.ingest.turn.id, reading.ingest.offsets());
        let Some(id) = id else { return };
        self.run_effect(async move {
            loop {
                tokio::time::sleep(FOLLOW_AGAIN).await;
                match provider.follow(&id, turn, offsets).await {
                    Ok(follower) => {
                        let started = Started { follower, from: offsets, redactor: TextRedactor::new(&[]) };
                        return Done::TurnStarted(TurnStart { turn, result: Ok(started) });
                    }
                    // Nor will it ever be.
                    Err(error @ provider::Error::NoSuchTurn) => {
                        let result = Err(failed(ErrorKind::Other, error.to_string()));
                        return Done::TurnStarted(TurnStart { turn, result });
                    }
                    Err(error) => tracing::warn!(%error, "the spool still cannot be read"),
                }
            }
        });
    }

    /// Ends the open turn, unless it is the one of message `sparing`; without one this changes nothing.
    pub(super) async fn interrupt(&mut self, sparing: Option<MessageId>) -> Result<(), store::Error> {
        let id = self.row.id;
        // Also one that is recorded and was not taken by the provider yet.
        let interrupted = self.around.store.write(move |tx| {
            let open = turns::open(tx, id)?.filter(|turn| Some(turn.message) != sparing);
            open.map(|turn| turns::set_interrupted(tx, turn.id)).transpose()
        });
        if interrupted.await?.is_none() {
            return Ok(());
        }
        match &mut self.turn {
            Turn::Open(reading) => reading.ingest.turn.is_interrupted = true,
            // It is told once it has started.
            Turn::Starting(row) => row.is_interrupted = true,
            Turn::None => {}
        }
        if matches!(self.turn, Turn::Open(_)) {
            self.signal(TurnSignal::Interrupt);
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: TurnSignal) {
        if let (Some(id), Some(turn)) = (self.provider_id(), self.turn.row().map(|row| row.id)) {
            let provider = self.provider.clone();
            self.run_effect(async move { Done::Signalled(provider.signal(&id, turn, signal).await) });
        }
    }

    /// The process has ended and everything it printed was read.
    pub(super) async fn finish_turn(&mut self, exit: Exit) -> Result<(), store::Error> {
        let now = self.around.clock.now();
        let limited_until = match (self.provider_id(), self.turn.id()) {
            (Some(id), Some(turn)) => self.provider.limited_until(&id, turn).await,
            _ => None,
        };
        let Turn::Open(reading) = std::mem::replace(&mut self.turn, Turn::None) else { return Ok(()) };
        let mut ingest = reading.ingest;
        let outcome = ingest.finish(exit, limited_until, now);
        ingest.store(&self.around.store).await?;
        let turn = ingest.turn;
        self.end_turn(turn, exit, outcome, Words::Shown).await
    }

    /// Ends a turn of which nothing could be read.
    async fn end_unread(&mut self, turn: TurnRow, failure: Failure) -> Result<(), store::Error> {
        let outcome = Outcome { error: Some(failure), session_id: None, usage: None, session_usage: None };
        self.end_turn(turn, Exit::Unknown, outcome, Words::Owed).await
    }

    /// The sandbox is gone, and the turn that is recorded as open with it, followed or not.
    pub(super) async fn lose_turn(&mut self) -> Result<(), store::Error> {
        let turn = match &self.turn {
            Turn::Open(_) => return self.finish_turn(Exit::Unknown).await,
            Turn::Starting(turn) => Some(turn.clone()),
            Turn::None => {
                let id = self.row.id;
                self.around.store.read(move |connection| turns::open(connection, id)).await?
            }
        };
        match turn {
            Some(turn) => self.end_unread(turn, failure(ErrorKind::Interrupted, "the sandbox is gone")).await,
            None => Ok(()),
        }
    }

    /// Records a turn's end, and goes on: the next message, or an ending that waited for it.
    async fn end_turn(
        &mut self,
        turn: TurnRow,
        exit: Exit,
        outcome: Outcome,
        words: Words,
    ) -> Result<(), store::Error> {
        self.turn = Turn::None;
        let (now, number) = (self.around.clock.now(), turn.number);
        let has_crashed = outcome.error.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Crashed);
        let crashes = if has_crashed { self.row.crashes + 1 } else { 0 };
        let message = outcome.error.as_ref().map(|failure| failure.message.clone());
        let headline = headline(outcome.error.as_ref());
        let sandbox = self.row.id;
        // A script's exit code is an answer; that of an agent's program says nothing a person needs.
        let is_script = self.agent.cli().is_none();
        self.row = self
            .around
            .store
            .write(move |tx| {
                let error = outcome.error.as_ref();
                let end = TurnEnd {
                    exit,
                    error: error.map(|failure| (failure.kind, failure.message.clone())),
                    agent_session: outcome.session_id.clone(),
                    session_usage: outcome.session_usage,
                    is_usage_complete: is_script || (outcome.usage.is_some() && error.is_none()),
                    usage: outcome.usage,
                    at: now,
                };
                if turns::finish(tx, turn.id, &end)? {
                    let status = if error.is_some() { MessageStatus::Error } else { MessageStatus::Completed };
                    let text = store::items::reply_text(tx, sandbox, turn.id, REPLY)?;
                    messages::finish_reply(tx, turn.reply, &text, status)?;
                    let item = Item::Ended {
                        error: error.map(|failure| failure.kind),
                        exit_code: match exit {
                            Exit::Code(code) if is_script => Some(code),
                            Exit::Code(_) | Exit::Signal(_) | Exit::Unknown => None,
                        },
                        duration_ms: u64::try_from(now.since(turn.started_at).as_millis()).ok(),
                        usage: outcome.usage,
                    };
                    let mut seq = store::items::next_seq(tx, sandbox)?;
                    if let (Some(failure), Words::Owed) = (error, words) {
                        let item = Item::Error {
                            error: failure.kind,
                            message: failure.message.clone(),
                            retry_at: failure.retry_at,
                        };
                        add_item(tx, sandbox, &turn, seq, item, now)?;
                        seq += 1;
                    }
                    add_item(tx, sandbox, &turn, seq, item, now)?;
                    // A session that was not found is not asked for again.
                    let is_lost = error.is_some_and(|failure| failure.kind == ErrorKind::SessionNotFound);
                    let session = outcome.session_id.as_deref().filter(|_| !is_lost);
                    sandboxes::set_after_turn(tx, sandbox, session, is_lost, crashes)?;
                    sandboxes::set_headline(tx, sandbox, &headline)?;
                }
                sandboxes::get(tx, sandbox)
            })
            .await?;
        if self.ending.is_some() {
            return self.turn_ended_while_ending().await;
        }
        if self.row.lifecycle.activity == Activity::None {
            // The next turn waits until what this one made is in its checkpoint.
            self.save(Occasion::Turn { number }, None);
        }
        if crashes >= CRASHES {
            let error = SandboxError {
                kind: ErrorKind::Crashed.code().to_owned(),
                message: format!("the agent crashed {crashes} times in a row: {}", message.unwrap_or_default()),
                remedy: "Read the last output, then run again.".to_owned(),
            };
            // Boxed, since an event's effect may end a turn.
            return Box::pin(self.happen(Event::Failed, Some(error))).await;
        }
        if matches!(exit, Exit::Signal(_) | Exit::Unknown) {
            // Perhaps the whole sandbox is gone; the next message waits until it is found alive.
            self.was_cut_off = true;
            self.check_now();
            return Ok(());
        }
        self.begin_next_turn().await
    }
}

/// How a recorded turn is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joining {
    /// It was recorded a moment ago.
    No,
    /// It may have been started before; if not, it is started now.
    MayStart,
    /// It may have been started before; if not, it has ended.
    OnlyFollow,
}

/// Whether a failed turn's transcript says why already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Shown,
    Owed,
}

/// What a provider's refusal means for a turn: the sandbox is gone, paused or slow, and the turn can still be started.
fn refused(error: provider::Error) -> NotStarted {
    tracing::warn!(%error, "the provider did not take a turn");
    NotStarted::NotNow
}

fn failed(kind: ErrorKind, message: String) -> NotStarted {
    NotStarted::Failed(Failure { kind, message, retry_at: None })
}

fn failure(kind: ErrorKind, message: &str) -> Failure {
    Failure { kind, message: message.to_owned(), retry_at: None }
}

fn cannot_launch(error: &SandboxError) -> NotStarted {
    let kind = ErrorKind::from_code(&error.kind).unwrap_or(ErrorKind::Other);
    failed(kind, format!("{}. {}", error.message, error.remedy))
}

fn headline(failure: Option<&Failure>) -> String {
    match failure.map(|failure| failure.kind) {
        None => "waits for your message",
        Some(ErrorKind::MissingCli) => "the agent's program was not found",
        Some(ErrorKind::MissingKey) => "the agent has no key",
        Some(ErrorKind::RejectedKey) => "the key was rejected",
        Some(ErrorKind::Permission) => "the key may not do this",
        Some(ErrorKind::Billing) => "the account cannot pay",
        Some(ErrorKind::RateLimited) => "the rate limit was reached",
        Some(ErrorKind::Overloaded) => "the model is overloaded",
        Some(ErrorKind::ContextTooLong) => "the conversation is too long",
        Some(ErrorKind::LimitReached) => "a limit of the agent was reached",
        Some(ErrorKind::Network) => "the model could not be reached",
        Some(ErrorKind::SessionNotFound) => "the agent's session was not found",
        Some(ErrorKind::Interrupted) => "interrupted",
        Some(ErrorKind::Crashed) => "the agent crashed",
        Some(ErrorKind::Other) => "the agent failed",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    #[async_trait::async_trait]
    impl Follower for Silent {
        async fn next(&mut self) -> Result<SpoolEvent, provider::Error> {
            std::future::pending().await
        }
    }

    #[test]
    fn only_a_follower_that_goes_on_where_reading_stopped_is_taken() {
        let from = |out| Started {
            follower: Box::new(Silent),
            from: Offsets { out, err: 3 },
            redactor: TextRedactor::new(&[]),
        };
        let (mut slot, read) = (FollowerSlot(None), Offsets { out: 7, err: 3 });
        for out in [0, 6, 8] {
            slot.take(from(out), read);
            assert!(slot.0.is_none(), "it begins at {out}");
        }
        slot.take(from(7), read);
        assert!(slot.0.is_some());
    }
}
