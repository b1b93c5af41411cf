//! What a turn needs before it can start: the agent's program, its key, and where its model is.
//!
//! Where both the agent and the provider know how, the key stays outside: the agent gets a token of this turn, and the
//! gateway's address for the model's.

use std::path::PathBuf;

use courier_keeper::upstream::Upstream;
use uuid::Uuid;

use super::Surroundings;
use crate::{
    agent::{Agent, Endpoint, EnvValue, Launch, Process, Session},
    host::{InstalledCli, NO_KEY},
    model::TurnId,
    provider::{Gateway, Provider, TurnSpec},
    secrets::{CredentialKind, Secret},
    settings::{AgentSettings, Settings},
    store::{self, SandboxError, SandboxRow},
};

/// An agent that can be started.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub program: PathBuf,
    pub interpreter: Option<PathBuf>,
    /// Folders the sandbox must see for the program to run.
    pub read_only: Vec<PathBuf>,
    pub version: Option<String>,
    pub credential: Option<(CredentialKind, Secret)>,
    /// Every key that is stored for this agent: an earlier turn may have kept one that is not used now.
    pub known: Vec<Secret>,
    pub base_url: Option<String>,
    /// "Anthropic key, …x7Qd".
    pub billed_to: Option<String>,
    /// What the settings say of this agent.
    pub set: AgentSettings,
}

/// Finds the agent's program and key.
///
/// # Errors
/// `missing_cli` or `missing_key`, with what to do about it.
pub(crate) async fn prepare(
    around: &Surroundings,
    agent: &'static dyn Agent,
    model: Option<&str>,
    provider: &dyn Provider,
) -> Result<Preparation, SandboxError> {
    let settings = Settings::load(&around.store).await.map_err(|error| internal(&error))?;
    let cli = if provider.keeps_files() {
        around.host.find_cli(agent, &settings).await?
    } else {
        // It was found there, or put there, when the sandbox was made: its PATH leads to it.
        let program = agent.cli().map(|cli| PathBuf::from(cli.program)).unwrap_or_default();
        InstalledCli { program, read_only: Vec::new(), version: None, interpreter: None }
    };
    let credential = around.host.credential_for(agent, model, &settings).await?;
    let known = around.host.secrets_of(agent).await;
    let kind = credential.as_ref().map(|(kind, _)| *kind);
    let base_url = kind.and_then(|kind| settings.base_url_of(kind));
    if let (Some(Endpoint { address: None, .. }), None) = (kind.and_then(|kind| agent.endpoint(kind)), &base_url) {
        return Err(SandboxError {
            kind: "model_address".to_owned(),
            message: "there is a key for a model server, but no address of one".to_owned(),
            remedy: "Set the address in Settings, then try again.".to_owned(),
        });
    }
    if let Some(Err(error)) = base_url.as_ref().map(|url| url.parse::<Upstream>()) {
        return Err(SandboxError {
            kind: "model_address".to_owned(),
            message: format!("the model's address in the settings cannot be used: {error}"),
            remedy: "Correct it in Settings, then try again.".to_owned(),
        });
    }
    let billed_to = credential.as_ref().map(|(kind, secret)| billed_to(*kind, secret));
    Ok(Preparation {
        program: cli.program,
        interpreter: cli.interpreter,
        read_only: cli.read_only,
        version: cli.version,
        credential,
        known,
        base_url,
        billed_to,
        set: settings.agents.get(&agent.kind()).cloned().unwrap_or_default(),
    })
}

/// Whether an agent with this credential has it itself in this provider's sandboxes.
pub(crate) fn is_key_inside(agent: &dyn Agent, kind: CredentialKind, provider: &dyn Provider) -> bool {
    !provider.has_gateway() || agent.endpoint(kind).is_none()
}

/// Who pays: the name of the key and its last four characters.
pub(crate) fn billed_to(kind: CredentialKind, secret: &Secret) -> String {
    let name = match kind {
        CredentialKind::ClaudeOauthToken => "Claude subscription",
        CredentialKind::CompatibleKey => "Own model server",
        other => other.name(),
    };
    if secret.expose() == NO_KEY { name.to_owned() } else { format!("{name}, …{}", secret.last_four()) }
}

impl Preparation {
    /// Whether the agent gets its key itself.
    pub(crate) fn is_key_inside(&self, agent: &dyn Agent, provider: &dyn Provider) -> bool {
        self.credential.as_ref().is_some_and(|(kind, _)| is_key_inside(agent, *kind, provider))
    }

    /// The process of one turn, and everything that must not reach its spool. `door`: where the sandbox's gateway
    /// answers, for an agent whose key stays outside.
    pub(crate) fn turn(
        &self,
        agent: &'static dyn Agent,
        sandbox: &SandboxRow,
        turn: TurnId,
        (prompt, session): (&str, Session),
        door: Option<&str>,
    ) -> TurnSpec {
        let gateway = door.and_then(|_| self.gateway(agent));
        let (shown, base_url) = match &gateway {
            Some(gateway) => (Some(EnvValue::Plain(gateway.token.clone())), door),
            None => {
                let secret = self.credential.as_ref().map(|(_, secret)| EnvValue::Secret(secret.clone()));
                (secret, self.base_url.as_deref())
            }
        };
        let process = agent.launch(&Launch {
            program: self.program.clone(),
            interpreter: self.interpreter.clone(),
            prompt,
            model: sandbox.model.as_deref().or(agent.default_model()),
            session,
            credential: self.credential.as_ref().map(|(kind, _)| *kind).zip(shown),
            base_url,
            effort: self.set.effort.as_deref(),
            extra_arguments: &self.set.extra_arguments,
        });
        TurnSpec { turn, process, redact: self.secrets(), gateway }
    }

    /// The way to the model with a token that is new.
    fn gateway(&self, agent: &dyn Agent) -> Option<Gateway> {
        let (kind, key) = self.credential.as_ref()?;
        let Endpoint { address, header } = agent.endpoint(*kind)?;
        let upstream = self.base_url.clone().or_else(|| address.map(str::to_owned))?;
        // Its name says to whoever finds it what it is: random, and worth nothing outside.
        let token = format!("sandbox-token-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        Some(Gateway { upstream, header, key: key.clone(), token })
    }

    /// Every secret this agent is given, or may have been.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.credential.iter().map(|(_, secret)| secret.clone()).chain(self.known.iter().cloned()).collect()
    }
}

/// A script as the sandbox's own shell runs it, for the set-up.
pub(super) fn script(text: &str) -> Process {
    Process {
        argv: ["/bin/bash", "-c", "eval -- \"$(cat)\" </dev/null"].map(str::to_owned).to_vec(),
        env: Vec::new(),
        stdin: text.as_bytes().to_vec(),
    }
}

pub(super) fn internal(error: &store::Error) -> SandboxError {
    SandboxError {
        kind: "internal".to_owned(),
        message: error.to_string(),
        remedy: "Try again; if it stays, the log in the data folder says more.".to_owned(),
    }
}
