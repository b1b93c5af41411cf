//! A sandbox's work: checkpoints and delivery; and how a project delivers.

use courier_engine::{
    engine::{self, DeliveryState, Engine},
    model,
    store::{self, CheckpointRow},
};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::State;

use super::{
    app::Outside,
    error::{IpcError, id},
    millis,
    sandboxes::wire_word,
};

wire_word!(StepKind {
    StopAgent = "stop_agent", Checkpoint = "checkpoint", Commit = "commit", Push = "push",
    PullRequest = "pull_request", Destroy = "destroy",
});
wire_word!(StepStatus {
    Pending = "pending", Running = "running", Done = "done", Skipped = "skipped", Failed = "failed", Held = "held",
});
wire_word!(PullRequestStatus {
    Creating = "creating", Created = "created", Failed = "failed", Skipped = "skipped", Merged = "merged",
});
wire_word!(DeliverWhen { OnTurn = "on_turn", OnEnd = "on_end", Ask = "ask", Never = "never" });

/// One step of an ending, or of saving and opening a pull request.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    kind: StepKind,
    status: StepStatus,
    /// What was done or why not, in a person's words.
    detail: String,
    remedy: String,
    attempts: u32,
    at: i64,
}

/// A sandbox's pull request, or why there is none.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct PullRequest {
    status: PullRequestStatus,
    url: Option<String>,
    number: Option<u64>,
    reason: String,
    /// Closed without being merged.
    is_closed: bool,
}

impl From<store::PullRequest> for PullRequest {
    fn from(request: store::PullRequest) -> Self {
        Self {
            status: request.status.into(),
            url: request.url,
            number: request.number,
            reason: request.reason.unwrap_or_default(),
            is_closed: request.is_closed,
        }
    }
}

/// Why a push waits for the person.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    workflows: Vec<String>,
    lfs: Vec<String>,
}

/// How far a sandbox's work is on its way out.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    steps: Vec<Step>,
    branch: String,
    pushed_branch: Option<String>,
    pushed_commit: Option<String>,
    pull_request: Option<PullRequest>,
    is_running: bool,
    held: Option<Held>,
    /// Where it goes, in words.
    target: String,
    compare_url: Option<String>,
}

impl From<DeliveryState> for Delivery {
    fn from(state: DeliveryState) -> Self {
        let (pushed_branch, pushed_commit) = state.sandbox.pushed.map(|pushed| (pushed.branch, pushed.commit)).unzip();
        let steps = state.steps.into_iter().map(|step| Step {
            kind: step.kind.into(),
            status: step.status.into(),
            detail: step.detail,
            remedy: step.remedy,
            attempts: step.attempts,
            at: millis(step.at),
        });
        Self {
            steps: steps.collect(),
            branch: state.sandbox.branch,
            pushed_branch,
            pushed_commit,
            pull_request: state.sandbox.pull_request.map(PullRequest::from),
            is_running: state.is_running,
            held: state.held.map(|(workflows, lfs)| Held { workflows, lfs }),
            target: state.target,
            compare_url: state.compare_url,
        }
    }
}

/// The pull request that would be made.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestDraft {
    title: String,
    body: String,
    base: String,
    branch: String,
    is_draft: bool,
    /// No pull request will be made, and why.
    skip: Option<String>,
}

/// What is said when work is delivered; null: as it would be by itself.
#[derive(Clone, Debug, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct DeliverOptions {
    title: Option<String>,
    body: Option<String>,
    is_draft: Option<bool>,
    /// The person has agreed to push what holds the push.
    is_confirmed: bool,
}

/// A path that could not be taken.
#[derive(Clone, Debug, Serialize, Type)]
pub struct SkippedPath {
    pub(super) path: String,
    pub(super) why: String,
}

impl From<store::Skipped> for SkippedPath {
    fn from(skipped: store::Skipped) -> Self {
        Self { path: skipped.path, why: skipped.why }
    }
}

/// A commit of a sandbox's whole working tree.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    id: String,
    name: String,
    turn: Option<u32>,
    commit: String,
    at: i64,
    files_changed: u32,
    /// What could not be taken.
    skipped: Vec<SkippedPath>,
    /// Changed paths that Git LFS keeps.
    lfs: Vec<String>,
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        Self {
            id: row.id.to_string(),
            name: row.name,
            turn: row.turn,
            commit: row.commit,
            at: millis(row.created_at),
            files_changed: row.files_changed,
            skipped: row.skipped.into_iter().map(SkippedPath::from).collect(),
            lfs: row.lfs,
        }
    }
}

/// How a project delivers, and who commits. Empty: the app's own.
#[derive(Clone, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSettings {
    deliver: DeliverWhen,
    is_reviewed_first: bool,
    is_draft: bool,
    commit_author: String,
    commit_email: String,
    commit_message: String,
}

impl From<store::ProjectSettings> for ProjectSettings {
    fn from(settings: store::ProjectSettings) -> Self {
        Self {
            deliver: settings.deliver.into(),
            is_reviewed_first: settings.is_reviewed_first,
            is_draft: settings.is_draft,
            commit_author: settings.commit_author.unwrap_or_default(),
            commit_email: settings.commit_email.unwrap_or_default(),
            commit_message: settings.commit_message.unwrap_or_default(),
        }
    }
}

impl From<ProjectSettings> for store::ProjectSettings {
    fn from(settings: ProjectSettings) -> Self {
        Self {
            deliver: settings.deliver.into(),
            is_reviewed_first: settings.is_reviewed_first,
            is_draft: settings.is_draft,
            commit_author: Some(settings.commit_author),
            commit_email: Some(settings.commit_email),
            commit_message: Some(settings.commit_message),
        }
    }
}

/// Every checkpoint of a sandbox, oldest first.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_checkpoints(engine: State<'_, Engine>, sandbox: String) -> Result<Vec<Checkpoint>, IpcError> {
    Ok(engine.sandbox_checkpoints(id(&sandbox)?).await?.into_iter().map(Checkpoint::from).collect())
}

/// Makes a clean checkout of a checkpoint and opens it on the person's desktop.
#[tauri::command]
#[specta::specta]
pub async fn checkpoint_open(
    engine: State<'_, Engine>,
    outside: State<'_, Outside>,
    sandbox: String,
    checkpoint: String,
) -> Result<(), IpcError> {
    let folder = engine.checkpoint_open(id(&sandbox)?, id(&checkpoint)?).await?;
    outside.open_folder(&folder)
}

/// Writes a checkpoint's files into the sandbox's working tree, while no turn runs.
#[tauri::command]
#[specta::specta]
pub async fn checkpoint_restore(
    engine: State<'_, Engine>,
    sandbox: String,
    checkpoint: String,
) -> Result<(), IpcError> {
    Ok(engine.checkpoint_restore(id(&sandbox)?, id(&checkpoint)?).await?)
}

/// How far a sandbox's work is on its way out.
#[tauri::command]
#[specta::specta]
pub async fn delivery(engine: State<'_, Engine>, sandbox: String) -> Result<Delivery, IpcError> {
    Ok(engine.delivery(id(&sandbox)?).await?.into())
}

/// The pull request that would be made now.
#[tauri::command]
#[specta::specta]
pub async fn delivery_draft(engine: State<'_, Engine>, sandbox: String) -> Result<PullRequestDraft, IpcError> {
    let engine::PullRequestDraft { title, body, base, branch, is_draft, skip } =
        engine.delivery_draft(id(&sandbox)?).await?;
    Ok(PullRequestDraft { title, body, base, branch, is_draft, skip })
}

/// Saves, pushes and opens the pull request, without ending the sandbox; on an ended one: what failed once more.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_deliver(
    engine: State<'_, Engine>,
    sandbox: String,
    options: DeliverOptions,
) -> Result<(), IpcError> {
    let DeliverOptions { title, body, is_draft, is_confirmed } = options;
    let options = engine::DeliverOptions { title, body, is_draft, is_confirmed };
    Ok(engine.sandbox_deliver(id(&sandbox)?, options).await?)
}

/// How a project delivers, and who commits.
#[tauri::command]
#[specta::specta]
pub async fn project_settings(engine: State<'_, Engine>, project: String) -> Result<ProjectSettings, IpcError> {
    Ok(engine.project_settings(id(&project)?).await?.into())
}

/// Changes that.
#[tauri::command]
#[specta::specta]
pub async fn project_settings_set(
    engine: State<'_, Engine>,
    project: String,
    settings: ProjectSettings,
) -> Result<(), IpcError> {
    Ok(engine.project_settings_set(id(&project)?, settings.into()).await?)
}
