//! Sandboxes that are deleted, and how they are purged: rows in pieces, so that nobody who writes has to wait long, and the
//! sandbox's own last.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, named_params};

use super::{
    Change, Error, SandboxRow, Skipped, Tx,
    sandboxes::{self, SELECT, parsed, readable},
};
use crate::{
    model::{ProjectId, SandboxId, Timestamp, TurnId},
    provider::Offsets,
};

/// How much of the raw log is removed at once: rows, and bytes.
const CHUNKS: u32 = 2000;
const CHUNK_BYTES: i64 = 16 << 20;
/// How many items of a conversation are removed at once.
const ITEMS: u32 = 4000;

/// What is stored of a sandbox's work.
#[derive(Clone, Debug, Default)]
pub struct StoredWork {
    /// The newest checkpoint's commit in the vault.
    pub checkpoint: Option<String>,
    /// What that could not take.
    pub skipped: Vec<Skipped>,
    /// How far each turn's spool was stored.
    pub spools: Vec<(TurnId, Offsets)>,
    /// Something is still owed to it: to be destroyed, saved, or delivered.
    pub is_owed: bool,
}

/// Deletes a sandbox, softly; `false`: it was deleted already.
pub fn delete(tx: &Tx<'_>, id: SandboxId, at: Timestamp) -> Result<bool, Error> {
    let changed = tx.execute(
        "UPDATE sandboxes SET deleted_at = :at WHERE id = :id AND deleted_at IS NULL",
        named_params! { ":id": id.to_string(), ":at": at.millis() },
    )?;
    announce(tx, id)?;
    Ok(changed == 1)
}

/// Takes a sandbox out of the trash, unless it is being purged; `false`: it is.
pub fn restore(tx: &Tx<'_>, id: SandboxId) -> Result<bool, Error> {
    tx.execute(
        "UPDATE sandboxes SET deleted_at = NULL WHERE id = :id AND purge_at IS NULL",
        named_params! { ":id": id.to_string() },
    )?;
    announce(tx, id)?;
    Ok(sandboxes::get(tx, id)?.deleted_at.is_none())
}

/// The row, its project's counters and lists change.
fn announce(tx: &Tx<'_>, id: SandboxId) -> Result<(), Error> {
    let project = sandboxes::get(tx, id)?.project;
    tx.changed(Change::Sandbox(id));
    tx.changed(Change::Project(project));
    Ok(())
}

/// What was deleted, the last first.
pub fn deleted(connection: &Connection, project: Option<ProjectId>) -> Result<Vec<SandboxRow>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT} WHERE deleted_at IS NOT NULL AND (:project IS NULL OR project = :project)
         ORDER BY deleted_at DESC, id DESC"
    ))?;
    let rows =
        statement.query_map(named_params! { ":project": project.map(|id| id.to_string()) }, |row| Ok(readable(row)))?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Every sandbox, the newest first.
pub fn all(connection: &Connection) -> Result<Vec<SandboxRow>, Error> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} ORDER BY created_at DESC, id DESC"))?;
    let rows = statement.query_map([], |row| Ok(readable(row)))?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// From now on a sandbox is being purged.
pub fn begin_purge(tx: &Tx<'_>, id: SandboxId, at: Timestamp) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET purge_at = COALESCE(purge_at, :at) WHERE id = :id",
        named_params! { ":id": id.to_string(), ":at": at.millis() },
    )?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}

/// Sandboxes whose purge was begun and is not done.
pub fn purging(connection: &Connection) -> Result<Vec<SandboxId>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM sandboxes WHERE deleted_at IS NOT NULL AND purge_at IS NOT NULL")?;
    let rows = statement.query_map([], |row| parsed(row, "id"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a sandbox's purge was begun.
pub fn is_purging(connection: &Connection, id: SandboxId) -> Result<bool, Error> {
    Ok(connection
        .prepare_cached("SELECT purge_at IS NOT NULL FROM sandboxes WHERE id = :id")?
        .query_row(named_params! { ":id": id.to_string() }, |row| row.get(0))
        .optional()?
        .unwrap_or(false))
}

/// Removes a piece of what a sandbox said; `false`: nothing is left of it.
pub fn remove_piece(tx: &Tx<'_>, id: SandboxId) -> Result<bool, Error> {
    let sandbox = id.to_string();
    let last = {
        let mut statement =
            tx.prepare_cached("SELECT id, length FROM stream_log WHERE sandbox = :sandbox ORDER BY id LIMIT :most")?;
        let mut rows = statement.query(named_params! { ":sandbox": sandbox, ":most": CHUNKS })?;
        let (mut last, mut bytes) = (None, 0);
        while let Some(row) = rows.next()? {
            last = Some(row.get::<_, i64>(0)?);
            bytes += row.get::<_, i64>(1)?;
            if bytes > CHUNK_BYTES {
                break;
            }
        }
        last
    };
    let mut removed = match last {
        Some(last) => tx
            .prepare_cached("DELETE FROM stream_log WHERE sandbox = :sandbox AND id <= :last")?
            .execute(named_params! { ":sandbox": sandbox, ":last": last })?,
        None => 0,
    };
    removed += tx
        .prepare_cached(
            "DELETE FROM transcript_items WHERE sandbox = :sandbox AND seq <=
                (SELECT MAX(seq) FROM (SELECT seq FROM transcript_items WHERE sandbox = :sandbox ORDER BY seq LIMIT :most))",
        )?
        .execute(named_params! { ":sandbox": sandbox, ":most": ITEMS })?;
    Ok(removed > 0)
}

/// Removes a sandbox's row, and with it every row that hangs on it. What it consumed keeps project, title and amounts.
pub fn remove(tx: &Tx<'_>, id: SandboxId) -> Result<(), Error> {
    announce(tx, id)?;
    let id = id.to_string();
    tx.execute("DELETE FROM jobs WHERE key = :id", named_params! { ":id": id })?;
    tx.execute("DELETE FROM sandboxes WHERE id = :id AND purge_at IS NOT NULL", named_params! { ":id": id })?;
    Ok(())
}

/// Says that a sandbox's files are no longer there.
pub fn set_files_cleaned(tx: &Tx<'_>, id: SandboxId, at: Timestamp) -> Result<(), Error> {
    tx.execute(
        "UPDATE sandboxes SET files_cleaned_at = :at WHERE id = :id",
        named_params! { ":id": id.to_string(), ":at": at.millis() },
    )?;
    tx.changed(Change::Sandbox(id));
    Ok(())
}

/// How many bytes the raw log of each sandbox takes in the database.
pub fn log_bytes(connection: &Connection) -> Result<HashMap<SandboxId, u64>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT sandbox, SUM(LENGTH(bytes)) AS bytes FROM stream_log GROUP BY sandbox")?;
    let rows = statement.query_map([], |row| Ok((parsed(row, "sandbox")?, unsigned(row.get("bytes")?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The same of one sandbox.
pub fn log_bytes_of(connection: &Connection, id: SandboxId) -> Result<u64, Error> {
    Ok(connection
        .prepare_cached("SELECT COALESCE(SUM(LENGTH(bytes)), 0) FROM stream_log WHERE sandbox = :sandbox")?
        .query_row(named_params! { ":sandbox": id.to_string() }, |row| row.get(0).map(unsigned))?)
}

/// What SQLite holds is signed; none of this is below zero.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What is stored of a sandbox's work.
pub fn work(connection: &Connection, id: SandboxId) -> Result<StoredWork, Error> {
    let sandbox = id.to_string();
    let newest = connection
        .prepare_cached(
            "SELECT commit_id, skipped FROM checkpoints WHERE sandbox = :sandbox ORDER BY created_at DESC, id DESC LIMIT 1",
        )?
        .query_row(named_params! { ":sandbox": sandbox }, |row| {
            Ok((row.get::<_, String>("commit_id")?, row.get::<_, String>("skipped")?))
        })
        .optional()?;
    let (checkpoint, skipped) = newest.unzip();
    // A list that cannot be read must not seem empty.
    let unreadable = || vec![Skipped { path: String::new(), why: "the list of them cannot be read".to_owned() }];
    let skipped = skipped.map(|text| serde_json::from_str(&text).unwrap_or_else(|_| unreadable())).unwrap_or_default();
    let mut statement =
        connection.prepare_cached("SELECT id, out_offset, err_offset FROM turns WHERE sandbox = :sandbox")?;
    let spools = statement.query_map(named_params! { ":sandbox": sandbox }, |row| {
        let offsets = Offsets { out: unsigned(row.get("out_offset")?), err: unsigned(row.get("err_offset")?) };
        Ok((parsed(row, "id")?, offsets))
    })?;
    let spools = spools.collect::<Result<_, _>>()?;
    let is_owed = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM jobs WHERE key = :sandbox AND state IN ('due', 'running'))")?
        .query_row(named_params! { ":sandbox": sandbox }, |row| row.get(0))?;
    Ok(StoredWork { checkpoint, skipped, spools, is_owed })
}
