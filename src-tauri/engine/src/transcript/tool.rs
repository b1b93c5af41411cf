//! Tool calls: what a tool is for, and a call in one line, whatever the agent calls things.

use serde::Deserialize;

use super::{
    json::{Loose, Str},
    text::one_line,
};
use crate::model::ToolKind;

/// What a tool is for, told from its name: the names of all agents' built-in tools, in lower case.
pub(crate) fn kind_of(name: &str) -> ToolKind {
    match name.to_ascii_lowercase().as_str() {
        "edit" | "multiedit" | "multi_edit" | "notebookedit" | "patch" | "apply_patch" => ToolKind::Edit,
        "write" | "write_file" | "create" => ToolKind::Write,
        "read" | "read_file" | "notebookread" | "view" => ToolKind::Read,
        "grep" | "glob" | "ls" | "list" | "find" | "search" | "toolsearch" | "codesearch" => ToolKind::Search,
        "bash" | "shell" | "bashoutput" | "killshell" | "monitor" | "exec_command" | "command_execution" => {
            ToolKind::Command
        }
        "webfetch" | "websearch" | "web_search" | "web_fetch" => ToolKind::Web,
        "todowrite" | "todoread" | "taskcreate" | "taskupdate" | "tasklist" | "taskget" | "enterplanmode"
        | "exitplanmode" | "update_plan" => ToolKind::Plan,
        _ => ToolKind::Other,
    }
}

/// The parts of any tool's input that say in one line what the call does.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Telling<'a> {
    #[serde(borrow)]
    command: Loose<'a>,
    #[serde(borrow, alias = "filePath", alias = "notebook_path")]
    file_path: Loose<'a>,
    #[serde(borrow)]
    path: Loose<'a>,
    #[serde(borrow)]
    pattern: Loose<'a>,
    #[serde(borrow)]
    query: Loose<'a>,
    #[serde(borrow)]
    url: Loose<'a>,
    #[serde(borrow)]
    description: Loose<'a>,
    #[serde(borrow)]
    subject: Loose<'a>,
    #[serde(borrow)]
    skill: Loose<'a>,
    #[serde(borrow)]
    prompt: Loose<'a>,
}

/// A call in one line: its command, path (seen from `directory`), pattern or address, else what there is.
pub(crate) fn summarise(input: &str, directory: Option<&str>) -> String {
    if let Ok(text) = serde_json::from_str::<Str<'_>>(input) {
        return one_line(&text);
    }
    let Ok(input) = serde_json::from_str::<Telling<'_>>(input) else { return String::new() };
    if let Some(command) = input.command.text() {
        return one_line(&command);
    }
    let path = input.file_path.text().or_else(|| input.path.text());
    let path = path.as_deref().map(|path| relative(path, directory));
    if let Some(pattern) = input.pattern.text() {
        return one_line(&path.map_or_else(|| pattern.to_string(), |path| format!("{pattern} in {path}")));
    }
    if let Some(path) = path {
        return one_line(path);
    }
    let rest = [input.query, input.url, input.description, input.subject, input.skill, input.prompt];
    rest.into_iter().find_map(Loose::text).map(|text| one_line(&text)).unwrap_or_default()
}

/// What a call does just now, as a phrase: "runs npm test".
pub(crate) fn phrase(tool: ToolKind, name: &str, summary: &str) -> String {
    let verb = match tool {
        ToolKind::Edit => "edits",
        ToolKind::Write => "writes",
        ToolKind::Read => "reads",
        ToolKind::Search => "searches for",
        ToolKind::Command => "runs",
        ToolKind::Web => "looks up",
        ToolKind::Plan => return "plans".to_owned(),
        ToolKind::Other => return format!("uses {name}"),
    };
    if summary.is_empty() { format!("uses {name}") } else { format!("{verb} {summary}") }
}

/// `path` as seen from `directory`, where it lies in it.
pub(crate) fn relative<'a>(path: &'a str, directory: Option<&str>) -> &'a str {
    directory
        .and_then(|directory| path.strip_prefix(directory.trim_end_matches('/'))?.strip_prefix('/'))
        .filter(|rest| !rest.is_empty())
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_in_one_line() {
        let here = Some("/workspace");
        let cases = [
            (r#"{"command":"cargo test\nls","description":"Run"}"#, "cargo test …"),
            (r#"{"file_path":"/workspace/src/main.rs","content":"x"}"#, "src/main.rs"),
            (r#"{"pattern":"fn main","path":"/workspace/src"}"#, "fn main in src"),
            (r#"{"pattern":"*.rs"}"#, "*.rs"),
            (r#"{"query":"rust"}"#, "rust"),
            (r#"{"description":"Look around","prompt":"…"}"#, "Look around"),
            (r#"{"command":["ls"],"path":7}"#, ""),
            (r#""*** Begin Patch""#, "*** Begin Patch"),
            ("{", ""),
            ("", ""),
        ];
        for (input, summary) in cases {
            assert_eq!(summarise(input, here), summary, "{input}");
        }
        assert_eq!(relative("/workspace2/a", here), "/workspace2/a");
        assert_eq!(relative("/workspace", here), "/workspace");
    }
}
