//! What the app keeps on disk, read from outside: the raw log in the database, the spool, the reasons of an end.

use std::{fs, path::Path};

use anyhow::Context;
use rusqlite::{Connection, OpenFlags, named_params};

/// A turn as the database has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) number: i64,
    pub(crate) error_kind: Option<String>,
    pub(crate) input: Option<i64>,
    pub(crate) output: Option<i64>,
    pub(crate) cache_write: Option<i64>,
    pub(crate) cache_read: Option<i64>,
}

fn open(data: &Path) -> anyhow::Result<Connection> {
    let path = data.join("courier.db");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&path, flags).with_context(|| format!("could not open {}", path.display()))
}

/// What the agent printed on its standard output during the whole sandbox, as it was ingested.
pub(crate) fn raw_log(data: &Path, sandbox: &str) -> anyhow::Result<Vec<u8>> {
    let database = open(data)?;
    let mut statement = database.prepare(
        "SELECT bytes, is_compressed FROM stream_log WHERE sandbox = :sandbox AND stream = 'out' ORDER BY id",
    )?;
    let rows = statement.query_map(named_params! { ":sandbox": sandbox }, |row| {
        Ok((row.get::<_, Vec<u8>>("bytes")?, row.get::<_, bool>("is_compressed")?))
    })?;
    let mut log = Vec::new();
    for row in rows {
        let (bytes, is_compressed) = row?;
        log.extend(if is_compressed { zstd::decode_all(&bytes[..])? } else { bytes });
    }
    Ok(log)
}

/// The same as it was written down in the sandbox's folder, here or in its machine. Turns lie in folders named by their ids,
/// which are ordered by time; short commands of the app's own lie beside them.
pub(crate) fn spool(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let mut folders: Vec<_> =
        fs::read_dir(folder.join("turns")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    folders.retain(|folder| !folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-")));
    folders.sort();
    let outs = folders.iter().filter_map(|folder| fs::read(folder.join("out")).ok());
    Ok(outs.flatten().collect())
}

pub(crate) fn turns(data: &Path, sandbox: &str) -> anyhow::Result<Vec<Turn>> {
    let database = open(data)?;
    let mut statement = database.prepare(
        "SELECT id, number, error_kind, input_tokens, output_tokens, cache_write_tokens, cache_read_tokens
         FROM turns WHERE sandbox = :sandbox ORDER BY number, attempt",
    )?;
    let rows = statement.query_map(named_params! { ":sandbox": sandbox }, |row| {
        Ok(Turn {
            id: row.get("id")?,
            number: row.get("number")?,
            error_kind: row.get("error_kind")?,
            input: row.get("input_tokens")?,
            output: row.get("output_tokens")?,
            cache_write: row.get("cache_write_tokens")?,
            cache_read: row.get("cache_read_tokens")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The last transition's target and reason.
pub(crate) fn last_transition(data: &Path, sandbox: &str) -> anyhow::Result<(String, Option<String>)> {
    let statement = "SELECT to_status, reason FROM transitions WHERE sandbox = :sandbox ORDER BY seq DESC LIMIT 1";
    let parameters = named_params! { ":sandbox": sandbox };
    Ok(open(data)?.query_row(statement, parameters, |row| Ok((row.get("to_status")?, row.get("reason")?)))?)
}

/// The counter of the sandbox's project, and what a recount gives.
pub(crate) fn counter(data: &Path, sandbox: &str) -> anyhow::Result<(i64, i64)> {
    let statement = "SELECT active_sandboxes AS counter,
            (SELECT COUNT(*) FROM sandboxes AS other WHERE other.project = projects.id AND other.status = 'running' AND other.deleted_at IS NULL) AS recount
         FROM projects WHERE id = (SELECT project FROM sandboxes WHERE id = :sandbox)";
    let parameters = named_params! { ":sandbox": sandbox };
    Ok(open(data)?.query_row(statement, parameters, |row| Ok((row.get("counter")?, row.get("recount")?)))?)
}
