//! Reads one turn of Codex.
//!
//! The traps, all seen: `error` is news of a retry unless `turn.failed` follows, and so is an item of type `error`; usage is
//! cumulative over the thread, resumed turns included, and its input holds what came from the cache and what was written
//! to it; nothing is said of an interruption.

use serde::Deserialize;

use crate::{
    agent::{
        Exit, Failure, in_workspace,
        page::{Call, Done, Events, Page, told},
    },
    model::{ProgressEntry, ProgressState, ToolKind, Usage},
    transcript::{
        json::{Loose, Str},
        kind_of, one_line, summarise,
    },
};

#[derive(Debug, Default)]
pub(super) struct CodexEvents {
    before: Usage,
    total: Option<Usage>,
    concluded: Option<Result<(), Failure>>,
    /// The last error that was told, in case nothing follows it.
    error: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    thread_id: Option<Str<'a>>,
    #[serde(borrow)]
    item: Option<Piece<'a>>,
    usage: Option<Tokens>,
    #[serde(borrow, default)]
    error: Loose<'a>,
    #[serde(borrow, default)]
    message: Loose<'a>,
}

/// An item of the thread.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, default)]
    text: Loose<'a>,
    #[serde(borrow, default)]
    message: Loose<'a>,
    #[serde(borrow, default)]
    command: Loose<'a>,
    #[serde(borrow, default)]
    aggregated_output: Loose<'a>,
    exit_code: Option<i32>,
    #[serde(borrow, default)]
    status: Loose<'a>,
    #[serde(borrow, default)]
    changes: Loose<'a>,
    #[serde(borrow, default)]
    server: Loose<'a>,
    #[serde(borrow, default)]
    tool: Loose<'a>,
    #[serde(borrow, default)]
    arguments: Loose<'a>,
    #[serde(borrow, default)]
    result: Loose<'a>,
    #[serde(borrow, default)]
    error: Loose<'a>,
    #[serde(borrow, default)]
    query: Loose<'a>,
    #[serde(borrow, default)]
    items: Loose<'a>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    message: Loose<'a>,
}

#[derive(Deserialize)]
struct Change<'a> {
    #[serde(borrow)]
    path: Str<'a>,
    #[serde(borrow)]
    kind: Str<'a>,
}

#[derive(Deserialize)]
struct ToDo<'a> {
    #[serde(borrow)]
    text: Str<'a>,
    completed: bool,
}

impl CodexEvents {
    /// `before`: what the thread had consumed before this turn.
    pub fn after(before: Usage) -> Self {
        Self { before, ..Self::default() }
    }

    fn item(&self, line: &str, piece: &Piece<'_>, page: &mut Page) -> bool {
        let is_over = line == "item.completed";
        match &*piece.kind {
            "agent_message" if is_over => page.text(&piece.text.text().unwrap_or_default()),
            "reasoning" if is_over => page.thinking(&piece.text.text().unwrap_or_default()),
            "error" if is_over => page.warn(piece.message.text().unwrap_or_default().into_owned()),
            "agent_message" | "reasoning" | "error" => page.doing = Some("writes"),
            "todo_list" => {
                let list = piece.items.read::<Vec<ToDo<'_>>>().unwrap_or_default();
                page.progress(list.iter().map(ToDo::entry).collect());
            }
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" => self.call(is_over, piece, page),
            _ => return false,
        }
        true
    }

    fn call(&self, is_over: bool, piece: &Piece<'_>, page: &mut Page) {
        let call = piece.call();
        if !is_over {
            page.begin(call);
            return;
        }
        let error = piece.error.read::<Told<'_>>().and_then(|told| Some(told.message.text()?.into_owned()));
        let output = piece.aggregated_output.text().map(std::borrow::Cow::into_owned);
        let status = piece.status.text().unwrap_or_default();
        page.finish(
            call,
            Done {
                has_failed: matches!(&*status, "failed" | "declined"),
                result: error.or(output).or_else(|| Some(piece.result.raw()?.to_owned())),
                exit_code: piece.exit_code,
                ..Done::default()
            },
        );
    }
}

impl Piece<'_> {
    fn call(&self) -> Call {
        let new = |tool, name: &str, summary, input: &str| Call::new(&self.id, tool, name, summary, input);
        match &*self.kind {
            "command_execution" => {
                let command = self.command.text().unwrap_or_default();
                let command = inner(&command);
                let input = serde_json::json!({ "command": command }).to_string();
                new(ToolKind::Command, "shell", one_line(&command), &input)
            }
            "file_change" => {
                let changes = self.changes.read::<Vec<Change<'_>>>().unwrap_or_default();
                let is_new = !changes.is_empty() && changes.iter().all(|change| &*change.kind == "add");
                let paths: Vec<_> = changes.iter().map(|change| in_workspace(&change.path)).collect();
                let tool = if is_new { ToolKind::Write } else { ToolKind::Edit };
                new(tool, "apply_patch", one_line(&paths.join(", ")), self.changes.raw().unwrap_or_default())
            }
            "web_search" => {
                let query = self.query.text().unwrap_or_default();
                let input = serde_json::json!({ "query": query }).to_string();
                new(ToolKind::Web, "web_search", one_line(&query), &input)
            }
            _ => {
                let (server, tool) = (self.server.text().unwrap_or_default(), self.tool.text().unwrap_or_default());
                let input = self.arguments.raw().unwrap_or_default();
                new(kind_of(&tool), &format!("{server}.{tool}"), summarise(input, None), input)
            }
        }
    }
}

impl ToDo<'_> {
    fn entry(&self) -> ProgressEntry {
        let state = if self.completed { ProgressState::Done } else { ProgressState::Pending };
        ProgressEntry { text: self.text.to_string(), state }
    }
}

/// The command inside `/bin/bash -lc '…'`, which is how Codex runs every one.
fn inner(command: &str) -> String {
    let shells = ["/bin/bash -lc ", "bash -lc ", "/bin/sh -c ", "/usr/bin/bash -lc "];
    let Some(rest) = shells.iter().find_map(|shell| command.strip_prefix(shell)) else { return command.to_owned() };
    match shlex::split(rest).as_deref() {
        Some([one]) => one.clone(),
        _ => rest.to_owned(),
    }
}

impl Events for CodexEvents {
    fn name(&self) -> &'static str {
        "Codex"
    }

    /// It says of every turn that it reads its prompt, and where the app's data lies beneath a temporary folder that it does
    /// without links to its helpers.
    fn is_noise(line: &str) -> bool {
        line.starts_with("WARNING: proceeding, even though we could not create PATH aliases")
            || line.trim_end() == "Reading additional input from stdin..."
    }

    fn line(&mut self, line: &str, page: &mut Page) -> bool {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return false };
        match &*line.kind {
            "thread.started" => page.session = line.thread_id.map(|id| id.to_string()).or(page.session.take()),
            "turn.started" => page.doing = Some("thinks"),
            "item.started" | "item.updated" | "item.completed" => {
                let Some(piece) = &line.item else { return false };
                if !self.item(&line.kind, piece, page) {
                    return false;
                }
                self.error = None;
            }
            "turn.completed" => {
                if let Some(tokens) = line.usage {
                    self.total = Some(tokens.usage());
                }
                self.concluded = Some(Ok(()));
            }
            "turn.failed" => {
                let error = line.error.read::<Told<'_>>().and_then(|told| Some(told.message.text()?.into_owned()));
                let text = error.or(self.error.take()).unwrap_or_else(|| "Codex said no more.".to_owned());
                self.concluded = Some(Err(failure(&text)));
            }
            "error" => {
                let text = line.message.text().unwrap_or_default().into_owned();
                if text.starts_with("Reconnecting") {
                    page.retry(text.clone(), None);
                }
                self.error = Some(text);
            }
            _ => return false,
        }
        true
    }

    fn usage(&self) -> Option<Usage> {
        let (total, before) = (self.total?, self.before);
        let is_more = total.input >= before.input && total.output >= before.output;
        // Less than before is another count: a thread that was begun anew.
        Some(if is_more { total.since(&before) } else { total })
    }

    fn session_usage(&self) -> Option<Usage> {
        self.total
    }

    fn concluded(&mut self, exit: Exit) -> Option<Result<(), Failure>> {
        let unfinished = || match exit {
            // It was told, and the program ended by itself.
            Exit::Code(code @ 1..=128) if code != 126 && code != 127 => self.error.as_deref().map(failure).map(Err),
            _ => None,
        };
        self.concluded.clone().or_else(unfinished)
    }
}

impl Tokens {
    fn usage(self) -> Usage {
        let cached = self.cached_input_tokens.saturating_add(self.cache_write_input_tokens);
        Usage {
            input: self.input_tokens.saturating_sub(cached),
            output: self.output_tokens,
            cache_write: self.cache_write_input_tokens,
            cache_read: self.cached_input_tokens,
        }
    }
}

/// "unexpected status 401 Unauthorized: …", "exceeded retry limit, last status: 429 Too Many Requests": the status is in the
/// words.
fn failure(text: &str) -> Failure {
    let after = text.split_once("status ").or_else(|| text.split_once("status: "));
    let status = after.and_then(|(_, rest)| rest.get(..3)?.parse().ok());
    told(status, "", text)
}
