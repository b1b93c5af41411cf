//! What a turn needs before it can start: the agent's program, its key, and where its model is.

use std::path::PathBuf;

use super::Surroundings;
use crate::{
    agent::{Agent, Launch, Process, Session},
    model::TurnId,
    provider::TurnSpec,
    secrets::{CredentialKind, Secret},
    settings::Settings,
    store::{self, SandboxError, SandboxRow},
};

/// An agent that can be started.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub program: PathBuf,
    /// Folders the sandbox must see for the program to run.
    pub read_only: Vec<PathBuf>,
    pub version: Option<String>,
    pub credential: Option<(CredentialKind, Secret)>,
    pub base_url: Option<String>,
    /// "Anthropic key, …x7Qd".
    pub billed_to: Option<String>,
}

/// Finds the agent's program and key.
///
/// # Errors
/// `missing_cli` or `missing_key`, with what to do about it.
pub(crate) async fn prepare(around: &Surroundings, agent: &'static dyn Agent) -> Result<Preparation, SandboxError> {
    let settings = Settings::load(&around.store).await.map_err(|error| internal(&error))?;
    let cli = around.host.find_cli(agent, &settings).await?;
    let credential = around.host.credential_for(agent).await?;
    let billed_to = credential.as_ref().map(|(kind, secret)| billed_to(*kind, secret));
    Ok(Preparation {
        program: cli.program,
        read_only: cli.read_only,
        version: cli.version,
        credential,
        base_url: settings.base_url_for(agent.kind()),
        billed_to,
    })
}

/// Who pays: the name of the key and its last four characters.
pub(crate) fn billed_to(kind: CredentialKind, secret: &Secret) -> String {
    let name = match kind {
        CredentialKind::AnthropicKey => "Anthropic key",
        CredentialKind::ClaudeOauthToken => "Claude subscription",
    };
    format!("{name}, …{}", secret.last_four())
}

impl Preparation {
    /// The process of one turn, and everything that must not reach its spool.
    pub(crate) fn turn(
        &self,
        agent: &'static dyn Agent,
        sandbox: &SandboxRow,
        turn: TurnId,
        prompt: &str,
        session: Session,
    ) -> TurnSpec {
        let process = agent.launch(&Launch {
            program: self.program.clone(),
            prompt,
            model: sandbox.model.as_deref().or(agent.default_model()),
            session,
            credential: self.credential.as_ref().map(|(kind, secret)| (*kind, secret)),
            base_url: self.base_url.as_deref(),
            extra_arguments: &[],
        });
        TurnSpec { turn, process, redact: self.secrets() }
    }

    /// Every secret this agent is given.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.credential.iter().map(|(_, secret)| secret.clone()).collect()
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
