//! `messages`: the entries of a sandbox's conversation, and its queue.

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{
    Change, Error, Tx,
    feed::TranscriptBatch,
    sandboxes::{coded, parsed},
};
use crate::model::{MessageDelivery, MessageId, MessageStatus, Role, SandboxId, Timestamp};

/// A message as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub id: MessageId,
    pub sandbox: SandboxId,
    pub seq: u32,
    pub role: Role,
    pub content: String,
    pub status: MessageStatus,
    /// Of a person's message only.
    pub delivery: Option<MessageDelivery>,
    pub created_at: Timestamp,
}

impl TryFrom<&Row<'_>> for MessageRow {
    type Error = rusqlite::Error;
    fn try_from(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            id: parsed(row, "id")?,
            sandbox: parsed(row, "sandbox")?,
            seq: row.get("seq")?,
            role: coded(row, "role", Role::from_code)?,
            content: row.get("content")?,
            status: coded(row, "status", MessageStatus::from_code)?,
            delivery: row.get::<_, Option<String>>("delivery")?.as_deref().and_then(MessageDelivery::from_code),
            created_at: Timestamp::from_millis(row.get("created_at")?),
        })
    }
}

/// Where in the queue a person's message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Last,
    First,
}

/// Queues a person's message.
pub fn enqueue(
    tx: &Tx<'_>,
    sandbox: SandboxId,
    content: &str,
    place: Place,
    at: Timestamp,
) -> Result<MessageRow, Error> {
    let bound = match place {
        Place::Last => "SELECT COALESCE(MAX(position), 0)",
        Place::First => "SELECT COALESCE(MIN(position), 0) - 1",
    };
    let id = MessageId::fresh();
    tx.execute(
        &format!(
            "INSERT INTO messages (id, sandbox, seq, role, content, status, delivery, position, created_at)
             VALUES (:id, :sandbox, (SELECT COALESCE(MAX(seq), 0) + 1 FROM messages WHERE sandbox = :sandbox), 'user',
                :content, 'completed', 'queued',
                ({bound} FROM messages WHERE sandbox = :sandbox AND delivery = 'queued'), :at)"
        ),
        named_params! {
            ":id": id.to_string(), ":sandbox": sandbox.to_string(), ":content": content, ":at": at.millis(),
        },
    )?;
    announce_queue(tx, sandbox)?;
    get(tx, id)
}

/// Adds the agent's half of a turn, to be filled.
pub fn insert_reply(tx: &Tx<'_>, sandbox: SandboxId, at: Timestamp) -> Result<MessageId, Error> {
    let id = MessageId::fresh();
    tx.execute(
        "INSERT INTO messages (id, sandbox, seq, role, content, status, created_at)
         VALUES (:id, :sandbox, (SELECT COALESCE(MAX(seq), 0) + 1 FROM messages WHERE sandbox = :sandbox),
            'assistant', '', 'streaming', :at)",
        named_params! { ":id": id.to_string(), ":sandbox": sandbox.to_string(), ":at": at.millis() },
    )?;
    Ok(id)
}

/// Ends the agent's half.
pub fn finish_reply(tx: &Tx<'_>, id: MessageId, content: &str, status: MessageStatus) -> Result<(), Error> {
    tx.execute(
        "UPDATE messages SET content = :content, status = :status WHERE id = :id",
        named_params! { ":id": id.to_string(), ":content": content, ":status": status.code() },
    )?;
    Ok(())
}

/// One message.
pub fn get(connection: &Connection, id: MessageId) -> Result<MessageRow, Error> {
    connection
        .prepare_cached("SELECT * FROM messages WHERE id = :id")?
        .query_row(named_params! { ":id": id.to_string() }, |row| MessageRow::try_from(row))
        .optional()?
        .ok_or(Error::NotFound("message"))
}

/// A sandbox's whole conversation, oldest first.
pub fn all(connection: &Connection, sandbox: SandboxId) -> Result<Vec<MessageRow>, Error> {
    let mut statement = connection.prepare_cached("SELECT * FROM messages WHERE sandbox = :sandbox ORDER BY seq")?;
    let rows =
        statement.query_map(named_params! { ":sandbox": sandbox.to_string() }, |row| MessageRow::try_from(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What waits for the agent, in the order it will be given.
pub fn queue(connection: &Connection, sandbox: SandboxId) -> Result<Vec<MessageRow>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT * FROM messages WHERE sandbox = :sandbox AND delivery = 'queued' ORDER BY position, seq",
    )?;
    let rows =
        statement.query_map(named_params! { ":sandbox": sandbox.to_string() }, |row| MessageRow::try_from(row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Marks a queued message as given to the agent; false where it was not queued any more.
pub fn deliver(tx: &Tx<'_>, message: &MessageRow) -> Result<bool, Error> {
    let changed = tx.execute(
        "UPDATE messages SET delivery = 'delivered' WHERE id = :id AND delivery = 'queued'",
        named_params! { ":id": message.id.to_string() },
    )?;
    announce_queue(tx, message.sandbox)?;
    Ok(changed == 1)
}

/// Changes a message that still waits; false where it does not wait any more.
pub fn edit(tx: &Tx<'_>, id: MessageId, content: &str) -> Result<bool, Error> {
    let message = get(tx, id)?;
    let changed = tx.execute(
        "UPDATE messages SET content = :content WHERE id = :id AND delivery = 'queued'",
        named_params! { ":id": id.to_string(), ":content": content },
    )?;
    announce_queue(tx, message.sandbox)?;
    Ok(changed == 1)
}

/// Takes a message that still waits out of the queue; false where it does not wait any more.
pub fn cancel(tx: &Tx<'_>, id: MessageId) -> Result<bool, Error> {
    let message = get(tx, id)?;
    let changed = tx.execute(
        "DELETE FROM messages WHERE id = :id AND delivery = 'queued'",
        named_params! { ":id": id.to_string() },
    )?;
    announce_queue(tx, message.sandbox)?;
    Ok(changed == 1)
}

fn announce_queue(tx: &Tx<'_>, sandbox: SandboxId) -> Result<(), Error> {
    let batch = TranscriptBatch { queue: Some(queue(tx, sandbox)?), ..TranscriptBatch::default() };
    tx.after_commit(move |feed| feed.publish_transcript(sandbox, batch));
    tx.changed(Change::Sandbox(sandbox));
    Ok(())
}
