//! `turns`: the agent's work on one message, one process per attempt.

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{Change, Error, Tx, sandboxes::parsed};
use crate::{
    agent::Exit,
    model::{ErrorKind, MessageId, SandboxId, Timestamp, TurnId, Usage},
    provider::Offsets,
};

/// A turn as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    pub id: TurnId,
    pub sandbox: SandboxId,
    /// 1, 2, 3 … in its sandbox.
    pub number: u32,
    /// The person's message.
    pub message: MessageId,
    /// The agent's.
    pub reply: MessageId,
    pub attempt: u32,
    /// The session it continues, if any.
    pub session_before: Option<String>,
    /// How much of the spool was ingested.
    pub offsets: Offsets,
    /// The person or an ending asked for its end.
    pub is_interrupted: bool,
    pub error_kind: Option<ErrorKind>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// How a turn ended.
#[derive(Clone, Debug)]
pub struct TurnEnd {
    pub exit: Exit,
    pub error: Option<(ErrorKind, String)>,
    pub agent_session: Option<String>,
    pub usage: Option<Usage>,
    pub is_usage_complete: bool,
    /// What the agent said its whole session had consumed.
    pub session_usage: Option<Usage>,
    pub at: Timestamp,
}

impl TryFrom<&Row<'_>> for TurnRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let offset = |column| row.get::<_, i64>(column).map(|at| u64::try_from(at).unwrap_or(0));
        Ok(Self {
            id: parsed(row, "id")?,
            sandbox: parsed(row, "sandbox")?,
            number: row.get("number")?,
            message: parsed(row, "message")?,
            reply: parsed(row, "reply")?,
            attempt: row.get("attempt")?,
            session_before: row.get("session_before")?,
            offsets: Offsets { out: offset("out_offset")?, err: offset("err_offset")? },
            is_interrupted: row.get("is_interrupted")?,
            error_kind: row.get::<_, Option<String>>("error_kind")?.as_deref().and_then(ErrorKind::from_code),
            started_at: Timestamp::from_millis(row.get("started_at")?),
            ended_at: row.get::<_, Option<i64>>("ended_at")?.map(Timestamp::from_millis),
        })
    }
}

/// Records that a turn is about to start. Its process is started afterwards, by this id, once.
pub fn insert(
    tx: &Tx<'_>,
    sandbox: SandboxId,
    message: MessageId,
    reply: MessageId,
    session_before: Option<&str>,
    at: Timestamp,
) -> Result<TurnRow, Error> {
    let id = TurnId::fresh();
    tx.execute(
        "INSERT INTO turns (id, sandbox, number, message, reply, attempt, session_before, started_at)
         VALUES (:id, :sandbox, (SELECT COALESCE(MAX(number), 0) + 1 FROM turns WHERE sandbox = :sandbox), :message,
            :reply, 1, :session, :at)",
        named_params! {
            ":id": id.to_string(), ":sandbox": sandbox.to_string(), ":message": message.to_string(),
            ":reply": reply.to_string(), ":session": session_before, ":at": at.millis(),
        },
    )?;
    tx.changed(Change::Sandbox(sandbox));
    open(tx, sandbox)?.ok_or(Error::NotFound("turn"))
}

/// The turn that has not ended, if there is one.
pub fn open(connection: &Connection, sandbox: SandboxId) -> Result<Option<TurnRow>, Error> {
    Ok(connection
        .prepare_cached(
            "SELECT * FROM turns WHERE sandbox = :sandbox AND ended_at IS NULL ORDER BY number DESC LIMIT 1",
        )?
        .query_row(named_params! { ":sandbox": sandbox.to_string() }, |row| TurnRow::try_from(row))
        .optional()?)
}

/// Every turn of a sandbox, oldest first.
pub fn all(connection: &Connection, sandbox: SandboxId) -> Result<Vec<TurnRow>, Error> {
    let mut statement = connection.prepare_cached("SELECT * FROM turns WHERE sandbox = :sandbox ORDER BY number")?;
    let rows = statement.query_map(named_params! { ":sandbox": sandbox.to_string() }, |row| TurnRow::try_from(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores how much of the spool was ingested; in the same transaction as what was read up to there.
pub fn set_offsets(tx: &Tx<'_>, id: TurnId, offsets: Offsets) -> Result<(), Error> {
    let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    tx.prepare_cached("UPDATE turns SET out_offset = :out, err_offset = :err WHERE id = :id")?
        .execute(named_params! { ":id": id.to_string(), ":out": signed(offsets.out), ":err": signed(offsets.err) })?;
    Ok(())
}

/// Records that somebody asked for its end, before the asking.
pub fn set_interrupted(tx: &Tx<'_>, id: TurnId) -> Result<(), Error> {
    tx.execute("UPDATE turns SET is_interrupted = 1 WHERE id = :id", named_params! { ":id": id.to_string() })?;
    Ok(())
}

/// Ends a turn; false where it had ended before.
pub fn finish(tx: &Tx<'_>, id: TurnId, end: &TurnEnd) -> Result<bool, Error> {
    let (code, signal) = match end.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
        Exit::Unknown => (None, None),
    };
    let tokens = |amount: fn(&Usage) -> u64| end.usage.as_ref().map(|usage| i64::try_from(amount(usage)).unwrap_or(0));
    let changed = tx.execute(
        "UPDATE turns SET exit_code = :code, exit_signal = :signal, error_kind = :kind, error_message = :message,
            agent_session = :session, input_tokens = :input, output_tokens = :output, cache_write_tokens = :write,
            cache_read_tokens = :read, is_usage_complete = :complete, session_usage = :session_usage, ended_at = :at
         WHERE id = :id AND ended_at IS NULL",
        named_params! {
            ":id": id.to_string(), ":code": code, ":signal": signal,
            ":kind": end.error.as_ref().map(|(kind, _)| kind.code()),
            ":message": end.error.as_ref().map(|(_, message)| message),
            ":session": end.agent_session,
            ":input": tokens(|usage| usage.input), ":output": tokens(|usage| usage.output),
            ":write": tokens(|usage| usage.cache_write), ":read": tokens(|usage| usage.cache_read),
            ":complete": end.is_usage_complete, ":at": end.at.millis(),
            ":session_usage": end.session_usage.as_ref().and_then(|usage| serde_json::to_string(usage).ok()),
        },
    )?;
    Ok(changed == 1)
}

/// What a turn's session had consumed before it, where its agent said so.
pub fn session_usage_before(connection: &Connection, turn: &TurnRow) -> Result<Option<Usage>, Error> {
    let stored = connection
        .prepare_cached(
            "SELECT session_usage FROM turns WHERE sandbox = :sandbox AND number < :number
                AND agent_session = :session AND session_usage IS NOT NULL ORDER BY number DESC LIMIT 1",
        )?
        .query_row(
            named_params! {
                ":sandbox": turn.sandbox.to_string(), ":number": turn.number, ":session": turn.session_before,
            },
            |row| row.get::<_, String>(0),
        )
        .optional()?;
    Ok(stored.and_then(|json| serde_json::from_str(&json).ok()))
}

/// What a sandbox's turns consumed, and whether some of it is missing.
pub fn usage(connection: &Connection, sandbox: SandboxId) -> Result<(Usage, bool), Error> {
    Ok(connection
        .prepare_cached(
            "SELECT COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0),
                COALESCE(SUM(cache_write_tokens), 0), COALESCE(SUM(cache_read_tokens), 0),
                COALESCE(SUM(ended_at IS NOT NULL AND NOT is_usage_complete), 0)
             FROM turns WHERE sandbox = :sandbox",
        )?
        .query_row(named_params! { ":sandbox": sandbox.to_string() }, |row| {
            let tokens = |column| row.get::<_, i64>(column).map(|amount| u64::try_from(amount).unwrap_or(0));
            let usage =
                Usage { input: tokens(0)?, output: tokens(1)?, cache_write: tokens(2)?, cache_read: tokens(3)? };
            Ok((usage, row.get::<_, i64>(4)? > 0))
        })?)
}
