//! What becomes of a sandbox's work: the steps of its ending (`ending_steps`), and the columns of `sandboxes` that say what
//! was pushed and which pull request there is.

use rusqlite::{Connection, Row, named_params};
use serde::{Deserialize, Serialize};

use super::{
    Change, Error, Tx,
    sandboxes::{coded, json, parsed},
};
use crate::model::{PullRequestStatus, SandboxId, StepKind, StepStatus, Timestamp};

/// A step as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    pub kind: StepKind,
    pub status: StepStatus,
    /// What was done, or why it was not, in words.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
    pub attempts: u32,
    pub at: Timestamp,
}

/// What the person said of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryWishes {
    /// It was asked for, whatever the project's setting is.
    pub is_asked: bool,
    pub title: Option<String>,
    pub body: Option<String>,
    pub is_draft: Option<bool>,
    /// Paths that hold a push, and that the person has seen and confirmed.
    pub confirmed: Vec<String>,
}

/// What was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub branch: String,
    pub commit: String,
}

/// A sandbox's pull request, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    pub status: PullRequestStatus,
    pub url: Option<String>,
    pub number: Option<u64>,
    /// Why it was skipped or failed.
    pub reason: Option<String>,
    /// Closed without being merged.
    pub is_closed: bool,
}

/// A sandbox's steps, in their order.
pub fn steps(connection: &Connection, sandbox: SandboxId) -> Result<Vec<StepRow>, Error> {
    let mut statement = connection.prepare_cached("SELECT * FROM ending_steps WHERE sandbox = :sandbox")?;
    let rows = statement.query_map(named_params! { ":sandbox": sandbox.to_string() }, |row| {
        Ok(StepRow {
            kind: coded(row, "step", StepKind::from_code)?,
            status: coded(row, "status", StepStatus::from_code)?,
            detail: row.get("detail")?,
            remedy: row.get("remedy")?,
            attempts: row.get("attempts")?,
            at: Timestamp::from_millis(row.get("at")?),
        })
    })?;
    let mut steps = rows.collect::<Result<Vec<_>, _>>()?;
    steps.sort_by_key(|step| step.kind);
    Ok(steps)
}

/// Says how far a step is. What begins to run has been attempted once more.
pub fn set_step(
    tx: &Tx<'_>,
    sandbox: SandboxId,
    kind: StepKind,
    status: StepStatus,
    (detail, remedy): (&str, &str),
    at: Timestamp,
) -> Result<(), Error> {
    let attempt = u32::from(status == StepStatus::Running);
    tx.prepare_cached(
        "INSERT INTO ending_steps (sandbox, step, status, detail, remedy, attempts, at)
         VALUES (:sandbox, :step, :status, :detail, :remedy, :attempt, :at)
         ON CONFLICT (sandbox, step) DO UPDATE SET status = :status, detail = :detail, remedy = :remedy,
            attempts = attempts + :attempt, at = :at",
    )?
    .execute(named_params! {
        ":sandbox": sandbox.to_string(), ":step": kind.code(), ":status": status.code(), ":detail": detail,
        ":remedy": remedy, ":attempt": attempt, ":at": at.millis(),
    })?;
    tx.changed(Change::Sandbox(sandbox));
    Ok(())
}

/// Forgets how these steps went: they are done anew.
pub fn reset_steps(tx: &Tx<'_>, sandbox: SandboxId, kinds: &[StepKind], at: Timestamp) -> Result<(), Error> {
    kinds.iter().try_for_each(|kind| set_step(tx, sandbox, *kind, StepStatus::Pending, ("", ""), at))
}

/// What the person said of a sandbox's delivery.
pub fn wishes(connection: &Connection, sandbox: SandboxId) -> Result<DeliveryWishes, Error> {
    let text: String = connection
        .prepare_cached("SELECT delivery FROM sandboxes WHERE id = :id")?
        .query_row(named_params! { ":id": sandbox.to_string() }, |row| row.get(0))?;
    // What an older version wrote counts as nothing said.
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Stores what the person said.
pub fn set_wishes(tx: &Tx<'_>, sandbox: SandboxId, wishes: &DeliveryWishes) -> Result<(), Error> {
    tx.prepare_cached("UPDATE sandboxes SET delivery = :wishes WHERE id = :id")?
        .execute(named_params! { ":id": sandbox.to_string(), ":wishes": json(wishes) })?;
    Ok(())
}

/// The newest commit on the sandbox's branch, where one was made.
pub fn head(connection: &Connection, sandbox: SandboxId) -> Result<Option<String>, Error> {
    Ok(connection
        .prepare_cached("SELECT head FROM sandboxes WHERE id = :id")?
        .query_row(named_params! { ":id": sandbox.to_string() }, |row| row.get(0))?)
}

/// Says which commit that is.
pub fn set_head(tx: &Tx<'_>, sandbox: SandboxId, head: &str) -> Result<(), Error> {
    tx.prepare_cached("UPDATE sandboxes SET head = :head WHERE id = :id")?
        .execute(named_params! { ":id": sandbox.to_string(), ":head": head })?;
    tx.changed(Change::Sandbox(sandbox));
    Ok(())
}

/// Says what was pushed.
pub fn set_pushed(tx: &Tx<'_>, sandbox: SandboxId, pushed: &Pushed) -> Result<(), Error> {
    tx.prepare_cached("UPDATE sandboxes SET pushed_branch = :branch, pushed_commit = :commit WHERE id = :id")?
        .execute(named_params! { ":id": sandbox.to_string(), ":branch": pushed.branch, ":commit": pushed.commit })?;
    tx.changed(Change::Sandbox(sandbox));
    Ok(())
}

/// Says how far the pull request is.
pub fn set_pull_request(tx: &Tx<'_>, sandbox: SandboxId, request: &PullRequest) -> Result<(), Error> {
    tx.prepare_cached(
        "UPDATE sandboxes SET pr_status = :status, pr_url = :url, pr_number = :number, pr_reason = :reason,
            pr_is_closed = :is_closed WHERE id = :id",
    )?
    .execute(named_params! {
        ":id": sandbox.to_string(), ":status": request.status.code(), ":url": request.url, ":number": request.number.and_then(|number| i64::try_from(number).ok()),
        ":reason": request.reason, ":is_closed": request.is_closed,
    })?;
    tx.changed(Change::Sandbox(sandbox));
    Ok(())
}

/// Sandboxes whose pull request may still be merged or closed.
pub fn watched(connection: &Connection) -> Result<Vec<SandboxId>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM sandboxes WHERE pr_status IN ('creating', 'created') AND pr_number IS NOT NULL AND pr_is_closed = 0",
    )?;
    let rows = statement.query_map([], |row| parsed(row, "id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn pull_request(row: &Row<'_>) -> rusqlite::Result<Option<PullRequest>> {
    let status: Option<String> = row.get("pr_status")?;
    let Some(status) = status.as_deref().and_then(PullRequestStatus::from_code) else { return Ok(None) };
    Ok(Some(PullRequest {
        status,
        url: row.get("pr_url")?,
        number: row.get::<_, Option<i64>>("pr_number")?.and_then(|number| u64::try_from(number).ok()),
        reason: row.get("pr_reason")?,
        is_closed: row.get("pr_is_closed")?,
    }))
}

pub(super) fn pushed(row: &Row<'_>) -> rusqlite::Result<Option<Pushed>> {
    let (branch, commit) = (row.get::<_, Option<String>>("pushed_branch")?, row.get("pushed_commit")?);
    Ok(branch.zip(commit).map(|(branch, commit)| Pushed { branch, commit }))
}
