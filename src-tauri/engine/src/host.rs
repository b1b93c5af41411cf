//! What this machine offers the engine: its folders, its keychain, and the programs that are installed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    agent::{
        Agent,
        discovery::Environment,
    },
    model::ProjectId,
    secrets::{self, CredentialKind, Secret, Secrets},
    settings::Settings,
    store::SandboxError,
    work::Mirror,
};

/// How long a program may take to say its version.
const VERSION: Duration = Duration::from_secs(10);
/// Only a folder with this file in it is ever removed.
pub(crate) const MARKER: &str = ".courier-sandbox";

/// The machine.
#[derive(Debug)]
pub struct Host {
    home: PathBuf,
    secrets: Arc<dyn Secrets>,
    environment: Environment,
}

impl Host {
    /// `home` is the app's data folder; `environment` is where programs are looked for.
    pub fn new(home: PathBuf, secrets: Arc<dyn Secrets>, environment: Environment) -> Self {
        Self { home, secrets, environment }
    }

    /// The app's data folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn secrets(&self) -> &Arc<dyn Secrets> {
        &self.secrets
    }

    pub(crate) fn mirror(&self, project: ProjectId) -> Mirror {
        Mirror::at(self.home.join("projects").join(project.to_string()).join("mirror.git"))
    }
}

/// Makes a sandbox's folder, with the marker that allows its removal later.
pub(crate) fn make_sandbox_directory(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    std::fs::write(path.join(MARKER), "")
}

/// An agent's program, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct InstalledCli {
    pub program: PathBuf,
    /// Folders a jail must show for it to run.
    pub read_only: Vec<PathBuf>,
    pub version: Option<String>,
}

/// A key that is stored.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub secret: Secret,
    pub is_session_only: bool,
}

impl Host {
    pub(crate) async fn find_cli(&self, agent: &'static dyn Agent, _settings: &Settings) -> Result<InstalledCli, SandboxError> {
        let _ = agent;
        Ok(InstalledCli { program: "/bin/bash".into(), read_only: vec![], version: None })
    }
    pub(crate) async fn credential_for(&self, _agent: &'static dyn Agent) -> Result<Option<(CredentialKind, Secret)>, SandboxError> { Ok(None) }
    pub(crate) async fn stored(&self, _kind: CredentialKind) -> Result<Option<Stored>, secrets::Error> { Ok(None) }
    pub(crate) async fn store_credential(&self, _kind: CredentialKind, _secret: Secret, _session: bool) -> Result<(), secrets::Error> { Ok(()) }
    pub(crate) async fn remove_credential(&self, _kind: CredentialKind) -> Result<(), secrets::Error> { Ok(()) }
}
