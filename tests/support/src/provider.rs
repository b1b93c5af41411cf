//! A provider whose sandboxes live in memory. It outlives the engine, as a real one does, so that a test can crash the
//! engine and open it again over the same sandboxes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use courier_engine::{
    agent::{Exit, Process},
    model::{OnTimeout, ProviderKind, SandboxId, Stream, TurnId},
    provider::{
        Error, Follower, Limits, Offsets, Output, Presence, Provider, ProviderId, Provision, SpoolEvent, TurnSignal,
        TurnSpec,
    },
};
use tokio::sync::watch;

use crate::trouble::{Call, Trouble};

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
    troubles: HashMap<Call, Trouble>,
    /// How often each was made.
    calls: HashMap<Call, usize>,
    /// Sandboxes that are being paused or resumed.
    suspending: HashSet<String>,
    /// How many bytes a follower hands over at once at most; 0: all there are.
    chunk: usize,
    /// What no engine may do, and one did.
    misdeeds: Vec<String>,
}

#[derive(Debug)]
struct Sandbox {
    presence: Presence,
    directory: std::path::PathBuf,
    on_timeout: OnTimeout,
}

#[derive(Debug)]
struct Turn {
    sandbox: String,
    spool: watch::Sender<Spool>,
}

/// What a turn printed, and how it ended.
#[derive(Clone, Debug, Default)]
pub struct Spool {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub exit: Option<Exit>,
}

impl State {
    fn is_alive(&self, sandbox: &str) -> bool {
        self.sandboxes.get(sandbox).is_some_and(|sandbox| sandbox.presence == Presence::Alive)
    }

    /// A sandbox goes away, and with it what runs there: its turns end like this.
    fn vanish(&mut self, sandbox: &str, is_time_over: bool, exit: Exit) {
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox) {
            sandbox.presence = Presence::Gone { timed_out: is_time_over };
        }
        for turn in self.turns.values().filter(|turn| turn.sandbox == sandbox) {
            turn.spool.send_modify(|spool| _ = spool.exit.get_or_insert(exit));
        }
    }
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
        self.print_to(turn, Stream::Out, bytes);
    }

    /// Makes an agent print to one of its streams; one that has ended, or is suspended, prints nothing.
    pub fn print_to(&self, turn: TurnId, stream: Stream, bytes: &[u8]) {
        let state = self.lock();
        let Some(turn) = state.turns.get(&turn).filter(|turn| state.is_alive(&turn.sandbox)) else { return };
        turn.spool.send_if_modified(|spool| {
            let is_running = spool.exit.is_none();
            if is_running {
                let stream = if stream == Stream::Out { &mut spool.out } else { &mut spool.err };
                stream.extend_from_slice(bytes);
            }
            is_running
        });
    }

    /// What a turn has printed so far, and how it ended; `None` where it was never started.
    pub fn spool(&self, turn: TurnId) -> Option<Spool> {
        self.lock().turns.get(&turn).map(|turn| turn.spool.borrow().clone())
    }

    /// Where a turn runs.
    pub fn sandbox_of(&self, turn: TurnId) -> Option<SandboxId> {
        self.lock().turns.get(&turn).and_then(|turn| turn.sandbox.parse().ok())
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
        let all: Vec<String> = state.sandboxes.keys().cloned().collect();
        all.iter().for_each(|sandbox| state.vanish(sandbox, false, Exit::Unknown));
    }

    /// Makes one sandbox vanish.
    pub fn lose(&self, sandbox: SandboxId) {
        self.lock().vanish(&sandbox.to_string(), false, Exit::Unknown);
    }

    /// A sandbox's running time is over before anybody else acts.
    pub fn time_out(&self, sandbox: SandboxId) {
        let (mut state, name) = (self.lock(), sandbox.to_string());
        match state.sandboxes.get_mut(&name) {
            Some(sandbox) if sandbox.presence == Presence::Alive => match sandbox.on_timeout {
                OnTimeout::Pause => sandbox.presence = Presence::Paused,
                OnTimeout::Kill => state.vanish(&name, true, Exit::Signal(15)),
            },
            // What stands still does not age.
            _ => {}
        }
    }

    /// From now on this goes wrong with every such call.
    pub fn trouble(&self, call: Call, trouble: Trouble) {
        self.lock().troubles.insert(call, trouble);
    }

    /// Nothing goes wrong any more.
    pub fn be_well(&self) {
        let mut state = self.lock();
        (state.refuse_pause, state.refuse_turns, state.refuse_destroy) = (false, false, false);
        state.refuse_provision = None;
        state.troubles.clear();
        self.is_thinking.send_replace(false);
    }

    /// How many bytes a follower hands over at once at most; 0: all there are.
    pub fn hand_over(&self, chunk: usize) {
        self.lock().chunk = chunk;
    }

    /// What no engine may do, and one did.
    pub fn misdeeds(&self) -> Vec<String> {
        self.lock().misdeeds.clone()
    }

    /// Whether a sandbox is there; `None` where it was never made.
    pub fn presence(&self, sandbox: SandboxId) -> Option<Presence> {
        self.lock().sandboxes.get(&sandbox.to_string()).map(|sandbox| sandbox.presence)
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

    /// Whether somebody waits for a sandbox it thinks about.
    pub fn is_asked(&self) -> bool {
        self.asked() > 0
    }

    /// How many wait for a sandbox it thinks about.
    pub fn asked(&self) -> usize {
        self.is_thinking.receiver_count()
    }

    /// A turn was never started, as far as the provider knows: its spool is gone.
    pub fn forget(&self, turn: TurnId) {
        self.lock().turns.remove(&turn);
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

    /// How often this was asked for.
    pub fn calls(&self, call: Call) -> usize {
        self.lock().calls.get(&call).copied().unwrap_or_default()
    }

    fn trouble_with(&self, call: Call) -> Trouble {
        self.lock().troubles.get(&call).copied().unwrap_or_default()
    }

    /// What goes wrong before a call has done anything.
    async fn meet(&self, call: Call) -> Result<(), Error> {
        *self.lock().calls.entry(call).or_default() += 1;
        let trouble = self.trouble_with(call);
        wait(trouble.thinks).await;
        if trouble.refuses { Err(Error::Keeper(format!("{call:?}: not now"))) } else { Ok(()) }
    }

    /// What goes wrong once all is done.
    async fn answer<T>(&self, call: Call, answer: T) -> Result<T, Error> {
        let trouble = self.trouble_with(call);
        wait(trouble.is_late).await;
        if trouble.is_misheard { Err(Error::Keeper(format!("{call:?}: the answer was lost"))) } else { Ok(answer) }
    }

    fn make(&self, spec: &Provision) -> Result<ProviderId, Error> {
        let mut state = self.lock();
        if let Some(message) = &state.refuse_provision {
            return Err(Error::Keeper(message.clone()));
        }
        let id = spec.sandbox.to_string();
        let (directory, on_timeout) = (spec.directory.clone(), spec.on_timeout);
        match state.sandboxes.get_mut(&id) {
            Some(sandbox) if !matches!(sandbox.presence, Presence::Gone { .. }) => sandbox.directory = directory,
            _ => {
                let made = Sandbox { presence: Presence::Alive, directory, on_timeout };
                state.sandboxes.insert(id.clone(), made);
            }
        }
        Ok(ProviderId(id))
    }

    fn begin(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        let mut state = self.lock();
        if state.refuse_turns {
            return Err(Error::Keeper("not now".into()));
        }
        if state.turns.contains_key(&turn.turn) {
            return Ok(());
        }
        if !state.is_alive(&id.0) {
            return Err(Error::Gone);
        }
        if state.turns.values().any(|other| other.sandbox == id.0 && other.spool.borrow().exit.is_none()) {
            let misdeed = format!("turn {} of sandbox {} was started while another one ran", turn.turn, id.0);
            state.misdeeds.push(misdeed);
        }
        let started = Turn { sandbox: id.0.clone(), spool: watch::Sender::new(Spool::default()) };
        state.turns.insert(turn.turn, started);
        state.started.push((turn.turn, String::from_utf8_lossy(&turn.process.stdin).into_owned()));
        Ok(())
    }

    /// A pause or a resume begins, and is under way until this is dropped. Of two at once nobody knows which comes last.
    fn begin_suspending(&self, id: &ProviderId) -> Suspending<'_> {
        let mut state = self.lock();
        if !state.suspending.insert(id.0.clone()) {
            state.misdeeds.push(format!("sandbox {} was asked to pause or resume while it was doing so", id.0));
        }
        Suspending { provider: self, sandbox: id.0.clone() }
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
        self.meet(Call::Provision).await?;
        let id = self.make(spec)?;
        self.answer(Call::Provision, id).await
    }

    async fn inspect(&self, id: &ProviderId) -> Result<Presence, Error> {
        self.meet(Call::Inspect).await?;
        let gone = Presence::Gone { timed_out: false };
        let found = self.lock().sandboxes.get(&id.0).map_or(gone, |sandbox| sandbox.presence);
        self.answer(Call::Inspect, found).await
    }

    async fn pause(&self, id: &ProviderId) -> Result<(), Error> {
        let _suspending = self.begin_suspending(id);
        self.meet(Call::Pause).await?;
        if self.lock().refuse_pause {
            return Err(Error::Keeper("it would not pause".into()));
        }
        self.set(id, Presence::Paused)?;
        self.answer(Call::Pause, ()).await
    }

    async fn resume(&self, id: &ProviderId) -> Result<(), Error> {
        let _suspending = self.begin_suspending(id);
        self.meet(Call::Resume).await?;
        self.set(id, Presence::Alive)?;
        self.answer(Call::Resume, ()).await
    }

    async fn extend(&self, _id: &ProviderId, _remaining: Duration) -> Result<(), Error> {
        self.meet(Call::Extend).await?;
        self.answer(Call::Extend, ()).await
    }

    async fn destroy(&self, id: &ProviderId) -> Result<(), Error> {
        self.meet(Call::Destroy).await?;
        if self.lock().refuse_destroy {
            return Err(Error::Keeper("it cannot be reached".into()));
        }
        self.lock().vanish(&id.0, false, Exit::Signal(9));
        self.answer(Call::Destroy, ()).await
    }

    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        self.meet(Call::StartTurn).await?;
        self.begin(id, turn)?;
        self.answer(Call::StartTurn, ()).await
    }

    async fn is_started(&self, _id: &ProviderId, turn: TurnId) -> Result<bool, Error> {
        self.meet(Call::IsStarted).await?;
        let is_started = self.lock().turns.contains_key(&turn);
        self.answer(Call::IsStarted, is_started).await
    }

    async fn signal(&self, id: &ProviderId, turn: TurnId, signal: TurnSignal) -> Result<(), Error> {
        self.meet(Call::Signal).await?;
        if !self.lock().sandboxes.get(&id.0).is_some_and(|sandbox| !matches!(sandbox.presence, Presence::Gone { .. })) {
            return Err(Error::Gone);
        }
        self.end(turn, Exit::Signal(if signal == TurnSignal::Kill { 9 } else { 15 }));
        self.answer(Call::Signal, ()).await
    }

    async fn follow(&self, _id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error> {
        self.meet(Call::Follow).await?;
        let spool = self.lock().turns.get(&turn).ok_or(Error::NoSuchTurn)?.spool.subscribe();
        let follower: Box<dyn Follower> = Box::new(FakeFollower { provider: self.clone(), spool, at: from });
        self.answer(Call::Follow, follower).await
    }

    async fn run(&self, _id: &ProviderId, _name: &str, _process: &Process, _limit: Duration) -> Result<Output, Error> {
        Ok(Output { exit: Exit::Code(0), stdout: Vec::new(), stderr: Vec::new() })
    }

    async fn limits(&self, _id: &ProviderId) -> Limits {
        Limits::Advisory
    }
}

struct Suspending<'a> {
    provider: &'a FakeProvider,
    sandbox: String,
}

impl Drop for Suspending<'_> {
    fn drop(&mut self) {
        self.provider.lock().suspending.remove(&self.sandbox);
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

struct FakeFollower {
    provider: FakeProvider,
    spool: watch::Receiver<Spool>,
    at: Offsets,
}

#[async_trait]
impl Follower for FakeFollower {
    async fn next(&mut self) -> Result<SpoolEvent, Error> {
        if self.provider.trouble_with(Call::Read).refuses {
            return Err(Error::Keeper("the spool cannot be read".into()));
        }
        let most = match self.provider.lock().chunk {
            0 => usize::MAX,
            chunk => chunk,
        };
        let Offsets { out, err } = self.at;
        let (out, err) = (usize::try_from(out).unwrap_or(0), usize::try_from(err).unwrap_or(0));
        let spool = self
            .spool
            .wait_for(|spool| spool.out.len() > out || spool.err.len() > err || spool.exit.is_some())
            .await
            .map_err(|_| Error::Gone)?;
        let next = |bytes: &[u8], from: usize| bytes[from..].iter().take(most).copied().collect::<Vec<u8>>();
        if spool.out.len() > out {
            let bytes = next(&spool.out, out);
            self.at.out += bytes.len() as u64;
            return Ok(SpoolEvent::Bytes { stream: Stream::Out, bytes });
        }
        if spool.err.len() > err {
            let bytes = next(&spool.err, err);
            self.at.err += bytes.len() as u64;
            return Ok(SpoolEvent::Bytes { stream: Stream::Err, bytes });
        }
        Ok(SpoolEvent::Ended(spool.exit.unwrap_or(Exit::Unknown)))
    }
}
