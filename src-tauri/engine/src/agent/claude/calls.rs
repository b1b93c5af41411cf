//! Tool calls: begun, then completed in place.

use serde::Deserialize;

use super::{
    event::{Block, Decision, Line, ResultMeta, ToolFields},
    plan::Plan,
};
use crate::{
    model::{Delta, FileDiff, Item, Timestamp, ToolKind, ToolState},
    transcript::{
        Hunk, Items, MAX_FIELD, between, cut, from_hunks,
        json::{Loose, Str},
        kind_of, phrase, relative, summarise,
    },
};

/// The longest input that is held until its result, to make a diff of it where the agent gives none, in bytes.
const MAX_HELD_INPUT: usize = 1024 * 1024;

/// A call whose result has not come.
#[derive(Debug)]
struct Call {
    id: String,
    /// `None`: it changes the agent's own list, which is shown instead.
    at: Option<u32>,
    tool: ToolKind,
    name: String,
    summary: String,
    input: String,
    started: Timestamp,
}

/// The calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Vec<Call>,
    plan: Plan,
    /// The call that was completed last.
    last: Option<String>,
    /// Calls the settings refused.
    denied: Vec<String>,
    /// Calls a person refused when asked.
    refused: Vec<String>,
}

impl Calls {
    /// A call begins, or its input is complete now.
    pub fn begin(
        &mut self,
        block: &Block<'_>,
        task: Option<&str>,
        directory: Option<&str>,
        now: Timestamp,
        items: &mut Items,
        deltas: &mut Vec<Delta>,
    ) {
        let (Some(id), Some(name)) = (block.id.as_deref(), block.name.as_deref()) else { return };
        let input = block.input.raw().filter(|input| *input != "{}").unwrap_or_default();
        let summary = match (task, summarise(input, directory)) {
            (Some(task), summary) => format!("{task} › {summary}"),
            (None, summary) => summary,
        };
        let index = self.running.iter().position(|call| call.id == id).unwrap_or_else(|| {
            self.running.push(Call {
                id: id.to_owned(),
                at: None,
                tool: kind_of(name),
                name: name.to_owned(),
                summary: String::new(),
                input: String::new(),
                started: now,
            });
            self.running.len() - 1
        });
        let call = &mut self.running[index];
        call.summary = summary;
        call.input = cut(input, MAX_HELD_INPUT);
        call.started = now;
        if Plan::is_told_by(name) {
            return;
        }
        let item = call.item(ToolState::Running, None);
        match call.at {
            Some(at) => deltas.push(Delta::Put { at, item }),
            None => call.at = Some(items.add(item, deltas)),
        }
    }

    /// A result has come; `false`: of a call nobody made.
    pub fn complete(
        &mut self,
        block: &Block<'_>,
        line: &Line<'_>,
        directory: Option<&str>,
        now: Timestamp,
        items: &mut Items,
        deltas: &mut Vec<Delta>,
    ) -> bool {
        let (data, meta) = (line.tool_use_result.as_ref(), line.tool_result_meta);
        let Some(id) = block.tool_use_id.as_deref() else { return false };
        let Some(index) = self.running.iter().position(|call| call.id == id) else { return false };
        let mut call = self.running.remove(index);
        for ResultMeta { id, permission_decision } in meta.read::<Vec<ResultMeta<'_>>>().unwrap_or_default() {
            if let Some(Decision { source }) = permission_decision
                && &*source == "user_reject"
            {
                self.refused.push(id.to_string());
            }
        }
        self.last = Some(call.id.clone());
        let failed = block.is_error.unwrap_or(false);
        let text = block.content.text();
        if call.at.is_none() && !failed && self.plan.apply(&call.name, &call.input, data, &text, items, deltas) {
            return true;
        }
        let mut done = Done { duration: Some(now.since(call.started).as_millis() as u64), ..Done::default() };
        (done.exit_code, done.result) = read_result(&call, failed, &text, data);
        if !failed {
            done.diff = read_diff(&call, data, directory);
        }
        let state = if failed { ToolState::Failed } else { ToolState::Done };
        let item = call.item(state, Some(done));
        match call.at {
            Some(at) => deltas.push(Delta::Put { at, item }),
            None => call.at = Some(items.add(item, deltas)),
        }
        true
    }

    /// The stream broke inside these calls, or the turn has ended: they will have no result.
    pub fn give_up(&mut self, only_without_input: bool, why: &str, deltas: &mut Vec<Delta>) {
        self.running.retain(|call| {
            if only_without_input && !call.input.is_empty() {
                return true;
            }
            if let Some(at) = call.at {
                let done = Done { result: Some(why.to_owned()), ..Done::default() };
                deltas.push(Delta::Put { at, item: call.item(ToolState::Failed, Some(done)) });
            }
            false
        });
    }

    /// The settings refused a call.
    pub fn deny(&mut self, id: &str) -> bool {
        let news = !self.denied.iter().chain(&self.refused).any(|known| known == id);
        if news {
            self.denied.push(id.to_owned());
        }
        news
    }

    /// Whether the last thing the agent tried was refused by the settings: it gave up over it.
    pub fn ended_in_denial(&self) -> bool {
        self.last.as_ref().is_some_and(|last| self.denied.contains(last))
    }

    /// What the agent waits for, as a phrase.
    pub fn headline(&self) -> Option<String> {
        let call = self.running.last()?;
        Some(phrase(call.tool, &call.name, &call.summary))
    }
}

/// What a finished call adds.
#[derive(Debug, Default)]
struct Done {
    result: Option<String>,
    exit_code: Option<i32>,
    duration: Option<u64>,
    diff: Option<FileDiff>,
}

impl Call {
    fn item(&self, state: ToolState, done: Option<Done>) -> Item {
        let done = done.unwrap_or_default();
        Item::Tool {
            call: self.id.clone(),
            tool: self.tool,
            name: self.name.clone(),
            summary: self.summary.clone(),
            input: cut(&self.input, MAX_FIELD),
            state,
            result: done.result,
            exit_code: done.exit_code,
            duration_ms: done.duration,
            diff: done.diff,
        }
    }
}

/// The exit code, where one is known, and the text of a result.
fn read_result(call: &Call, failed: bool, text: &str, data: Option<&ToolFields<'_>>) -> (Option<i32>, Option<String>) {
    let text = text.strip_prefix("<tool_use_error>").unwrap_or(text);
    let text = text.strip_suffix("</tool_use_error>").unwrap_or(text);
    if text.starts_with("The user doesn't want to proceed with this tool use") {
        return (None, Some("Interrupted or refused before it finished.".to_owned()));
    }
    if text.starts_with("Async agent launched") {
        return (None, Some("It works in the background.".to_owned())); // The rest is for the model only.
    }
    if call.tool != ToolKind::Command {
        return (None, Some(cut(text, MAX_FIELD)));
    }
    if failed {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let code = first.strip_prefix("Exit code ").and_then(|code| code.trim().parse().ok());
        return (code, Some(cut(if code.is_some() { rest } else { text }, MAX_FIELD)));
    }
    let Some(command) = data else { return (None, Some(cut(text, MAX_FIELD))) };
    let known = command.background.raw().is_none()
        && command.interpretation.raw().is_none()
        && command.interrupted.raw() == Some("false");
    // A long output is saved to a file and only its beginning shown to the model; we were given more of it.
    let output = if text.starts_with("<persisted-output>") { command.stdout.text() } else { None };
    (known.then_some(0), Some(cut(output.as_deref().unwrap_or(text), MAX_FIELD)))
}

/// The diff of an edit: the agent's own, else made from what it was asked to do.
fn read_diff(call: &Call, data: Option<&ToolFields<'_>>, directory: Option<&str>) -> Option<FileDiff> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Patch<'a> {
        old_start: u32,
        old_lines: u32,
        new_start: u32,
        new_lines: u32,
        #[serde(borrow)]
        lines: Vec<Str<'a>>,
    }
    #[derive(Deserialize)]
    struct Replaced<'a> {
        #[serde(borrow)]
        old_string: Str<'a>,
        #[serde(borrow)]
        new_string: Str<'a>,
    }
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        file_path: Str<'a>,
        #[serde(borrow, default)]
        content: Loose<'a>,
        #[serde(borrow, default)]
        edits: Option<Vec<Replaced<'a>>>,
    }
    if !matches!(call.tool, ToolKind::Edit | ToolKind::Write) {
        return None;
    }
    if let Some(edited) = data
        && let (Some(path), Some(patch)) = (edited.file_path.text(), edited.structured_patch.read::<Vec<Patch<'_>>>())
    {
        let path = relative(&path, directory);
        let created = edited.kind.text().as_deref() == Some("create");
        if created && patch.is_empty() {
            return Some(between(path, None, &edited.content.text().unwrap_or_default()));
        }
        let hunks = patch.into_iter().map(|patch| Hunk {
            old_start: patch.old_start,
            old_lines: patch.old_lines,
            new_start: patch.new_start,
            new_lines: patch.new_lines,
            lines: patch.lines.into_iter().map(|line| line.0).collect(),
        });
        return Some(from_hunks(path, created, &hunks.collect::<Vec<_>>()));
    }
    let asked: Asked<'_> = serde_json::from_str(&call.input).ok()?;
    let path = relative(&asked.file_path, directory);
    if let Some(content) = asked.content.text() {
        return Some(between(path, None, &content));
    }
    let edits = match asked.edits {
        Some(edits) => edits,
        None => vec![serde_json::from_str(&call.input).ok()?],
    };
    let join = |part: fn(&Replaced<'_>) -> String| edits.iter().map(part).collect::<Vec<_>>().join("\n");
    Some(between(path, Some(&join(|edit| edit.old_string.to_string())), &join(|edit| edit.new_string.to_string())))
}
