//! What the benches of real sandboxes share: an engine over this machine, and a small repository.

use std::{
    io::{Error, Write, stdout},
    path::{Path, PathBuf},
    sync::Arc,
};

use courier_engine::{
    engine::{Config, Engine, NewSandbox},
    host::{Host, Person},
    model::{AgentKind, ProjectId, SandboxId, SystemClock},
    provider::local::Local,
    secrets::SessionOnly,
    store::SandboxRow,
};
use courier_test_support::repositories::Repository;
use tempfile::TempDir;

/// An engine, and a project.
pub struct Place {
    pub engine: Engine,
    pub project: ProjectId,
    pub repository: Repository,
    pub folder: TempDir,
}

impl Place {
    pub async fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = TempDir::new()?;
        let repository = Repository::with_files(60)?;
        let home = folder.path().join("data");
        let local = Local::new(keeper(), Some(bubblewrap()), home.clone());
        let host = Host::new(home, Arc::new(SessionOnly::default()), Person::default());
        let host = host.with_checkpoints(beside("CODECOURIER_CHECKPOINT", "courier-checkpoint"), Some(bubblewrap()));
        let config = Config { host, clock: Arc::new(SystemClock), providers: vec![Arc::new(local)] };
        let engine = Engine::open(config).await?;
        let project = engine.project_add(&repository.path().display().to_string(), None).await?.id;
        Ok(Self { engine, project, repository, folder })
    }

    /// Leaves nothing behind.
    pub async fn close(self) -> Result<(), Error> {
        self.engine.shutdown().await;
        drop(self.repository);
        self.folder.close()
    }

    /// Asks for a Shell sandbox whose first message is this script.
    pub async fn create(&self, script: &str) -> Result<SandboxId, Box<dyn std::error::Error>> {
        Ok(self.engine.sandbox_create(NewSandbox::of(self.project, AgentKind::Shell, script)).await?.id)
    }

    /// Waits until a sandbox is as wanted.
    pub async fn until(
        &self,
        id: SandboxId,
        wanted: impl Fn(&SandboxRow) -> bool,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut changes = self.engine.feed().changes();
        loop {
            let row = self.engine.sandbox_get(id).await?;
            if wanted(&row) {
                return Ok(());
            }
            if let Some(error) = row.error {
                return Err(error.message.into());
            }
            // Lagging behind only means looking again.
            _ = changes.recv().await;
        }
    }

    /// Stops a sandbox and waits for its end.
    pub async fn stop(&self, id: SandboxId) -> Result<(), Box<dyn std::error::Error>> {
        self.engine.sandbox_stop(id).await?;
        self.until(id, |row| !row.lifecycle.status.is_live()).await
    }
}

pub fn keeper() -> PathBuf {
    beside("CODECOURIER_KEEPER", "courier-keeper")
}

/// The program named in the environment, or the one this build put beside its benches' folder.
fn beside(variable: &str, name: &str) -> PathBuf {
    let beside = || {
        let bench = std::env::current_exe().expect("a running program has a path");
        bench.parent().and_then(Path::parent).expect("target/release/deps/bench").join(name)
    };
    let program = std::env::var_os(variable).map_or_else(beside, PathBuf::from);
    assert!(program.is_file(), "{} is missing: cargo build --release -p {name}", program.display());
    program
}

pub fn bubblewrap() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("bwrap")).find(|path| path.exists());
    found.expect("this bench needs bubblewrap")
}

/// One figure, and what it is to be compared with.
pub fn print(name: &str, value: f64, unit: &str, against: Option<f64>) -> Result<(), Error> {
    let (other, ratio) = match against {
        Some(against) => (format!("{against:.2}"), format!("{:.2}", value / against)),
        None => ("null".to_owned(), "null".to_owned()),
    };
    writeln!(stdout(), r#"{{"name":"{name}","value":{value:.2},"unit":"{unit}","against":{other},"ratio":{ratio}}}"#)
}
