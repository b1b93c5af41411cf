//! Whatever happens in whatever order, the promises hold: random requests, agents, faults of the provider, times and
//! clocks, restarts and crashes go through the real engine; after every step its rows are read and judged.
//!
//! The engine lives on a runtime of its own whose time stands still until a step moves it. A crash drops that runtime at
//! whatever await each task has reached; the sandboxes, which are the provider's, live on.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use courier_engine::{
    agent::Exit,
    engine::{Code, Config, Engine, Error, NewSandbox, SendHow},
    host::{Host, Person},
    model::{Activity, AgentKind, Clock, MessageId, OnTimeout, ProjectId, SandboxId, Status, Stream, Timestamp},
    provider::Presence,
    secrets::SessionOnly,
    store::{Changed, Query},
};
use courier_test_support::{
    provider::FakeProvider,
    repositories::Repository,
    trouble::{Call, Trouble},
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::broadcast, task::JoinHandle};

use super::{
    Dice,
    audit::{Audit, Picture, TurnView},
    figure, in_parallel, seed, size,
};

/// How many lives the long proof takes, and how many steps each.
const LIVES: u64 = 1500;
const STEPS: u64 = 70;
/// How long what must happen by itself may take in real time.
const PATIENCE: Duration = Duration::from_secs(30);
const SANDBOXES: usize = 5;
const HOUR: i64 = 60 * 60 * 1000;

#[test]
fn any_order_of_events_keeps_every_promise_in_short() {
    prove(0x5EED_0003, 12);
}

#[test]
#[ignore = "long: cargo xtask prove fuzz"]
fn any_order_of_events_keeps_every_promise() {
    let (seed, lives) = (seed("fuzz"), size(LIVES));
    let seen = prove(seed, lives);
    figure("fuzz/lives", lives, "lives");
    figure("fuzz/steps", seen.steps, "steps");
    figure("fuzz/crashes", seen.crashes, "crashes");
    figure("fuzz/sandboxes", seen.sandboxes, "sandboxes");
    figure("fuzz/turns", seen.turns, "turns");
}

#[derive(Debug, Default)]
struct Seen {
    steps: u64,
    crashes: u64,
    sandboxes: u64,
    turns: u64,
}

fn prove(seed: u64, lives: u64) -> Seen {
    let seen = Mutex::new(Seen::default());
    let ground = Ground::new();
    in_parallel(|case| {
        if case < lives || super::asked("COURIER_CASE").is_some() {
            Story::new(&ground, seed, case).tell(&seen);
        }
        case + 1 < lives
    });
    seen.into_inner().unwrap()
}

/// A data folder with projects in it, copied for each case.
struct Ground {
    home: TempDir,
    _repositories: [Repository; 2],
    projects: Vec<ProjectId>,
}

impl Ground {
    fn new() -> Self {
        let repositories = [Repository::ordinary().unwrap(), Repository::with_files(3).unwrap()];
        let home = TempDir::new().unwrap();
        let life = Life::open(home.path(), &FakeProvider::default(), &HandClock::default());
        let projects = repositories.iter().map(|repository| {
            let source = repository.source();
            life.runtime.block_on(life.engine.project_add(&source, None)).unwrap().id
        });
        let projects = projects.collect();
        life.crash(0);
        Self { home, _repositories: repositories, projects }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            _ = std::fs::copy(entry.path(), target).unwrap()
        }
    }
}

/// A clock that a test moves, and sets, backwards too. In milliseconds.
#[derive(Clone, Debug)]
struct HandClock {
    wall: Arc<AtomicI64>,
    steady: Arc<AtomicI64>,
}

impl Default for HandClock {
    fn default() -> Self {
        Self { wall: Arc::new(AtomicI64::new(1_800_000_000_000)), steady: Arc::new(AtomicI64::new(3_600_000)) }
    }
}

impl HandClock {
    fn set(&self, jump: i64) {
        self.wall.fetch_add(jump, Ordering::SeqCst);
    }

    fn pass(&self, time: i64) {
        self.set(time);
        self.steady.fetch_add(time, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.steady.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// One life of the app.
struct Life {
    /// While it is there, time stands still. It goes first: the runtime waits for what blocks.
    stand_still: mpsc::Sender<()>,
    runtime: Runtime,
    engine: Engine,
    changes: broadcast::Receiver<Changed>,
}

impl Life {
    fn open(home: &Path, provider: &FakeProvider, clock: &HandClock) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        // While something blocks, the runtime does not move its time by itself.
        let (stand_still, over) = mpsc::channel();
        runtime.spawn_blocking(move || over.recv());
        let host = Host::new(home.to_owned(), Arc::new(SessionOnly::default()), Person::default());
        let providers: Vec<Arc<dyn courier_engine::provider::Provider>> = vec![Arc::new(provider.clone())];
        let engine =
            runtime.block_on(Engine::open(Config { host, clock: Arc::new(clock.clone()), providers })).unwrap();
        let changes = engine.feed().changes();
        Self { runtime, engine, changes, stand_still }
    }

    /// Lets tasks go on for a while: as long as so many questions take to be answered.
    fn go_on(&self, rounds: u64) {
        self.runtime.block_on(async {
            for _ in 0..rounds {
                _ = self.engine.sandbox_list(Query { limit: 1, ..Query::default() }).await;
                tokio::task::yield_now().await;
            }
        });
    }

    /// The app dies after so many moments more: nothing is told, flushed or waited for.
    fn crash(self, moments: u64) {
        self.runtime.block_on(async {
            for _ in 0..moments {
                tokio::task::yield_now().await;
            }
        });
        let Self { runtime, engine, mut changes, stand_still } = self;
        drop((engine, stand_still));
        drop(runtime);
        // What had reached the writer is written; nobody hears of it.
        while !matches!(changes.blocking_recv(), Err(broadcast::error::RecvError::Closed)) {}
    }
}

/// A request that was made.
#[derive(Clone, Debug)]
enum Asked {
    Create { prompt: String },
    Send { sandbox: SandboxId, content: String, place: Place },
    Edit { message: MessageId, content: String },
    Cancel { message: MessageId },
    Stop(SandboxId),
    Other,
}

/// Where in its queue a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Last,
    First,
    /// Before the first turn there is nothing to interrupt; whether it was before that, nobody can tell.
    Unknown,
}

#[derive(Debug)]
enum Answer {
    Made(SandboxId),
    Sent(MessageId),
    Done,
}

type Outcome = Result<Answer, Error>;

/// A message that was accepted.
#[derive(Clone, Debug)]
struct Accepted {
    /// More than one while nobody knows whether a change was made.
    contents: Vec<String>,
    /// `None`: nobody knows.
    is_cancelled: Option<bool>,
}

struct Story {
    dice: Dice,
    home: TempDir,
    provider: FakeProvider,
    clock: HandClock,
    projects: Vec<ProjectId>,
    life: Option<Life>,
    audit: Audit,
    picture: Picture,
    asked: Vec<(Asked, JoinHandle<Outcome>)>,
    sandboxes: Vec<SandboxId>,
    accepted: HashMap<MessageId, Accepted>,
    /// Per sandbox, messages in the order in which they must be given.
    order: HashMap<SandboxId, Vec<MessageId>>,
    /// What was asked for and may be there or not.
    unknown: HashSet<String>,
    /// Turns whose end nobody has to have read: their sandbox was given up, or its spool could not be read.
    unread: HashSet<SandboxId>,
    has_unreadable: bool,
    words: u64,
    trace: Vec<String>,
    name: String,
    crashes: u64,
}

impl Story {
    fn new(ground: &Ground, seed: u64, case: u64) -> Self {
        let home = TempDir::new().unwrap();
        copy(ground.home.path(), home.path());
        let (provider, clock) = (FakeProvider::default(), HandClock::default());
        let life = Life::open(home.path(), &provider, &clock);
        let audit = Audit::of(&home.path().join("courier.db"));
        Self {
            dice: Dice::of(seed, case),
            home,
            provider,
            clock,
            projects: ground.projects.clone(),
            life: Some(life),
            audit,
            picture: Picture::default(),
            asked: Vec::new(),
            sandboxes: Vec::new(),
            accepted: HashMap::new(),
            order: HashMap::new(),
            unknown: HashSet::new(),
            unread: HashSet::new(),
            has_unreadable: false,
            words: 0,
            trace: Vec::new(),
            name: format!("COURIER_SEED={seed} COURIER_CASE={case}"),
            crashes: 0,
        }
    }

    fn tell(mut self, seen: &Mutex<Seen>) {
        self.create();
        for _ in 0..STEPS {
            self.step();
            let rounds = self.dice.below(5);
            self.life().go_on(rounds);
            self.judge();
        }
        self.settle("the provider is well again");
        // Everybody's time is over.
        for _ in 0..4 {
            self.pass(Duration::from_secs(8 * 24 * 60 * 60));
        }
        self.settle("all time is over");
        let stands = |status| matches!(status, Status::Paused | Status::Killed | Status::Error);
        let is_over = self.picture.sandboxes.iter().all(|sandbox| stands(sandbox.lifecycle.status));
        self.demand(is_over, || "a sandbox runs on beyond its time".to_owned());
        let mut seen = seen.lock().unwrap();
        seen.steps += STEPS;
        seen.crashes += self.crashes;
        seen.sandboxes += self.picture.sandboxes.len() as u64;
        seen.turns += self.picture.turns.len() as u64;
        drop(seen);
        self.life.take().expect("it lives").crash(0);
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("it lives between steps")
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    fn demand(&self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            let trace = self.trace.join("\n  ");
            let sandboxes: Vec<String> =
                self.picture.sandboxes.iter().map(|one| format!("{} is {:?}", one.id, one.lifecycle)).collect();
            panic!("{}\n  {trace}\nPROBLEM {}\n{}", self.name, problem(), sandboxes.join("\n"));
        }
    }

    // ── steps ──

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=4 => self.create(),
            5..=16 => self.send(),
            17..=19 => self.edit(),
            20..=21 => self.cancel(),
            22..=24 => self.order("interrupt"),
            25..=30 => self.order("pause"),
            31..=36 => self.order("resume"),
            37..=39 => self.order("stop"),
            40..=41 => self.order("give up"),
            42..=44 => self.order("extend"),
            45..=56 => self.print(),
            57..=64 => self.end(),
            65..=67 => self.provider_acts(),
            68..=74 => self.trouble(),
            75..=78 => {
                self.note("the provider is well");
                self.provider.be_well();
            }
            79..=87 => {
                let times = [10, 31, 40, 1000, 2000, 5000, 5000, 15_000, 31_000, 61_000, 16 * 60_000];
                let time = Duration::from_millis(self.dice.pick(&times).unwrap_or(0));
                self.note(format!("{time:?} pass"));
                self.pass(time);
            }
            88..=90 => {
                let jumps = [-25 * HOUR, -HOUR, -60_000, -1000, -1, 1, 1000, 60_000, HOUR, 25 * HOUR];
                let jump = self.dice.pick(&jumps).unwrap_or(0);
                self.note(format!("the clock jumps by {jump} ms"));
                self.clock.set(jump);
            }
            91..=92 => self.shut_down_and_open(),
            _ => self.crash_and_open(),
        }
    }

    fn word(&mut self, what: &str) -> String {
        self.words += 1;
        format!("{what} {} ✓", self.words)
    }

    fn ask(&mut self, asked: Asked, request: impl Future<Output = Outcome> + Send + 'static) {
        let task = self.life().runtime.spawn(request);
        self.asked.push((asked, task));
    }

    fn engine(&self) -> Engine {
        self.life().engine.clone()
    }

    fn create(&mut self) {
        if self.sandboxes.len() >= SANDBOXES {
            return;
        }
        let prompt = self.word("begin");
        let timeouts = [Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(900)];
        let project = self.dice.pick(&self.projects.clone()).expect("there are projects");
        let new = NewSandbox {
            timeout: self.dice.pick(&timeouts).expect("there are some"),
            on_timeout: if self.dice.one_in(3) { OnTimeout::Pause } else { OnTimeout::Kill },
            setup_script: self.dice.one_in(4).then(|| "true".to_owned()),
            ..NewSandbox::of(project, AgentKind::Shell, &prompt)
        };
        self.note(format!("create {prompt:?}, {:?}, {:?}", new.timeout, new.on_timeout));
        let engine = self.engine();
        self.ask(
            Asked::Create { prompt },
            async move { engine.sandbox_create(new).await.map(|row| Answer::Made(row.id)) },
        );
    }

    /// A sandbox, more often one that lives.
    fn some_sandbox(&mut self) -> Option<SandboxId> {
        let lives = |id: &SandboxId| self.picture.sandbox(&id.to_string()).is_none_or(|s| s.lifecycle.status.is_live());
        let live: Vec<_> = self.sandboxes.iter().copied().filter(lives).collect();
        let from = if live.is_empty() || self.dice.one_in(8) { self.sandboxes.clone() } else { live };
        self.dice.pick(&from)
    }

    fn send(&mut self) {
        let Some(sandbox) = self.some_sandbox() else { return };
        // Of two that are sent at once nobody knows which was first.
        let is_sending = |asked: &Asked| matches!(asked, Asked::Send { sandbox: to, .. } if *to == sandbox);
        if self.asked.iter().any(|(asked, _)| is_sending(asked)) {
            return;
        }
        let content = self.word("say");
        let how = if self.dice.one_in(3) { SendHow::Interrupt } else { SendHow::Queue };
        self.note(format!("send {content:?} to {sandbox}, {how:?}"));
        let engine = self.engine();
        let text = content.clone();
        let row = self.picture.sandbox(&sandbox.to_string());
        let has_begun = row.is_some_and(|row| row.lifecycle.status != Status::Creating);
        let place = match how {
            SendHow::Queue => Place::Last,
            SendHow::Interrupt if has_begun => Place::First,
            SendHow::Interrupt => Place::Unknown,
        };
        let asked = Asked::Send { sandbox, content, place };
        self.ask(asked, async move { engine.sandbox_send(sandbox, &text, how).await.map(|row| Answer::Sent(row.id)) });
    }

    fn some_message(&mut self) -> Option<MessageId> {
        let changing: HashSet<MessageId> = self
            .asked
            .iter()
            .filter_map(|(asked, _)| match asked {
                Asked::Edit { message, .. } | Asked::Cancel { message } => Some(*message),
                _ => None,
            })
            .collect();
        let mut all: Vec<_> = self.accepted.keys().copied().filter(|id| !changing.contains(id)).collect();
        all.sort();
        // More often a new one, since it may wait still.
        let from = all.len().saturating_sub(4);
        self.dice.pick(&all[from..])
    }

    fn edit(&mut self) {
        let Some(message) = self.some_message() else { return };
        let content = self.word("rather say");
        self.note(format!("change {message} to {content:?}"));
        self.accepted.get_mut(&message).expect("it is one").contents.push(content.clone());
        let (engine, text) = (self.engine(), content.clone());
        self.ask(Asked::Edit { message, content }, async move {
            engine.message_edit(message, &text).await.map(|()| Answer::Done)
        });
    }

    fn cancel(&mut self) {
        let Some(message) = self.some_message() else { return };
        let accepted = self.accepted.get_mut(&message).expect("it is one");
        if accepted.is_cancelled != Some(false) {
            return;
        }
        accepted.is_cancelled = None;
        self.note(format!("cancel {message}"));
        let engine = self.engine();
        self.ask(Asked::Cancel { message }, async move { engine.message_cancel(message).await.map(|()| Answer::Done) });
    }

    fn order(&mut self, what: &'static str) {
        let Some(id) = self.some_sandbox() else { return };
        let by = Duration::from_secs(1 + self.dice.below(600));
        self.note(format!("{what} {id}"));
        let engine = self.engine();
        if what == "give up" {
            self.unread.insert(id);
        }
        let asked = if what == "stop" { Asked::Stop(id) } else { Asked::Other };
        self.ask(asked, async move {
            match what {
                "interrupt" => engine.sandbox_interrupt(id).await,
                "pause" => engine.sandbox_pause(id).await,
                "resume" => engine.sandbox_resume(id).await,
                "stop" => engine.sandbox_stop(id).await,
                "give up" => engine.sandbox_give_up(id).await,
                "extend" => engine.sandbox_extend(id, by).await,
                other => unreachable!("{other}"),
            }
            .map(|()| Answer::Done)
        });
    }

    fn print(&mut self) {
        let Some(turn) = self.dice.pick(&self.provider.open_turns()) else { return };
        let stream = if self.dice.one_in(4) { Stream::Err } else { Stream::Out };
        for _ in 0..=self.dice.below(4) {
            let mut bytes = self.word("line").into_bytes();
            if self.dice.one_in(8) {
                bytes = bytes.repeat(200);
            }
            if !self.dice.one_in(3) {
                bytes.push(b'\n');
            }
            // A character may arrive in two halves.
            let at = usize::try_from(self.dice.below(bytes.len() as u64)).expect("an index");
            self.provider.print_to(turn, stream, &bytes[..at]);
            self.provider.print_to(turn, stream, &bytes[at..]);
        }
        self.note(format!("turn {turn} prints"));
    }

    fn end(&mut self) {
        let Some(turn) = self.dice.pick(&self.provider.open_turns()) else { return };
        let exits = [Exit::Code(0), Exit::Code(0), Exit::Code(3), Exit::Signal(11)];
        let exit = self.dice.pick(&exits).expect("there are some");
        self.note(format!("turn {turn} ends with {exit:?}"));
        self.provider.end(turn, exit);
    }

    fn provider_acts(&mut self) {
        let Some(id) = self.some_sandbox() else { return };
        match self.dice.below(4) {
            0 => {
                self.note(format!("{id} goes away"));
                self.provider.lose(id);
            }
            1 => {
                self.note(format!("{id} times out by itself"));
                self.provider.time_out(id);
            }
            2 => {
                self.note("spools are handed over in small pieces");
                self.provider.hand_over(1 + usize::try_from(self.dice.below(40)).expect("it is small"));
            }
            _ => {
                self.note("the machine is rebooted");
                self.crash();
                self.provider.lose_all();
                self.open();
            }
        }
    }

    fn trouble(&mut self) {
        let call = self.dice.pick(Call::ALL).expect("there are calls");
        let times = [0, 0, 5, 500, 3000, 20_000].map(Duration::from_millis);
        let trouble = Trouble {
            thinks: self.dice.pick(&times).unwrap_or_default(),
            refuses: self.dice.one_in(3),
            is_late: self.dice.pick(&times).unwrap_or_default(),
            is_misheard: self.dice.one_in(4),
        };
        // While these fail, the last output of a sandbox that ends is not waited for without an end.
        if matches!(call, Call::Follow | Call::Read | Call::IsStarted) {
            self.has_unreadable = true;
        }
        self.note(format!("trouble with {call:?}: {trouble:?}"));
        self.provider.trouble(call, trouble);
    }

    fn pass(&mut self, time: Duration) {
        self.clock.pass(i64::try_from(time.as_millis()).expect("it is short"));
        self.life().runtime.block_on(tokio::time::advance(time));
        self.life().go_on(1);
    }

    // ── lives ──

    fn open(&mut self) {
        self.life = Some(Life::open(self.home.path(), &self.provider, &self.clock));
    }

    fn crash_and_open(&mut self) {
        self.note("crash");
        self.crash();
        if self.dice.one_in(2) {
            // Something happens while nobody listens.
            self.print();
            self.end();
        }
        self.open();
    }

    fn crash(&mut self) {
        self.crashes += 1;
        let moments = self.dice.below(80);
        self.life.take().expect("it lives").crash(moments);
        self.answers();
        // What was not answered may have been done.
        for (asked, _) in std::mem::take(&mut self.asked) {
            self.never_answered(asked);
        }
        self.judge();
    }

    fn shut_down_and_open(&mut self) {
        self.note("shut down");
        let engine = self.engine();
        let ending = self.life().runtime.spawn(async move { engine.shutdown().await });
        let deadline = Instant::now() + PATIENCE;
        while !ending.is_finished() {
            self.demand(Instant::now() < deadline, || "the engine does not shut down".to_owned());
            self.life().go_on(1);
        }
        self.crash();
        self.open();
    }

    // ── what is known ──

    /// Takes the answers that are there.
    fn answers(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        let (finished, waiting) = asked.into_iter().partition(|(_, task)| task.is_finished());
        self.asked = waiting;
        let finished: Vec<(Asked, JoinHandle<Outcome>)> = finished;
        for (asked, task) in finished {
            let outcome = result_of(task);
            match outcome {
                None => self.never_answered(asked),
                Some(outcome) => self.answered(asked, outcome),
            }
        }
    }

    fn answered(&mut self, asked: Asked, outcome: Outcome) {
        let refused = outcome.as_ref().err().map(Error::code);
        if refused == Some(Code::ShuttingDown) {
            return self.never_answered(asked);
        }
        (self.picture, _) = self.audit.look();
        match (asked, outcome) {
            (Asked::Create { prompt }, Ok(Answer::Made(id))) => self.made(id, &prompt),
            (Asked::Send { sandbox, content, place }, Ok(Answer::Sent(id))) => {
                self.sent(sandbox, id, content, place);
            }
            (Asked::Edit { message, content }, outcome) => {
                let accepted = self.accepted.get_mut(&message).expect("it is one");
                match outcome {
                    Ok(_) => accepted.contents = vec![content],
                    Err(_) => accepted.contents.retain(|known| *known != content),
                }
            }
            (Asked::Cancel { message }, outcome) => {
                self.accepted.get_mut(&message).expect("it is one").is_cancelled = Some(outcome.is_ok());
            }
            (Asked::Stop(id), Err(error)) => {
                self.demand(false, || format!("a stop of {id} was refused: {error:?}"));
            }
            (Asked::Create { prompt }, Err(error)) => {
                self.demand(false, || format!("{prompt:?} was refused: {error:?}"));
            }
            _ => {}
        }
    }

    fn made(&mut self, id: SandboxId, prompt: &str) {
        self.sandboxes.push(id);
        let name = id.to_string();
        let first = self.picture.messages.iter().find(|message| message.sandbox == name && message.content == prompt);
        let first = first.map(|message| message.id.parse().expect("an id"));
        self.demand(first.is_some(), || format!("{prompt:?} was accepted and is not there"));
        let Some(message) = first else { return };
        let accepted = Accepted { contents: vec![prompt.to_owned()], is_cancelled: Some(false) };
        self.accepted.insert(message, accepted);
        // Whatever was sent meanwhile came later.
        self.order.entry(id).or_default().insert(0, message);
    }

    fn sent(&mut self, sandbox: SandboxId, id: MessageId, content: String, place: Place) {
        self.accepted.insert(id, Accepted { contents: vec![content], is_cancelled: Some(false) });
        let number = |id: &MessageId| self.picture.turn_of(&id.to_string()).map_or(i64::MAX, |turn| turn.number);
        let own = number(&id);
        let order = self.order.entry(sandbox).or_default();
        // Before what waits still, or was given after it.
        let comes_later = |other: &MessageId| {
            let is_there = self.picture.message(&other.to_string()).is_some();
            is_there && (number(other) == i64::MAX || number(other) > own)
        };
        match place {
            Place::Last => order.push(id),
            Place::First => {
                let at = order.iter().position(comes_later).unwrap_or(order.len());
                order.insert(at, id);
            }
            Place::Unknown => {}
        }
    }

    /// Nobody will say whether it was done.
    fn never_answered(&mut self, asked: Asked) {
        (self.picture, _) = self.audit.look();
        let found = |content: &str| {
            let message =
                self.picture.messages.iter().find(|message| message.role == "user" && message.content == content);
            message.map(|message| message.id.parse::<MessageId>().expect("an id"))
        };
        match asked {
            Asked::Create { prompt } => {
                if let Some(message) = found(&prompt) {
                    let row = self.picture.message(&message.to_string()).expect("it was found");
                    let id = row.sandbox.parse().expect("an id");
                    self.made(id, &prompt);
                } else {
                    self.unknown.insert(prompt);
                }
            }
            Asked::Send { sandbox, content, place } => match found(&content) {
                Some(id) => self.sent(sandbox, id, content, place),
                None => _ = self.unknown.insert(content),
            },
            Asked::Cancel { message } => {
                let is_there = self.picture.message(&message.to_string()).is_some();
                self.accepted.get_mut(&message).expect("it is one").is_cancelled = Some(!is_there);
            }
            Asked::Edit { .. } | Asked::Stop(_) | Asked::Other => {}
        }
    }

    // ── what must hold ──

    fn judge(&mut self) {
        self.answers();
        // The rows first: the spools, read after them, may only be ahead.
        let (picture, mut problems) = self.audit.look();
        self.picture = picture;
        problems.extend(self.provider.misdeeds());
        self.messages(&mut problems);
        self.order_kept(&mut problems);
        self.logs(&mut problems);
        self.demand(problems.is_empty(), || problems.join("\n"));
    }

    fn messages(&self, problems: &mut Vec<String>) {
        let started = self.provider.started();
        let mut given: HashMap<&str, Vec<String>> = HashMap::new();
        for (turn, prompt) in &started {
            given.entry(prompt).or_default().push(turn.to_string());
        }
        for (prompt, turns) in &given {
            if turns.len() != 1 {
                problems.push(format!("{prompt:?} was given {} times", turns.len()));
            }
            let is_its = |turn: &&TurnView| turn.id == turns[0];
            let message = self.picture.turns.iter().find(is_its).and_then(|turn| self.picture.message(&turn.message));
            if message.is_none_or(|message| message.content != *prompt) {
                problems.push(format!("{prompt:?} was given, and is the message {message:?}"));
            }
        }
        for (id, accepted) in &self.accepted {
            let row = self.picture.message(&id.to_string());
            match (row, accepted.is_cancelled) {
                (None, Some(false)) => problems.push(format!("message {id} {:?} is lost", accepted.contents)),
                (Some(_), Some(true)) => problems.push(format!("message {id} was cancelled and is there")),
                (Some(row), _) if !accepted.contents.contains(&row.content) => {
                    problems.push(format!("message {id} is {:?}, not {:?}", row.content, accepted.contents));
                }
                _ => {}
            }
        }
        let mut known: HashSet<&str> =
            self.accepted.values().flat_map(|one| &one.contents).map(String::as_str).collect();
        for (asked, _) in &self.asked {
            match asked {
                Asked::Create { prompt: text } | Asked::Send { content: text, .. } => _ = known.insert(text),
                _ => {}
            }
        }
        let mut seen = HashSet::new();
        for message in self.picture.messages.iter().filter(|message| message.role == "user") {
            let content = message.content.as_str();
            if !known.contains(content) || !seen.insert(content) {
                problems.push(format!("{message:?} was never asked for, or is there twice"));
            }
        }
        // An ended turn that was never begun says so.
        let begun: HashSet<String> = started.iter().map(|(turn, _)| turn.to_string()).collect();
        for turn in self.picture.turns.iter().filter(|turn| turn.end.is_some() && turn.error_kind.is_none()) {
            if !begun.contains(&turn.id) {
                problems.push(format!("turn {turn:?} has ended well and was never begun"));
            }
        }
    }

    fn order_kept(&self, problems: &mut Vec<String>) {
        for (sandbox, order) in &self.order {
            let mut last = 0;
            for id in order {
                let Some(row) = self.picture.message(&id.to_string()) else { continue };
                let number = self.picture.turn_of(&row.id).map_or(i64::MAX, |turn| turn.number);
                if number < last || (number == last && number != i64::MAX) {
                    problems.push(format!("in {sandbox} {:?} was given before its turn: {order:?}", row.content));
                }
                last = number;
            }
        }
    }

    fn logs(&self, problems: &mut Vec<String>) {
        for turn in &self.picture.turns {
            let spool = self.provider.spool(turn.id.parse().expect("an id")).unwrap_or_default();
            if !spool.out.starts_with(&turn.out) || !spool.err.starts_with(&turn.err) {
                problems.push(format!("the log of turn {} is not what was printed", turn.id));
            }
            let is_whole = spool.out == turn.out && spool.err == turn.err;
            let may_be_short = turn.end.is_none() || self.may_be_short(&turn.sandbox);
            if !is_whole && !may_be_short {
                let lengths = (turn.out.len(), spool.out.len(), turn.err.len(), spool.err.len());
                problems.push(format!(
                    "turn {} ended as {:?} {:?}, and not all is in the log: {lengths:?}",
                    turn.id, turn.end, turn.error_kind
                ));
            }
        }
    }

    /// Whether the last output of a sandbox may be missing: it was given up, or could not be read while it ended.
    fn may_be_short(&self, sandbox: &str) -> bool {
        let ends = self.picture.sandbox(sandbox).is_some_and(|sandbox| {
            !sandbox.lifecycle.status.is_live() || sandbox.lifecycle.activity == Activity::Stopping
        });
        ends && (self.has_unreadable || self.unread.iter().any(|id| id.to_string() == sandbox))
    }

    // ── the end ──

    /// Nothing goes wrong any more: what is owed happens, and then everything is as the rows say.
    fn settle(&mut self, when: &str) {
        self.note(when);
        self.provider.be_well();
        let deadline = Instant::now() + PATIENCE;
        let mut unsettled = Vec::new();
        let mut rounds = 0;
        while Instant::now() < deadline {
            for turn in self.provider.open_turns() {
                self.provider.end(turn, Exit::Code(0));
            }
            self.life().go_on(3);
            self.judge();
            unsettled = self.unsettled();
            rounds += 1;
            // What is settled must be so for longer than what is owed may take.
            if unsettled.is_empty() && rounds > 12 {
                return;
            }
            if !unsettled.is_empty() {
                rounds = rounds.min(6);
            }
            self.pass(Duration::from_secs(5));
        }
        self.demand(false, || format!("not settled: {unsettled:#?}"));
    }

    fn unsettled(&self) -> Vec<String> {
        let mut problems: Vec<String> =
            self.asked.iter().map(|(asked, _)| format!("{asked:?} is not answered")).collect();
        for sandbox in &self.picture.sandboxes {
            let (id, is) = (sandbox.id.as_str(), sandbox.lifecycle);
            if is.activity != Activity::None || is.status == Status::Creating {
                problems.push(format!("{id} is {is:?}"));
            }
            let there = self.provider.presence(id.parse().expect("an id"));
            let is_true = match is.status {
                Status::Creating => false,
                Status::Running => there == Some(Presence::Alive),
                Status::Paused => there == Some(Presence::Paused),
                Status::Killed | Status::Error => !matches!(there, Some(Presence::Alive | Presence::Paused)),
            };
            if !is_true {
                problems.push(format!("{id} is {is:?}, and the provider says {there:?}"));
            }
            let waits =
                self.picture.messages.iter().any(|m| m.sandbox == id && m.delivery.as_deref() == Some("queued"));
            let is_open = self.picture.turns.iter().any(|turn| turn.sandbox == id && turn.end.is_none());
            if is.status == Status::Running && (waits || is_open) {
                problems.push(format!("{id} is idle; messages wait: {waits}; a turn is open: {is_open}"));
            }
            if !is.status.is_live() && is_open {
                problems.push(format!("{id} has ended, and a turn of it is open"));
            }
        }
        problems.extend(self.audit.jobs_due());
        problems
    }
}

/// The result of a task that has finished; `None` where it was dropped with its runtime.
fn result_of(task: JoinHandle<Outcome>) -> Option<Outcome> {
    let mut task = std::pin::pin!(task);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match task.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Ok(outcome)) => Some(outcome),
        std::task::Poll::Ready(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => None,
    }
}
