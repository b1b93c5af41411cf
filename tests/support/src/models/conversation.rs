//! What a request says: the person's messages, how far the agent is, which tools it has, and where it works.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

use super::tools::Tool;

/// A request, understood.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// What the person wrote, oldest first, without the reminders the agent adds.
    pub(super) said: Vec<String>,
    /// Tool calls since the newest of them; several at once count as one.
    pub(super) step: usize,
    pub(super) tools: BTreeMap<String, Tool>,
    pub(super) directory: Option<String>,
}

/// One entry of a conversation, as far as it matters here.
#[derive(Debug)]
pub(super) enum Entry {
    /// What stands under the person's name; the answer of a tool may do so too.
    User { text: String, answers_a_tool: bool },
    /// The model called tools.
    Calls,
}

static REMINDER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)<system-reminder>.*?</system-reminder>"));
static TAG: LazyLock<Regex> = LazyLock::new(|| pattern(r"\[\[scenario:(\w+)\]\]"));
static DIRECTORY: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(?:[Ww]orking directory: ?`?|<cwd>)(/[^\s`"\\<]+)"#));
/// What an agent says in the person's name about where it works.
static SURROUNDINGS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:<(?:environment_context|user_instructions|permissions|turn_aborted|skills|recommended)|# AGENTS)")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant")
}

impl Conversation {
    pub(super) fn new(body: &Value, tools: BTreeMap<String, Tool>, entries: impl Iterator<Item = Entry>) -> Self {
        let mut conversation = Conversation { tools, directory: directory(body), ..Conversation::default() };
        for entry in entries {
            match entry {
                Entry::Calls => conversation.step += 1,
                Entry::User { text, answers_a_tool } => conversation.hear(&text, answers_a_tool),
            }
        }
        conversation
    }

    fn hear(&mut self, text: &str, answers_a_tool: bool) {
        let text = REMINDER.replace_all(text, "").trim().to_owned();
        match (text.is_empty() || SURROUNDINGS.is_match(&text), answers_a_tool) {
            (true, _) => {}
            (false, false) => {
                self.said.push(text);
                self.step = 0;
            }
            (false, true) => self.said.push(format!("(alongside tool_result) {text}")),
        }
    }

    /// The scenario named in the newest message. Requests without tools (titles, summaries) take no notice.
    pub(super) fn tag(&self) -> Option<&str> {
        let newest = self.said.last().filter(|_| !self.tools.is_empty())?;
        TAG.captures_iter(newest).last().and_then(|found| found.get(1)).map(|name| name.as_str())
    }
}

/// The text of a message's content: a string, or the texts among its blocks.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let is_text = |block: &&Value| matches!(block["type"].as_str(), Some("text" | "input_text"));
            let texts = blocks.iter().filter(is_text).filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The agent tells the model its directory somewhere in the system prompt or in a reminder.
fn directory(body: &Value) -> Option<String> {
    match body {
        Value::String(text) => DIRECTORY
            .captures(text)
            .and_then(|found| found.get(1))
            .map(|path| path.as_str().trim_end_matches('.').into()),
        Value::Array(values) => values.iter().find_map(directory),
        Value::Object(values) => values.values().find_map(directory),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::Api;

    fn means_the_same(api: Api, body: &Value, tool: &str) {
        let conversation = api.read(body);
        assert_eq!(conversation.said, ["first", "second [[scenario:drop]]"], "{api:?}: only the person's own words");
        assert_eq!(conversation.step, 1, "{api:?}");
        assert_eq!(conversation.tag(), Some("drop"), "{api:?}");
        assert_eq!(conversation.directory.as_deref(), Some("/srv/work"), "{api:?}");
        assert_eq!(conversation.tools.keys().collect::<Vec<_>>(), [tool], "{api:?}");
        assert!(conversation.tools[tool].schema["properties"].get("command").is_some(), "{api:?}");
    }

    #[test]
    fn the_step_is_the_number_of_tool_calls_since_the_newest_message() {
        let schema = json!({"properties": {"command": {}}});
        let body = json!({
            "system": [{"type": "text", "text": "Environment:\n Working directory: /srv/work\n"}],
            "tools": [{"name": "Bash", "input_schema": schema}],
            "messages": [
                {"role": "user", "content": "first <system-reminder>secret\nlines</system-reminder>"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
                {"role": "user", "content": [{"type": "text", "text": "second [[scenario:drop]]"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "Bash", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "ok"}]}
            ]
        });
        means_the_same(Api::Messages, &body, "Bash");

        let call = json!({"type": "function_call", "call_id": "1", "name": "shell", "arguments": "{}"});
        let output = json!({"type": "function_call_output", "call_id": "1", "output": "ok"});
        let user =
            |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let said =
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]});
        let body = json!({
            "tools": [{"type": "function", "name": "shell", "parameters": schema}],
            "input": [
                user("<environment_context>\n  <cwd>/srv/work</cwd>\n</environment_context>"), user("first"),
                call, output, said, user("second [[scenario:drop]]"), said, call, call, output, output
            ]
        });
        means_the_same(Api::Responses, &body, "shell");

        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function"}]});
        let body = json!({
            "tools": [{"type": "function", "function": {"name": "bash", "parameters": schema}}],
            "messages": [
                {"role": "system", "content": "Working directory: /srv/work"}, {"role": "user", "content": "first"},
                call, {"role": "tool", "tool_call_id": "1", "content": "ok"}, {"role": "assistant", "content": "done"},
                {"role": "user", "content": [{"type": "text", "text": "second [[scenario:drop]]"}]},
                call, {"role": "tool", "tool_call_id": "1", "content": "ok"}
            ]
        });
        means_the_same(Api::Chat, &body, "bash");
    }
}
