//! Reads one turn of Pi.
//!
//! The traps, all seen: an API error is a message with `stopReason` "error", and the program returns 0; `turn_end` and
//! `agent_end` repeat every message; a session of another directory prints nothing and returns 0.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    agent::{
        Exit, Failure, in_workspace,
        page::{Call, Done, Events, Page, told},
    },
    model::{ErrorKind, FileDiff, Item, Timestamp, ToolKind, Usage},
    transcript::{
        between,
        json::{Loose, Str},
        kind_of, patch, plausible_epoch, summarise,
    },
};

#[derive(Debug, Default)]
pub(super) struct PiEvents {
    /// How many assistant messages have ended: their number is their id.
    messages: u64,
    usage: BTreeMap<u64, Usage>,
    /// The block that grows, and whether its text was streamed.
    growing: BTreeMap<u64, u32>,
    /// How the newest message ended.
    ended: Option<Result<(), Failure>>,
    is_settled: bool,
    aborted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, default)]
    id: Loose<'a>,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    assistant_message_event: Option<Streamed<'a>>,
    #[serde(borrow, default)]
    tool_call_id: Loose<'a>,
    #[serde(borrow, default)]
    tool_name: Loose<'a>,
    #[serde(borrow, default)]
    args: Loose<'a>,
    #[serde(borrow)]
    result: Option<ToolResult<'a>>,
    #[serde(default)]
    is_error: bool,
    duration_ms: Option<u64>,
    attempt: Option<u32>,
    max_attempts: Option<u32>,
    delay_ms: Option<u64>,
    #[serde(borrow, default)]
    error_message: Loose<'a>,
    #[serde(default)]
    aborted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Loose<'a>,
    #[serde(borrow, default)]
    content: Loose<'a>,
    usage: Option<Tokens>,
    #[serde(borrow, default)]
    stop_reason: Loose<'a>,
    #[serde(borrow, default)]
    error_message: Loose<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Streamed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(default)]
    content_index: u64,
    #[serde(borrow, default)]
    delta: Loose<'a>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, default)]
    text: Loose<'a>,
    #[serde(borrow, default)]
    thinking: Loose<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(borrow, default)]
    content: Loose<'a>,
    structured_content: Option<Structured>,
    #[serde(borrow)]
    details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Structured {
    exit_code: Option<i32>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    diff: Loose<'a>,
    #[serde(borrow, default)]
    patch: Loose<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Asked<'a> {
    #[serde(borrow)]
    path: Loose<'a>,
    #[serde(borrow)]
    content: Loose<'a>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tokens {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl PiEvents {
    /// More of a block of the message under way.
    fn stream(&mut self, streamed: &Streamed<'_>, page: &mut Page) {
        let more = streamed.delta.text().unwrap_or_default();
        let (doing, is_text) = match &*streamed.kind {
            "text_delta" => ("writes", true),
            "thinking_delta" => ("thinks", false),
            _ => return,
        };
        page.doing = Some(doing);
        if more.is_empty() {
            return;
        }
        match self.growing.get(&streamed.content_index) {
            Some(at) => page.append(*at, &more),
            None => {
                let text = more.into_owned();
                let at = page.add(if is_text { Item::Text { text } } else { Item::Thinking { text } });
                self.growing.insert(streamed.content_index, at);
            }
        }
    }

    fn message(&mut self, message: &Message<'_>, page: &mut Page) {
        if message.role.text().as_deref() != Some("assistant") {
            return;
        }
        // What was not streamed is told here.
        for (index, block) in (0..).zip(message.content.read::<Vec<Block<'_>>>().unwrap_or_default()) {
            if !self.growing.contains_key(&index) {
                match &*block.kind {
                    "text" => page.text(&block.text.text().unwrap_or_default()),
                    "thinking" => page.thinking(&block.thinking.text().unwrap_or_default()),
                    _ => {}
                }
            }
        }
        self.growing.clear();
        self.messages += 1;
        if let Some(tokens) = message.usage {
            self.usage.insert(self.messages, tokens.usage());
        }
        self.ended = Some(match message.stop_reason.text().as_deref() {
            Some("error") => Err(failure(&message.error_message.text().unwrap_or_default(), page.now)),
            Some("aborted") => {
                let message = "Pi was interrupted".to_owned();
                Err(Failure { kind: ErrorKind::Interrupted, message, retry_at: None })
            }
            Some("length") => {
                let message = "the answer was longer than the model may write".to_owned();
                Err(Failure { kind: ErrorKind::LimitReached, message, retry_at: None })
            }
            _ => Ok(()),
        });
    }

    fn result(line: &Line<'_>, page: &mut Page) -> bool {
        let (Some(id), Some(name)) = (line.tool_call_id.text(), line.tool_name.text()) else { return false };
        let call = page.running(&id).unwrap_or_else(|| call(&id, &name, line.args));
        let asked = serde_json::from_str::<Asked<'_>>(&call.input).unwrap_or_default();
        let result = line.result.as_ref();
        let blocks = result.and_then(|result| result.content.read::<Vec<Block<'_>>>()).unwrap_or_default();
        let text: Vec<_> = blocks.iter().filter_map(|block| block.text.text()).collect();
        let diff = if line.is_error { None } else { diff(call.tool, &asked, result) };
        let exit_code = result.and_then(|result| result.structured_content.as_ref()?.exit_code);
        let done = Done {
            has_failed: line.is_error && exit_code.is_none(),
            result: Some(text.join("\n")),
            exit_code,
            duration_ms: line.duration_ms,
            diff,
        };
        page.finish(call, done);
        true
    }
}

fn call(id: &str, name: &str, args: Loose<'_>) -> Call {
    let input = args.raw().unwrap_or_default();
    let asked = args.read::<Asked<'_>>().unwrap_or_default().path.text();
    let summary = match asked.as_deref() {
        Some(path) if kind_of(name) != ToolKind::Search => in_workspace(path).to_owned(),
        _ => summarise(input, None),
    };
    Call::new(id, kind_of(name), name, summary, input)
}

/// The agent's own diff of an edit; of a file it wrote, made from what was written.
fn diff(tool: ToolKind, asked: &Asked<'_>, result: Option<&ToolResult<'_>>) -> Option<FileDiff> {
    let path = asked.path.text()?;
    let path = in_workspace(&path);
    match tool {
        ToolKind::Edit => {
            let details = result?.details.as_ref()?;
            patch(path, &details.patch.text().or_else(|| details.diff.text())?)
        }
        ToolKind::Write => Some(between(path, None, &asked.content.text()?)),
        _ => None,
    }
}

impl Events for PiEvents {
    fn name(&self) -> &'static str {
        "Pi"
    }

    fn line(&mut self, line: &str, page: &mut Page) -> bool {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return false };
        match &*line.kind {
            "session" => page.session = line.id.text().map(std::borrow::Cow::into_owned).or(page.session.take()),
            "message_update" => {
                let Some(streamed) = &line.assistant_message_event else { return false };
                self.stream(streamed, page);
            }
            "message_start" => {
                self.growing.clear();
                (self.is_settled, page.doing) = (false, Some("thinks"));
            }
            "message_end" => {
                let Some(message) = &line.message else { return false };
                self.message(message, page);
            }
            "tool_execution_start" => {
                let (Some(id), Some(name)) = (line.tool_call_id.text(), line.tool_name.text()) else { return false };
                page.begin(call(&id, &name, line.args));
            }
            "tool_execution_end" => return Self::result(&line, page),
            "auto_retry_start" => {
                let words = line.error_message.text().unwrap_or_default();
                let words = failure(&words, page.now).message;
                let tries = format!("attempt {} of {}", line.attempt.unwrap_or(1), line.max_attempts.unwrap_or(1));
                let after = std::time::Duration::from_millis(line.delay_ms.unwrap_or(0).min(24 * 3600 * 1000));
                page.retry(format!("{words}. Trying again ({tries})."), Some(page.now + after));
            }
            "agent_settled" => (self.is_settled, self.aborted) = (true, line.aborted),
            "auto_compaction_start" | "compaction_start" => page.doing = Some("summarises the conversation"),
            // What they repeat was told, and what they announce shows by itself.
            "agent_start"
            | "turn_start"
            | "turn_end"
            | "agent_end"
            | "tool_execution_update"
            | "auto_retry_end"
            | "auto_compaction_end"
            | "compaction_end"
            | "queue_update"
            | "entry_appended"
            | "session_info_changed" => {}
            _ => return false,
        }
        true
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.values().copied().reduce(|sum, message| sum.plus(&message))
    }

    fn concluded(&mut self, exit: Exit) -> Option<Result<(), Failure>> {
        if self.aborted {
            return None;
        }
        match (self.ended.take(), exit) {
            (Some(Err(failure)), _) => Some(Err(failure)),
            (Some(Ok(())), Exit::Code(0)) if self.is_settled => Some(Ok(())),
            _ => None,
        }
    }
}

impl Tokens {
    fn usage(self) -> Usage {
        Usage { input: self.input, output: self.output, cache_write: self.cache_write, cache_read: self.cache_read }
    }
}

/// `429: {"message":"…","type":"rate_limit_error","code":"…"}`, or a sentence alone.
fn failure(text: &str, now: Timestamp) -> Failure {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow, default)]
        message: Loose<'a>,
        #[serde(borrow)]
        error: Option<Inner<'a>>,
        resets_at: Option<f64>,
    }
    #[derive(Deserialize)]
    struct Inner<'a> {
        #[serde(borrow, default)]
        message: Loose<'a>,
        resets_at: Option<f64>,
    }
    let (status, body) = match text.split_once(": ").or_else(|| text.split_once(' ')) {
        Some((status, body)) if status.len() == 3 => (status.parse().ok(), body),
        _ => (None, text),
    };
    let said = serde_json::from_str::<Said<'_>>(body).ok();
    let inner = said.as_ref().and_then(|said| said.error.as_ref());
    let message = inner.and_then(|inner| inner.message.text()).or_else(|| said.as_ref()?.message.text());
    let mut failure = told(status, &body.to_lowercase(), message.as_deref().unwrap_or(body));
    let ends = inner.and_then(|inner| inner.resets_at).or_else(|| said.as_ref()?.resets_at);
    if failure.kind == ErrorKind::RateLimited {
        failure.retry_at = ends.and_then(|seconds| plausible_epoch(seconds, now));
    }
    failure
}
