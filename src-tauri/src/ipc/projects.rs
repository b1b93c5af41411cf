//! Projects: their commands and wire types.

use courier_engine::{engine::Engine, store::ProjectRow};
use serde::Serialize;
use specta::Type;
use tauri::State;

use super::{
    error::{IpcError, id},
    millis,
    sandboxes::{AgentKind, NetworkMode, OnTimeout, ProviderKind},
};

/// A project.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    id: String,
    name: String,
    /// Where it came from: a path or a URL without secrets.
    source: String,
    default_branch: String,
    active_sandboxes: u32,
    sandboxes: u32,
    is_sample: bool,
    /// Its source is a folder, whose uncommitted changes a sandbox may take along.
    can_include_uncommitted: bool,
    created_at: i64,
}

impl From<ProjectRow> for Project {
    fn from(row: ProjectRow) -> Self {
        Self {
            id: row.id.to_string(),
            name: row.name,
            can_include_uncommitted: std::path::Path::new(&row.source).is_absolute(),
            source: row.source,
            default_branch: row.default_branch,
            active_sandboxes: row.active_sandboxes,
            sandboxes: row.sandboxes,
            is_sample: row.is_sample,
            created_at: millis(row.created_at),
        }
    }
}

/// What a new sandbox gets when nothing else is said.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct NewSandboxDefaults {
    agent: AgentKind,
    provider: ProviderKind,
    #[specta(type = u32)]
    timeout_minutes: f64,
    memory_mb: u32,
    cpus: u32,
    host_cpus: u32,
    network: NetworkMode,
    allowed_hosts: Vec<String>,
    base_branch: String,
    branches: Vec<String>,
    on_timeout: OnTimeout,
    /// What a branch name begins with; the engine makes the rest from the title.
    branch_prefix: String,
}

/// Every project, by name.
#[tauri::command]
#[specta::specta]
pub async fn project_list(engine: State<'_, Engine>) -> Result<Vec<Project>, IpcError> {
    Ok(engine.project_list().await?.into_iter().map(Project::from).collect())
}

/// Adds a project from a folder on this machine or a URL; one that is there already is returned as it is.
#[tauri::command]
#[specta::specta]
pub async fn project_add(engine: State<'_, Engine>, source: String, name: Option<String>) -> Result<Project, IpcError> {
    Ok(engine.project_add(&source, name.as_deref()).await?.into())
}

/// Makes (or finds) the sample project that works without key or network.
#[tauri::command]
#[specta::specta]
pub async fn project_sample(engine: State<'_, Engine>) -> Result<Project, IpcError> {
    Ok(engine.project_sample().await?.into())
}

/// What a new sandbox of this project gets when nothing else is said.
#[tauri::command]
#[specta::specta]
pub async fn project_defaults(engine: State<'_, Engine>, project: String) -> Result<NewSandboxDefaults, IpcError> {
    let defaults = engine.project_defaults(id(&project)?).await?;
    Ok(NewSandboxDefaults {
        agent: defaults.agent.into(),
        provider: ProviderKind::Local,
        timeout_minutes: defaults.timeout.as_secs_f64() / 60.0,
        memory_mb: defaults.memory_mb,
        cpus: defaults.cpus,
        host_cpus: defaults.host_cpus,
        network: defaults.network.into(),
        allowed_hosts: Vec::new(),
        base_branch: defaults.base_branch,
        branches: defaults.branches,
        on_timeout: defaults.on_timeout.into(),
        branch_prefix: "courier/".to_owned(),
    })
}
