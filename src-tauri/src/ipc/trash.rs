//! The trash, and what everything occupies: commands and wire types.

use courier_engine::engine::{self, Engine};
use serde::Serialize;
use specta::Type;
use tauri::State;

use super::{
    error::{IpcError, id},
    millis,
    sandboxes::{Sandbox, Status},
    work::{PullRequest, SkippedPath},
};

/// What a purge would take away, and what it would leave.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct PurgeFacts {
    title: String,
    uncommitted_files: u32,
    unpushed_commits: u32,
    has_stash: bool,
    /// What the last checkpoint could not take.
    skipped: Vec<SkippedPath>,
    bytes: u64,
    is_live: bool,
    /// Where its files are.
    path: String,
    pull_request: Option<PullRequest>,
    /// What stays, in sentences.
    kept: Vec<String>,
    /// What is gone for good, in sentences.
    lost: Vec<String>,
}

/// One sandbox's part of the storage.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct StorageEntry {
    sandbox: String,
    title: String,
    project: String,
    status: Status,
    bytes: u64,
    workspace_bytes: u64,
    log_bytes: u64,
    /// Its files can be removed without losing anything.
    is_safe: bool,
    /// Why, or why not.
    reason: String,
    ended_at: Option<i64>,
    is_deleted: bool,
}

/// What everything occupies, in bytes.
#[derive(Clone, Debug, Serialize, Type)]
pub struct Storage {
    total: u64,
    mirrors: u64,
    database: u64,
    entries: Vec<StorageEntry>,
}

/// Moves a sandbox to the trash.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_delete(engine: State<'_, Engine>, sandbox: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_delete(id(&sandbox)?).await?)
}

/// Takes it out of the trash again.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_restore(engine: State<'_, Engine>, sandbox: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_restore(id(&sandbox)?).await?)
}

/// Removes a sandbox in the trash for good.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_purge(engine: State<'_, Engine>, sandbox: String) -> Result<(), IpcError> {
    Ok(engine.sandbox_purge(id(&sandbox)?).await?)
}

/// What a purge would take away, and what it would leave.
#[tauri::command]
#[specta::specta]
pub async fn purge_facts(engine: State<'_, Engine>, sandbox: String) -> Result<PurgeFacts, IpcError> {
    let id = id(&sandbox)?;
    let engine::PurgeFacts {
        title,
        uncommitted_files,
        unpushed_commits,
        has_stash,
        skipped,
        bytes,
        is_live,
        path,
        kept,
        lost,
    } = engine.purge_facts(id).await?;
    Ok(PurgeFacts {
        title,
        uncommitted_files,
        unpushed_commits,
        has_stash,
        skipped: skipped.into_iter().map(SkippedPath::from).collect(),
        bytes,
        is_live,
        path: path.display().to_string(),
        pull_request: engine.sandbox_get(id).await?.pull_request.map(PullRequest::from),
        kept,
        lost,
    })
}

/// What is in the trash, the newest first.
#[tauri::command]
#[specta::specta]
pub async fn trash_list(engine: State<'_, Engine>, project: Option<String>) -> Result<Vec<Sandbox>, IpcError> {
    let revision = engine.feed().revision();
    let rows = engine.trash_list(project.as_deref().map(id).transpose()?).await?;
    Ok(rows.into_iter().map(|row| Sandbox::at(revision, row)).collect())
}

/// Removes everything in the trash for good; says how many.
#[tauri::command]
#[specta::specta]
pub async fn trash_empty(engine: State<'_, Engine>) -> Result<u32, IpcError> {
    Ok(engine.trash_empty().await?)
}

/// What everything occupies, and what of it can be cleaned without losing anything.
#[tauri::command]
#[specta::specta]
pub async fn storage(engine: State<'_, Engine>) -> Result<Storage, IpcError> {
    let storage = engine.storage().await?;
    let entries = storage.entries.into_iter().map(|entry| StorageEntry {
        sandbox: entry.sandbox.to_string(),
        title: entry.title,
        project: entry.project.to_string(),
        status: entry.status.into(),
        bytes: entry.bytes,
        workspace_bytes: entry.workspace_bytes,
        log_bytes: entry.log_bytes,
        is_safe: entry.is_safe,
        reason: entry.reason,
        ended_at: entry.ended_at.map(millis),
        is_deleted: entry.is_deleted,
    });
    let entries = entries.collect();
    Ok(Storage { total: storage.total, mirrors: storage.mirrors + storage.vaults, database: storage.database, entries })
}

/// Cleans what is safe of these sandboxes; says how many bytes that freed.
#[tauri::command]
#[specta::specta]
pub async fn storage_clean(engine: State<'_, Engine>, sandboxes: Vec<String>) -> Result<u64, IpcError> {
    let ids = sandboxes.iter().map(|sandbox| id(sandbox)).collect::<Result<Vec<_>, _>>()?;
    Ok(engine.storage_clean(ids).await?)
}
