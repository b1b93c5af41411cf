//! One task per live sandbox: the only code that changes what a sandbox is.
//!
//! Requests and results arrive as values; `step` (model/lifecycle.rs) says what they mean; the new state is stored; then
//! its effect is started. Slow effects run as tasks of their own and report back, so that a stop is always heard.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Surroundings, blocked,
    ending::Ending,
    ingest::{COALESCE, Ingest, add_item},
    presence::{Examined, Rejoined},
    provisioning,
    saving::{self, Occasion},
    turn::{Turn, TurnStart},
};
use crate::{
    agent::Agent,
    engine::Error,
    model::{
        Activity, CheckpointId, Effect, Event, Item, Lifecycle, MessageId, NoticeLevel, OnTimeout, Status, TurnId,
    },
    provider::{self, Follower, Presence, Provider, ProviderId, SpoolEvent},
    store::{self, CheckpointRow, SandboxError, SandboxRow, jobs, sandboxes},
};

/// How many requests may wait.
const INBOX: usize = 64;
/// How much time a sandbox gets that is resumed after its time was over.
const RESUMED: Duration = Duration::from_secs(15 * 60);
/// How long to wait before a sandbox whose time is over, and that could not be paused, is paused again.
const PAUSE_AGAIN: Duration = Duration::from_secs(5);

/// What can be asked of an actor.
#[derive(Debug)]
pub(crate) enum Request {
    /// A message was queued.
    LookAtQueue,
    /// End the open turn, unless it is the one of this message.
    Interrupt {
        sparing: Option<MessageId>,
        reply: Reply,
    },
    Pause(Reply),
    Resume(Reply),
    Stop(Reply),
    /// Do not wait for a provider that does not answer.
    GiveUp(Reply),
    Extend(Duration, Reply),
    /// Save the work now; answered once that is done, with what went wrong.
    Save(Occasion, Reply),
    /// Make the working tree what it was at a checkpoint; answered once that is done.
    Restore(CheckpointId, Reply),
    /// Compare with what truly runs.
    Check,
}

pub(super) type Reply = oneshot::Sender<Result<(), Error>>;

/// What a task of the actor's reports back.
#[derive(Debug)]
pub(super) enum Done {
    Provisioned(Result<sandboxes::Provisioned, SandboxError>),
    /// What there is of a sandbox of an earlier life; `None`: it was stopped before that was known.
    Rejoined(Option<Rejoined>),
    /// What there is after a revival.
    Revived(Result<Presence, provider::Error>),
    /// What the provider says after a pause or a resume; an error means nobody knows.
    Found(Result<Presence, provider::Error>),
    /// What it says to a check, and how things stood when it was asked.
    Checked(Lifecycle, Result<Presence, provider::Error>),
    Examined(Examined),
    TurnStarted(TurnStart),
    /// The turn was told to end.
    Signalled(Result<(), provider::Error>),
    /// A sandbox that ends was woken to save its work.
    Woken(Result<(), provider::Error>),
    Destroyed(Result<(), provider::Error>),
    Saved(Occasion, Result<CheckpointRow, saving::Error>),
    /// The working tree was made what it was, or was not.
    Restored,
    /// What was saved was delivered, as far as that goes.
    Delivered,
    Extended(Result<(), provider::Error>),
}

/// The owner of one sandbox.
pub(super) struct Actor {
    pub(super) around: Surroundings,
    pub(super) row: SandboxRow,
    pub(super) agent: &'static dyn Agent,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) turn: Turn,
    pub(super) ending: Option<Ending>,
    /// The end of the last turn's output was waited for, once.
    pub(super) has_read_out: bool,
    inbox: mpsc::Receiver<Request>,
    done: mpsc::UnboundedReceiver<Done>,
    report: mpsc::UnboundedSender<Done>,
    /// When the running time is over, by the clock that never jumps.
    expiry: Option<Instant>,
    /// When it was last asked to pause since its time was over.
    asked_to_pause: Option<Instant>,
    pub(super) is_checking: bool,
    /// A sandbox is being made, looked for or revived. Cancelled, that stops at the next safe point and still reports
    /// back: only then is it known what there is to destroy, and so the owner of one that was given up waits for it.
    pub(super) making: Option<CancellationToken>,
    /// The tasks that make it: they outlive an owner that is replaced, and the next one waits for them.
    pub(super) makers: TaskTracker,
    /// The last turn did not end by itself: its sandbox may be gone, and took work with it.
    pub(super) was_cut_off: bool,
    /// A stop was asked for that is not recorded.
    pub(super) owes_stop: bool,
    pub(super) unanswered_stop: Option<Reply>,
    /// When the open turn last printed something, by the steady clock.
    pub(super) heard_at: Duration,
    pub(super) is_examining: bool,
    /// How many saves of the work are under way: the next turn waits for them.
    pub(super) saves: u32,
    /// It was looked for work that an earlier life of the app did not save.
    pub(super) has_saved_missed: bool,
    /// How far the wall clock was set in this life, as far as this owner has taken it in.
    pub(super) clock_moved: i64,
}

/// How to reach an actor.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) inbox: mpsc::Sender<Request>,
}

/// Starts the owner of a sandbox that is live.
pub(super) fn spawn(
    around: Surroundings,
    row: SandboxRow,
    agent: &'static dyn Agent,
    provider: Arc<dyn Provider>,
) -> Handle {
    let (sender, inbox) = mpsc::channel(INBOX);
    let tasks = around.tasks.clone();
    tasks.spawn(blocked::own(around, row, agent, provider, inbox));
    Handle { inbox: sender }
}

impl Actor {
    pub(super) fn new(
        around: Surroundings,
        row: SandboxRow,
        agent: &'static dyn Agent,
        provider: Arc<dyn Provider>,
        inbox: mpsc::Receiver<Request>,
        owes_stop: bool,
    ) -> Self {
        let (report, done) = mpsc::unbounded_channel();
        let heard_at = around.clock.steady();
        Self {
            around,
            row,
            agent,
            provider,
            turn: Turn::None,
            ending: None,
            has_read_out: false,
            inbox,
            done,
            report,
            expiry: None,
            asked_to_pause: None,
            is_checking: false,
            making: None,
            makers: TaskTracker::new(),
            was_cut_off: false,
            owes_stop,
            unanswered_stop: None,
            heard_at,
            is_examining: false,
            saves: 0,
            has_saved_missed: false,
            clock_moved: 0,
        }
    }

    /// Gives back what the next owner goes on with.
    pub(super) fn leave(&mut self, row: &mut SandboxRow, turn: &mut Option<TurnId>) -> mpsc::Receiver<Request> {
        row.clone_from(&self.row);
        *turn = self.turn.id().or(*turn);
        let (_, closed) = mpsc::channel(1);
        std::mem::replace(&mut self.inbox, closed)
    }

    pub(super) async fn run(&mut self) -> Result<(), store::Error> {
        let id = self.row.id;
        self.clock_moved = self.around.clocks.settle(&self.around.store).await?;
        // The row this owner was given may be of a moment ago.
        self.row = self.around.store.read(move |connection| sandboxes::get(connection, id)).await?;
        if self.owes_stop {
            self.record_owed_stop().await?;
        }
        if self.row.lifecycle.status.is_live() {
            self.take_up().await?;
        }
        let shutdown = self.around.shutdown.clone();
        while self.row.lifecycle.status.is_live() || self.making.is_some() {
            let flush_at = self.turn.flush_at();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return self.detach().await,
                Some(request) = self.inbox.recv() => self.answer(request).await?,
                Some(done) = self.done.recv() => self.take(done).await?,
                () = at(self.expiry) => self.expire().await?,
                () = at(self.ending.as_ref().and_then(Ending::due)) => self.ending_is_due().await?,
                () = at(flush_at) => self.flush().await?,
                event = self.turn.next() => self.spool(event).await?,
            }
        }
        Ok(())
    }

    /// A stop was asked for while nothing could be stored; what it begins is taken up like one of an earlier life.
    async fn record_owed_stop(&mut self) -> Result<(), store::Error> {
        let from = self.row.lifecycle;
        if let Ok((to, _)) = from.step(Event::StopRequested)
            && to != from
        {
            self.advance(from, to, None, false).await?;
        }
        self.owes_stop = false;
        Ok(())
    }

    /// Goes on where the row says things stand: a new sandbox, or one of an earlier life of the app.
    async fn take_up(&mut self) -> Result<(), store::Error> {
        self.rearm();
        match (self.row.lifecycle.status, self.row.lifecycle.activity) {
            (Status::Creating, Activity::None) => self.provision(),
            (Status::Creating, Activity::Stopping) => self.owe(Effect::Release).await?,
            (_, Activity::Stopping) => {
                self.join_turn(false).await?;
                self.owe(Effect::SaveThenDestroy).await?;
            }
            _ => self.rejoin().await?,
        }
        Ok(())
    }

    /// Lets go of everything without ending anything.
    async fn detach(&mut self) -> Result<(), store::Error> {
        self.flush().await
    }

    /// What a person asked for.
    async fn answer(&mut self, request: Request) -> Result<(), store::Error> {
        let (event, reply) = match request {
            Request::LookAtQueue => return self.begin_next_turn().await,
            Request::Check => {
                self.take_in_clock().await?;
                self.check();
                self.examine();
                return Ok(());
            }
            Request::Interrupt { sparing, reply } => {
                let answer = self.interrupt(sparing).await;
                _ = reply.send(answer.as_ref().copied().map_err(Error::not_stored));
                return answer;
            }
            Request::Extend(_, reply) if !self.row.lifecycle.status.is_live() => {
                let ended = Error::illegal_state(&self.row.lifecycle, "takes no more time", "Run it again instead.");
                _ = reply.send(Err(ended));
                return Ok(());
            }
            Request::Extend(by, reply) => {
                let answer = self.extend(by).await;
                _ = reply.send(answer.as_ref().copied().map_err(Error::not_stored));
                return answer;
            }
            Request::Save(occasion, reply) => {
                self.save(occasion, Some(reply));
                return Ok(());
            }
            Request::Restore(checkpoint, reply) => {
                self.restore(checkpoint, reply);
                return Ok(());
            }
            Request::Pause(reply) => (Event::PauseRequested, reply),
            Request::Resume(reply) => {
                if self.row.remaining.is_some_and(|left| left.is_zero()) {
                    // It was paused since its time was over: resuming it is asking for more.
                    self.extend(RESUMED).await?;
                }
                (Event::ResumeRequested, reply)
            }
            Request::Stop(reply) => (Event::StopRequested, reply),
            Request::GiveUp(reply) => (Event::GivenUp, reply),
        };
        let (answer, failure) = match self.row.lifecycle.step(event) {
            Err(illegal) => (Err(Error::from(illegal)), None),
            Ok(_) => match self.happen(event, None).await {
                Ok(()) => (Ok(()), None),
                Err(error) if event == Event::StopRequested => {
                    // Whoever goes on tells the agent first, and answers then.
                    self.owes_stop = true;
                    self.unanswered_stop = Some(reply);
                    return Err(error);
                }
                Err(error) => (Err(Error::not_stored(&error)), Some(error)),
            },
        };
        // The asker may be gone; what it asked for goes on.
        _ = reply.send(answer);
        // An owner that could not store what it decided is replaced by one that reads the row anew.
        failure.map_or(Ok(()), Err)
    }

    /// What a task reports.
    async fn take(&mut self, done: Done) -> Result<(), store::Error> {
        match done {
            Done::Provisioned(Ok(found)) => {
                let (id, known) = (self.row.id, found.clone());
                self.row.provider_id = Some(found.provider_id);
                self.around.store.write(move |tx| sandboxes::set_provisioned(tx, id, &known)).await?;
                self.making_ended();
                self.happen(Event::Provisioned, None).await?;
                if let Some(left) = self.time_left() {
                    // The time of the set-up is not the sandbox's.
                    self.give_time(left);
                }
                Ok(())
            }
            Done::Provisioned(Err(error)) => {
                self.making_ended();
                self.happen(Event::ProvisioningFailed, Some(error)).await
            }
            Done::Revived(found) => {
                self.making_ended();
                if self.ending.is_some() { Ok(()) } else { self.joined(found).await }
            }
            Done::Rejoined(found) => {
                self.making_ended();
                match found {
                    Some(found) if self.ending.is_none() => self.rejoined(found).await,
                    Some(_) | None => Ok(()),
                }
            }
            Done::Found(found) => self.found(found).await,
            Done::Checked(asked, found) => {
                self.is_checking = false;
                // Work has begun or ended since: the answer is about the past.
                let is_fresh = asked == self.row.lifecycle && self.making.is_none();
                if is_fresh { self.found(found).await } else { Ok(()) }
            }
            Done::Examined(found) => self.examined(found).await,
            Done::TurnStarted(start) => self.turn_started(start).await,
            Done::Signalled(Ok(())) => Ok(()),
            Done::Signalled(Err(error)) => {
                tracing::warn!(sandbox = %self.row.id, %error, "the turn could not be told to end");
                self.could_not_stop_agent().await
            }
            Done::Woken(result) => self.woken(result).await,
            Done::Destroyed(result) => self.destroyed(result).await,
            Done::Saved(occasion, result) => self.saved(occasion, result).await,
            Done::Restored => {
                self.saves = self.saves.saturating_sub(1);
                self.begin_next_turn().await
            }
            Done::Delivered => self.delivered().await,
            Done::Extended(result) => {
                if let Err(error) = result {
                    tracing::warn!(sandbox = %self.row.id, %error, "the provider did not take the new running time");
                }
                Ok(())
            }
        }
    }

    /// Stores what an event means and begins its effect. An event without meaning here is logged and changes nothing.
    pub(super) async fn happen(&mut self, event: Event, error: Option<SandboxError>) -> Result<(), store::Error> {
        let from = self.row.lifecycle;
        let (to, effect) = match from.step(event) {
            Ok(next) => next,
            Err(illegal) => {
                tracing::warn!(sandbox = %self.row.id, %illegal, "ignored");
                return Ok(());
            }
        };
        if to != from {
            self.take_in_clock().await?;
            if effect == Effect::DestroyLater {
                // First, since nobody looks for an open turn behind a sandbox that has ended.
                self.lose_turn().await?;
            }
            let is_cleanup_owed = matches!(effect, Effect::Release | Effect::DestroyLater) && !to.status.is_live();
            self.advance(from, to, error, is_cleanup_owed).await?;
            self.note_pause(from.status).await?;
            if from.status == Status::Paused {
                // While it stood still it could not be heard.
                self.heard_at = self.around.clock.steady();
                if let Some(left) = self.time_left() {
                    self.give_time(left);
                }
            }
        }
        self.owe(effect).await
    }

    async fn advance(
        &mut self,
        from: Lifecycle,
        to: Lifecycle,
        error: Option<SandboxError>,
        is_cleanup_owed: bool,
    ) -> Result<(), store::Error> {
        let (id, now) = (self.row.id, self.around.clock.now());
        // What is elsewhere goes with its sandbox: a job that destroys it saves before.
        let is_save_owed = from.status != Status::Creating && self.provider.keeps_files();
        let row = self
            .around
            .store
            .write(move |tx| {
                if !sandboxes::advance(tx, id, from, to, error.as_ref(), now)? {
                    tracing::error!(sandbox = %id, ?from, ?to, "another writer changed the sandbox");
                }
                if is_cleanup_owed {
                    // This owner ends with its sandbox; what may be left behind is a job.
                    jobs::insert(tx, jobs::Kind::Destroy, id, now)?;
                    if is_save_owed {
                        // And so is the work, which no ending has saved.
                        jobs::insert(tx, jobs::Kind::Save, id, now)?;
                    }
                }
                sandboxes::get(tx, id)
            })
            .await?;
        self.row = row;
        self.rearm();
        Ok(())
    }

    /// Timers inside a sandbox run on while it is paused, so an open turn's transcript says when that was.
    async fn note_pause(&mut self, before: Status) -> Result<(), store::Error> {
        let text = match (before, self.row.lifecycle.status) {
            (Status::Running, Status::Paused) => "Paused.",
            (Status::Paused, Status::Running) => "Resumed.",
            _ => return Ok(()),
        };
        self.flush().await?;
        let (now, sandbox) = (self.around.clock.now(), self.row.id);
        let Some(ingest) = self.turn.ingest() else { return Ok(()) };
        let (turn, seq) = (ingest.turn.clone(), ingest.take_seq());
        let item = Item::Notice { level: NoticeLevel::Info, text: text.to_owned(), retry_at: None };
        self.around.store.write(move |tx| add_item(tx, sandbox, &turn, seq, item, now)).await
    }

    /// Begins an effect.
    async fn owe(&mut self, effect: Effect) -> Result<(), store::Error> {
        match effect {
            Effect::None => {}
            Effect::BeginFirstTurn => self.begin_next_turn().await?,
            Effect::Suspend => {
                self.flush().await?;
                self.suspend(true);
            }
            Effect::Wake => self.suspend(false),
            Effect::SaveThenDestroy => self.begin_ending().await?,
            Effect::DestroyNow => self.skip_saving().await?,
            Effect::Release => self.destroy().await?,
            // Recorded as a job, together with the state.
            Effect::DestroyLater => {}
        }
        Ok(())
    }

    fn provision(&mut self) {
        let stopped = self.begin_making();
        let (around, provider, row) = (self.around.clone(), self.provider.clone(), self.row.clone());
        let work = provisioning::provision(around, self.agent, provider, row, stopped);
        self.run_effect(async { Done::Provisioned(work.await) });
    }

    fn restore(&mut self, checkpoint: CheckpointId, reply: Reply) {
        let lifecycle = self.row.lifecycle;
        let is_idle =
            lifecycle.status == Status::Running && lifecycle.activity == Activity::None && !self.turn.is_open();
        if !is_idle {
            let busy = Error::illegal_state(&lifecycle, "cannot be restored now", "Wait until its turn has ended.");
            // The asker may be gone.
            _ = reply.send(Err(busy));
            return;
        }
        self.saves += 1;
        let (around, provider, row) = (self.around.clone(), self.provider.clone(), self.row.clone());
        self.run_effect(async move {
            _ = reply.send(saving::restore(&around, provider, &row, checkpoint).await);
            Done::Restored
        });
    }

    async fn extend(&mut self, by: Duration) -> Result<(), store::Error> {
        self.take_in_clock().await?;
        let id = self.row.id;
        self.row = self
            .around
            .store
            .write(move |tx| {
                sandboxes::extend(tx, id, by)?;
                sandboxes::get(tx, id)
            })
            .await?;
        self.rearm();
        if let Some(left) = self.time_left() {
            self.give_time(left);
        }
        Ok(())
    }

    /// How much running time is left, while it runs. A clock that jumped back gives no more than there ever was.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.row.expires_at.map(|at| at.since(self.around.clock.now()).min(self.row.timeout))
    }

    /// Tells the provider how much running time is left from now on.
    pub(super) fn give_time(&self, remaining: Duration) {
        if let Some(id) = self.provider_id() {
            let provider = self.provider.clone();
            self.run_effect(async move { Done::Extended(provider.extend(&id, remaining).await) });
        }
    }

    /// The running time is over.
    async fn expire(&mut self) -> Result<(), store::Error> {
        self.take_in_clock().await?;
        if self.expiry.is_some_and(|expiry| expiry > Instant::now()) {
            return Ok(());
        }
        self.expiry = None;
        let event = match self.row.on_timeout {
            OnTimeout::Pause => {
                self.asked_to_pause = Some(Instant::now());
                Event::PauseRequested
            }
            OnTimeout::Kill => Event::TimedOut,
        };
        self.happen(event, None).await
    }

    pub(super) fn rearm(&mut self) {
        self.expiry = match (self.row.lifecycle.status, self.time_left()) {
            // It was asked to pause already: at once would be again and again.
            (Status::Running, Some(Duration::ZERO)) if self.row.on_timeout == OnTimeout::Pause => {
                let now = Instant::now();
                Some(self.asked_to_pause.map_or(now, |asked| now.max(asked + PAUSE_AGAIN)))
            }
            (Status::Running, Some(left)) => Some(Instant::now() + left),
            _ => None,
        };
    }

    async fn spool(&mut self, event: Result<SpoolEvent, provider::Error>) -> Result<(), store::Error> {
        match event {
            Ok(SpoolEvent::Bytes { stream, bytes }) => {
                let now = self.around.clock.now();
                self.heard_at = self.around.clock.steady();
                if let Some(ending) = &mut self.ending {
                    ending.has_heard();
                }
                let is_full = self.turn.ingest().is_some_and(|ingest| {
                    ingest.read(stream, bytes, now);
                    ingest.is_full()
                });
                if is_full {
                    return self.flush_ahead().await;
                }
                self.turn.flush_within(COALESCE);
                Ok(())
            }
            Ok(SpoolEvent::Ended(exit)) => self.finish_turn(exit).await,
            Err(error) => {
                tracing::warn!(sandbox = %self.row.id, %error, "the spool could not be read; following again");
                self.flush().await?;
                self.follow_again();
                Ok(())
            }
        }
    }

    /// Hands over what was read, and reads on while it is stored.
    async fn flush_ahead(&mut self) -> Result<(), store::Error> {
        let store = self.around.store.clone();
        if let Some(ingest) = self.turn.ingest() {
            ingest.store_ahead(&store).await?;
        }
        // Should nothing more come, it is heard then whether that was stored.
        self.turn.flushed();
        self.turn.flush_within(COALESCE);
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), store::Error> {
        let store = self.around.store.clone();
        if let Some(ingest) = self.turn.ingest().filter(|ingest| ingest.is_pending()) {
            ingest.store(&store).await?;
        }
        self.turn.flushed();
        if let Some(ending) = &mut self.ending {
            // However long that took, what comes next has its whole time.
            ending.has_heard();
        }
        Ok(())
    }

    pub(super) fn provider_id(&self) -> Option<ProviderId> {
        self.row.provider_id.clone().map(ProviderId)
    }

    /// Runs slow work as a task of its own; it is dropped when the engine shuts down, and begun again after it.
    pub(super) fn run_effect(&self, work: impl Future<Output = Done> + Send + 'static) {
        let (report, shutdown) = (self.report.clone(), self.around.shutdown.clone());
        let makes = self.making.is_some().then(|| self.makers.token());
        self.around.tasks.spawn(async move {
            let _makes = makes;
            tokio::select! {
                () = shutdown.cancelled() => {}
                // The actor may have ended; nobody needs to know then.
                done = work => drop(report.send(done)),
            }
        });
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Whoever owns the sandbox next makes it anew, once this has ended.
        if let Some(making) = &self.making {
            making.cancel();
        }
    }
}

/// Waits until then; for ever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// An open turn's reading side, kept together so that borrowing it leaves the rest of the actor free.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) ingest: Ingest,
    pub(super) follower: FollowerSlot,
    pub(super) flush_at: Option<Instant>,
    pub(super) flushed_at: Option<Instant>,
}

/// The follower of the open turn, once it is there.
pub(super) struct FollowerSlot(pub(super) Option<Box<dyn Follower>>);

impl std::fmt::Debug for FollowerSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FollowerSlot({})", self.0.is_some())
    }
}
