//! Reads one turn of Pi.
//!
//! The traps, all seen: an API error is a message with `stopReason` "error", and the program returns 0; `turn_end` and
//! `agent_end` repeat every message; a session of another directory prints nothing and returns 0; a raw U+2028 may stand
//! inside a line.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    event::{self, Asked, Block, Details, Entry, Line, Message, Streamed, Structured},
    verdict::failure,
};
use crate::{
    agent::{
        Exit, Failure,
        page::{Call, Done, Events, Page},
    },
    model::{ErrorKind, FileDiff, Item, NoticeLevel, ToolKind, Usage},
    transcript::{between, kind_of, patch, relative, summarise},
};

/// The longest wait that is believed.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct PiEvents {
    /// Where it works: the session's head says so.
    cwd: Option<String>,
    /// How many assistant messages have ended: their number is their id.
    messages: u64,
    /// What each of them consumed.
    usage: BTreeMap<u64, Usage>,
    /// What was consumed beside them: by summaries, by tools that ask a model, by keeping the provider's cache.
    beside: Option<Usage>,
    /// The blocks that grow, by their place in the message under way.
    growing: BTreeMap<u64, Growing>,
    /// What the file tools under way were asked, by call.
    asked: HashMap<String, File>,
    /// How the newest message ended.
    ended: Option<Result<(), Failure>>,
    is_settled: bool,
    aborted: bool,
}

/// A block that is streamed.
#[derive(Debug)]
struct Growing {
    at: u32,
    length: usize,
}

/// The file a tool works on, and what it looks like after a write.
#[derive(Debug)]
struct File {
    path: String,
    written: Option<FileDiff>,
}

impl PiEvents {
    /// More of a block of the message under way.
    fn stream(&mut self, streamed: &Streamed<'_>, page: &mut Page) {
        let (doing, is_text) = match &*streamed.kind {
            "text_delta" => ("writes", true),
            "thinking_delta" => ("thinks", false),
            _ => return,
        };
        page.doing = Some(doing);
        let more = streamed.delta.text().unwrap_or_default();
        if more.is_empty() {
            return;
        }
        let length = more.len();
        match self.growing.get_mut(&streamed.content_index) {
            Some(growing) => {
                page.append(growing.at, &more);
                growing.length += length;
            }
            None => {
                let at = page.add(block(is_text, more));
                self.growing.insert(streamed.content_index, Growing { at, length });
            }
        }
    }

    /// A message is whole: what it says is what holds, whatever was streamed before.
    fn message(&mut self, message: &Message<'_>, page: &mut Page) {
        for (index, part) in (0..).zip(message.content.read::<Vec<Block<'_>>>().unwrap_or_default()) {
            let (is_text, text) = match &*part.kind {
                "text" => (true, part.text.text().unwrap_or_default()),
                "thinking" => (false, part.thinking.text().unwrap_or_default()),
                _ => continue,
            };
            match self.growing.get(&index) {
                None if is_text => page.text(&text),
                None => page.thinking(&text),
                Some(growing) if growing.length != text.len() && !text.is_empty() => {
                    page.put(growing.at, block(is_text, text));
                }
                Some(_) => {}
            }
        }
        self.growing.clear();
        self.messages += 1;
        if let Some(usage) = event::usage(message.usage) {
            self.usage.insert(self.messages, usage);
        }
        let fail = |kind, message: &str| Err(Failure { kind, message: message.to_owned(), retry_at: None });
        self.ended = Some(match message.stop_reason.text().as_deref() {
            Some("error") => Err(failure(&message.error_message.text().unwrap_or_default(), page.now)),
            Some("aborted") => fail(ErrorKind::Interrupted, "Pi was interrupted"),
            Some("length") => fail(ErrorKind::LimitReached, "the answer was longer than the model may write"),
            _ => Ok(()),
        });
    }

    fn spend(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        self.beside = Some(self.beside.map_or(usage, |sum| sum.plus(&usage)));
    }

    fn call(&mut self, line: &Line<'_>) -> Option<Call> {
        let (id, name) = (line.tool_call_id.text()?, line.tool_name.text()?);
        let (tool, input) = (kind_of(&name), line.args.raw().unwrap_or_default());
        let asked = line.args.read::<Asked<'_>>().unwrap_or_default();
        if let (ToolKind::Edit | ToolKind::Write, Some(path)) = (tool, asked.path.text()) {
            let path = relative(&path, self.cwd.as_deref()).to_owned();
            let content = asked.content.text().filter(|_| tool == ToolKind::Write);
            let written = content.map(|content| between(&path, None, &content));
            self.asked.insert(id.clone().into_owned(), File { path, written });
        }
        Some(Call::new(&id, tool, &name, summarise(input, self.cwd.as_deref()), input))
    }

    fn result(&mut self, line: &Line<'_>, page: &mut Page) -> Option<()> {
        let id = line.tool_call_id.text()?;
        let call = match page.running(&id) {
            Some(call) => call,
            None => self.call(line)?,
        };
        let result = line.result.read::<event::Result<'_>>().unwrap_or_default();
        let blocks = result.content.read::<Vec<Block<'_>>>().unwrap_or_default();
        let text: Vec<_> = blocks.iter().filter_map(|block| block.text.text()).collect();
        let file = self.asked.remove(&*id).filter(|_| !line.is_error);
        let diff = file.and_then(|file| match file.written {
            // The edit's own diff.
            None => patch(&file.path, &result.details.read::<Details<'_>>()?.patch.text()?),
            written => written,
        });
        let exit_code = result.structured_content.read::<Structured>().unwrap_or_default().exit_code;
        let done = Done {
            has_failed: line.is_error && exit_code.is_none(),
            result: Some(text.join("\n")),
            exit_code,
            duration_ms: line.duration_ms,
            diff,
        };
        page.finish(call, done);
        Some(())
    }

    /// The conversation was summarised, or could not be.
    fn summary(&mut self, line: &Line<'_>, page: &mut Page) {
        page.doing = Some("thinks");
        self.spend(line.result.read::<event::Result<'_>>().and_then(|result| event::usage(result.usage)));
        let (level, text) = match line.error_message.text() {
            Some(why) => {
                let why = failure(&why, page.now).message;
                (NoticeLevel::Warning, format!("The conversation could not be summarised: {why}"))
            }
            None if line.aborted => return,
            None => (NoticeLevel::Info, "The conversation was too long and has been summarised.".to_owned()),
        };
        page.add(Item::Notice { level, text, retry_at: None });
    }
}

fn block(is_text: bool, text: Cow<'_, str>) -> Item {
    let text = text.into_owned();
    if is_text { Item::Text { text } } else { Item::Thinking { text } }
}

fn retry(line: &Line<'_>, page: &mut Page) {
    let words = failure(&line.error_message.text().unwrap_or_default(), page.now).message;
    let tries = format!("attempt {} of {}", line.attempt.unwrap_or(1), line.max_attempts.unwrap_or(1));
    let wait = Duration::from_millis(line.delay_ms.unwrap_or(0)).min(LONGEST_WAIT);
    page.retry(format!("{}. Trying again ({tries}).", words.trim_end_matches('.')), Some(page.now + wait));
}

impl Events for PiEvents {
    fn name(&self) -> &'static str {
        "Pi"
    }

    /// That a new session has the id it was given is no news; nobody is there to be asked.
    fn is_noise(line: &str) -> bool {
        (line.starts_with("Warning: No project session found with id") && line.contains("creating a new session"))
            || line.starts_with("Fork this session into current directory?")
    }

    fn line(&mut self, line: &str, page: &mut Page) -> bool {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return false };
        match &*line.kind {
            "session" => {
                page.session = line.id.text().map(Cow::into_owned).or(page.session.take());
                self.cwd = line.cwd.text().map(Cow::into_owned).or(self.cwd.take());
            }
            "message_start" => {
                self.growing.clear();
                (self.is_settled, page.doing) = (false, Some("thinks"));
            }
            "message_update" => {
                let Some(streamed) = &line.assistant_message_event else { return false };
                // Zero until the provider says something.
                if let Some(usage) = event::usage(line.usage).filter(|usage| *usage != Usage::default()) {
                    self.usage.insert(self.messages + 1, usage);
                }
                self.stream(streamed, page);
            }
            "message_end" => {
                let Some(message) = &line.message else { return false };
                match message.role.text().as_deref() {
                    Some("assistant") => self.message(message, page),
                    Some("toolResult") => self.spend(event::usage(message.usage)),
                    _ => {}
                }
            }
            "tool_execution_start" => {
                let Some(call) = self.call(&line) else { return false };
                page.begin(call);
            }
            "tool_execution_end" => return self.result(&line, page).is_some(),
            "auto_retry_start" | "summarization_retry_scheduled" => retry(&line, page),
            "compaction_start" | "auto_compaction_start" => page.doing = Some("summarises the conversation"),
            "compaction_end" | "auto_compaction_end" => self.summary(&line, page),
            "entry_appended" => {
                let entry = line.entry.read::<Entry<'_>>().filter(|entry| &*entry.kind == "usage");
                self.spend(entry.and_then(|entry| event::usage(entry.usage)));
            }
            "agent_settled" => (self.is_settled, self.aborted) = (true, line.aborted),
            // What they repeat was told, and what they announce shows by itself.
            "agent_start"
            | "agent_end"
            | "turn_start"
            | "turn_end"
            | "tool_execution_update"
            | "auto_retry_end"
            | "summarization_retry_attempt_start"
            | "summarization_retry_finished"
            | "queue_update"
            | "session_info_changed"
            | "thinking_level_changed" => {}
            _ => return false,
        }
        true
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.values().chain(&self.beside).copied().reduce(|sum, usage| sum.plus(&usage))
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
