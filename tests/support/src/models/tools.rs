//! A call of the script in the words of the tools that the agent offers, whichever agent that is.

use serde_json::{Value, json};

use super::{conversation::Conversation, scenario::Call};

/// A tool, as a request offers it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tool {
    /// The schema of its arguments.
    pub(super) schema: Value,
    /// Takes any text instead of arguments.
    pub(super) is_free: bool,
}

impl Tool {
    fn takes(&self, argument: &str) -> bool {
        self.schema["properties"].get(argument).is_some()
    }

    /// The first of these names that it has an argument for; where it tells of none, the first.
    fn argument(&self, names: &[&'static str]) -> &'static str {
        names.iter().find(|name| self.takes(name)).unwrap_or(&names[0])
    }
}

/// A call, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Worded {
    pub(super) name: String,
    pub(super) input: Value,
    /// The input is text, not arguments.
    pub(super) is_free: bool,
}

impl Worded {
    /// The input as it stands on the wire.
    pub(super) fn written(&self) -> String {
        match &self.input {
            Value::String(text) if self.is_free => text.clone(),
            arguments => arguments.to_string(),
        }
    }
}

const SHELLS: [&str; 6] = ["Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command"];
const WRITERS: [&str; 3] = ["Write", "write", "write_file"];

/// The call in the words of what is offered; none where nothing fits.
pub(super) fn in_words_of(call: &Call, conversation: &Conversation) -> Option<Worded> {
    match call {
        Call::Write { path, content } => written(path, content, conversation),
        Call::Read(path) => read(path, conversation),
        Call::Edit { path, old, new } => edited(path, old, new, conversation),
        Call::Search(words) => searched(words, conversation),
        Call::Plan(points) => planned(points, conversation),
        Call::Bash(command) => run(command, conversation),
    }
}

fn written(path: &str, content: &str, conversation: &Conversation) -> Option<Worded> {
    if let Some((name, tool)) = offered(conversation, &WRITERS) {
        let (argument, path) = place(path, tool, conversation);
        return Some(Worded { name, input: json!({argument: path, "content": content}), is_free: false });
    }
    let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
    patched(&format!("*** Add File: {path}\n{lines}"), conversation)
        .or_else(|| run(&format!("cat > {path} <<'EOF'\n{content}EOF"), conversation))
}

fn read(path: &str, conversation: &Conversation) -> Option<Worded> {
    let Some((name, tool)) = offered(conversation, &["Read", "read"]) else {
        return run(&format!("cat {path}"), conversation);
    };
    let (argument, path) = place(path, tool, conversation);
    Some(Worded { name, input: json!({argument: path}), is_free: false })
}

fn edited(path: &str, old: &str, new: &str, conversation: &Conversation) -> Option<Worded> {
    let Some((name, tool)) = offered(conversation, &["Edit", "edit"]) else {
        return patched(&format!("*** Update File: {path}\n@@\n-{old}\n+{new}\n"), conversation)
            .or_else(|| run(&format!("sed -i 's/{old}/{new}/' {path}"), conversation));
    };
    let (argument, path) = place(path, tool, conversation);
    let input = if tool.takes("edits") {
        json!({argument: path, "edits": [{"oldText": old, "newText": new}]})
    } else {
        let (from, to) = (tool.argument(&["old_string", "oldString"]), tool.argument(&["new_string", "newString"]));
        json!({argument: path, from: old, to: new})
    };
    Some(Worded { name, input, is_free: false })
}

fn searched(words: &str, conversation: &Conversation) -> Option<Worded> {
    match offered(conversation, &["Grep", "grep"]) {
        Some((name, _)) => Some(Worded { name, input: json!({"pattern": words}), is_free: false }),
        None => run(&format!("grep -rn '{words}' ."), conversation),
    }
}

fn planned(points: &[&str], conversation: &Conversation) -> Option<Worded> {
    let status = |index| if index == 0 { "completed" } else { "pending" };
    let (name, tool) = offered(conversation, &["TodoWrite", "todowrite", "update_plan"])?;
    let list: Vec<Value> = match tool.takes("plan") {
        true => points.iter().enumerate().map(|(index, step)| json!({"step": step, "status": status(index)})).collect(),
        false => points
            .iter()
            .enumerate()
            .map(|(index, point)| {
                json!({"content": point, "activeForm": point, "status": status(index), "priority": "medium"})
            })
            .collect(),
    };
    Some(Worded { name, input: json!({tool.argument(&["todos", "plan"]): list}), is_free: false })
}

/// A tool's argument for a path, and the path as it wants it: from the root on, unless the argument is just `path`.
fn place(path: &str, tool: &Tool, conversation: &Conversation) -> (&'static str, String) {
    let argument = tool.argument(&["file_path", "filePath", "path"]);
    let folder = conversation.directory.as_deref().filter(|_| argument != "path");
    (argument, folder.map_or(path.to_owned(), |folder| format!("{}/{path}", folder.trim_end_matches('/'))))
}

/// A change by the tool that takes patches, where there is one.
fn patched(change: &str, conversation: &Conversation) -> Option<Worded> {
    let (name, tool) = offered(conversation, &["apply_patch"])?;
    let patch = format!("*** Begin Patch\n{change}*** End Patch\n");
    let input =
        if tool.is_free { Value::String(patch) } else { json!({tool.argument(&["input", "patchText"]): patch}) };
    Some(Worded { name, input, is_free: tool.is_free })
}

fn run(command: &str, conversation: &Conversation) -> Option<Worded> {
    let (name, tool) = offered(conversation, &SHELLS)?;
    let argument = tool.argument(&["command", "cmd"]);
    let is_list = tool.schema["properties"][argument]["type"] == "array";
    let mut input = json!({argument: if is_list { json!(["bash", "-lc", command]) } else { json!(command) }});
    if tool.takes("description") {
        input["description"] = "Run a command".into();
    }
    if tool.takes("yield_time_ms") {
        input["yield_time_ms"] = 30_000.into(); // The longest such a tool waits before it leaves the command behind.
    }
    Some(Worded { name, input, is_free: false })
}

fn offered<'a>(conversation: &'a Conversation, names: &[&str]) -> Option<(String, &'a Tool)> {
    names.iter().find_map(|name| Some(((*name).to_owned(), conversation.tools.get(*name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offering(tools: &[(&str, &[&str], bool)]) -> Conversation {
        let tools = tools.iter().map(|(name, arguments, is_free)| {
            let properties: serde_json::Map<String, Value> =
                arguments.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            ((*name).to_owned(), Tool { schema: json!({"properties": properties}), is_free: *is_free })
        });
        Conversation { tools: tools.collect(), directory: Some("/work".to_owned()), ..Conversation::default() }
    }

    #[test]
    fn a_file_is_written_by_the_tool_there_is() {
        let call = Call::Write { path: "a.txt", content: "one\ntwo\n" };
        let worded = |conversation: &Conversation| in_words_of(&call, conversation).map(|worded| worded.input);
        let absolute = offering(&[("write", &["filePath", "content"], false), ("bash", &["command"], false)]);
        assert_eq!(worded(&absolute), Some(json!({"filePath": "/work/a.txt", "content": "one\ntwo\n"})));
        let relative = offering(&[("write", &["path", "content"], false)]);
        assert_eq!(worded(&relative), Some(json!({"path": "a.txt", "content": "one\ntwo\n"})));
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch\n";
        assert_eq!(worded(&offering(&[("apply_patch", &[], true)])), Some(json!(patch)));
        let named = offering(&[("apply_patch", &["patchText"], false)]);
        assert_eq!(worded(&named), Some(json!({"patchText": patch})));
        let shell = offering(&[("exec_command", &["cmd", "yield_time_ms"], false)]);
        let command = "cat > a.txt <<'EOF'\none\ntwo\nEOF";
        assert_eq!(worded(&shell), Some(json!({"cmd": command, "yield_time_ms": 30_000})));
        assert_eq!(worded(&offering(&[("search", &[], false)])), None);
    }

    #[test]
    fn a_line_is_changed_by_the_tool_there_is() {
        let call = Call::Edit { path: "a.txt", old: "one", new: "two" };
        let worded = |tools| in_words_of(&call, &offering(tools)).map(|worded| worded.input);
        let strings = json!({"filePath": "/work/a.txt", "oldString": "one", "newString": "two"});
        assert_eq!(worded(&[("edit", &["filePath", "oldString", "newString"], false)]), Some(strings));
        let list = json!({"path": "a.txt", "edits": [{"oldText": "one", "newText": "two"}]});
        assert_eq!(worded(&[("edit", &["path", "edits"], false)]), Some(list));
        let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
        assert_eq!(worded(&[("apply_patch", &[], true)]), Some(json!(patch)));
    }

    #[test]
    fn a_plan_is_left_out_where_an_agent_keeps_none() {
        let call = Call::Plan(&["think"]);
        assert_eq!(in_words_of(&call, &offering(&[("bash", &["command"], false)])), None);
        let kept = in_words_of(&call, &offering(&[("update_plan", &["plan"], false)])).unwrap();
        assert_eq!(kept.input, json!({"plan": [{"step": "think", "status": "completed"}]}));
    }
}
