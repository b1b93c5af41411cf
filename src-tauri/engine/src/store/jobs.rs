//! `jobs`: work that must still happen when nobody waits for it any more.

use std::time::Duration;

use rusqlite::{Connection, named_params};

use super::{
    Error, Tx,
    sandboxes::{coded, parsed},
};
use crate::model::{JobId, SandboxId, Timestamp};

/// What a job does for its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Destroys what one that was given up may have left behind.
    Destroy,
    /// Saves the work of one that went away by itself.
    Save,
    /// Goes on with a delivery.
    Deliver,
    /// Lets the agent go on once a limit has ended.
    Continue,
}

impl Kind {
    fn code(self) -> &'static str {
        match self {
            Self::Destroy => "destroy",
            Self::Save => "save",
            Self::Deliver => "deliver",
            Self::Continue => "continue",
        }
    }

    fn from_code(code: &str) -> Option<Self> {
        [Self::Destroy, Self::Save, Self::Deliver, Self::Continue].into_iter().find(|kind| kind.code() == code)
    }
}

/// A job that is due.
#[derive(Clone, Copy, Debug)]
pub struct DueJob {
    pub kind: Kind,
    pub sandbox: SandboxId,
    /// How often it was attempted.
    pub attempts: u32,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub enum Attempt {
    Done,
    /// It is tried again after this long.
    Again {
        cause: String,
        after: Duration,
    },
}

/// Owes something to a sandbox; owing it twice is owing it once, and one that was done is due anew.
pub fn insert(tx: &Tx<'_>, kind: Kind, sandbox: SandboxId, at: Timestamp) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO jobs (id, kind, key, state, due_at) VALUES (:id, :kind, :key, 'due', :at)
         ON CONFLICT (kind, key) DO UPDATE SET state = 'due', due_at = :at, attempts = 0, last_error = NULL
            WHERE state <> 'due'",
        named_params! {
            ":id": JobId::fresh().to_string(), ":kind": kind.code(), ":key": sandbox.to_string(), ":at": at.millis(),
        },
    )?;
    Ok(())
}

/// Owes something from this moment on, whether or not it was owed before.
pub fn set(tx: &Tx<'_>, kind: Kind, sandbox: SandboxId, at: Timestamp) -> Result<(), Error> {
    insert(tx, kind, sandbox, at)?;
    tx.execute(
        "UPDATE jobs SET due_at = :at, attempts = 0 WHERE kind = :kind AND key = :key",
        named_params! { ":kind": kind.code(), ":key": sandbox.to_string(), ":at": at.millis() },
    )?;
    Ok(())
}

/// Owes it no more; says whether it was owed.
pub fn cancel(tx: &Tx<'_>, kind: Kind, sandbox: SandboxId) -> Result<bool, Error> {
    let changed = tx
        .prepare_cached("UPDATE jobs SET state = 'done' WHERE kind = :kind AND key = :key AND state = 'due'")?
        .execute(named_params! { ":kind": kind.code(), ":key": sandbox.to_string() })?;
    Ok(changed == 1)
}

/// What is due by now, the oldest first.
pub fn due(connection: &Connection, now: Timestamp) -> Result<Vec<DueJob>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT * FROM jobs WHERE state = 'due' AND due_at <= :now ORDER BY due_at, id")?;
    let rows = statement.query_map(named_params! { ":now": now.millis() }, |row| {
        Ok(DueJob {
            kind: coded(row, "kind", Kind::from_code)?,
            sandbox: parsed(row, "key")?,
            attempts: row.get("attempts")?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Moves what is due along where the wall clock was set back: by the old time it would stay owed for as long again. Where
/// it was set forward, what comes earlier than it would have is only tried earlier. When a limit ends was said by another
/// clock, and stays.
pub fn move_times(tx: &Tx<'_>, millis: i64) -> Result<(), Error> {
    tx.execute(
        "UPDATE jobs SET due_at = due_at + min(:by, 0) WHERE state = 'due' AND kind <> 'continue'",
        named_params! { ":by": millis },
    )?;
    Ok(())
}

/// Records an attempt.
pub fn record(tx: &Tx<'_>, kind: Kind, sandbox: SandboxId, attempt: &Attempt, now: Timestamp) -> Result<(), Error> {
    let (state, cause, after) = match attempt {
        Attempt::Done => ("done", None, Duration::ZERO),
        Attempt::Again { cause, after } => ("due", Some(cause.as_str()), *after),
    };
    tx.execute(
        "UPDATE jobs SET state = :state, last_error = :cause, due_at = :due_at, attempts = attempts + 1
         WHERE kind = :kind AND key = :key AND state = 'due'",
        named_params! {
            ":kind": kind.code(), ":key": sandbox.to_string(), ":state": state, ":cause": cause,
            ":due_at": (now + after).millis(),
        },
    )?;
    Ok(())
}
