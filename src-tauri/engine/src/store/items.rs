//! `transcript_items`: what a person reads, derived from the raw log.

use rusqlite::{Connection, Row, named_params};

use super::{Error, Tx, feed::TranscriptBatch};
use crate::model::{Item, SandboxId, Timestamp, TurnId};

/// How many rows a page holds.
pub const PAGE: u32 = 200;

/// One row of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRow {
    /// Its place in the sandbox's conversation.
    pub seq: i64,
    /// The number of its turn.
    pub turn: u32,
    pub at: Timestamp,
    pub item: Item,
}

impl TryFrom<&Row<'_>> for ItemRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let body: String = row.get("body")?;
        // A row that cannot be read any more is shown as it is, never the end of the page.
        let item = serde_json::from_str(&body).unwrap_or(Item::Unknown { raw: body });
        Ok(Self { seq: row.get("seq")?, turn: row.get("number")?, at: Timestamp::from_millis(row.get("at")?), item })
    }
}

/// The place after the last row.
pub fn next_seq(connection: &Connection, sandbox: SandboxId) -> Result<i64, Error> {
    Ok(connection
        .prepare_cached("SELECT COALESCE(MAX(seq), 0) + 1 FROM transcript_items WHERE sandbox = :sandbox")?
        .query_row(named_params! { ":sandbox": sandbox.to_string() }, |row| row.get(0))?)
}

/// The places of a turn's rows that came from the agent's output, in order.
pub fn parsed_seqs(connection: &Connection, turn: TurnId) -> Result<Vec<i64>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT seq FROM transcript_items WHERE turn = :turn AND is_parsed ORDER BY seq")?;
    let rows = statement.query_map(named_params! { ":turn": turn.to_string() }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What the agent said in a turn, or printed where it says nothing: at most `limit` bytes, the newest.
pub fn reply_text(connection: &Connection, turn: TurnId, limit: usize) -> Result<String, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT json_extract(body, '$.kind') AS kind, json_extract(body, '$.text') AS text FROM transcript_items
         WHERE turn = :turn AND is_parsed AND kind IN ('text', 'output') ORDER BY seq DESC",
    )?;
    let mut rows = statement.query(named_params! { ":turn": turn.to_string() })?;
    let (mut said, mut printed) = (Vec::<String>::new(), Vec::<String>::new());
    let (mut said_length, mut printed_length) = (0, 0);
    while let Some(row) = rows.next()? {
        let (kind, text): (String, String) = (row.get(0)?, row.get(1)?);
        let (parts, length) =
            if kind == "text" { (&mut said, &mut said_length) } else { (&mut printed, &mut printed_length) };
        if *length + text.len() <= limit {
            *length += text.len();
            parts.push(text);
        }
    }
    let (mut parts, between) = if said.is_empty() { (printed, "") } else { (said, "\n\n") };
    parts.reverse();
    Ok(parts.join(between))
}

/// Writes a row, new or in place of the one with the same `seq`; a replaced row keeps its time.
pub fn put(tx: &Tx<'_>, sandbox: SandboxId, turn: TurnId, row: &ItemRow, is_parsed: bool) -> Result<(), Error> {
    let body = serde_json::to_string(&row.item).expect("items are plain data");
    tx.prepare_cached(
        "INSERT INTO transcript_items (sandbox, seq, turn, number, body, is_parsed, at)
         VALUES (:sandbox, :seq, :turn, :number, :body, :is_parsed, :at)
         ON CONFLICT (sandbox, seq) DO UPDATE SET body = excluded.body",
    )?
    .execute(named_params! {
        ":sandbox": sandbox.to_string(), ":seq": row.seq, ":turn": turn.to_string(), ":number": row.turn,
        ":body": body, ":is_parsed": is_parsed, ":at": row.at.millis(),
    })?;
    Ok(())
}

/// Announces what this transaction added to a conversation.
pub fn announce(tx: &Tx<'_>, sandbox: SandboxId, batch: TranscriptBatch) {
    tx.after_commit(move |feed| feed.publish_transcript(sandbox, batch));
}

/// At most a page of rows before `before` (from the end without it), oldest first.
pub fn page(connection: &Connection, sandbox: SandboxId, before: Option<i64>) -> Result<Vec<ItemRow>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT * FROM transcript_items WHERE sandbox = :sandbox AND seq < :before ORDER BY seq DESC LIMIT :page",
    )?;
    let rows = statement.query_map(
        named_params! { ":sandbox": sandbox.to_string(), ":before": before.unwrap_or(i64::MAX), ":page": PAGE },
        |row| ItemRow::try_from(row),
    )?;
    let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
    rows.reverse();
    Ok(rows)
}
