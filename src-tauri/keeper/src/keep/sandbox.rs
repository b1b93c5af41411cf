//! The one owner of a sandbox's state: a loop that takes one event at a time.

use std::{
    collections::HashMap,
    fs, io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use super::{
    Heard, Leader, TurnProgram,
    lifetime::Lifetime,
    server::Server,
    turn::{Opening, Turn},
};
use crate::{
    platform::Jail,
    protocol::{EndReason, EndedRecord, OnTimeout, Refusal, Request, Response, StartSpec, StartTurn, Status},
    proxy::gateway::{self, Gateway},
    socket, spool, sys,
};

/// The system asks the keeper to leave: a logout, a shutdown.
pub(super) const LEAVE_SIGNALS: &[libc::c_int] = &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// When its time is over the app acts first: it saves the work. It has shown that it lives once it extended, paused or
/// destroyed the sandbox; this long it is waited for.
const APP_GRACE: Duration = Duration::from_secs(2);

/// What an agent gets between TERM and KILL when the keeper ends its turn by itself.
const TURN_GRACE: Duration = Duration::from_secs(5);

/// How long the turns' exits may take to be written once everything is killed. Longer only if the disk is full.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The longest sleep: how late a time-out can come after the machine slept, and how long a keeper goes on whose folder
/// was deleted.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What the sandbox hears.
#[derive(Debug)]
pub(super) enum Event {
    /// The app asks something.
    Asked { request: Request, body: Vec<u8>, answer: SyncSender<Response> },
    /// Something happened inside.
    Heard(Heard),
    /// A turn's `exit` is written.
    TurnOver { turn: String },
    /// The system wants the keeper to leave.
    AskedToLeave,
}

/// What serves a sandbox.
pub(super) struct Surroundings {
    /// The keeper's life, as others see it.
    pub lock: fs::File,
    /// For every turn.
    pub variables: HashMap<String, String>,
    pub server: Server,
    pub gateway: Arc<Gateway>,
    pub gateway_port: u16,
}

/// A sandbox that is there.
pub(super) struct Sandbox {
    spec: StartSpec,
    /// `None` once it is gone.
    jail: Option<Jail>,
    around: Surroundings,
    /// The turn whose way to the model is open.
    asks_model: Option<String>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    lifetime: Lifetime,
    pause: Pause,
    /// Those whose `exit` is not written yet.
    turns: HashMap<String, Turn>,
    ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Running,
    ByApp,
    ByTimeout,
}

/// The sandbox is on its way out.
struct Ending {
    reason: EndReason,
    stage: Stage,
    /// Who waits for it.
    answers: Vec<SyncSender<Response>>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The turns were asked to end.
    Asking { until: Instant },
    /// Everything inside was killed; the exits are being written.
    Settling { until: Instant },
}

impl Sandbox {
    pub(super) fn new(
        spec: StartSpec,
        jail: Jail,
        around: Surroundings,
        (events, inbox): (Sender<Event>, Receiver<Event>),
    ) -> io::Result<Self> {
        let leaving = events.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            loop {
                sys::wait_for(LEAVE_SIGNALS);
                if leaving.send(Event::AskedToLeave).is_err() {
                    return;
                }
            }
        })?;
        let lifetime = Lifetime::new(Duration::from_millis(spec.lifetime_ms), sys::steady_clock());
        let turns = HashMap::new();
        Ok(Self {
            spec,
            jail: Some(jail),
            around,
            asks_model: None,
            events,
            inbox,
            lifetime,
            pause: Pause::Running,
            turns,
            ending: None,
        })
    }

    /// Serves until the sandbox is over. The jail ends with the thread that made it: this must be that thread.
    pub(super) fn keep(mut self) -> io::Result<()> {
        loop {
            match self.inbox.recv_timeout(self.wait()) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the sandbox holds a sender itself"),
            }
            self.look_at_the_time();
            self.look_at_the_folder();
            if self.is_settled() {
                return self.finish();
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Asked { request: Request::Destroy, answer, .. } => self.destroy(answer),
            Event::Asked { request, body, answer } => {
                let response = self
                    .answer(request, body)
                    .unwrap_or_else(|error| Response::Refused { refusal: Refusal::Failed, message: error.to_string() });
                // The asker may be gone.
                _ = answer.send(response);
            }
            Event::Heard(Heard::Exited { turn, leader }) => {
                if let Some(turn) = self.turns.get(&turn) {
                    turn.exited(leader);
                }
            }
            Event::Heard(Heard::Gone) => self.gone(),
            Event::TurnOver { turn } => {
                self.turns.remove(&turn);
                if self.asks_model.as_ref() == Some(&turn) {
                    // What it left behind is not to spend the key unseen.
                    self.asks_model = None;
                    self.around.gateway.set(None);
                }
            }
            Event::AskedToLeave => self.begin_ending(EndReason::Terminated),
        }
    }

    fn answer(&mut self, request: Request, body: Vec<u8>) -> io::Result<Response> {
        let now = sys::steady_clock();
        let is_ending = self.ending.is_some();
        Ok(match request {
            Request::Status => Response::Status(self.status()),
            Request::EndTurn { turn, grace_ms } => self.end_turn(&turn, Duration::from_millis(grace_ms))?,
            Request::AllowSpool { turn, bytes } => {
                if let Some(turn) = self.turns.get(&turn) {
                    turn.allow(bytes);
                }
                Response::Done
            }
            _ if is_ending => refused(Refusal::Ending, "the sandbox is ending"),
            Request::StartTurn(start) => self.start_turn(start, body)?,
            Request::Pause => {
                self.suspend(Pause::ByApp)?;
                Response::Done
            }
            Request::Resume => {
                self.jail()?.resume()?;
                self.lifetime.resume(now);
                self.pause = Pause::Running;
                Response::Done
            }
            Request::Extend { remaining_ms } => {
                self.lifetime.extend(Duration::from_millis(remaining_ms), now);
                Response::Done
            }
            Request::Destroy => unreachable!("taken care of by the caller: it is answered later"),
        })
    }

    fn status(&self) -> Status {
        Status {
            paused: self.pause != Pause::Running,
            paused_by_timeout: self.pause == Pause::ByTimeout,
            remaining_ms: u64::try_from(self.lifetime.left(sys::steady_clock()).as_millis()).unwrap_or(u64::MAX),
            limits_enforced: self.jail.as_ref().is_some_and(Jail::is_enforced),
            gateway_port: self.around.gateway_port,
            turns: self.turns.values().map(Turn::status).collect(),
        }
    }

    fn start_turn(&mut self, start: StartTurn, body: Vec<u8>) -> io::Result<Response> {
        let StartTurn { turn: id, argv, env, redact, gateway } = start;
        if !spool::is_turn_id(&id) {
            return Ok(refused(Refusal::Malformed, "this cannot name a turn"));
        }
        // Also one whose folder somebody has deleted meanwhile.
        if self.turns.contains_key(&id) || spool::turn_directory(&self.spec.directory, &id).exists() {
            return Ok(Response::Started { fresh: false });
        }
        if self.pause != Pause::Running {
            return Ok(refused(Refusal::Paused, "the sandbox is paused"));
        }
        let model = match gateway.map(gateway::check).transpose() {
            Ok(model) => model,
            Err(why) => return Ok(refused(Refusal::Malformed, &why.to_string())),
        };
        if !spool::claim(&self.spec.directory, &id)? {
            return Ok(Response::Started { fresh: false });
        }
        let place = spool::turn_directory(&self.spec.directory, &id);
        let (mut opening, pipes) = Opening::new(&self.spec.directory, &id, &redact, Arc::clone(&self.around.gateway))
            .inspect_err(|_| {
            // Nothing was started: the claim is given back, so that it can be tried again.
            _ = fs::remove_dir_all(&place);
        })?;
        let name = argv.first().cloned().unwrap_or_default();
        let mut variables = self.around.variables.clone();
        variables.extend(env);
        let directory = self.spec.workspace.to_string_lossy().into_owned();
        let program = TurnProgram { argv, env: variables.into_iter().collect(), directory };
        self.asks_model = model.is_some().then(|| id.clone());
        self.around.gateway.set(model);
        if let Err(error) = self.jail()?.start_turn(&id, program, &pipes) {
            opening.could_not_start(&name, &error);
        }
        drop(pipes);
        let (events, over) = (self.events.clone(), id.clone());
        let turn = opening.run(body, move || _ = events.send(Event::TurnOver { turn: over }))?;
        self.turns.insert(id, turn);
        Ok(Response::Started { fresh: true })
    }

    fn end_turn(&mut self, turn: &str, grace: Duration) -> io::Result<Response> {
        if !spool::is_turn_id(turn) || !spool::turn_directory(&self.spec.directory, turn).exists() {
            return Ok(refused(Refusal::NoSuchTurn, "the turn was never started"));
        }
        // What is suspended cannot hear TERM.
        let grace = if self.pause == Pause::Running { grace } else { Duration::ZERO };
        // Also a turn whose exit is written: what it left running is its own still.
        if let Some(jail) = &self.jail {
            jail.end_turn(turn, grace)?;
        }
        Ok(Response::Done)
    }

    fn suspend(&mut self, pause: Pause) -> io::Result<()> {
        if self.pause == Pause::Running {
            self.jail()?.suspend()?;
            self.lifetime.pause(sys::steady_clock());
            self.pause = pause;
        }
        Ok(())
    }

    fn jail(&self) -> io::Result<&Jail> {
        self.jail.as_ref().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the sandbox is gone"))
    }

    fn destroy(&mut self, answer: SyncSender<Response>) {
        match &mut self.ending {
            Some(ending) => ending.answers.push(answer),
            None => {
                self.ending = Some(Ending {
                    reason: EndReason::Destroyed,
                    stage: Stage::Asking { until: Instant::now() },
                    answers: vec![answer],
                });
            }
        }
        self.kill_everything();
    }

    /// Ends the turns as a person would, then everything.
    fn begin_ending(&mut self, reason: EndReason) {
        if self.ending.is_some() {
            return;
        }
        let grace = if self.pause == Pause::Running { TURN_GRACE } else { Duration::ZERO };
        if let Some(jail) = &self.jail {
            for turn in self.turns.keys() {
                if let Err(error) = jail.end_turn(turn, grace) {
                    sys::note(&format!("turn {turn} could not be asked to end: {error}"));
                }
            }
        }
        let stage = Stage::Asking { until: Instant::now() + grace + APP_GRACE };
        self.ending = Some(Ending { reason, stage, answers: Vec::new() });
        if self.turns.is_empty() {
            self.kill_everything();
        }
    }

    fn kill_everything(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        if let Stage::Asking { .. } = ending.stage {
            ending.stage = Stage::Settling { until: Instant::now() + SETTLE_LIMIT };
            if let Some(Err(error)) = self.jail.as_ref().map(Jail::kill_all) {
                // Taking the jail down does not depend on init.
                sys::note(&format!("init could not kill everything: {error}"));
                self.gone();
            }
        }
    }

    fn gone(&mut self) {
        if let Some(Err(error)) = self.jail.take().map(Jail::close) {
            sys::note(&format!("bubblewrap did not leave: {error}"));
        }
        // The kernel killed them with pid 1.
        self.turns.values().for_each(|turn| turn.exited(Leader::Signal(libc::SIGKILL)));
        let stage = Stage::Settling { until: Instant::now() + SETTLE_LIMIT };
        match &mut self.ending {
            Some(ending) => ending.stage = stage,
            None => self.ending = Some(Ending { reason: EndReason::Gone, stage, answers: Vec::new() }),
        }
    }

    fn look_at_the_time(&mut self) {
        if let Some(ending) = &self.ending {
            let is_time = |until: Instant| until <= Instant::now();
            if matches!(ending.stage, Stage::Asking { until } if self.turns.is_empty() || is_time(until)) {
                self.kill_everything();
            }
            return;
        }
        if self.lifetime.over_for(sys::steady_clock()).is_none_or(|time| time < APP_GRACE) {
            return;
        }
        match self.spec.on_timeout {
            OnTimeout::Kill => self.begin_ending(EndReason::TimedOut),
            OnTimeout::Pause => {
                if let Err(error) = self.suspend(Pause::ByTimeout) {
                    sys::note(&format!("could not be paused, and so is ended: {error}"));
                    self.begin_ending(EndReason::TimedOut);
                }
            }
        }
    }

    /// Where the sandbox's folder was deleted nobody can find it any more: it must not live on unseen.
    fn look_at_the_folder(&mut self) {
        if self.ending.is_none() && !spool::is_in_place(&self.around.lock, &self.spec.directory) {
            sys::note("the sandbox's folder was deleted from outside");
            self.begin_ending(EndReason::Terminated);
        }
    }

    fn wait(&self) -> Duration {
        let until = match &self.ending {
            Some(Ending { stage: Stage::Asking { until } | Stage::Settling { until }, .. }) => {
                until.saturating_duration_since(Instant::now())
            }
            None if self.pause != Pause::Running => LONGEST_WAIT,
            None => {
                self.lifetime.left(sys::steady_clock()) + APP_GRACE
                    - self.lifetime.over_for(sys::steady_clock()).unwrap_or_default().min(APP_GRACE)
            }
        };
        until.min(LONGEST_WAIT)
    }

    fn is_settled(&self) -> bool {
        let is_late = |until: Instant| until <= Instant::now();
        matches!(&self.ending, Some(Ending { stage: Stage::Settling { until }, .. }) if self.turns.is_empty() || is_late(*until))
    }

    /// Everything is said: takes the jail down, and leaves.
    fn finish(mut self) -> io::Result<()> {
        let ending = self.ending.take().expect("only an ending sandbox is settled");
        if let Some(jail) = self.jail.take() {
            jail.close()?;
        }
        let record = EndedRecord { reason: ending.reason, at: sys::wall_clock() };
        let written = serde_json::to_vec(&record)
            .map_err(io::Error::from)
            .and_then(|json| spool::write_whole(&self.spec.directory, spool::ENDED, &json));
        if let Err(error) = written {
            sys::note(&format!("`ended` could not be written: {error}"));
        }
        // Left behind it is no hindrance.
        _ = socket::remove(&self.spec.directory);
        for answer in ending.answers {
            _ = answer.send(Response::Done);
        }
        self.around.server.say_farewell();
        Ok(())
    }
}

fn refused(refusal: Refusal, message: &str) -> Response {
    Response::Refused { refusal, message: message.to_owned() }
}
