//! Sandboxes and their messages: commands and wire types.

use std::time::Duration;

use courier_engine::{
    engine::{self, Details, Engine},
    model,
    store::{MessageRow, Query, SandboxRow},
};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::State;

use super::{
    duration,
    error::{IpcError, id},
    millis,
    work::PullRequest,
};

/// One of the engine's words, on the wire.
macro_rules! wire_word {
    ($name:ident { $($variant:ident = $code:literal),+ $(,)? }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, specta::Type,
        )]
        pub enum $name { $(#[serde(rename = $code)] $variant),+ }

        impl From<model::$name> for $name {
            fn from(word: model::$name) -> Self {
                match word { $(model::$name::$variant => Self::$variant),+ }
            }
        }

        impl From<$name> for model::$name {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => Self::$variant),+ }
            }
        }
    };
}
pub(super) use wire_word;

wire_word!(Status { Creating = "creating", Running = "running", Paused = "paused", Killed = "killed", Error = "error" });
wire_word!(Activity { None = "none", Pausing = "pausing", Resuming = "resuming", Stopping = "stopping" });
wire_word!(Reason {
    Stopped = "stopped", TimedOut = "timed_out", StepFinished = "step_finished",
    Interrupted = "interrupted", Lost = "lost", Abandoned = "abandoned",
});
wire_word!(AgentKind { Shell = "shell", Claude = "claude", Codex = "codex", Opencode = "opencode", Pi = "pi" });
wire_word!(ProviderKind { Local = "local", Docker = "docker", E2b = "e2b" });
wire_word!(NetworkMode { Open = "open", Listed = "listed", None = "none" });
wire_word!(OnTimeout { Kill = "kill", Pause = "pause" });
wire_word!(Role { User = "user", Assistant = "assistant" });
wire_word!(MessageStatus { Streaming = "streaming", Completed = "completed", Error = "error" });
wire_word!(MessageDelivery { Queued = "queued", Delivered = "delivered" });

/// What happens to a message while a turn runs.
#[derive(Clone, Copy, Debug, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub enum SendHow {
    Queue,
    Interrupt,
}

/// A sandbox, as lists and the page's head show it.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    id: String,
    project: String,
    title: String,
    status: Status,
    activity: Activity,
    /// What the work in hand does now; null when nothing is in hand.
    step: Option<String>,
    /// What happens now or happened last, in one line.
    headline: String,
    reason: Option<Reason>,
    error: Option<SandboxError>,
    agent: AgentKind,
    model: Option<String>,
    provider: ProviderKind,
    is_working: bool,
    /// For how many minutes the working agent has printed nothing, where that is worth saying.
    quiet_minutes: Option<u32>,
    /// When the agent goes on by itself, since a limit ends then.
    continue_at: Option<i64>,
    queued: u32,
    created_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    expires_at: Option<i64>,
    /// Running milliseconds left while paused (the clock stands still).
    remaining_ms: Option<u64>,
    is_deleted: bool,
    deleted_at: Option<i64>,
    is_unsaved: bool,
    pull_request: Option<PullRequest>,
    revision: u64,
}

/// What happened to a sandbox that is `error`, and what to do about it.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct SandboxError {
    kind: String,
    message: String,
    remedy: String,
}

impl Sandbox {
    pub(super) fn at(revision: u64, row: SandboxRow) -> Self {
        let reason = match row.lifecycle.ending {
            Some(model::Ending::Killed(reason)) => Some(reason.into()),
            Some(model::Ending::Failed) | None => None,
        };
        Self {
            id: row.id.to_string(),
            project: row.project.to_string(),
            title: row.title,
            status: row.lifecycle.status.into(),
            activity: row.lifecycle.activity.into(),
            step: row.step,
            headline: row.headline,
            reason,
            error: row.error.map(|error| SandboxError {
                kind: error.kind,
                message: error.message,
                remedy: error.remedy,
            }),
            agent: row.agent.into(),
            model: row.model,
            provider: row.provider.into(),
            is_working: row.is_working,
            quiet_minutes: row.quiet_minutes,
            continue_at: row.continue_at.filter(|_| row.lifecycle.status.is_live()).map(millis),
            queued: row.queued,
            created_at: millis(row.created_at),
            started_at: row.started_at.map(millis),
            ended_at: row.ended_at.map(millis),
            expires_at: row.expires_at.map(millis),
            remaining_ms: row.remaining.map(duration),
            is_deleted: row.deleted_at.is_some(),
            deleted_at: row.deleted_at.map(millis),
            pull_request: row.pull_request.map(PullRequest::from),
            is_unsaved: row.is_unsaved,
            revision,
        }
    }
}

/// A sandbox with everything that is shown beside its conversation.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetails {
    sandbox: Sandbox,
    agent_name: String,
    agent_version: Option<String>,
    billed_to: Option<String>,
    /// The agent has its key itself; else the key stays outside, or none is needed.
    is_key_inside: bool,
    #[specta(type = u32)]
    timeout_minutes: f64,
    on_timeout: OnTimeout,
    memory_mb: u32,
    cpus: u32,
    limits_enforced: bool,
    network: NetworkMode,
    allowed_hosts: Vec<String>,
    /// The names of the variables it was given.
    variables: Vec<String>,
    origin: String,
    parent: Option<String>,
    repository: String,
    base_branch: String,
    base_commit: String,
    branch: String,
    workspace: Option<String>,
    running_ms: u64,
    paused_ms: u64,
    turns: u32,
    usage: Usage,
    queue: Vec<Message>,
    transitions: Vec<Transition>,
    /// False where a person may not write (a workflow's sandbox).
    can_send: bool,
}

/// One change of status.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    from: Option<Status>,
    to: Status,
    reason: Option<String>,
    at: i64,
}

/// Tokens consumed. `input` excludes what came from a cache.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_write: u64,
    pub(super) cache_read: u64,
    /// Some turn ended before its agent reported.
    pub(super) is_incomplete: bool,
}

impl Usage {
    pub(super) fn of(usage: &model::Usage, is_incomplete: bool) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cache_write: usage.cache_write,
            cache_read: usage.cache_read,
            is_incomplete,
        }
    }
}

impl From<Details> for SandboxDetails {
    fn from(details: Details) -> Self {
        let row = details.sandbox;
        let agent = courier_engine::agent::agent(row.agent);
        Self {
            agent_name: agent.map_or_else(|| row.agent.to_string(), |agent| agent.name().to_owned()),
            agent_version: row.agent_version.clone(),
            billed_to: row.billed_to.clone(),
            is_key_inside: row.is_key_inside,
            timeout_minutes: row.timeout.as_secs_f64() / 60.0,
            on_timeout: row.on_timeout.into(),
            memory_mb: row.memory_mb,
            cpus: row.cpus,
            limits_enforced: row.limits_enforced,
            network: row.network.into(),
            allowed_hosts: row.allowed_hosts.clone(),
            variables: row.variables.iter().map(|(name, _)| name.clone()).collect(),
            origin: row.origin.clone(),
            parent: row.parent.map(|id| id.to_string()),
            repository: row.repository.clone(),
            base_branch: row.base_branch.clone(),
            base_commit: row.base_commit.clone(),
            branch: row.branch.clone(),
            workspace: details.workspace.exists().then(|| details.workspace.display().to_string()),
            running_ms: duration(details.running),
            paused_ms: duration(details.paused),
            turns: details.turns,
            usage: Usage::of(&details.usage, details.is_usage_incomplete),
            queue: details.queue.into_iter().map(Message::from).collect(),
            transitions: details
                .transitions
                .into_iter()
                .map(|change| Transition {
                    from: change.from.map(Status::from),
                    to: change.to.into(),
                    reason: change.reason,
                    at: millis(change.at),
                })
                .collect(),
            can_send: row.origin != "run",
            sandbox: Sandbox::at(details.revision, row),
        }
    }
}

/// Which sandboxes to list.
#[derive(Clone, Debug, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct SandboxQuery {
    project: Option<String>,
    /// Empty: all.
    statuses: Vec<Status>,
    search: Option<String>,
    /// The page before's `next`.
    after: Option<String>,
    limit: u32,
}

/// One page, newest first.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct SandboxPage {
    rows: Vec<Sandbox>,
    next: Option<String>,
    total: u32,
    revision: u64,
}

/// A sandbox to make.
#[derive(Clone, Debug, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct NewSandbox {
    project: String,
    prompt: String,
    title: Option<String>,
    agent: AgentKind,
    model: Option<String>,
    provider: ProviderKind,
    #[specta(type = u32)]
    timeout_minutes: f64,
    on_timeout: OnTimeout,
    memory_mb: u32,
    cpus: u32,
    network: NetworkMode,
    allowed_hosts: Vec<String>,
    base_branch: Option<String>,
    branch: Option<String>,
    setup_script: Option<String>,
    variables: Vec<Variable>,
    /// What it is run again from.
    parent: Option<String>,
    /// The checkpoint it begins from; else it begins at the base branch.
    begin: Option<Begin>,
    /// The person's uncommitted changes come along.
    includes_uncommitted: bool,
    /// The issue it is made for.
    issue: Option<Issue>,
}

/// A checkpoint a sandbox begins from.
#[derive(Clone, Debug, Deserialize, Type)]
pub struct Begin {
    sandbox: String,
    checkpoint: String,
}

/// An issue on the project's forge.
#[derive(Clone, Debug, Deserialize, Type)]
pub struct Issue {
    number: u64,
    /// Empty where only its number was given.
    url: String,
}

/// An environment variable. Its value is no secret: it is stored with the sandbox.
#[derive(Clone, Debug, Deserialize, Type)]
pub struct Variable {
    name: String,
    value: String,
}

/// One entry of a conversation.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    id: String,
    seq: u32,
    role: Role,
    content: String,
    status: MessageStatus,
    delivery: Option<MessageDelivery>,
    created_at: i64,
}

impl From<MessageRow> for Message {
    fn from(row: MessageRow) -> Self {
        Self {
            id: row.id.to_string(),
            seq: row.seq,
            role: row.role.into(),
            content: row.content,
            status: row.status.into(),
            delivery: row.delivery.map(MessageDelivery::from),
            created_at: millis(row.created_at),
        }
    }
}

/// One page of sandboxes, newest first.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_list(engine: State<'_, Engine>, query: SandboxQuery) -> Result<SandboxPage, IpcError> {
    let revision = engine.feed().revision();
    let after = match &query.after {
        Some(cursor) => Some(parse_cursor(cursor)?),
        None => None,
    };
    let page = engine
        .sandbox_list(Query {
            project: query.project.as_deref().map(id).transpose()?,
            statuses: query.statuses.into_iter().map(model::Status::from).collect(),
            search: query.search.filter(|text| !text.trim().is_empty()),
            after,
            limit: query.limit.clamp(1, 500),
        })
        .await?;
    let last = page.rows.last().filter(|_| page.has_more);
    Ok(SandboxPage {
        next: last.map(|row| format!("{}:{}", row.created_at.millis(), row.id)),
        rows: page.rows.into_iter().map(|row| Sandbox::at(revision, row)).collect(),
        total: page.total,
        revision,
    })
}

fn parse_cursor(cursor: &str) -> Result<(model::Timestamp, model::SandboxId), IpcError> {
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    let (at, id) = parsed.ok_or_else(|| IpcError::invalid("the page's cursor is not one"))?;
    Ok((model::Timestamp::from_millis(at), id))
}

/// One sandbox with everything that is shown beside its conversation.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_get(engine: State<'_, Engine>, id: String) -> Result<SandboxDetails, IpcError> {
    Ok(engine.sandbox_details(self::id(&id)?).await?.into())
}

/// Records a sandbox and its first message, and begins to make it.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_create(engine: State<'_, Engine>, request: NewSandbox) -> Result<Sandbox, IpcError> {
    let timeout = Duration::try_from_secs_f64(request.timeout_minutes * 60.0)
        .map_err(|_| IpcError::invalid("the timeout is not a time"))?;
    let row = engine
        .sandbox_create(engine::NewSandbox {
            project: id(&request.project)?,
            prompt: request.prompt,
            title: request.title,
            agent: request.agent.into(),
            model: request.model,
            provider: request.provider.into(),
            timeout,
            on_timeout: request.on_timeout.into(),
            memory_mb: request.memory_mb,
            cpus: request.cpus,
            network: request.network.into(),
            allowed_hosts: request.allowed_hosts,
            base_branch: request.base_branch,
            branch: request.branch,
            setup_script: request.setup_script,
            variables: request.variables.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            parent: match (&request.parent, &request.begin) {
                (Some(parent), _) => Some(id(parent)?),
                (None, Some(begin)) => Some(id(&begin.sandbox)?),
                (None, None) => None,
            },
            begin: request.begin.as_ref().map(|begin| id(&begin.checkpoint)).transpose()?,
            includes_uncommitted: request.includes_uncommitted,
            issue: request.issue.map(|issue| (issue.number, issue.url)),
        })
        .await?;
    Ok(Sandbox::at(engine.feed().revision(), row))
}

/// Gives a message to a sandbox: after this turn, or at once by interrupting it.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_send(
    engine: State<'_, Engine>,
    id: String,
    content: String,
    how: SendHow,
) -> Result<Message, IpcError> {
    let how = match how {
        SendHow::Queue => engine::SendHow::Queue,
        SendHow::Interrupt => engine::SendHow::Interrupt,
    };
    Ok(engine.sandbox_send(self::id(&id)?, &content, how).await?.into())
}

/// Ends the turn that runs.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_interrupt(engine: State<'_, Engine>, id: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_interrupt(self::id(&id)?).await?)
}

/// Suspends a sandbox.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_pause(engine: State<'_, Engine>, id: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_pause(self::id(&id)?).await?)
}

/// Lets a paused sandbox go on.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_resume(engine: State<'_, Engine>, id: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_resume(self::id(&id)?).await?)
}

/// Ends a sandbox. Asked twice: without waiting for a graceful end.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_stop(engine: State<'_, Engine>, id: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_stop(self::id(&id)?).await?)
}

/// Gives it `minutes` more.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_extend(engine: State<'_, Engine>, id: String, minutes: f64) -> Result<(), IpcError> {
    let by = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| IpcError::invalid("that is not a time"))?;
    Ok(engine.sandbox_extend(self::id(&id)?, by).await?)
}

/// Lets the agent go on at this moment (Unix milliseconds); null takes that back.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_continue_at(engine: State<'_, Engine>, id: String, at: Option<i64>) -> Result<(), IpcError> {
    Ok(engine.sandbox_continue_at(self::id(&id)?, at.map(model::Timestamp::from_millis)).await?)
}

/// Changes a message that still waits.
#[tauri::command]
#[specta::specta]
pub async fn message_edit(engine: State<'_, Engine>, id: String, content: String) -> Result<(), IpcError> {
    Ok(engine.message_edit(self::id(&id)?, &content).await?)
}

/// Takes a message that still waits out of the queue.
#[tauri::command]
#[specta::specta]
pub async fn message_cancel(engine: State<'_, Engine>, id: String) -> Result<(), IpcError> {
    Ok(engine.message_cancel(self::id(&id)?).await?)
}
