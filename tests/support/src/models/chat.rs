//! OpenAI's chat completions API, with thoughts as those who run open models send them (`reasoning_content`).

use serde_json::{Value, json};

use super::{
    answer::{Answer, Beat, Part, Piece, id},
    api::Writer,
    conversation::{Conversation, Entry, text_of},
    responses,
    tools::Tool,
};

pub(super) fn read(body: &Value) -> Conversation {
    let tools = body["tools"].as_array().into_iter().flatten().filter_map(|tool| {
        let function = &tool["function"];
        Some((function["name"].as_str()?.to_owned(), Tool { schema: function["parameters"].clone(), is_free: false }))
    });
    let entries = body["messages"].as_array().into_iter().flatten().filter_map(|message| {
        let has_calls = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        match message["role"].as_str()? {
            "user" => Some(Entry::User { text: text_of(&message["content"]), answers_a_tool: false }),
            "assistant" if has_calls => Some(Entry::Calls),
            _ => None,
        }
    });
    Conversation::new(body, tools.collect(), entries)
}

/// Writes an answer as a stream.
pub(super) struct Chat<'a> {
    answer: &'a Answer,
    id: String,
    created: u64,
}

impl<'a> Chat<'a> {
    pub(super) fn new(answer: &'a Answer) -> Self {
        Chat { answer, id: id("chatcmpl"), created: super::server::unix_seconds() }
    }

    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.answer.model, "choices": choices,
            "service_tier": "default", "system_fingerprint": "fp_mock",
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Piece {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        let mut chunk = self.object("chat.completion.chunk", json!([choice]));
        if self.answer.tells_usage {
            chunk["usage"] = Value::Null;
        }
        Piece::data(&chunk)
    }

    /// The last chunk but the mark of the end, for who asked for it.
    fn usage(&self) -> Option<Piece> {
        let mut chunk = self.object("chat.completion.chunk", json!([]));
        chunk["usage"] = usage(self.answer);
        self.answer.tells_usage.then(|| Piece::data(&chunk))
    }
}

impl Writer for Chat<'_> {
    fn write(&mut self, beat: Beat) -> Vec<Piece> {
        match beat {
            Beat::Begin => vec![self.chunk(&json!({"role": "assistant", "content": "", "refusal": null}), None)],
            Beat::Thought(Part::Piece(piece)) => vec![self.chunk(&json!({"reasoning_content": piece}), None)],
            Beat::Text(Part::Piece(piece)) => vec![self.chunk(&json!({"content": piece}), None)],
            Beat::Thought(_) | Beat::Text(_) | Beat::Call(_, Part::Ends) => vec![],
            Beat::Call(index, Part::Begins) => {
                let function = json!({"name": self.answer.calls[index].name, "arguments": ""});
                let call = json!({"index": index, "id": id("call"), "type": "function", "function": function});
                vec![self.chunk(&json!({"tool_calls": [call]}), None)]
            }
            Beat::Call(index, Part::Piece(piece)) => {
                let call = json!({"index": index, "function": {"arguments": piece}});
                vec![self.chunk(&json!({"tool_calls": [call]}), None)]
            }
            Beat::End => {
                let mut pieces = vec![self.chunk(&json!({}), Some(finish_reason(self.answer)))];
                pieces.extend(self.usage());
                pieces.push(Piece::data(&"[DONE]"));
                pieces
            }
            Beat::Fail(cause) => {
                let (kind, code, message) = responses::words(cause);
                let error = json!({"message": message, "type": kind, "param": null, "code": code});
                vec![Piece::data(&json!({"error": error}))]
            }
            Beat::Break => vec![Piece::Break],
            Beat::Silence => vec![Piece::Silence],
        }
    }
}

/// The answer in one piece, for a request that asked for no stream.
pub(super) fn whole(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null, "annotations": []});
    let calls = answer.calls.iter().map(|call| {
        json!({"id": id("call"), "type": "function", "function": {"name": call.name, "arguments": call.written()}})
    });
    if !answer.calls.is_empty() {
        message["tool_calls"] = calls.collect();
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)});
    let mut completion = Chat::new(answer).object("chat.completion", json!([choice]));
    completion["usage"] = usage(answer);
    completion
}

fn usage(answer: &Answer) -> Value {
    let usage = answer.usage;
    json!({
        "prompt_tokens": usage.all_input(),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.all_input() + usage.output,
    })
}

fn finish_reason(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}
