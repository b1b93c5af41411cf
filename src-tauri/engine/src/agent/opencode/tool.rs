//! One use of a tool, as OpenCode tells it: only when it is over.
//!
//! Edits come in three shapes, all seen: `edit` with a diff of its own, `write` with the content and whether the file was
//! there, and `apply_patch`, which is all that OpenAI's models are given, with a patch per file.

use serde::Deserialize;

use crate::{
    agent::{
        in_workspace,
        page::{Call, Done, Page},
    },
    model::{FileDiff, ProgressEntry, ProgressState, ToolKind},
    transcript::{
        between,
        json::{Loose, Str},
        kind_of, one_line, patch, summarise,
    },
};

/// How a call went.
#[derive(Deserialize)]
pub(super) struct State<'a> {
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
    #[serde(borrow, default)]
    files: Loose<'a>,
    #[serde(borrow, default)]
    display: Loose<'a>,
}

#[derive(Clone, Copy, Deserialize)]
struct Time {
    start: Option<i64>,
    end: Option<i64>,
}

/// What an edit, a write, a patch and a list are asked for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Asked<'a> {
    #[serde(borrow)]
    file_path: Loose<'a>,
    #[serde(borrow)]
    content: Loose<'a>,
    #[serde(borrow)]
    patch_text: Loose<'a>,
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

/// One file of a patch.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Patched<'a> {
    #[serde(borrow)]
    file_path: Str<'a>,
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, default)]
    patch: Loose<'a>,
}

/// What was read, without the marks it has for the model.
#[derive(Deserialize)]
struct Display<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
}

impl State<'_> {
    /// Shows the call.
    pub fn show(&self, id: &str, name: &str, page: &mut Page) {
        let asked = self.input.read::<Asked<'_>>().unwrap_or_default();
        if let Some(todos) = asked.todos.read::<Vec<ToDo<'_>>>() {
            page.progress(todos.iter().map(ToDo::entry).collect());
            return;
        }
        let input = self.input.raw().unwrap_or_default();
        let path = asked.file_path.text();
        let path = path.as_deref().map(in_workspace);
        let summary = match (path, asked.patch_text.text()) {
            (Some(path), _) => one_line(path),
            (None, Some(text)) => one_line(&named_in(&text).join(", ")),
            (None, None) => summarise(input, None),
        };
        let call = Call::new(id, kind_of(name), name, summary, input);
        let status = self.status.text().unwrap_or_default();
        if matches!(&*status, "pending" | "running") {
            page.begin(call);
            return;
        }
        let has_failed = &*status == "error";
        let metadata = self.metadata.as_ref().filter(|_| !has_failed);
        let files = metadata.and_then(|metadata| metadata.files.read::<Vec<Patched<'_>>>()).unwrap_or_default();
        if !files.is_empty() {
            for (index, file) in files.iter().enumerate() {
                self.show_patched(&call, index, file, page);
            }
            return;
        }
        let diff = path.zip(metadata).and_then(|(path, metadata)| metadata.diff_of(path, &asked, call.tool));
        page.finish(call, Done { has_failed, diff, ..self.done() });
    }

    /// Whether it was not allowed: nobody is there to be asked, and the agent then stops.
    pub fn is_refused(&self) -> bool {
        self.error.text().is_some_and(|error| error.starts_with("The user rejected permission"))
    }

    fn done(&self) -> Done {
        let metadata = self.metadata.as_ref();
        let read = metadata.and_then(|metadata| metadata.display.read::<Display<'_>>());
        let read = read.filter(|display| &*display.kind == "file").map(|display| display.text.to_string());
        let told = self.error.text().or_else(|| self.output.text()).map(std::borrow::Cow::into_owned);
        Done {
            has_failed: false,
            result: read.or(told),
            exit_code: metadata.and_then(|metadata| metadata.exit.read()),
            duration_ms: self.time.and_then(|time| u64::try_from(time.end?.checked_sub(time.start?)?).ok()),
            diff: None,
        }
    }

    /// A patch may change several files: each has its row.
    fn show_patched(&self, call: &Call, index: usize, file: &Patched<'_>, page: &mut Page) {
        let (path, is_new) = (in_workspace(&file.file_path), &*file.kind == "add");
        let id = if index == 0 { call.id.clone() } else { format!("{}/{index}", call.id) };
        let tool = if is_new { ToolKind::Write } else { ToolKind::Edit };
        let input = if index == 0 { &call.input } else { "{}" };
        let told = file.patch.text().unwrap_or_default();
        let diff = if is_new { patch(path, &format!("--- /dev/null\n{told}")) } else { patch(path, &told) };
        page.finish(Call::new(&id, tool, &call.name, one_line(path), input), Done { diff, ..self.done() });
    }
}

impl Metadata<'_> {
    /// The agent's own diff of an edit; of a new file, made from what was written.
    fn diff_of(&self, path: &str, asked: &Asked<'_>, tool: ToolKind) -> Option<FileDiff> {
        if let Some(told) = self.diff.text() {
            return patch(path, &told);
        }
        let is_new = self.exists.raw() == Some("false");
        let content = asked.content.text().filter(|_| tool == ToolKind::Write && is_new)?;
        Some(between(path, None, &content))
    }
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

/// The files a patch names.
fn named_in(patch: &str) -> Vec<&str> {
    let named = |line: &'_ str| -> Option<usize> {
        let marks = ["*** Add File: ", "*** Update File: ", "*** Delete File: "];
        marks.iter().find(|mark| line.starts_with(**mark)).map(|mark| mark.len())
    };
    patch.lines().filter_map(|line| named(line).map(|from| line[from..].trim())).collect()
}
