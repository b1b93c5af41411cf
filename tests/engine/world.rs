//! An engine over sandboxes in memory, with its own data folder.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use courier_engine::{
    engine::{Config, Engine, NewSandbox},
    host::{Host, Person},
    model::{AgentKind, Clock, Item, ProjectId, SandboxId, SystemClock, Timestamp, TurnId},
    provider::{Provider, local::Local},
    secrets::SessionOnly,
    store::SandboxRow,
};
use courier_test_support::provider::FakeProvider;
use tempfile::TempDir;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// An engine, its folder, and the sandboxes that outlive it.
pub struct World {
    pub engine: Engine,
    pub provider: FakeProvider,
    pub home: TempDir,
}

impl World {
    pub async fn new() -> Self {
        let home = TempDir::new().unwrap();
        let provider = FakeProvider::default();
        Self { engine: open(&home, &provider).await, provider, home }
    }

    /// An engine over real sandboxes of this machine; `provider` stays empty.
    #[cfg(target_os = "linux")]
    pub async fn on_this_machine() -> Self {
        let home = TempDir::new().unwrap();
        let engine = Engine::open(on_this_machine(home.path())).await.unwrap();
        Self { engine, provider: FakeProvider::default(), home }
    }

    /// The app ends, and is started again over the same real sandboxes.
    #[cfg(target_os = "linux")]
    pub async fn restart_on_this_machine(&mut self) {
        self.engine.shutdown().await;
        drop(std::mem::replace(&mut self.engine, Self::placeholder().await));
        self.engine = Engine::open(on_this_machine(self.home.path())).await.unwrap();
    }

    /// The app ends, and is started again over the same data and the same sandboxes.
    pub async fn restart(&mut self) {
        self.engine.shutdown().await;
        let home = &self.home;
        // The lock is let go of with the last handle.
        let provider = self.provider.clone();
        let old = std::mem::replace(&mut self.engine, Self::placeholder().await);
        drop(old);
        self.engine = open(home, &provider).await;
    }

    /// The app ends; its folder stays.
    pub async fn close(&mut self) -> TempDir {
        self.engine.shutdown().await;
        self.engine = Self::placeholder().await;
        std::mem::replace(&mut self.home, TempDir::new().unwrap())
    }

    /// An engine over a folder of its own, in the place of one that lets go of its folder.
    pub async fn placeholder() -> Engine {
        let home = TempDir::new().unwrap();
        open(&home, &FakeProvider::default()).await
    }

    pub async fn project(&self) -> ProjectId {
        self.engine.project_sample().await.unwrap().id
    }

    /// A Shell sandbox whose first turn has started.
    pub async fn running(&self, prompt: &str) -> (SandboxId, TurnId) {
        let project = self.project().await;
        let created = self.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, prompt)).await.unwrap();
        (created.id, self.turn_with(prompt).await)
    }

    /// The turn that was given this prompt, once it has started.
    pub async fn turn_with(&self, prompt: &str) -> TurnId {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some((turn, _)) = self.provider.started().into_iter().rev().find(|(_, given)| given == prompt) {
                return turn;
            }
            assert!(tokio::time::Instant::now() < deadline, "no turn was started with {prompt:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a sandbox is as `wanted`.
    pub async fn until(&self, id: SandboxId, wanted: impl Fn(&SandboxRow) -> bool) -> SandboxRow {
        until(&self.engine, id, wanted).await
    }

    /// Every row of a conversation.
    pub async fn items(&self, id: SandboxId) -> Vec<Item> {
        self.engine.transcript_open(id).await.unwrap().rows.into_iter().map(|row| row.item).collect()
    }

    /// The whole raw log.
    pub async fn log(&self, id: SandboxId) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cursor = 0;
        loop {
            let page = self.engine.log_read(id, Some(cursor)).await.unwrap();
            if page.bytes.is_empty() {
                return bytes;
            }
            bytes.extend(page.bytes);
            cursor = page.next;
        }
    }
}

/// What an engine over real sandboxes is opened with.
#[cfg(target_os = "linux")]
pub fn on_this_machine(home: &Path) -> Config {
    let local = Local::new(keeper(), Some("/usr/bin/bwrap".into()), home.to_owned());
    let config = config(home, Arc::new(local));
    Config { host: with_checkpoints(config.host), ..config }
}

/// The keeper's program.
#[cfg(target_os = "linux")]
pub fn keeper() -> std::path::PathBuf {
    let beside = std::env::current_exe().unwrap().parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let keeper = std::env::var_os("CODECOURIER_KEEPER").map_or_else(|| beside.join("courier-keeper"), Into::into);
    assert!(keeper.is_file(), "{} is missing: cargo build -p courier-keeper", keeper.display());
    keeper
}

/// With the program that takes checkpoints.
#[cfg(target_os = "linux")]
pub fn with_checkpoints(host: Host) -> Host {
    let beside = std::env::current_exe().unwrap().parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let program =
        std::env::var_os("CODECOURIER_CHECKPOINT").map_or_else(|| beside.join("courier-checkpoint"), Into::into);
    assert!(program.is_file(), "{} is missing: cargo build -p courier-checkpoint", program.display());
    host.with_checkpoints(program, Some("/usr/bin/bwrap".into()))
}

pub fn config(home: &Path, provider: Arc<dyn Provider>) -> Config {
    let host = Host::new(home.to_owned(), Arc::new(SessionOnly::default()), Person::default());
    Config { host, clock: Arc::new(SystemClock), providers: vec![provider] }
}

pub async fn open(home: &TempDir, provider: &FakeProvider) -> Engine {
    Engine::open(config(home.path(), Arc::new(provider.clone()))).await.unwrap()
}

pub async fn until(engine: &Engine, id: SandboxId, wanted: impl Fn(&SandboxRow) -> bool) -> SandboxRow {
    let mut changes = engine.feed().changes();
    let waiting = async {
        loop {
            let row = engine.sandbox_get(id).await.unwrap();
            if wanted(&row) {
                return row;
            }
            // Lagging behind only means looking again.
            _ = changes.recv().await;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(row) => row,
        Err(_) => panic!("still {:?}", engine.sandbox_get(id).await.unwrap()),
    }
}

/// Asks again and again until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A clock whose steady half is moved by hand.
#[derive(Debug, Default)]
pub struct Moved(pub AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Duration {
        SystemClock.steady() + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
