//! Sandboxes on machines of an E2B-compatible server.

mod faults;
mod owned;
mod provider;

use std::{path::Path, sync::Arc, time::Duration};

use courier_engine::{
    engine::{Engine, NewSandbox, SendHow},
    model::{AgentKind, ProviderKind, SandboxId, Status},
    provider::e2b::E2b,
    secrets::{CredentialKind, Secret},
    settings::Settings,
    store::SandboxRow,
};
use courier_test_support::e2b::{E2bServer, Options};
use tempfile::TempDir;

use crate::world;

/// How long a step may take, the app's own repetitions included.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine whose sandboxes are on a server's machines.
struct Sky {
    engine: Engine,
    server: Arc<E2bServer>,
    home: TempDir,
}

/// The engine over this folder, signed in at this server.
async fn engine(home: &Path, url: &str, key: &str) -> Engine {
    let mut config = world::on_this_machine(home);
    config.providers.push(Arc::new(E2b::new(world::keeper())));
    let engine = Engine::open(config).await.unwrap();
    let mut settings = Settings::default();
    settings.e2b.api_url = Some(url.to_owned());
    settings.e2b.sandbox_url = Some(url.to_owned());
    engine.settings_set(settings).await.unwrap();
    engine.credential_set(CredentialKind::E2bKey, Secret::new(key), true).await.unwrap();
    engine
}

impl Sky {
    async fn new() -> Self {
        Self::over(E2bServer::start(Options::default()).unwrap()).await
    }

    async fn over(server: E2bServer) -> Self {
        let home = TempDir::new().unwrap();
        let engine = engine(home.path(), &server.url(), server.key()).await;
        Self { engine, server: Arc::new(server), home }
    }

    async fn begin(&self, script: &str) -> SandboxId {
        let project = self.engine.project_sample().await.unwrap().id;
        let new = NewSandbox { provider: ProviderKind::E2b, ..NewSandbox::of(project, AgentKind::Shell, script) };
        self.engine.sandbox_create(new).await.unwrap().id
    }

    async fn tell(&self, id: SandboxId, script: &str) {
        self.engine.sandbox_send(id, script, SendHow::Queue).await.unwrap();
    }

    async fn until(&self, id: SandboxId, what: &str, wanted: impl Fn(&SandboxRow) -> bool) -> SandboxRow {
        let mut changes = self.engine.feed().changes();
        let waiting = async {
            loop {
                let row = self.engine.sandbox_get(id).await.unwrap();
                if wanted(&row) {
                    return row;
                }
                _ = tokio::time::timeout(Duration::from_millis(200), changes.recv()).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(row) => row,
            Err(_) => panic!("in vain for {what}: {:?}", self.engine.sandbox_get(id).await.unwrap()),
        }
    }

    /// Waits until all that was said is done, or the sandbox has ended.
    async fn idle(&self, id: SandboxId) -> SandboxRow {
        self.until(id, "the end of its turns", |row| {
            let is_idle = row.lifecycle.status == Status::Running && !row.is_working && row.queued == 0;
            is_idle || !row.lifecycle.status.is_live()
        })
        .await
    }

    async fn ended(&self, id: SandboxId) -> SandboxRow {
        self.until(id, "its end", |row| !row.lifecycle.status.is_live()).await
    }

    async fn log(&self, id: SandboxId) -> String {
        let (mut bytes, mut cursor) = (Vec::new(), 0);
        loop {
            let page = self.engine.log_read(id, Some(cursor)).await.unwrap();
            if page.bytes.is_empty() {
                return String::from_utf8(bytes).unwrap();
            }
            bytes.extend(page.bytes);
            cursor = page.next;
        }
    }
}
