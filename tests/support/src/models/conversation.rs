//! What a request says: the person's messages, how far the agent is, which tools it has, and where it works.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

/// A request, understood.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// What the person wrote, oldest first, without the reminders the agent adds.
    pub(super) said: Vec<String>,
    /// Tool calls since the newest of them.
    pub(super) step: usize,
    /// Tool names with the schema of their arguments.
    pub(super) tools: BTreeMap<String, Value>,
    pub(super) directory: Option<String>,
}

static REMINDER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)<system-reminder>.*?</system-reminder>"));
static TAG: LazyLock<Regex> = LazyLock::new(|| pattern(r"\[\[scenario:(\w+)\]\]"));
static DIRECTORY: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[Ww]orking directory: ?`?(/[^\s`"\\<]+)"#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant")
}

impl Conversation {
    /// Reads the body of a Messages request.
    pub(super) fn read(body: &Value) -> Self {
        let mut conversation = Conversation { directory: directory(body), ..Conversation::default() };
        for tool in body["tools"].as_array().into_iter().flatten() {
            if let Some(name) = tool["name"].as_str() {
                conversation.tools.insert(name.to_owned(), tool["input_schema"].clone());
            }
        }
        for message in body["messages"].as_array().into_iter().flatten() {
            let content = &message["content"];
            if message["role"] == "user" {
                let answers_a_tool = has_block(content, "tool_result");
                let text = REMINDER.replace_all(&text_of(content), "").trim().to_owned();
                match (text.is_empty(), answers_a_tool) {
                    (true, _) => {}
                    (false, false) => {
                        conversation.said.push(text);
                        conversation.step = 0;
                    }
                    (false, true) => conversation.said.push(format!("(alongside tool_result) {text}")),
                }
            } else if has_block(content, "tool_use") {
                conversation.step += 1;
            }
        }
        conversation
    }

    /// The scenario named in the newest message. Requests without tools (titles, summaries) take no notice.
    pub(super) fn tag(&self) -> Option<&str> {
        let newest = self.said.last().filter(|_| !self.tools.is_empty())?;
        TAG.captures_iter(newest).last().and_then(|found| found.get(1)).map(|name| name.as_str())
    }
}

fn has_block(content: &Value, kind: &str) -> bool {
    content.as_array().is_some_and(|blocks| blocks.iter().any(|block| block["type"] == kind))
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts =
                blocks.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
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

    #[test]
    fn the_step_is_the_number_of_tool_calls_since_the_newest_message() {
        let body = json!({
            "system": [{"type": "text", "text": "Environment:\n Working directory: /srv/work\n"}],
            "tools": [{"name": "Bash", "input_schema": {"properties": {"command": {}}}}],
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
        let conversation = Conversation::read(&body);
        assert_eq!(conversation.said, ["first", "second [[scenario:drop]]"], "reminders are not the person's words");
        assert_eq!(conversation.step, 1);
        assert_eq!(conversation.tag(), Some("drop"));
        assert_eq!(conversation.directory.as_deref(), Some("/srv/work"));
    }
}
