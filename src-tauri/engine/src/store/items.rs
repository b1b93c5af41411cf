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

/// The places of the rows that came from the agent's output in a sandbox's newest turn, in order.
pub fn parsed_seqs(connection: &Connection, sandbox: SandboxId, turn: TurnId) -> Result<Vec<i64>, Error> {
    let mut seqs = Vec::new();
    newest_turn(connection, sandbox, turn, "seq, is_parsed", |row| {
        if row.get(2)? {
            seqs.push(row.get(1)?);
        }
        Ok(true)
    })?;
    seqs.reverse();
    Ok(seqs)
}

/// What the agent said in a sandbox's newest turn, or printed where it says nothing: at most `limit` bytes, the newest.
pub fn reply_text(connection: &Connection, sandbox: SandboxId, turn: TurnId, limit: usize) -> Result<String, Error> {
    let (mut said, mut printed) = (Parts::default(), Parts::default());
    newest_turn(connection, sandbox, turn, "body, is_parsed", |row| {
        let body = row.get_ref(1)?.as_str()?;
        // Most rows are tool calls, some of them large: only what is text is read.
        let is_text = [r#"{"kind":"text""#, r#"{"kind":"output""#].iter().any(|start| body.starts_with(start));
        if !is_text || !row.get::<_, bool>(2)? {
            return Ok(true);
        }
        Ok(match serde_json::from_str(body) {
            Ok(Item::Text { text }) => said.push(text, limit),
            // Older text still counts for more than what was printed.
            Ok(Item::Output { text, .. }) => {
                printed.push(text, limit);
                true
            }
            Ok(_) | Err(_) => true,
        })
    })?;
    let (mut parts, between) = if said.texts.is_empty() { (printed.texts, "") } else { (said.texts, "\n\n") };
    parts.reverse();
    Ok(parts.join(between))
}

/// Texts, the newest first.
#[derive(Debug, Default)]
struct Parts {
    texts: Vec<String>,
    length: usize,
    is_full: bool,
}

impl Parts {
    /// Adds an older text; `false`: there is no room for it, and so for none before it.
    fn push(&mut self, text: String, limit: usize) -> bool {
        self.is_full |= self.length + text.len() > limit;
        if !self.is_full {
            self.length += text.len();
            self.texts.push(text);
        }
        !self.is_full
    }
}

/// The rows of a sandbox's newest turn, the last one first, until `each` says that it has enough. What it gets begins with
/// the turn.
fn newest_turn(
    connection: &Connection,
    sandbox: SandboxId,
    turn: TurnId,
    columns: &str,
    mut each: impl FnMut(&Row<'_>) -> Result<bool, rusqlite::Error>,
) -> Result<(), Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT turn, {columns} FROM transcript_items WHERE sandbox = :sandbox ORDER BY seq DESC"
    ))?;
    let mut rows = statement.query(named_params! { ":sandbox": sandbox.to_string() })?;
    let turn = turn.to_string();
    while let Some(row) = rows.next()? {
        let is_its = row.get_ref(0)?.as_str().is_ok_and(|of| of == turn);
        if !is_its || !each(row)? {
            break;
        }
    }
    Ok(())
}

/// Writes a row, new or in place of the one with the same `seq`; a replaced row keeps its time.
pub fn put(tx: &Tx<'_>, sandbox: SandboxId, turn: TurnId, row: &ItemRow, is_parsed: bool) -> Result<(), Error> {
    tx.prepare_cached(
        "INSERT INTO transcript_items (sandbox, seq, turn, number, body, is_parsed, at)
         VALUES (:sandbox, :seq, :turn, :number, :body, :is_parsed, :at)
         ON CONFLICT (sandbox, seq) DO UPDATE SET body = excluded.body",
    )?
    .execute(named_params! {
        ":sandbox": sandbox.to_string(), ":seq": row.seq, ":turn": turn.to_string(), ":number": row.turn,
        ":body": body(&row.item), ":is_parsed": is_parsed, ":at": row.at.millis(),
    })?;
    Ok(())
}

/// An item as it is stored.
pub fn body(item: &Item) -> String {
    serde_json::to_string(item).expect("items are plain data")
}

/// Gives a row that was stored before another item.
pub fn set_body(tx: &Tx<'_>, sandbox: SandboxId, seq: i64, body: &str) -> Result<(), Error> {
    tx.prepare_cached("UPDATE transcript_items SET body = :body WHERE sandbox = :sandbox AND seq = :seq")?
        .execute(named_params! { ":sandbox": sandbox.to_string(), ":seq": seq, ":body": body })?;
    Ok(())
}

/// Announces what this transaction added to a conversation.
pub fn announce(tx: &Tx<'_>, sandbox: SandboxId, batch: TranscriptBatch) {
    tx.after_commit(move |feed| feed.publish_transcript(sandbox, batch));
}

/// The newest items of a sandbox, oldest first.
pub fn newest(connection: &Connection, sandbox: SandboxId, count: u32) -> Result<Vec<Item>, Error> {
    let mut statement = connection
        .prepare_cached("SELECT * FROM transcript_items WHERE sandbox = :sandbox ORDER BY seq DESC LIMIT :count")?;
    let rows = statement
        .query_map(named_params! { ":sandbox": sandbox.to_string(), ":count": count }, |row| ItemRow::try_from(row))?;
    let mut items = rows.map(|row| row.map(|row| row.item)).collect::<Result<Vec<_>, _>>()?;
    items.reverse();
    Ok(items)
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
