//! Anthropic's Messages API.

use axum::http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::{
    answer::{Answer, Beat, Part, Piece, id},
    api::Writer,
    conversation::{Conversation, Entry, text_of},
    scenario::{Cause, Refusal},
    tools::Tool,
};

pub(super) fn read(body: &Value) -> Conversation {
    let tools = body["tools"].as_array().into_iter().flatten().filter_map(|tool| {
        Some((tool["name"].as_str()?.to_owned(), Tool { schema: tool["input_schema"].clone(), is_free: false }))
    });
    let entries = body["messages"].as_array().into_iter().flatten().filter_map(|message| {
        let content = &message["content"];
        if message["role"] == "user" {
            return Some(Entry::User { text: text_of(content), answers_a_tool: has_block(content, "tool_result") });
        }
        has_block(content, "tool_use").then_some(Entry::Calls)
    });
    Conversation::new(body, tools.collect(), entries)
}

fn has_block(content: &Value, kind: &str) -> bool {
    content.as_array().is_some_and(|blocks| blocks.iter().any(|block| block["type"] == kind))
}

/// Writes an answer as a stream.
pub(super) struct Messages<'a> {
    answer: &'a Answer,
    /// The block that is open, or the next one.
    index: usize,
}

impl<'a> Messages<'a> {
    pub(super) fn new(answer: &'a Answer) -> Self {
        Messages { answer, index: 0 }
    }

    fn block(&mut self, part: Part, block: &Value, delta: impl Fn(String) -> Value) -> Vec<Value> {
        let index = self.index;
        vec![match part {
            Part::Begins => json!({"type": "content_block_start", "index": index, "content_block": block}),
            Part::Piece(piece) => json!({"type": "content_block_delta", "index": index, "delta": delta(piece)}),
            Part::Ends => {
                self.index += 1;
                json!({"type": "content_block_stop", "index": index})
            }
        }]
    }
}

impl Writer for Messages<'_> {
    fn write(&mut self, beat: Beat) -> Vec<Piece> {
        let answer = self.answer;
        let events = match beat {
            Beat::Begin => vec![json!({"type": "message_start", "message": message(answer, &[], None)})],
            Beat::Thought(part) => {
                let index = self.index;
                let is_end = part == Part::Ends;
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                let mut events = self.block(part, &block, |text| json!({"type": "thinking_delta", "thinking": text}));
                if is_end {
                    let signature = json!({"type": "signature_delta", "signature": "c2ln"});
                    events.insert(0, json!({"type": "content_block_delta", "index": index, "delta": signature}));
                }
                events
            }
            Beat::Text(part) => {
                let is_begin = part == Part::Begins;
                let block = json!({"type": "text", "text": ""});
                let mut events = self.block(part, &block, |text| json!({"type": "text_delta", "text": text}));
                if is_begin {
                    events.push(json!({"type": "ping"}));
                }
                events
            }
            Beat::Call(call, part) => {
                let block =
                    json!({"type": "tool_use", "id": id("toolu"), "name": answer.calls[call].name, "input": {}});
                self.block(part, &block, |text| json!({"type": "input_json_delta", "partial_json": text}))
            }
            Beat::End => vec![
                json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
                    "usage": usage(answer, true),
                }),
                json!({"type": "message_stop"}),
            ],
            Beat::Fail(cause) => vec![error(cause)],
            Beat::Break => return vec![Piece::Break],
            Beat::Silence => return vec![Piece::Silence],
        };
        events.iter().map(Piece::named).collect()
    }
}

/// The answer in one piece, for a request that asked for no stream.
pub(super) fn whole(answer: &Answer) -> Value {
    let mut content = vec![json!({"type": "text", "text": answer.text})];
    content.extend(
        answer
            .calls
            .iter()
            .map(|call| json!({"type": "tool_use", "id": id("toolu"), "name": call.name, "input": call.input})),
    );
    message(answer, &content, Some(stop_reason(answer)))
}

/// A message that has ended for a reason, or has just begun.
fn message(answer: &Answer, content: &[Value], stop_reason: Option<&str>) -> Value {
    json!({
        "id": id("msg"), "type": "message", "role": "assistant", "model": answer.model, "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": usage(answer, stop_reason.is_some()),
    })
}

fn usage(answer: &Answer, is_whole: bool) -> Value {
    let usage = answer.usage;
    json!({
        "input_tokens": usage.input, "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read, "output_tokens": if is_whole { usage.output } else { 1 },
        "output_tokens_details": {"thinking_tokens": if is_whole { usage.reasoning } else { 0 }},
        "service_tier": "standard",
    })
}

fn stop_reason(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "end_turn" } else { "tool_use" }
}

/// An error's body; what belongs into `headers` is put there.
pub(super) fn refuse(refusal: &Refusal, now: u64, headers: &mut HeaderMap) -> Value {
    if refusal.cause == Cause::UsageLimit {
        headers.insert("anthropic-ratelimit-unified-status", HeaderValue::from_static("rejected"));
        headers.insert("anthropic-ratelimit-unified-reset", (now + refusal.retry_after.unwrap_or_default()).into());
    }
    let mut error = error(refusal.cause);
    error["request_id"] = "req_mock".into();
    error
}

/// What the API answers where a scenario names no status.
pub(super) fn status(cause: Cause) -> u16 {
    match cause {
        Cause::Key => 401,
        Cause::Permission => 403,
        Cause::TooLong | Cause::Quota => 400,
        Cause::RateLimit | Cause::UsageLimit => 429,
        Cause::Overload => 529,
        Cause::Fault => 500,
    }
}

fn error(cause: Cause) -> Value {
    let (kind, message) = match cause {
        Cause::Key => ("authentication_error", "invalid x-api-key"),
        Cause::Permission => ("permission_error", "Your organization has been disabled."),
        Cause::TooLong => ("invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
        Cause::RateLimit | Cause::UsageLimit => ("rate_limit_error", "This request would exceed your rate limit."),
        Cause::Quota => (
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        ),
        Cause::Overload => ("overloaded_error", "Overloaded"),
        Cause::Fault => ("api_error", "Internal server error"),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}
