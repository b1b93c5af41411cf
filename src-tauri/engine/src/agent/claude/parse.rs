//! Reads one turn of Claude Code.

use super::{
    blocks::{Blocks, Prose},
    calls::Calls,
    event::{Block, Content, Denial, Line, StreamEvent, Tokens},
    usage::Tally,
    verdict::{self, Said},
};
use crate::{
    agent::{Exit, Failure, Outcome, Parser, stderr::Stderr},
    model::{Delta, ErrorKind, Item, NoticeLevel, Stream, Timestamp, Usage},
    transcript::{self, Items, LineSplitter, MAX_FIELD, cut, json, parse_rfc3339},
};

/// The parser: lines, and what they have told so far.
#[derive(Debug, Default)]
pub(super) struct ClaudeParser {
    lines: LineSplitter,
    turn: Turn,
}

#[derive(Debug, Default)]
struct Turn {
    items: Items,
    session: Option<String>,
    /// Where the agent works: paths are shown from there.
    directory: Option<String>,
    /// The agent said that it found no key.
    no_key: bool,
    blocks: Blocks,
    calls: Calls,
    tally: Tally,
    stderr: Stderr,
    /// The agent's own clock, by which durations are told where it prints one.
    clock: Option<Timestamp>,
    /// The notice of the retry under way.
    retry: Option<u32>,
    said: Said,
    /// Whether any text of an answer was shown.
    answered: bool,
    /// Whether any line of the agent was understood.
    begun: bool,
    doing: Option<&'static str>,
}

impl Parser for ClaudeParser {
    fn read(&mut self, stream: Stream, bytes: &[u8], at: Timestamp, deltas: &mut Vec<Delta>) {
        match stream {
            Stream::Out => {
                let turn = &mut self.turn;
                self.lines.push(bytes, |line| turn.line(line, at, deltas));
            }
            Stream::Err => self.turn.stderr.hold(bytes, &mut self.turn.items, deltas),
        }
    }

    fn session_id(&self) -> Option<&str> {
        self.turn.session.as_deref()
    }

    fn usage(&self) -> Option<Usage> {
        self.turn.tally.total()
    }

    fn headline(&self) -> Option<String> {
        self.turn.calls.headline().or_else(|| self.turn.doing.map(str::to_owned))
    }

    fn finish(&mut self, exit: Exit, interrupted: bool, at: Timestamp, deltas: &mut Vec<Delta>) -> Outcome {
        let turn = &mut self.turn;
        self.lines.finish(|line| turn.line(line, at, deltas));
        turn.calls.give_up(false, "It did not finish.", deltas);
        let error = turn.failure(exit, interrupted);
        turn.stderr.finish(error.as_ref().map(|error| error.message.as_str()), &mut turn.items, deltas);
        if let Some(Failure { kind, message, retry_at }) = &error {
            let item = Item::Error { error: *kind, message: message.clone(), retry_at: *retry_at };
            turn.items.add(item, deltas);
        }
        turn.doing = None;
        Outcome { error, session_id: turn.session.clone(), usage: turn.tally.total(), session_usage: None }
    }
}

impl Turn {
    fn line(&mut self, line: transcript::Line<'_>, at: Timestamp, deltas: &mut Vec<Delta>) {
        if line.dropped == 0 && line.bytes.trim_ascii().is_empty() {
            return;
        }
        self.stderr.show(&mut self.items, deltas);
        // Nearly every line is UTF-8, and that is quickly seen.
        let text = std::str::from_utf8(line.bytes)
            .map_or_else(|_| String::from_utf8_lossy(line.bytes), std::borrow::Cow::Borrowed);
        if line.dropped > 0 {
            let words = format!("A line was too long to be read: {} bytes of it were left out.", line.dropped);
            self.notice(NoticeLevel::Warning, words, None, deltas);
        } else if let Ok(event) = serde_json::from_str::<Line<'_>>(&text) {
            if self.event(&event, at, deltas) {
                return;
            }
        } else if let Some(repaired) = json::without_lone_surrogates(&text)
            && let Ok(event) = serde_json::from_str::<Line<'_>>(&repaired)
            && self.event(&event, at, deltas)
        {
            return;
        }
        self.items.add(Item::Unknown { raw: cut(&text, MAX_FIELD) }, deltas);
    }

    /// What one line says; `false`: nothing we know.
    fn event(&mut self, line: &Line<'_>, at: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        if let Some(session) = line.session_id.as_deref()
            && !session.is_empty()
            && self.session.as_deref() != Some(session)
        {
            self.session = Some(session.to_owned());
        }
        if let Some(time) = line.timestamp.as_deref().and_then(parse_rfc3339) {
            self.clock = Some(time);
        }
        let now = self.clock.unwrap_or(at);
        let known = match &*line.kind {
            "stream_event" => line.event.as_ref().is_some_and(|event| self.stream(line, event, now, deltas)),
            "assistant" => self.assistant(line, now, deltas),
            "user" => self.user(line, now, deltas),
            "system" => self.system(line, at, deltas),
            "result" => self.result(line, now, deltas),
            "rate_limit_event" => self.rate_limit(line, now, deltas),
            // Answers to questions a program asked it, and news for its own window.
            "control_request"
            | "control_response"
            | "control_cancel_request"
            | "keep_alive"
            | "auth_status"
            | "tool_progress"
            | "tool_use_summary"
            | "prompt_suggestion" => true,
            _ => false,
        };
        self.begun |= known;
        known
    }

    fn stream(&mut self, line: &Line<'_>, event: &StreamEvent<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        let parent = line.parent_tool_use_id.as_deref();
        match &*event.kind {
            "content_block_delta" => {
                let (Some(index), Some(delta)) = (event.index, &event.delta) else { return true };
                let Some(more) = delta.text.as_ref().or(delta.thinking.as_ref()) else { return true };
                match self.blocks.append(parent, index, more, &mut self.items, deltas) {
                    Some(Prose::Text) => (self.answered, self.doing) = (true, Some("writes")),
                    Some(Prose::Thinking) => self.doing = Some("thinks"),
                    None => {}
                }
            }
            "content_block_start" => {
                let (Some(index), Some(block)) = (event.index, &event.content_block) else { return true };
                match &*block.kind {
                    "text" => self.blocks.start_block(parent, index, Prose::Text),
                    "thinking" => self.blocks.start_block(parent, index, Prose::Thinking),
                    "tool_use" | "server_tool_use" => self.call(line, block, now, deltas),
                    _ => {}
                }
            }
            "message_start" => {
                self.reopen(deltas);
                if let Some(message) = &event.message {
                    let id = message.id.as_deref().unwrap_or_default();
                    self.blocks.start_message(id, parent);
                    self.tally.message(id, message.usage.unwrap_or_default());
                }
            }
            "message_delta" => {
                if let (Some(id), Some(tokens)) = (self.blocks.current(parent), event.usage) {
                    self.tally.message(id, tokens);
                }
            }
            "message_stop" => {
                if let Some(abandoned) = &line.abandoned_blocks {
                    self.blocks.abandon(abandoned);
                    self.calls.give_up(true, "The connection broke before the call was complete.", deltas);
                }
            }
            "content_block_stop" | "ping" | "error" => {}
            _ => return false,
        }
        true
    }

    fn assistant(&mut self, line: &Line<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        let Some(message) = &line.message else { return false };
        if line.error.raw().is_some() {
            // A message made up by the agent to say that its model's endpoint failed.
            self.said.endpoint_failed(line, &message.content.text(), now);
            return true;
        }
        self.reopen(deltas);
        self.retry = None;
        if let (Some(id), Some(tokens)) = (message.id.as_deref(), message.usage)
            && message.model.as_deref() != Some("<synthetic>")
        {
            self.tally.message(id, tokens);
        }
        let (id, parent) = (message.id.as_deref(), line.parent_tool_use_id.as_deref());
        let text = |this: &mut Self, prose: Prose, text: &str, deltas: &mut Vec<Delta>| {
            // What a sub-agent says is said to the agent; the person may look into it.
            match line.task_description.as_deref().filter(|_| parent.is_some()) {
                Some(task) if prose == Prose::Text => {
                    let text = format!("{task} › {text}");
                    this.blocks.whole(id, parent, Prose::Thinking, &text, &mut this.items, deltas);
                }
                _ => {
                    this.answered |= prose == Prose::Text;
                    this.blocks.whole(id, parent, prose, text, &mut this.items, deltas);
                }
            }
        };
        match &message.content {
            Content::Nothing => {}
            Content::Text(whole) => text(self, Prose::Text, whole, deltas),
            Content::Blocks(blocks) => {
                for block in blocks {
                    match (&*block.kind, &block.text, &block.thinking) {
                        ("text", Some(whole), _) => text(self, Prose::Text, whole, deltas),
                        ("thinking", _, Some(whole)) => text(self, Prose::Thinking, whole, deltas),
                        ("tool_use" | "server_tool_use", ..) => self.call(line, block, now, deltas),
                        (kind, ..) if kind.ends_with("_tool_result") => _ = self.answer(line, block, now, deltas),
                        _ => {}
                    }
                }
            }
        }
        true
    }

    fn call(&mut self, line: &Line<'_>, block: &Block<'_>, now: Timestamp, deltas: &mut Vec<Delta>) {
        let task = line.task_description.as_deref().filter(|_| line.parent_tool_use_id.is_some());
        self.calls.begin(block, task, self.directory.as_deref(), now, &mut self.items, deltas);
        self.doing = Some("thinks");
    }

    fn answer(&mut self, line: &Line<'_>, block: &Block<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        self.calls.complete(block, line, self.directory.as_deref(), now, &mut self.items, deltas)
    }

    fn user(&mut self, line: &Line<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        let Some(message) = &line.message else { return false };
        let mut known = true;
        match &message.content {
            Content::Blocks(blocks) => {
                for block in blocks {
                    match (&*block.kind, block.text.as_deref()) {
                        ("tool_result", _) => known &= self.answer(line, block, now, deltas),
                        // Told to the agent, not to the person: their own message, or the agent's reminders to itself.
                        (_, Some(text)) => self.said.user(text),
                        _ => {}
                    }
                }
            }
            Content::Text(text) => self.said.user(text),
            Content::Nothing => {}
        }
        known
    }

    fn system(&mut self, line: &Line<'_>, at: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        match line.subtype.as_deref().unwrap_or_default() {
            "init" => {
                self.directory = line.cwd.text().map(|directory| directory.into_owned()).or(self.directory.take());
                self.no_key = line.api_key_source.text().as_deref() == Some("none");
            }
            "api_retry" => {
                let (text, retry_at) = verdict::retry(line, at);
                let item = Item::Notice { level: NoticeLevel::Warning, text, retry_at };
                match self.retry.filter(|at| self.items.is_newest(*at)) {
                    Some(at) => deltas.push(Delta::Put { at, item }),
                    None => self.retry = Some(self.items.add(item, deltas)),
                }
                self.doing = Some("waits to try again");
            }
            "permission_denied" => {
                let tool = line.tool_name.text().unwrap_or_default();
                let why = line.message.as_ref().map(|message| message.content.text()).unwrap_or_default();
                self.deny(line.tool_use_id.as_deref().unwrap_or_default(), &tool, &why, deltas);
            }
            "task_notification" => {
                // Of what ran in the background; what ran in the foreground has its result at the call.
                let id = line.task_id.text().unwrap_or_default();
                if self.said.forget_background(&id) {
                    let status = line.status.text().unwrap_or_default();
                    let summary = transcript::one_line(&line.summary.text().unwrap_or_default());
                    let text = format!("Background task {status}: {summary}");
                    self.notice(NoticeLevel::Info, text, None, deltas);
                }
            }
            "task_started" => {
                if line.is_backgrounded == Some(true) {
                    self.said.remember_background(line.task_id.text().unwrap_or_default().into_owned());
                }
            }
            "compact_boundary" => {
                let text = "The conversation was too long and has been summarised.".to_owned();
                self.notice(NoticeLevel::Info, text, None, deltas);
            }
            "status"
            | "thinking_tokens"
            | "task_progress"
            | "task_updated"
            | "background_tasks_changed"
            | "session_state_changed"
            | "files_persisted"
            | "hook_started"
            | "hook_progress"
            | "hook_response" => {}
            _ => return false,
        }
        true
    }

    fn result(&mut self, line: &Line<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        self.tally.result(line.usage.read::<Tokens>(), line.model_usage_since_last_result);
        for Denial { tool_name, tool_use_id } in line.permission_denials.read::<Vec<Denial<'_>>>().unwrap_or_default() {
            self.deny(&tool_use_id, &tool_name, "", deltas);
        }
        // Without its stream the agent prints its answer only here.
        let text = line.result.text().unwrap_or_default();
        if !self.answered && !line.is_error && !text.is_empty() {
            self.items.add(Item::Text { text: text.into_owned() }, deltas);
        }
        self.retry = None;
        self.said.conclude(line, self.no_key, now);
        true
    }

    fn rate_limit(&mut self, line: &Line<'_>, now: Timestamp, deltas: &mut Vec<Delta>) -> bool {
        if let Some((text, until)) = self.said.rate_limit(line.rate_limit_info, now) {
            self.notice(NoticeLevel::Warning, text.to_owned(), until, deltas);
        }
        true
    }

    /// The agent works (again): what its last result said is not the end, but may be worth knowing.
    fn reopen(&mut self, deltas: &mut Vec<Delta>) {
        if let Some(earlier) = self.said.reopened() {
            self.notice(NoticeLevel::Warning, earlier.message, earlier.retry_at, deltas);
        }
    }

    fn deny(&mut self, id: &str, tool: &str, why: &str, deltas: &mut Vec<Delta>) {
        if self.calls.deny(id) {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            self.notice(NoticeLevel::Warning, format!("{tool} was not permitted{why}"), None, deltas);
        }
    }

    fn notice(&mut self, level: NoticeLevel, text: String, retry_at: Option<Timestamp>, deltas: &mut Vec<Delta>) {
        self.items.add(Item::Notice { level, text, retry_at }, deltas);
    }

    /// Why the turn failed, if it did.
    fn failure(&mut self, exit: Exit, interrupted: bool) -> Option<Failure> {
        if let Some(mut concluded) = self.said.concluded() {
            if let Some(failure) = &mut concluded
                && interrupted
                && failure.kind == ErrorKind::Other
            {
                failure.kind = ErrorKind::Interrupted;
            }
            if concluded.is_none() && self.calls.ended_in_denial() {
                let message = "The agent was not permitted to do what it tried last, and gave up.".to_owned();
                return Some(Failure { kind: ErrorKind::Permission, message, retry_at: None });
            }
            return concluded;
        }
        Some(self.said.unconcluded(exit, interrupted, self.begun, self.no_key, &self.stderr.text()))
    }
}
