//! Agents and keys: commands and wire types. A secret crosses once, inwards.

use courier_engine::{
    engine::{AgentInfo, CredentialInfo, Engine},
    secrets::{self, Secret},
};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::State;

use super::{error::IpcError, sandboxes::AgentKind};

/// A key a person can store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Type)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    AnthropicKey,
    ClaudeOauthToken,
    OpenaiKey,
    OpenrouterKey,
    CompatibleKey,
    GithubToken,
    GithubEnterpriseToken,
    E2bKey,
}

impl From<CredentialKind> for secrets::CredentialKind {
    fn from(kind: CredentialKind) -> Self {
        match kind {
            CredentialKind::AnthropicKey => Self::AnthropicKey,
            CredentialKind::ClaudeOauthToken => Self::ClaudeOauthToken,
            CredentialKind::OpenaiKey => Self::OpenaiKey,
            CredentialKind::OpenrouterKey => Self::OpenrouterKey,
            CredentialKind::CompatibleKey => Self::CompatibleKey,
            CredentialKind::GithubToken => Self::GithubToken,
            CredentialKind::GithubEnterpriseToken => Self::GithubEnterpriseToken,
            CredentialKind::E2bKey => Self::E2bKey,
        }
    }
}

impl From<secrets::CredentialKind> for CredentialKind {
    fn from(kind: secrets::CredentialKind) -> Self {
        match kind {
            secrets::CredentialKind::AnthropicKey => Self::AnthropicKey,
            secrets::CredentialKind::ClaudeOauthToken => Self::ClaudeOauthToken,
            secrets::CredentialKind::OpenaiKey => Self::OpenaiKey,
            secrets::CredentialKind::OpenrouterKey => Self::OpenrouterKey,
            secrets::CredentialKind::CompatibleKey => Self::CompatibleKey,
            secrets::CredentialKind::GithubToken => Self::GithubToken,
            secrets::CredentialKind::GithubEnterpriseToken => Self::GithubEnterpriseToken,
            secrets::CredentialKind::E2bKey => Self::E2bKey,
        }
    }
}

/// A key that can be stored, without the key.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    kind: CredentialKind,
    name: String,
    is_set: bool,
    last_four: Option<String>,
    is_session_only: bool,
    used_by: Vec<AgentKind>,
}

impl From<CredentialInfo> for Credential {
    fn from(info: CredentialInfo) -> Self {
        Self {
            kind: info.kind.into(),
            name: info.name.to_owned(),
            is_set: info.last_four.is_some(),
            last_four: info.last_four,
            is_session_only: info.is_session_only,
            used_by: info.used_by.into_iter().map(AgentKind::from).collect(),
        }
    }
}

/// An agent and whether it could start now.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    kind: AgentKind,
    name: String,
    models: Vec<Model>,
    default_model: Option<String>,
    needs_key: bool,
    is_installed: bool,
    version: Option<String>,
    billed_to: Option<String>,
    /// It would have its key itself; else the key stays outside, or none is needed.
    is_key_inside: bool,
    problem: Option<String>,
    /// How much memory a sandbox for it gets when nothing else is said.
    memory_mb: u32,
    /// How hard its models can be asked to think, from little to much.
    efforts: Vec<String>,
}

/// A model an agent offers.
#[derive(Clone, Debug, Serialize, Type)]
pub struct Model {
    id: String,
    name: String,
}

impl From<AgentInfo> for Agent {
    fn from(info: AgentInfo) -> Self {
        let models = info.agent.models().iter();
        Self {
            kind: info.agent.kind().into(),
            name: info.agent.name().to_owned(),
            models: models.map(|model| Model { id: model.id.to_owned(), name: model.name.to_owned() }).collect(),
            default_model: info.agent.default_model().map(str::to_owned),
            needs_key: !info.agent.credentials().is_empty(),
            is_installed: info.is_installed,
            version: info.version,
            billed_to: info.billed_to,
            is_key_inside: info.is_key_inside,
            problem: info.problem,
            memory_mb: info.agent.memory_mb(),
            efforts: info.agent.efforts().iter().map(|effort| (*effort).to_owned()).collect(),
        }
    }
}

/// Every agent, and whether it could start now.
#[tauri::command]
#[specta::specta]
pub async fn agent_list(engine: State<'_, Engine>) -> Result<Vec<Agent>, IpcError> {
    Ok(engine.agent_list().await?.into_iter().map(Agent::from).collect())
}

/// Every key that can be stored.
#[tauri::command]
#[specta::specta]
pub async fn credential_list(engine: State<'_, Engine>) -> Result<Vec<Credential>, IpcError> {
    Ok(engine.credential_list().await.into_iter().map(Credential::from).collect())
}

/// Stores a key in the keychain; `session_only` keeps it in memory where there is none.
#[tauri::command]
#[specta::specta]
pub async fn credential_set(
    engine: State<'_, Engine>,
    kind: CredentialKind,
    secret: String,
    session_only: bool,
) -> Result<Credential, IpcError> {
    Ok(engine.credential_set(kind.into(), Secret::new(secret), session_only).await?.into())
}

/// Removes a key.
#[tauri::command]
#[specta::specta]
pub async fn credential_remove(engine: State<'_, Engine>, kind: CredentialKind) -> Result<(), IpcError> {
    Ok(engine.credential_remove(kind.into()).await?)
}
