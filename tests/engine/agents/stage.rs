//! A stage: an engine of its own, a scripted model, and one agent.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use courier_engine::{
    engine::{Details, Engine, NewSandbox, SendHow},
    host::{Host, Person},
    model::{ErrorKind, Item, NetworkMode, ProviderKind, SandboxId, Timestamp},
    provider::e2b::E2b,
    secrets::{CredentialKind, Secret, SessionOnly},
    settings::Settings,
    store::SandboxRow,
};
use courier_keeper::{protocol::KeeperRecord, spool};
use courier_test_support::{
    e2b::{E2bServer, Options, Template},
    models::ModelServer,
    processes::{self, Process},
};
use tempfile::TempDir;

use super::Driven;
use crate::world::{self, Moved, World, eventually};

/// How long an agent may take for a turn, its own retries included.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the sandboxes are.
#[derive(Clone)]
pub enum Ground {
    /// On this machine.
    Here,
    /// On machines of an E2B-compatible server.
    Cloud(Arc<E2bServer>),
}

impl Ground {
    /// A server whose machines have the agent.
    pub fn cloud(driven: &Driven, program: &std::path::Path) -> Self {
        let name = driven.kind.code();
        let folder = program.canonicalize().unwrap().parent().unwrap().to_owned();
        let template = Template { programs: vec![(name.to_owned(), program.to_owned())], read_only: vec![folder] };
        let templates = [("base".to_owned(), Template::default()), (name.to_owned(), template)].into();
        Self::Cloud(Arc::new(E2bServer::start(Options { templates, ..Options::default() }).unwrap()))
    }

    fn provider(&self) -> ProviderKind {
        match self {
            Self::Here => ProviderKind::Local,
            Self::Cloud(_) => ProviderKind::E2b,
        }
    }
}

pub struct Stage {
    pub ground: Ground,
    /// Where the machines of sandboxes are, also of those that are gone.
    pub machines: std::sync::Mutex<HashMap<SandboxId, PathBuf>>,
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
    cloud: Option<(&str, &str)>,
) -> Engine {
    let mut config = world::on_this_machine(home);
    config.providers.push(Arc::new(E2b::new(world::keeper())));
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
    let mut settings = Settings::default()
        .with_path(driven.kind, program.display().to_string())
        .with_base_url(driven.credential, base_url);
    if let Some((url, key)) = cloud {
        settings.e2b.api_url = Some(url.to_owned());
        settings.e2b.sandbox_url = Some(url.to_owned());
        settings.e2b.templates = [(driven.kind, driven.kind.code().to_owned())].into();
        engine.credential_set(CredentialKind::E2bKey, Secret::new(key), true).await.unwrap();
    }
    engine.settings_set(settings).await.unwrap();
    engine.credential_set(driven.credential, Secret::new(driven.key), true).await.unwrap();
    engine
}

impl Ground {
    /// Where the server is, and its key.
    pub fn cloud_of(&self) -> Option<(String, String)> {
        match self {
            Self::Here => None,
            Self::Cloud(server) => Some((server.url(), server.key().to_owned())),
        }
    }
}

impl Stage {
    pub async fn new(driven: &'static Driven, program: PathBuf, ground: Ground) -> Self {
        let (server, home) = (ModelServer::start().unwrap(), TempDir::new().unwrap());
        let (url, clock) = (format!("{}{}", server.url(), driven.path), Arc::<Moved>::default());
        let engine = engine(
            home.path(),
            driven,
            &program,
            &url,
            clock.clone(),
            ground.cloud_of().as_ref().map(|(url, key)| (url.as_str(), key.as_str())),
        )
        .await;
        Self { ground, machines: Default::default(), driven, program, server, engine, home, clock }
    }

    /// The folder that is the sandbox's machine, where it is one.
    pub fn machine(&self, id: SandboxId) -> Option<PathBuf> {
        let Ground::Cloud(server) = &self.ground else { return None };
        let mark = id.to_string();
        let found =
            server.machines().into_iter().find(|machine| machine.metadata.get("courier-sandbox") == Some(&mark));
        let mut known = self.machines.lock().unwrap();
        if let Some(found) = found {
            known.insert(id, found.folder);
        }
        known.get(&id).cloned()
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
            provider: self.ground.provider(),
            network: match self.ground {
                Ground::Here => NetworkMode::None,
                // An agent on another machine has its key, and asks its model itself.
                Ground::Cloud(_) => NetworkMode::Open,
            },
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
            Err(_) => {
                panic!("it never was so: {:?} {:#?}", self.engine.sandbox_get(id).await.unwrap(), self.items(id).await)
            }
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
        match &self.ground {
            Ground::Here => self.folder(id).join("workspace"),
            Ground::Cloud(_) => self.machine(id).unwrap_or_default().join("home/user/workspace"),
        }
    }

    fn folder(&self, id: SandboxId) -> PathBuf {
        self.home.path().join("sandboxes").join(id.to_string())
    }

    /// What the sandbox's init has started and is still there.
    pub fn inside(&self, id: SandboxId) -> Vec<Process> {
        if let Ground::Cloud(_) = &self.ground {
            let Some(machine) = self.machine(id) else { return Vec::new() };
            let marker = machine.display().to_string();
            let all =
                processes::mentioning(&marker).into_iter().flat_map(|process| processes::descendants(process.pid));
            let is_ours = |process: &Process| {
                ["courier-keeper", "e2b-envd", "bwrap"].iter().any(|name| process.command.contains(name))
            };
            let mut inside: Vec<Process> = all.filter(|process| !is_ours(process)).collect();
            inside.sort_by_key(|process| process.pid);
            inside.dedup_by_key(|process| process.pid);
            return inside;
        }
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
        let there = async {
            while !self.workspace(id).join(name).exists() {
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
        self.machine(id);
        self.until(id, |row| !row.lifecycle.status.is_live()).await;
        let marker = match self.machine(id) {
            Some(machine) => machine.display().to_string(),
            None => id.to_string(),
        };
        eventually("the end of every process", async || processes::mentioning(&marker).is_empty().then_some(())).await;
    }
}
