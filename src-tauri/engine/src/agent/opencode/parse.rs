//! Reads one turn of OpenCode.
//!
//! The traps, all seen: no event says the end; a call is told only when it is done, and one that returned 3 is "completed";
//! tokens are per step, their input without what came from the cache and their output without the reasoning; an error is
//! told twice; its own retries are silent.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    agent::{
        Exit, Failure, in_workspace,
        page::{Call, Done, Events, Page, told},
    },
    model::{ErrorKind, FileDiff, ProgressEntry, ProgressState, ToolKind, Usage},
    transcript::{
        between,
        json::{Loose, Str},
        kind_of, one_line, patch, summarise,
    },
};

#[derive(Debug, Default)]
pub(super) struct OpenCodeEvents {
    /// One row per step, the last report of it counts.
    steps: BTreeMap<String, Usage>,
    /// Whether the last step was the answer's last.
    is_finished: bool,
    failure: Option<Failure>,
    /// It failed once and went on: then it returns 1, however well it ends.
    has_recovered: bool,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, rename = "sessionID")]
    session: Option<Str<'a>>,
    #[serde(borrow)]
    part: Option<Part<'a>>,
    #[serde(borrow)]
    error: Option<Told<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    id: Loose<'a>,
    #[serde(borrow, default)]
    text: Loose<'a>,
    #[serde(borrow, default)]
    tool: Loose<'a>,
    #[serde(borrow, default, rename = "callID")]
    call_id: Loose<'a>,
    #[serde(borrow)]
    state: Option<State<'a>>,
    #[serde(borrow, default)]
    reason: Loose<'a>,
    tokens: Option<Tokens>,
    synthetic: Option<bool>,
}

#[derive(Deserialize)]
struct State<'a> {
    #[serde(borrow, default)]
    status: Loose<'a>,
    #[serde(borrow, default)]
    input: Loose<'a>,
    #[serde(borrow, default)]
    output: Loose<'a>,
    #[serde(borrow, default)]
    error: Loose<'a>,
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    time: Option<Time>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    exit: Loose<'a>,
    #[serde(borrow, default)]
    diff: Loose<'a>,
    #[serde(borrow, default)]
    exists: Loose<'a>,
}

#[derive(Deserialize)]
struct Time {
    start: Option<i64>,
    end: Option<i64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input: u64,
    output: u64,
    reasoning: u64,
    cache: Cache,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Cache {
    read: u64,
    write: u64,
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    name: Loose<'a>,
    #[serde(borrow)]
    data: Option<Data<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(borrow, default)]
    message: Loose<'a>,
    status_code: Option<u16>,
    #[serde(borrow, default)]
    response_body: Loose<'a>,
}

/// What an edit, a write and a list are asked for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked<'a> {
    #[serde(borrow)]
    file_path: Loose<'a>,
    #[serde(borrow)]
    content: Loose<'a>,
    #[serde(borrow)]
    todos: Loose<'a>,
}

#[derive(Deserialize)]
struct ToDo<'a> {
    #[serde(borrow)]
    content: Str<'a>,
    #[serde(borrow, default)]
    status: Loose<'a>,
}

impl Part<'_> {
    fn tool(&self, page: &mut Page) -> bool {
        let (Some(state), Some(id), Some(name)) = (&self.state, self.call_id.text(), self.tool.text()) else {
            return false;
        };
        let asked = state.input.read::<Asked<'_>>().unwrap_or_default();
        if let Some(todos) = asked.todos.read::<Vec<ToDo<'_>>>() {
            page.progress(todos.iter().map(ToDo::entry).collect());
            return true;
        }
        let input = state.input.raw().unwrap_or_default();
        let path = asked.file_path.text();
        let path = path.as_deref().map(in_workspace);
        let summary = path.map_or_else(|| summarise(input, None), one_line);
        let call = Call::new(&id, kind_of(&name), &name, summary, input);
        let status = state.status.text().unwrap_or_default();
        if matches!(&*status, "pending" | "running") {
            page.begin(call);
            return true;
        }
        let has_failed = &*status == "error";
        let metadata = state.metadata.as_ref();
        let exit_code = metadata.and_then(|metadata| metadata.exit.read());
        let diff = path.filter(|_| !has_failed).and_then(|path| diff(path, &asked, metadata, call.tool));
        let took = state.time.as_ref().and_then(|time| u64::try_from(time.end? - time.start?).ok());
        let result = if has_failed { state.error } else { state.output };
        let result = result.text().map(std::borrow::Cow::into_owned);
        page.finish(call, Done { has_failed, result, exit_code, duration_ms: took, diff });
        true
    }
}

/// The agent's own diff of an edit; of a new file, made from what was written.
fn diff(path: &str, asked: &Asked<'_>, metadata: Option<&Metadata<'_>>, tool: ToolKind) -> Option<FileDiff> {
    let told = metadata.and_then(|metadata| metadata.diff.text());
    if let Some(told) = told {
        return patch(path, &told);
    }
    let is_new = metadata.is_some_and(|metadata| metadata.exists.raw() == Some("false"));
    let content = asked.content.text().filter(|_| tool == ToolKind::Write && is_new)?;
    Some(between(path, None, &content))
}

impl ToDo<'_> {
    fn entry(&self) -> ProgressEntry {
        let state = match self.status.text().as_deref() {
            Some("completed") => ProgressState::Done,
            Some("in_progress") => ProgressState::Active,
            _ => ProgressState::Pending,
        };
        ProgressEntry { text: self.content.to_string(), state }
    }
}

impl Events for OpenCodeEvents {
    fn name(&self) -> &'static str {
        "OpenCode"
    }

    fn line(&mut self, line: &str, page: &mut Page) -> bool {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return false };
        if let Some(session) = &line.session {
            page.session = Some(session.to_string());
        }
        let Some(part) = &line.part else {
            let Some(error) = line.error.filter(|_| &*line.kind == "error") else { return false };
            self.failure = Some(error.failure());
            return true;
        };
        match &*line.kind {
            "step_start" => {
                (self.is_finished, page.doing) = (false, Some("thinks"));
                if let Some(earlier) = self.failure.take() {
                    self.has_recovered = true;
                    page.warn(earlier.message);
                }
            }
            // Its own words to the model, about a conversation it has summarised.
            "text" if part.synthetic == Some(true) => page.warn(one_line(&part.text.text().unwrap_or_default())),
            "text" => page.text(&part.text.text().unwrap_or_default()),
            "reasoning" => page.thinking(&part.text.text().unwrap_or_default()),
            "tool_use" => return part.tool(page),
            "step_finish" => {
                let id = part.id.text().unwrap_or_default().into_owned();
                if let Some(tokens) = part.tokens {
                    self.steps.insert(id, tokens.usage());
                }
                self.is_finished = part.reason.text().as_deref() != Some("tool-calls");
            }
            _ => return false,
        }
        true
    }

    fn usage(&self) -> Option<Usage> {
        self.steps.values().copied().reduce(|sum, step| sum.plus(&step))
    }

    fn concluded(&mut self, exit: Exit) -> Option<Result<(), Failure>> {
        match (self.failure.take(), exit) {
            (Some(failure), _) => Some(Err(failure)),
            (None, Exit::Code(code)) if self.is_finished && (code == 0 || self.has_recovered) => Some(Ok(())),
            _ => None,
        }
    }
}

impl Tokens {
    fn usage(self) -> Usage {
        Usage {
            input: self.input,
            output: self.output + self.reasoning,
            cache_write: self.cache.write,
            cache_read: self.cache.read,
        }
    }
}

impl Told<'_> {
    fn failure(&self) -> Failure {
        let name = self.name.text().unwrap_or_default();
        let Some(data) = &self.data else { return told(None, &name, &name) };
        let message = data.message.text().unwrap_or_default();
        // The body has the endpoint's own code where the message is only a sentence.
        let code = format!("{name} {}", data.response_body.text().unwrap_or_default().to_lowercase());
        let mut failure = told(data.status_code, &code, &message);
        match &*name {
            "ContextOverflowError" => failure.kind = ErrorKind::ContextTooLong,
            "ProviderAuthError" if data.status_code.is_none() => failure.kind = ErrorKind::RejectedKey,
            "MessageAbortedError" => failure.kind = ErrorKind::Interrupted,
            _ => {}
        }
        failure
    }
}
