//! `jobs`: work that must still happen when nobody waits for it any more.

use rusqlite::{Connection, named_params};

use super::{Error, Tx, sandboxes::parsed};
use crate::model::{JobId, SandboxId, Timestamp};

/// The kind that destroys what a sandbox that was given up may have left behind.
const DESTROY: &str = "destroy";

/// Owes the destruction of a sandbox; owing it twice is owing it once.
pub fn insert_destroy(tx: &Tx<'_>, sandbox: SandboxId, at: Timestamp) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO jobs (id, kind, key, state, due_at) VALUES (:id, :kind, :key, 'due', :at)
         ON CONFLICT (kind, key) DO NOTHING",
        named_params! {
            ":id": JobId::fresh().to_string(), ":kind": DESTROY, ":key": sandbox.to_string(), ":at": at.millis(),
        },
    )?;
    Ok(())
}

/// Sandboxes whose destruction is owed.
pub fn due_destroys(connection: &Connection) -> Result<Vec<SandboxId>, Error> {
    let mut statement = connection.prepare_cached("SELECT key FROM jobs WHERE kind = :kind AND state = 'due'")?;
    let rows = statement.query_map(named_params! { ":kind": DESTROY }, |row| parsed(row, "key"))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records an attempt; without an error the job is done.
pub fn record_destroy(tx: &Tx<'_>, sandbox: SandboxId, error: Option<&str>) -> Result<(), Error> {
    tx.execute(
        "UPDATE jobs SET state = CASE WHEN :error IS NULL THEN 'done' ELSE 'due' END, last_error = :error,
            attempts = attempts + 1 WHERE kind = :kind AND key = :key",
        named_params! { ":kind": DESTROY, ":key": sandbox.to_string(), ":error": error },
    )?;
    Ok(())
}
