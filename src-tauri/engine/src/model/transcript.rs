//! What a person reads: the items of a transcript and the changes a parser makes to them.

use serde::{Deserialize, Serialize};

use super::{ErrorKind, MessageId, Timestamp, word};

word! {
    /// Which of the agent's two outputs bytes came from.
    Stream { Out = "out", Err = "err" }
}

word! {
    /// What a tool is for, whatever the agent calls it.
    ToolKind {
        Edit = "edit", Write = "write", Read = "read", Search = "search",
        Command = "command", Web = "web", Plan = "plan", Other = "other",
    }
}

word! {
    /// How far a tool call has come.
    ToolState { Running = "running", Done = "done", Failed = "failed" }
}

word! {
    /// How much a notice matters.
    NoticeLevel { Info = "info", Warning = "warning" }
}

word! {
    /// How far an entry of the agent's own list has come.
    ProgressState { Pending = "pending", Active = "active", Done = "done" }
}

/// Tokens one turn consumed. `input` excludes what came from a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_write: u64,
    pub cache_read: u64,
}

impl Usage {
    /// What was consumed after `before`, of amounts that only grow.
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            input: self.input.saturating_sub(before.input),
            output: self.output.saturating_sub(before.output),
            cache_write: self.cache_write.saturating_sub(before.cache_write),
            cache_read: self.cache_read.saturating_sub(before.cache_read),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, more: &Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(more.input),
            output: self.output.saturating_add(more.output),
            cache_write: self.cache_write.saturating_add(more.cache_write),
            cache_read: self.cache_read.saturating_add(more.cache_read),
        }
    }
}

/// An edit as a unified diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    pub path: String,
    pub added: u32,
    pub removed: u32,
    pub patch: String,
}

/// One entry of the list in which an agent shows how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressEntry {
    pub text: String,
    pub state: ProgressState,
}

/// One row of a transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Item {
    /// A person's message: it begins its turn. Made by the engine, never by a parser.
    Message { message: MessageId, text: String },
    /// What the agent says, in Markdown.
    Text { text: String },
    /// What the agent thinks aloud.
    Thinking { text: String },
    /// What a command printed, ANSI sequences included.
    Output { text: String, stream: Stream },
    /// One use of a tool, begun and later completed in place.
    Tool {
        /// The agent's own id of the call.
        call: String,
        tool: ToolKind,
        /// What the agent calls the tool.
        name: String,
        /// One line: a path, a command, a pattern.
        summary: String,
        /// The tool's input as JSON text, cut at 32 KiB.
        input: String,
        state: ToolState,
        result: Option<String>,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
        diff: Option<FileDiff>,
    },
    /// A warning or a piece of news that is not an error: a retry, a rate limit that was waited out.
    Notice { level: NoticeLevel, text: String, retry_at: Option<Timestamp> },
    /// Why the turn failed, in the agent's words, secrets removed.
    Error { error: ErrorKind, message: String, retry_at: Option<Timestamp> },
    /// The agent's list of things to do, replaced in place as it changes.
    Progress { entries: Vec<ProgressEntry> },
    /// The end of a turn. Made by the engine, never by a parser.
    Ended { error: Option<ErrorKind>, exit_code: Option<i32>, duration_ms: Option<u64>, usage: Option<Usage> },
    /// A line the parser does not know, as it came.
    Unknown { raw: String },
}

impl Item {
    /// Shows `each` every text in it that came from outside.
    pub fn each_text(&mut self, each: &mut dyn FnMut(&mut String)) {
        match self {
            Self::Message { text, .. }
            | Self::Text { text }
            | Self::Thinking { text }
            | Self::Output { text, .. }
            | Self::Notice { text, .. }
            | Self::Error { message: text, .. }
            | Self::Unknown { raw: text } => each(text),
            Self::Tool { call, name, summary, input, result, diff, .. } => {
                [call, name, summary, input].into_iter().for_each(&mut *each);
                result.iter_mut().for_each(&mut *each);
                if let Some(diff) = diff {
                    each(&mut diff.path);
                    each(&mut diff.patch);
                }
            }
            Self::Progress { entries } => entries.iter_mut().for_each(|entry| each(&mut entry.text)),
            Self::Ended { .. } => {}
        }
    }
}

/// A change to one turn's items. `at` counts the turn's items from 0 in the order they first appeared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A new item, or one that replaces what stood there.
    Put { at: u32, item: Item },
    /// More text at the end of a `Text`, `Thinking` or `Output`.
    Append { at: u32, text: String },
}
