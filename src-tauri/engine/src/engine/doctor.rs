//! The Doctor: what the app needs of this machine, what was looked for, what was found, and the fix.

use std::path::Path;

use super::{Engine, Error};
use crate::{
    agent::{self, Agent},
    model::{AgentKind, ProviderKind, Timestamp},
    provider::{self, local},
    secrets::{self, CredentialKind},
    settings::Settings,
};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    Ok,
    Warning,
    Failed,
    /// Something optional is absent.
    NotFound,
}

/// One thing the app needs, or can use.
#[derive(Clone, Debug)]
pub struct Check {
    pub id: &'static str,
    pub name: String,
    pub state: CheckState,
    pub found: String,
    pub looked_for: Vec<String>,
    pub remedy: Option<String>,
}

/// Every check.
#[derive(Clone, Debug)]
pub struct Report {
    pub checks: Vec<Check>,
    pub ran_at: Timestamp,
}

impl Engine {
    /// Looks at everything the app needs.
    ///
    /// # Errors
    /// What the database says.
    pub async fn doctor(&self) -> Result<Report, Error> {
        let settings = self.settings().await?;
        let mut checks = vec![self.jail().await, self.git().await, self.keychain().await];
        for agent in agent::agents() {
            checks.extend(self.program(*agent, &settings).await);
        }
        for agent in agent::agents().iter().filter(|agent| !agent.credentials().is_empty()) {
            checks.push(self.key(*agent, &settings).await);
        }
        checks.extend(self.e2b().await);
        checks.push(self.data_folder());
        Ok(Report { checks, ran_at: self.around.clock.now() })
    }

    async fn jail(&self) -> Check {
        let check = Check {
            id: "jail",
            name: "Isolation of local sandboxes".to_owned(),
            state: CheckState::Ok,
            found: String::new(),
            looked_for: vec!["bwrap on the PATH, and whether it can make a sandbox".to_owned()],
            remedy: None,
        };
        let program = self.on_path("bwrap").await;
        match local::probe(program.as_deref()).await {
            Ok(jail) => {
                let (major, minor) = jail.version;
                Check { found: format!("{} {major}.{minor}", jail.program.display()), ..check }
            }
            Err(error) => {
                let remedy = match &error {
                    provider::Error::NoJail { remedy, .. } => Some(remedy.clone()),
                    provider::Error::Unsupported => Some("Use Docker or E2B on this system.".to_owned()),
                    _ => None,
                };
                Check { state: CheckState::Failed, found: error.to_string(), remedy, ..check }
            }
        }
    }

    async fn git(&self) -> Check {
        let found = self.on_path("git").await;
        Check {
            id: "git",
            name: "git, for the agents".to_owned(),
            state: if found.is_some() { CheckState::Ok } else { CheckState::Warning },
            found: found.as_ref().map_or_else(|| "not found".to_owned(), |path| path.display().to_string()),
            looked_for: vec!["git on the PATH".to_owned()],
            remedy: found.is_none().then(|| "Install git; agents use it inside their sandboxes.".to_owned()),
        }
    }

    async fn keychain(&self) -> Check {
        let answer = self.around.host.stored(CredentialKind::AnthropicKey).await;
        let remedy = match &answer {
            Ok(_) => None,
            Err(secrets::Error::NoKeychain { remedy, .. }) => Some((*remedy).to_owned()),
            Err(_) => Some("Unlock it, or keep keys for one session at a time.".to_owned()),
        };
        Check {
            id: "keychain",
            name: "Keychain".to_owned(),
            state: if answer.is_ok() { CheckState::Ok } else { CheckState::Warning },
            found: answer.map_or_else(|error| error.to_string(), |_| "it answers".to_owned()),
            looked_for: vec!["the operating system's keychain".to_owned()],
            remedy,
        }
    }

    async fn program(&self, agent: &'static dyn Agent, settings: &Settings) -> Option<Check> {
        let cli = agent.cli()?;
        let discovery = self.around.host.discover(cli, settings.path_of(agent.kind()).as_deref()).await;
        let looked_for = discovery.looked.iter().map(|looked| {
            let path = looked.candidate.path.display();
            match &looked.found {
                Ok(_) => path.to_string(),
                Err(problem) => format!("{path}: {problem}"),
            }
        });
        let found = discovery.program.as_ref().map(|program| {
            let (major, minor, patch) = program.version;
            format!("{} {major}.{minor}.{patch}", program.path.display())
        });
        Some(Check {
            id: agent.kind().code(),
            name: agent.name().to_owned(),
            state: if found.is_some() { CheckState::Ok } else { CheckState::NotFound },
            looked_for: looked_for.collect(),
            found: found.unwrap_or_else(|| "not found".to_owned()),
            remedy: discovery.fix,
        })
    }

    async fn key(&self, agent: &'static dyn Agent, settings: &Settings) -> Check {
        let credential = self.around.host.credential_for(agent, agent.default_model(), settings).await;
        Check {
            id: key_of(agent.kind()),
            name: format!("Key of {}", agent.name()),
            state: if credential.is_ok() { CheckState::Ok } else { CheckState::NotFound },
            found: match &credential {
                Ok(Some((kind, secret))) => crate::sandbox::billed_to(*kind, secret),
                Ok(None) => "none needed".to_owned(),
                Err(error) => error.message.clone(),
            },
            looked_for: agent.credentials().iter().map(|kind| kind.name().to_owned()).collect(),
            remedy: credential.err().map(|error| error.remedy),
        }
    }

    /// Whether the account on which machines are made can be used, if there is one.
    async fn e2b(&self) -> Option<Check> {
        let provider = self.around.provider(ProviderKind::E2b)?;
        let check = Check {
            id: "e2b",
            name: "E2B account".to_owned(),
            state: CheckState::Ok,
            found: String::new(),
            looked_for: vec![CredentialKind::E2bKey.name().to_owned(), "whether the service takes it".to_owned()],
            remedy: None,
        };
        if !matches!(self.around.host.stored(CredentialKind::E2bKey).await, Ok(Some(_))) {
            let remedy = Some("Set one in the settings to make sandboxes in the cloud.".to_owned());
            return Some(Check { state: CheckState::NotFound, found: "no key".to_owned(), remedy, ..check });
        }
        Some(match provider.owned().await {
            Ok(machines) => Check { found: format!("it answers; machines of this app: {}", machines.len()), ..check },
            Err(error) => {
                let remedy = match &error {
                    provider::Error::Refused { remedy, .. } => remedy.clone(),
                    _ => "Check the network, and the addresses in the settings.".to_owned(),
                };
                Check { state: CheckState::Failed, found: error.to_string(), remedy: Some(remedy), ..check }
            }
        })
    }

    fn data_folder(&self) -> Check {
        let home = self.home();
        let written = is_writable(home);
        Check {
            id: "data",
            name: "Data folder".to_owned(),
            state: if written.is_ok() { CheckState::Ok } else { CheckState::Failed },
            found: match &written {
                Ok(()) => home.display().to_string(),
                Err(error) => format!("{}: {error}", home.display()),
            },
            looked_for: vec!["whether a file can be written there".to_owned()],
            remedy: written.err().map(|_| "Make room on the disk, or give the folder back to its owner.".to_owned()),
        }
    }

    async fn on_path(&self, program: &str) -> Option<std::path::PathBuf> {
        let path = self.around.host.login_path().await?;
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
    }
}

/// What the check of an agent's key is known by: no two checks share an id.
fn key_of(agent: AgentKind) -> &'static str {
    match agent {
        AgentKind::Claude => "key-claude",
        AgentKind::Codex => "key-codex",
        AgentKind::Opencode => "key-opencode",
        AgentKind::Pi => "key-pi",
        AgentKind::Shell => "key-shell",
    }
}

fn is_writable(home: &Path) -> std::io::Result<()> {
    let trial = home.join("doctor.trial");
    std::fs::write(&trial, b"trial")?;
    std::fs::remove_file(trial)
}
