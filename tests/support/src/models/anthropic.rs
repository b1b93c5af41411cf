//! The Messages API as bytes: the events of a streamed answer, a whole answer, and an error.

use axum::http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    conversation::Conversation,
    scenario::{Call, Refusal, Step, Text, UsageServed},
};

/// A piece of a streamed answer.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Event(&'static str, Value),
    /// The connection breaks here, without a proper end.
    Drop,
    /// Nothing more comes, and the connection stays open.
    Silence,
}

/// What is said in one request: the text, and the calls in the agent's own words.
pub(super) struct Answer {
    model: Value,
    text: String,
    calls: Vec<(String, Value)>,
    usage: UsageServed,
    thinks: bool,
}

impl Answer {
    pub(super) fn new(body: &Value, conversation: &Conversation, step: &Step, usage: UsageServed) -> Self {
        let is_side_request = conversation.tools.is_empty();
        let text = match &step.text {
            _ if is_side_request => "Mock title".to_owned(),
            Text::Said(text) => text.clone(),
            Text::Closing => {
                let first: String =
                    conversation.said.first().map(|said| said.chars().take(120).collect()).unwrap_or_default();
                let count = conversation.said.len();
                format!("All done. I have seen {count} user message(s); the first was: \"{first}\"")
            }
        };
        let calls = if is_side_request { &[][..] } else { &step.calls };
        let thinking = body["thinking"]["type"].as_str();
        Answer {
            model: body["model"].clone(),
            text,
            calls: calls.iter().filter_map(|call| in_words_of(call, conversation)).collect(),
            usage,
            thinks: matches!(thinking, Some("enabled" | "adaptive")) && !calls.is_empty(),
        }
    }

    /// The answer as a stream of events, broken where the scenario breaks it.
    pub(super) fn events(&self, scenario: &str, piece: usize) -> Vec<Piece> {
        let mut events = vec![event(json!({"type": "message_start", "message": self.message(vec![], None, 1)}))];
        let mut index = 0;
        if self.thinks {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            events.push(start(index, block));
            for part in parts("Let me think about the task.", 0, piece) {
                events.push(delta(index, json!({"type": "thinking_delta", "thinking": part})));
            }
            events.push(delta(index, json!({"type": "signature_delta", "signature": "c2ln"})));
            events.push(stop(index));
            index += 1;
        }
        events.push(start(index, json!({"type": "text", "text": ""})));
        events.push(event(json!({"type": "ping"})));
        if scenario == "sse_error" {
            let error = json!({"type": "overloaded_error", "message": "Overloaded"});
            events.push(event(json!({"type": "error", "error": error})));
            return events;
        }
        for part in parts(&self.text, 0, piece) {
            events.push(delta(index, json!({"type": "text_delta", "text": part})));
        }
        if scenario == "drop" {
            events.push(Piece::Drop);
            return events;
        }
        events.push(stop(index));
        for (name, input) in &self.calls {
            index += 1;
            events.push(start(index, json!({"type": "tool_use", "id": tool_id(), "name": name, "input": {}})));
            let mut arguments = parts(&input.to_string(), 90, 24);
            if scenario == "droptool" {
                arguments.truncate(2);
            }
            for part in arguments {
                events.push(delta(index, json!({"type": "input_json_delta", "partial_json": part})));
            }
            if scenario == "droptool" {
                events.push(Piece::Drop);
                return events;
            }
            events.push(stop(index));
        }
        events.push(event(json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
            "usage": self.usage_of(self.usage.output),
        })));
        events.push(event(json!({"type": "message_stop"})));
        events
    }

    /// The answer in one piece, for a request that asked for no stream.
    pub(super) fn whole(&self) -> Value {
        let mut content = vec![json!({"type": "text", "text": self.text})];
        for (name, input) in &self.calls {
            content.push(json!({"type": "tool_use", "id": tool_id(), "name": name, "input": input}));
        }
        self.message(content, Some(self.stop_reason()), self.usage.output)
    }

    fn message(&self, content: Vec<Value>, stop_reason: Option<&str>, output: u64) -> Value {
        json!({
            "id": format!("msg_{}", short_id()), "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": stop_reason, "stop_sequence": null, "usage": self.usage_of(output),
        })
    }

    fn usage_of(&self, output: u64) -> Value {
        json!({
            "input_tokens": self.usage.input, "cache_creation_input_tokens": self.usage.cache_write,
            "cache_read_input_tokens": self.usage.cache_read, "output_tokens": output, "service_tier": "standard",
        })
    }

    fn stop_reason(&self) -> &'static str {
        if self.calls.is_empty() { "end_turn" } else { "tool_use" }
    }
}

/// An error's body and headers. `now` is in Unix seconds.
pub(super) fn refuse(refusal: Refusal, now: u64) -> (Value, HeaderMap) {
    let mut headers = HeaderMap::new();
    if let Some(seconds) = refusal.retry_after {
        headers.insert("retry-after", seconds.into());
    }
    if refusal.is_limit {
        headers.insert("anthropic-ratelimit-unified-status", HeaderValue::from_static("rejected"));
        headers.insert("anthropic-ratelimit-unified-reset", (now + 3600).into());
    }
    let error = json!({"type": refusal.kind, "message": refusal.message});
    (json!({"type": "error", "error": error, "request_id": "req_mock"}), headers)
}

/// A call in the words of the tools the agent offered; none where it has no such tool.
fn in_words_of(call: &Call, conversation: &Conversation) -> Option<(String, Value)> {
    let tools = &conversation.tools;
    let command = match call {
        Call::Write { path, content } if tools.contains_key("Write") => {
            let directory = conversation.directory.as_deref().unwrap_or_default();
            let input = json!({"file_path": format!("{}/{path}", directory.trim_end_matches('/')), "content": content});
            return Some(("Write".to_owned(), input));
        }
        Call::Write { path, content } => format!("cat > {path} <<'EOF'\n{content}EOF"),
        Call::Bash(command) => command.clone(),
    };
    let schema = tools.get("Bash")?;
    let mut input = json!({"command": command});
    if schema["properties"].get("description").is_some() {
        input["description"] = "Run a command".into();
    }
    Some(("Bash".to_owned(), input))
}

fn event(value: Value) -> Piece {
    let name = match value["type"].as_str() {
        Some("message_start") => "message_start",
        Some("message_delta") => "message_delta",
        Some("message_stop") => "message_stop",
        Some("content_block_start") => "content_block_start",
        Some("content_block_delta") => "content_block_delta",
        Some("content_block_stop") => "content_block_stop",
        Some("error") => "error",
        _ => "ping",
    };
    Piece::Event(name, value)
}

fn start(index: usize, block: Value) -> Piece {
    event(json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: usize, delta: Value) -> Piece {
    event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop(index: usize) -> Piece {
    event(json!({"type": "content_block_stop", "index": index}))
}

/// Cuts a text into pieces of `size` characters, the first one of `first` where that is not 0.
fn parts(text: &str, first: usize, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let (head, rest) = characters.split_at(first.min(characters.len()));
    let chunks = std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(size));
    chunks.map(|chunk| chunk.iter().collect()).collect()
}

fn tool_id() -> String {
    format!("toolu_{}", short_id())
}

fn short_id() -> String {
    Uuid::new_v4().simple().to_string()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_every_character() {
        assert_eq!(parts("abcdefg", 3, 2), ["abc", "de", "fg"]);
        assert_eq!(parts("✓日本", 0, 2), ["✓日", "本"]);
        assert!(parts("", 0, 12).is_empty());
    }
}
