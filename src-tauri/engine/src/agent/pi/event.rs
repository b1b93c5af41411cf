//! Pi's events as it prints them: one JSON object a line (its own `docs/json.md`; seen with version 1.6.0).
//!
//! What Pi's tools and extensions may fill as they like is kept raw and read where it is what we know: a tool's
//! `structuredContent` is an object for `bash` and a string for `read`.

use serde::Deserialize;

use crate::{
    model::Usage,
    transcript::json::{Loose, Str},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    #[serde(borrow, default)]
    pub id: Loose<'a>,
    #[serde(borrow, default)]
    pub cwd: Loose<'a>,
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    /// What the provider has reported of the message under way.
    #[serde(borrow, default)]
    pub usage: Loose<'a>,
    #[serde(borrow)]
    pub assistant_message_event: Option<Streamed<'a>>,
    #[serde(borrow, default)]
    pub tool_call_id: Loose<'a>,
    #[serde(borrow, default)]
    pub tool_name: Loose<'a>,
    #[serde(borrow, default)]
    pub args: Loose<'a>,
    /// Of a tool, or of a summary of the conversation.
    #[serde(borrow, default)]
    pub result: Loose<'a>,
    #[serde(default)]
    pub is_error: bool,
    pub duration_ms: Option<u64>,
    pub attempt: Option<u32>,
    pub max_attempts: Option<u32>,
    pub delay_ms: Option<u64>,
    #[serde(borrow, default)]
    pub error_message: Loose<'a>,
    #[serde(default)]
    pub aborted: bool,
    #[serde(borrow, default)]
    pub entry: Loose<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub role: Loose<'a>,
    #[serde(borrow, default)]
    pub content: Loose<'a>,
    #[serde(borrow, default)]
    pub usage: Loose<'a>,
    #[serde(borrow, default)]
    pub stop_reason: Loose<'a>,
    #[serde(borrow, default)]
    pub error_message: Loose<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Streamed<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    #[serde(default)]
    pub content_index: u64,
    #[serde(borrow, default)]
    pub delta: Loose<'a>,
}

/// A piece of a message or of a tool's result.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    #[serde(borrow, default)]
    pub text: Loose<'a>,
    #[serde(borrow, default)]
    pub thinking: Loose<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Result<'a> {
    #[serde(borrow)]
    pub content: Loose<'a>,
    #[serde(borrow)]
    pub structured_content: Loose<'a>,
    #[serde(borrow)]
    pub details: Loose<'a>,
    #[serde(borrow)]
    pub usage: Loose<'a>,
}

/// `structuredContent` of `bash`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Structured {
    pub exit_code: Option<i32>,
}

/// `details` of `edit`: `patch` is a unified diff; `diff` is drawn for a terminal, and of no use here.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Details<'a> {
    #[serde(borrow)]
    pub patch: Loose<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Asked<'a> {
    #[serde(borrow)]
    pub path: Loose<'a>,
    #[serde(borrow)]
    pub content: Loose<'a>,
}

/// What Pi writes into its session beside messages: `usage` tells of requests that kept a prompt in the provider's cache.
#[derive(Deserialize)]
pub(super) struct Entry<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    #[serde(borrow, default)]
    pub usage: Loose<'a>,
}

/// `input` is without what the cache gave or took, `output` with the reasoning.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tokens {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

/// What was consumed, where that is said.
pub(super) fn usage(told: Loose<'_>) -> Option<Usage> {
    let Tokens { input, output, cache_read, cache_write } = told.read()?;
    Some(Usage { input, output, cache_write, cache_read })
}
