//! A stage: an engine of its own, a scripted model, and one agent.

use std::{path::PathBuf, sync::Arc, time::Duration};

use courier_engine::{
    engine::{Details, Engine, NewSandbox, SendHow},
    host::{Host, Person},
    model::{ErrorKind, Item, NetworkMode, SandboxId, Timestamp},
    secrets::{Secret, SessionOnly},
    settings::Settings,
    store::SandboxRow,
};
use courier_keeper::{protocol::KeeperRecord, spool};
use courier_test_support::{
    models::ModelServer,
    processes::{self, Process},
};
use tempfile::TempDir;

use super::Driven;
use crate::world::{self, Moved, World, eventually};

/// How long an agent may take for a turn, its own retries included.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Stage {
    pub driven: &'static Driven,
    pub program: PathBuf,
    pub server: ModelServer,
    pub engine: Engine,
    pub home: TempDir,
    pub clock: Arc<Moved>,
}

/// An engine over this folder that knows the agent.
pub async fn engine(
    home: &std::path::Path,
    driven: &Driven,
    program: &std::path::Path,
    base_url: &str,
    clock: Arc<Moved>,
) -> Engine {
    let mut config = world::on_this_machine(home);
    // A script needs its interpreter: the pinned one, where the machine's is too old.
    let node = std::env::var_os("CODECOURIER_TEST_NODE").map(PathBuf::from);
    let folder = node.as_ref().and_then(|node| node.parent()).map(|folder| format!("{}:", folder.display()));
    let person = Person {
        path: Some(format!("{}/usr/local/bin:/usr/bin:/bin", folder.unwrap_or_default())),
        ..Person::default()
    };
    config.host = world::with_checkpoints(Host::new(home.to_owned(), Arc::new(SessionOnly::default()), person));
    config.clock = clock;
    let engine = Engine::open(config).await.unwrap();
    let settings = Settings::default()
        .with_path(driven.kind, program.display().to_string())
        .with_base_url(driven.credential, base_url);
    engine.settings_set(settings).await.unwrap();
    engine.credential_set(driven.credential, Secret::new(driven.key), true).await.unwrap();
    engine
}

impl Stage {
    pub async fn new(driven: &'static Driven, program: PathBuf) -> Self {
        let (server, home) = (ModelServer::start().unwrap(), TempDir::new().unwrap());
        let (url, clock) = (format!("{}{}", server.url(), driven.path), Arc::<Moved>::default());
        let engine = engine(home.path(), driven, &program, &url, clock.clone()).await;
        Self { driven, program, server, engine, home, clock }
    }

    /// Lets go of the folder.
    pub async fn close(&mut self) {
        self.engine.shutdown().await;
        self.engine = World::placeholder().await;
    }

    /// A sandbox whose agent was given its first message.
    pub async fn begin(&self, prompt: &str) -> SandboxId {
        self.begin_with(prompt, |new| new).await
    }

    pub async fn begin_with(&self, prompt: &str, change: impl FnOnce(NewSandbox) -> NewSandbox) -> SandboxId {
        let project = self.engine.project_sample().await.unwrap().id;
        // The model is asked through the gateway: no network is needed, and none gets in the way.
        let new = NewSandbox {
            network: NetworkMode::None,
            model: self.driven.model.map(str::to_owned),
            ..NewSandbox::of(project, self.driven.kind, prompt)
        };
        self.engine.sandbox_create(change(new)).await.unwrap().id
    }

    /// One more message, and the wait for its turn's end.
    pub async fn tell(&self, id: SandboxId, prompt: &str) {
        self.engine.sandbox_send(id, prompt, SendHow::Queue).await.unwrap();
        self.idle(id).await;
    }

    /// Waits until the agent has done all it was told.
    pub async fn idle(&self, id: SandboxId) -> SandboxRow {
        self.until(id, |row| !row.is_working && row.queued == 0).await
    }

    pub async fn until(&self, id: SandboxId, wanted: impl Fn(&SandboxRow) -> bool) -> SandboxRow {
        let mut changes = self.engine.feed().changes();
        let waiting = async {
            loop {
                let row = self.engine.sandbox_get(id).await.unwrap();
                if wanted(&row) {
                    return row;
                }
                _ = changes.recv().await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(row) => row,
            Err(_) => panic!("it never was so: {:#?}", self.items(id).await),
        }
    }

    pub async fn items(&self, id: SandboxId) -> Vec<Item> {
        self.engine.transcript_open(id).await.unwrap().rows.into_iter().map(|row| row.item).collect()
    }

    pub async fn state(&self, id: SandboxId) -> Details {
        self.engine.sandbox_details(id).await.unwrap()
    }

    /// Everything the agent said.
    pub async fn said(&self, id: SandboxId) -> String {
        let texts = self.items(id).await.into_iter().filter_map(|item| match item {
            Item::Text { text } => Some(text),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The errors its turns ended with.
    pub async fn errors(&self, id: SandboxId) -> Vec<(ErrorKind, String, Option<Timestamp>)> {
        let error = |item| match item {
            Item::Error { error, message, retry_at } => Some((error, message, retry_at)),
            _ => None,
        };
        self.items(id).await.into_iter().filter_map(error).collect()
    }

    pub fn workspace(&self, id: SandboxId) -> PathBuf {
        self.folder(id).join("workspace")
    }

    fn folder(&self, id: SandboxId) -> PathBuf {
        self.home.path().join("sandboxes").join(id.to_string())
    }

    /// What the sandbox's init has started and is still there.
    pub fn inside(&self, id: SandboxId) -> Vec<Process> {
        let Ok(bytes) = std::fs::read(self.folder(id).join(spool::RECORD)) else { return Vec::new() };
        let record: KeeperRecord = serde_json::from_slice(&bytes).unwrap();
        record.init.map(|init| processes::descendants(init.pid.unsigned_abs())).unwrap_or_default()
    }

    /// Nothing a turn has started runs any more.
    pub async fn nothing_is_left_inside(&self, id: SandboxId) {
        eventually("the end of everything inside", async || self.inside(id).is_empty().then_some(())).await;
    }

    /// Waits for a file in the workspace: the agent's shell is at work.
    pub async fn file(&self, id: SandboxId, name: &str) {
        let file = self.workspace(id).join(name);
        let there = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, there).await.is_err() {
            panic!("{name} never was there: {:#?}", self.items(id).await);
        }
    }

    /// Ends the sandbox; nothing of it runs afterwards.
    pub async fn end(&self, id: SandboxId) {
        self.engine.sandbox_stop(id).await.unwrap();
        self.gone(id).await;
    }

    pub async fn gone(&self, id: SandboxId) {
        self.until(id, |row| !row.lifecycle.status.is_live()).await;
        let marker = id.to_string();
        eventually("the end of every process", async || processes::mentioning(&marker).is_empty().then_some(())).await;
    }
}
