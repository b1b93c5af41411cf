//! `checkpoints`: what is known of each commit of a sandbox's whole working tree.

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use serde::{Deserialize, Serialize};

use super::{
    Change, Error, Tx,
    sandboxes::{json, listed, parsed},
};
use crate::model::{CheckpointId, SandboxId, Timestamp};

/// A path that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// For the eye: what is not UTF-8 is replaced.
    pub path: String,
    /// In words.
    pub why: String,
}

/// A checkpoint as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRow {
    pub id: CheckpointId,
    pub sandbox: SandboxId,
    /// Its ref is `refs/courier/<sandbox>/<name>`.
    pub name: String,
    /// The number of the turn it was taken after.
    pub turn: Option<u32>,
    pub commit: String,
    pub tree: String,
    /// The agent's own commit it stands on.
    pub head: String,
    /// Against the checkpoint before.
    pub files_changed: u32,
    pub skipped: Vec<Skipped>,
    /// Changed paths with the attribute `filter=lfs`.
    pub lfs: Vec<String>,
    /// Changed paths beneath `.github/workflows`.
    pub workflows: Vec<String>,
    pub created_at: Timestamp,
}

impl TryFrom<&Row<'_>> for CheckpointRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            id: parsed(row, "id")?,
            sandbox: parsed(row, "sandbox")?,
            name: row.get("name")?,
            turn: row.get("turn")?,
            commit: row.get("commit_id")?,
            tree: row.get("tree_id")?,
            head: row.get("head")?,
            files_changed: row.get("files_changed")?,
            skipped: listed(row, "skipped")?,
            lfs: listed(row, "lfs")?,
            workflows: listed(row, "workflows")?,
            created_at: Timestamp::from_millis(row.get("created_at")?),
        })
    }
}

/// Records a checkpoint; one of the same name is taken again, and keeps its id.
pub fn put(tx: &Tx<'_>, checkpoint: &CheckpointRow) -> Result<(), Error> {
    tx.prepare_cached(
        "INSERT INTO checkpoints (id, sandbox, name, turn, commit_id, tree_id, head, files_changed, skipped, lfs,
            workflows, created_at)
         VALUES (:id, :sandbox, :name, :turn, :commit, :tree, :head, :files_changed, :skipped, :lfs, :workflows, :at)
         ON CONFLICT (sandbox, name) DO UPDATE SET turn = :turn, commit_id = :commit, tree_id = :tree, head = :head,
            files_changed = :files_changed, skipped = :skipped, lfs = :lfs, workflows = :workflows, created_at = :at",
    )?
    .execute(named_params! {
        ":id": checkpoint.id.to_string(),
        ":sandbox": checkpoint.sandbox.to_string(),
        ":name": checkpoint.name,
        ":turn": checkpoint.turn,
        ":commit": checkpoint.commit,
        ":tree": checkpoint.tree,
        ":head": checkpoint.head,
        ":files_changed": checkpoint.files_changed,
        ":skipped": json(&checkpoint.skipped),
        ":lfs": json(&checkpoint.lfs),
        ":workflows": json(&checkpoint.workflows),
        ":at": checkpoint.created_at.millis(),
    })?;
    tx.changed(Change::Sandbox(checkpoint.sandbox));
    Ok(())
}

/// A sandbox's checkpoints, oldest first.
pub fn all(connection: &Connection, sandbox: SandboxId) -> Result<Vec<CheckpointRow>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM checkpoints WHERE sandbox = :sandbox ORDER BY created_at, id")?;
    let rows =
        statement.query_map(named_params! { ":sandbox": sandbox.to_string() }, |row| CheckpointRow::try_from(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The newest.
pub fn last(connection: &Connection, sandbox: SandboxId) -> Result<Option<CheckpointRow>, Error> {
    Ok(connection
        .prepare_cached("SELECT * FROM checkpoints WHERE sandbox = :sandbox ORDER BY created_at DESC, id DESC LIMIT 1")?
        .query_row(named_params! { ":sandbox": sandbox.to_string() }, |row| CheckpointRow::try_from(row))
        .optional()?)
}

/// One.
pub fn get(connection: &Connection, id: CheckpointId) -> Result<CheckpointRow, Error> {
    connection
        .prepare_cached("SELECT * FROM checkpoints WHERE id = :id")?
        .query_row(named_params! { ":id": id.to_string() }, |row| CheckpointRow::try_from(row))
        .optional()?
        .ok_or(Error::NotFound("checkpoint"))
}
