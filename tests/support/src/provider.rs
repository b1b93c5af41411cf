//! A provider whose sandboxes live in memory. It outlives the engine, as a real one does, so that a test can crash the
//! engine and open it again over the same sandboxes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use courier_engine::{
    agent::{Exit, Process},
    model::{ProviderKind, Stream, TurnId},
    provider::{
        Error, Follower, Limits, Offsets, Output, Presence, Provider, ProviderId, Provision, SpoolEvent, TurnSignal,
        TurnSpec,
    },
};
use tokio::sync::watch;

/// The provider. Cloning it gives another handle to the same sandboxes.
#[derive(Clone, Debug, Default)]
pub struct FakeProvider {
    state: Arc<Mutex<State>>,
    /// While true, sandboxes are not made: the provider thinks.
    is_thinking: Arc<watch::Sender<bool>>,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: HashMap<String, Sandbox>,
    turns: HashMap<TurnId, Turn>,
    /// Every turn in the order it was started, and the prompt it was given.
    started: Vec<(TurnId, String)>,
    refuse_pause: bool,
    refuse_provision: Option<String>,
    refuse_turns: bool,
    refuse_destroy: bool,
}

#[derive(Debug)]
struct Sandbox {
    presence: Presence,
    directory: std::path::PathBuf,
}

#[derive(Debug)]
struct Turn {
    sandbox: String,
    spool: watch::Sender<Spool>,
}

#[derive(Clone, Debug, Default)]
struct Spool {
    out: Vec<u8>,
    err: Vec<u8>,
    exit: Option<Exit>,
}

impl FakeProvider {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every turn that was started, oldest first, with its prompt.
    pub fn started(&self) -> Vec<(TurnId, String)> {
        self.lock().started.clone()
    }

    /// Makes an agent print.
    pub fn print(&self, turn: TurnId, bytes: &[u8]) {
        if let Some(turn) = self.lock().turns.get(&turn) {
            turn.spool.send_modify(|spool| spool.out.extend_from_slice(bytes));
        }
    }

    /// Makes an agent's process end; one that has ended stays as it is.
    pub fn end(&self, turn: TurnId, exit: Exit) {
        if let Some(turn) = self.lock().turns.get(&turn) {
            turn.spool.send_modify(|spool| _ = spool.exit.get_or_insert(exit));
        }
    }

    /// Turns whose process has not ended.
    pub fn open_turns(&self) -> Vec<TurnId> {
        let state = self.lock();
        let mut open: Vec<_> =
            state.turns.iter().filter(|(_, turn)| turn.spool.borrow().exit.is_none()).map(|(id, _)| *id).collect();
        open.sort();
        open
    }

    /// Makes every sandbox vanish, as if somebody had killed it.
    pub fn lose_all(&self) {
        let mut state = self.lock();
        for sandbox in state.sandboxes.values_mut() {
            sandbox.presence = Presence::Gone { timed_out: false };
        }
        state
            .turns
            .values()
            .for_each(|turn| turn.spool.send_modify(|spool| _ = spool.exit.get_or_insert(Exit::Unknown)));
    }

    /// Whether sandboxes refuse to be paused.
    pub fn refuse_pause(&self, refuse: bool) {
        self.lock().refuse_pause = refuse;
    }

    /// Makes the next sandboxes fail with this message; `None`: they work again.
    pub fn refuse_provision(&self, message: Option<&str>) {
        self.lock().refuse_provision = message.map(str::to_owned);
    }

    /// Whether the provider thinks for ever when asked for a sandbox.
    pub fn think(&self, think: bool) {
        self.is_thinking.send_replace(think);
    }

    /// Whether turns are refused, as by a provider that is just pausing.
    pub fn refuse_turns(&self, refuse: bool) {
        self.lock().refuse_turns = refuse;
    }

    /// Whether sandboxes cannot be destroyed, as by a provider that cannot be reached.
    pub fn refuse_destroy(&self, refuse: bool) {
        self.lock().refuse_destroy = refuse;
    }

    /// How many sandboxes are alive or paused.
    pub fn alive(&self) -> usize {
        self.lock().sandboxes.values().filter(|sandbox| !matches!(sandbox.presence, Presence::Gone { .. })).count()
    }

    fn set(&self, id: &ProviderId, presence: Presence) -> Result<(), Error> {
        let mut state = self.lock();
        let sandbox = state.sandboxes.get_mut(&id.0).ok_or(Error::Gone)?;
        if matches!(sandbox.presence, Presence::Gone { .. }) {
            return Err(Error::Gone);
        }
        sandbox.presence = presence;
        Ok(())
    }
}

#[async_trait]
impl Provider for FakeProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Local
    }

    /// Nobody outside holds a key for these: an agent would have its own.
    fn has_gateway(&self) -> bool {
        false
    }

    async fn gateway_address(&self, _id: &ProviderId) -> Result<String, Error> {
        Err(Error::Unsupported)
    }

    async fn provision(&self, spec: &Provision) -> Result<ProviderId, Error> {
        let mut thinking = self.is_thinking.subscribe();
        // The sender lives as long as the provider.
        _ = thinking.wait_for(|is_thinking| !is_thinking).await;
        let mut state = self.lock();
        if let Some(message) = &state.refuse_provision {
            return Err(Error::Keeper(message.clone()));
        }
        let id = spec.sandbox.to_string();
        let made = Sandbox { presence: Presence::Alive, directory: spec.directory.clone() };
        match state.sandboxes.get_mut(&id) {
            Some(sandbox) if !matches!(sandbox.presence, Presence::Gone { .. }) => sandbox.directory = made.directory,
            _ => _ = state.sandboxes.insert(id.clone(), made),
        }
        Ok(ProviderId(id))
    }

    async fn inspect(&self, id: &ProviderId) -> Result<Presence, Error> {
        let gone = Presence::Gone { timed_out: false };
        Ok(self.lock().sandboxes.get(&id.0).map_or(gone, |sandbox| sandbox.presence))
    }

    async fn pause(&self, id: &ProviderId) -> Result<(), Error> {
        if self.lock().refuse_pause {
            return Err(Error::Keeper("it would not pause".into()));
        }
        self.set(id, Presence::Paused)
    }

    async fn resume(&self, id: &ProviderId) -> Result<(), Error> {
        self.set(id, Presence::Alive)
    }

    async fn extend(&self, _id: &ProviderId, _remaining: Duration) -> Result<(), Error> {
        Ok(())
    }

    async fn destroy(&self, id: &ProviderId) -> Result<(), Error> {
        let mut state = self.lock();
        if state.refuse_destroy {
            return Err(Error::Keeper("it cannot be reached".into()));
        }
        if let Some(sandbox) = state.sandboxes.get_mut(&id.0) {
            sandbox.presence = Presence::Gone { timed_out: false };
        }
        for turn in state.turns.values().filter(|turn| turn.sandbox == id.0) {
            turn.spool.send_modify(|spool| _ = spool.exit.get_or_insert(Exit::Signal(9)));
        }
        Ok(())
    }

    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        let mut state = self.lock();
        if state.refuse_turns {
            return Err(Error::Keeper("not now".into()));
        }
        if !state.sandboxes.get(&id.0).is_some_and(|sandbox| sandbox.presence == Presence::Alive) {
            return Err(Error::Gone);
        }
        if state.turns.contains_key(&turn.turn) {
            return Ok(());
        }
        let started = Turn { sandbox: id.0.clone(), spool: watch::Sender::new(Spool::default()) };
        state.turns.insert(turn.turn, started);
        state.started.push((turn.turn, String::from_utf8_lossy(&turn.process.stdin).into_owned()));
        Ok(())
    }

    async fn is_started(&self, _id: &ProviderId, turn: TurnId) -> Result<bool, Error> {
        Ok(self.lock().turns.contains_key(&turn))
    }

    async fn signal(&self, _id: &ProviderId, turn: TurnId, signal: TurnSignal) -> Result<(), Error> {
        self.end(turn, Exit::Signal(if signal == TurnSignal::Kill { 9 } else { 15 }));
        Ok(())
    }

    async fn follow(&self, _id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error> {
        let state = self.lock();
        let spool = state.turns.get(&turn).ok_or(Error::NoSuchTurn)?.spool.subscribe();
        Ok(Box::new(FakeFollower { spool, at: from }))
    }

    async fn run(&self, _id: &ProviderId, _name: &str, _process: &Process, _limit: Duration) -> Result<Output, Error> {
        Ok(Output { exit: Exit::Code(0), stdout: Vec::new(), stderr: Vec::new() })
    }

    async fn limits(&self, _id: &ProviderId) -> Limits {
        Limits::Advisory
    }
}

struct FakeFollower {
    spool: watch::Receiver<Spool>,
    at: Offsets,
}

#[async_trait]
impl Follower for FakeFollower {
    async fn next(&mut self) -> Result<SpoolEvent, Error> {
        let Offsets { out, err } = self.at;
        let (out, err) = (usize::try_from(out).unwrap_or(0), usize::try_from(err).unwrap_or(0));
        let spool = self
            .spool
            .wait_for(|spool| spool.out.len() > out || spool.err.len() > err || spool.exit.is_some())
            .await
            .map_err(|_| Error::Gone)?;
        if spool.out.len() > out {
            let bytes = spool.out[out..].to_vec();
            self.at.out += bytes.len() as u64;
            return Ok(SpoolEvent::Bytes { stream: Stream::Out, bytes });
        }
        if spool.err.len() > err {
            let bytes = spool.err[err..].to_vec();
            self.at.err += bytes.len() as u64;
            return Ok(SpoolEvent::Bytes { stream: Stream::Err, bytes });
        }
        Ok(SpoolEvent::Ended(spool.exit.unwrap_or(Exit::Unknown)))
    }
}
