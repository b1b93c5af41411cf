//! One open sandbox: its conversation as a snapshot and numbered frames, its raw log in pages.
//!
//! Frames go over one ordered channel per open sandbox. The window acknowledges them, four at once; while too many are not
//! acknowledged, what comes is gathered into the next frame, and a reader that lags behind what the engine keeps gets a
//! `gap` and opens again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use courier_engine::{
    engine::Engine,
    model::{self, Item as ModelItem},
    store::{ItemRow, TranscriptBatch},
};
use serde::Serialize;
use specta::Type;
use tauri::{State, ipc::Channel};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{
    error::{IpcError, id},
    millis,
    sandboxes::{Message, Usage, wire_word},
};

/// How many frames may be on their way to the window: twice as many as it acknowledges together
/// (`ui/src/lib/state/transcript.svelte.ts`).
const UNACKNOWLEDGED: u32 = 8;

wire_word!(ToolKind {
    Edit = "edit", Write = "write", Read = "read", Search = "search",
    Command = "command", Web = "web", Plan = "plan", Other = "other",
});
wire_word!(ToolState { Running = "running", Done = "done", Failed = "failed" });
wire_word!(NoticeLevel { Info = "info", Warning = "warning" });
wire_word!(ProgressState { Pending = "pending", Active = "active", Done = "done" });
wire_word!(ErrorKind {
    MissingCli = "missing_cli", MissingKey = "missing_key", RejectedKey = "rejected_key", Permission = "permission",
    Billing = "billing", RateLimited = "rate_limited", Overloaded = "overloaded", ContextTooLong = "context_too_long",
    LimitReached = "limit_reached", Network = "network", SessionNotFound = "session_not_found",
    Interrupted = "interrupted", Crashed = "crashed", Other = "other",
});

/// What is there when a transcript is opened.
#[derive(Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    subscription: u32,
    revision: u64,
    rows: Vec<Row>,
    has_older: bool,
    log_end: i64,
    queue: Vec<Message>,
}

/// What was added. Frames are numbered from 1 without holes; after a hole, or `gap`, open again.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    number: u32,
    revision: u64,
    gap: bool,
    /// New rows, or rows that replace the one with the same `at`.
    rows: Vec<Row>,
    /// Text to add to the end of a row's text.
    appends: Vec<Append>,
    log_end: i64,
    queue: Option<Vec<Message>>,
}

/// Text to add to the end of row `at`.
#[derive(Clone, Debug, Serialize, Type)]
pub struct Append {
    at: i64,
    text: String,
}

/// One row of the conversation, ordered by `at` (unique in its sandbox). `turn` numbers turns from 1.
#[derive(Clone, Debug, Serialize, Type)]
pub struct Row {
    at: i64,
    turn: u32,
    time: i64,
    item: Item,
}

/// What a row shows.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Item {
    /// A person's message: it begins its turn.
    Message {
        text: String,
        message_id: String,
    },
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    /// What a script or a command printed, ANSI sequences included.
    Output {
        text: String,
        is_stderr: bool,
    },
    Tool {
        call_id: String,
        tool: ToolKind,
        name: String,
        summary: String,
        input: String,
        state: ToolState,
        result: Option<String>,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
        diff: Option<FileDiff>,
    },
    Notice {
        level: NoticeLevel,
        text: String,
        retry_at: Option<i64>,
    },
    Error {
        error: ErrorKind,
        message: String,
        retry_at: Option<i64>,
    },
    Progress {
        entries: Vec<ProgressEntry>,
    },
    /// The end of a turn; without an error it is completed.
    Ended {
        error: Option<ErrorKind>,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
        usage: Option<Usage>,
    },
    /// What the parser does not know, as it came.
    Unknown {
        raw: String,
    },
}

/// An edit as a unified diff.
#[derive(Clone, Debug, Serialize, Type)]
pub struct FileDiff {
    path: String,
    added: u32,
    removed: u32,
    patch: String,
}

/// One entry of the list in which an agent shows how far it is.
#[derive(Clone, Debug, Serialize, Type)]
pub struct ProgressEntry {
    text: String,
    state: ProgressState,
}

/// A page of the raw log.
#[derive(Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct LogPage {
    base64: String,
    next: i64,
    end: i64,
    is_truncated: bool,
}

impl From<ItemRow> for Row {
    fn from(row: ItemRow) -> Self {
        Self { at: row.seq, turn: row.turn, time: millis(row.at), item: row.item.into() }
    }
}

impl From<ModelItem> for Item {
    fn from(item: ModelItem) -> Self {
        match item {
            ModelItem::Message { message, text } => Self::Message { text, message_id: message.to_string() },
            ModelItem::Text { text } => Self::Text { text },
            ModelItem::Thinking { text } => Self::Thinking { text },
            ModelItem::Output { text, stream } => Self::Output { text, is_stderr: stream == model::Stream::Err },
            ModelItem::Tool { call, tool, name, summary, input, state, result, exit_code, duration_ms, diff } => {
                Self::Tool {
                    call_id: call,
                    tool: tool.into(),
                    name,
                    summary,
                    input,
                    state: state.into(),
                    result,
                    exit_code,
                    duration_ms,
                    diff: diff.map(|diff| FileDiff {
                        path: diff.path,
                        added: diff.added,
                        removed: diff.removed,
                        patch: diff.patch,
                    }),
                }
            }
            ModelItem::Notice { level, text, retry_at } => {
                Self::Notice { level: level.into(), text, retry_at: retry_at.map(millis) }
            }
            ModelItem::Error { error, message, retry_at } => {
                Self::Error { error: error.into(), message, retry_at: retry_at.map(millis) }
            }
            ModelItem::Progress { entries } => Self::Progress {
                entries: entries
                    .into_iter()
                    .map(|entry| ProgressEntry { text: entry.text, state: entry.state.into() })
                    .collect(),
            },
            ModelItem::Ended { error, exit_code, duration_ms, usage } => Self::Ended {
                usage: usage.map(|usage| Usage::of(&usage, error.is_some())),
                error: error.map(ErrorKind::from),
                exit_code,
                duration_ms,
            },
            ModelItem::Unknown { raw } => Self::Unknown { raw },
        }
    }
}

/// The open transcripts of the window.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    next: AtomicU32,
    open: Arc<Mutex<HashMap<u32, Subscription>>>,
}

#[derive(Debug)]
struct Subscription {
    acknowledged: watch::Sender<u32>,
    closed: CancellationToken,
}

impl Subscriptions {
    /// Closes every one: the window has been loaded anew.
    pub(crate) fn close_all(&self) {
        for (_, subscription) in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            subscription.closed.cancel();
        }
    }
}

/// The newest page of rows, and numbered frames from there on over the channel.
#[tauri::command]
#[specta::specta]
pub async fn transcript_open(
    engine: State<'_, Engine>,
    subscriptions: State<'_, Subscriptions>,
    sandbox: String,
    frames: Channel<Frame>,
) -> Result<Snapshot, IpcError> {
    let transcript = engine.transcript_open(id(&sandbox)?).await?;
    let subscription = subscriptions.next.fetch_add(1, Ordering::Relaxed) + 1;
    let (acknowledged, acknowledgements) = watch::channel(0);
    let closed = CancellationToken::new();
    subscriptions
        .open
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(subscription, Subscription { acknowledged, closed: closed.clone() });
    let open = subscriptions.open.clone();
    let log_end = transcript.log_end;
    tauri::async_runtime::spawn(async move {
        let sending = send_frames(transcript.batches, acknowledgements, frames, log_end);
        _ = closed.run_until_cancelled(sending).await;
        open.lock().unwrap_or_else(PoisonError::into_inner).remove(&subscription);
    });
    Ok(Snapshot {
        subscription,
        revision: transcript.revision,
        rows: transcript.rows.into_iter().map(Row::from).collect(),
        has_older: transcript.has_older,
        log_end,
        queue: transcript.queue.into_iter().map(Message::from).collect(),
    })
}

/// What waits to be sent.
#[derive(Default)]
struct Gathered {
    revision: u64,
    rows: BTreeMap<i64, ItemRow>,
    appends: BTreeMap<i64, String>,
    log_end: Option<i64>,
    queue: Option<Vec<Message>>,
}

impl Gathered {
    fn add(&mut self, batch: &TranscriptBatch) {
        self.revision = batch.revision;
        for row in &batch.rows {
            self.appends.remove(&row.seq);
            self.rows.insert(row.seq, row.clone());
        }
        for (seq, more) in &batch.appends {
            match self.rows.get_mut(seq).map(|row| &mut row.item) {
                Some(ModelItem::Text { text } | ModelItem::Thinking { text } | ModelItem::Output { text, .. }) => {
                    text.push_str(more);
                }
                _ => self.appends.entry(*seq).or_default().push_str(more),
            }
        }
        self.log_end = batch.log_end.or(self.log_end);
        if let Some(queue) = &batch.queue {
            self.queue = Some(queue.iter().cloned().map(Message::from).collect());
        }
    }
}

/// Sends what comes until the window is gone or has lagged behind.
async fn send_frames(
    mut batches: broadcast::Receiver<Arc<TranscriptBatch>>,
    mut acknowledged: watch::Receiver<u32>,
    frames: Channel<Frame>,
    mut log_end: i64,
) {
    let mut last = 0;
    loop {
        let mut gathered = Gathered::default();
        let mut gap = match batches.recv().await {
            Ok(batch) => {
                gathered.add(&batch);
                false
            }
            Err(broadcast::error::RecvError::Lagged(_)) => true,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if acknowledged.wait_for(|number| last - number < UNACKNOWLEDGED).await.is_err() {
            return;
        }
        // What came in the meantime goes along.
        loop {
            match batches.try_recv() {
                Ok(batch) => gathered.add(&batch),
                Err(broadcast::error::TryRecvError::Lagged(_)) => gap = true,
                Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => break,
            }
        }
        last += 1;
        log_end = gathered.log_end.unwrap_or(log_end);
        let frame = Frame {
            number: last,
            revision: gathered.revision,
            gap,
            rows: gathered.rows.into_values().map(Row::from).collect(),
            appends: gathered.appends.into_iter().map(|(at, text)| Append { at, text }).collect(),
            log_end,
            queue: gathered.queue,
        };
        if frames.send(frame).is_err() || gap {
            return;
        }
    }
}

/// Says that the frames up to `number` have been applied.
#[tauri::command]
#[specta::specta]
pub async fn transcript_acknowledge(
    subscriptions: State<'_, Subscriptions>,
    subscription: u32,
    number: u32,
) -> Result<(), IpcError> {
    let open = subscriptions.open.lock().unwrap_or_else(PoisonError::into_inner);
    // One that is closed needs no acknowledgement.
    if let Some(subscription) = open.get(&subscription) {
        subscription.acknowledged.send_if_modified(|last| {
            number > *last && {
                *last = number;
                true
            }
        });
    }
    Ok(())
}

/// Ends a subscription; one that has ended is ended already.
#[tauri::command]
#[specta::specta]
pub async fn transcript_close(subscriptions: State<'_, Subscriptions>, subscription: u32) -> Result<(), IpcError> {
    let closed = subscriptions.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&subscription);
    if let Some(subscription) = closed {
        subscription.closed.cancel();
    }
    Ok(())
}

/// Rows before row `before`, oldest first, at most 200.
#[tauri::command]
#[specta::specta]
pub async fn transcript_before(engine: State<'_, Engine>, sandbox: String, before: i64) -> Result<Vec<Row>, IpcError> {
    let rows = engine.transcript_before(id(&sandbox)?, before).await?;
    Ok(rows.into_iter().map(Row::from).collect())
}

/// At most 256 KiB of the raw log after `cursor` (null: the last 256 KiB).
#[tauri::command]
#[specta::specta]
pub async fn log_read(engine: State<'_, Engine>, sandbox: String, cursor: Option<i64>) -> Result<LogPage, IpcError> {
    let page = engine.log_read(id(&sandbox)?, cursor).await?;
    Ok(LogPage {
        base64: BASE64_STANDARD.encode(&page.bytes),
        next: page.next,
        end: page.end,
        is_truncated: page.is_truncated,
    })
}
