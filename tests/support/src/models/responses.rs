//! OpenAI's Responses API, and the errors both of OpenAI's APIs have in common.

use axum::http::HeaderMap;
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
        let name = tool["name"].as_str().or_else(|| tool["type"].as_str())?;
        Some((name.to_owned(), Tool { schema: tool["parameters"].clone(), is_free: tool["type"] == "custom" }))
    });
    let is_call = |item: &Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call"));
    let mut was_call = false;
    let entries = body["input"].as_array().into_iter().flatten().filter_map(|item| {
        // Several calls of one answer follow one another.
        let is_first = is_call(item) && !was_call;
        was_call = is_call(item);
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("message", Some("user")) => Some(Entry::User { text: text_of(&item["content"]), answers_a_tool: false }),
            _ => is_first.then_some(Entry::Calls),
        }
    });
    let said = body["input"].as_str().map(|text| Entry::User { text: text.to_owned(), answers_a_tool: false });
    Conversation::new(body, tools.collect(), said.into_iter().chain(entries))
}

/// Writes an answer as a stream.
pub(super) struct Responses<'a> {
    answer: &'a Answer,
    response: Value,
    /// The item that is being made, as it will be when it is whole.
    item: Value,
    /// The items that are whole.
    output: Vec<Value>,
    sequence: u64,
}

impl<'a> Responses<'a> {
    pub(super) fn new(answer: &'a Answer) -> Self {
        let response = json!({
            "id": id("resp"), "object": "response", "created_at": super::server::unix_seconds(),
            "status": "in_progress", "background": false, "error": null, "incomplete_details": null,
            "instructions": null, "max_output_tokens": null, "metadata": {}, "model": answer.model, "output": [],
            "parallel_tool_calls": true, "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
            "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": null, "user": null,
        });
        Responses { answer, response, item: Value::Null, output: Vec::new(), sequence: 0 }
    }

    /// An event with its number.
    fn event(&mut self, kind: &str, mut fields: Value) -> Piece {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        Piece::named(&fields)
    }

    /// An event about the item that is being made.
    fn about(&mut self, kind: &str, mut fields: Value) -> Piece {
        fields["item_id"] = self.item["id"].clone();
        fields["output_index"] = self.output.len().into();
        self.event(kind, fields)
    }

    /// An event about the response as a whole.
    fn response(&mut self, status: &str) -> Piece {
        self.response["status"] = status.into();
        let fields = json!({"response": self.response});
        self.event(&format!("response.{status}"), fields)
    }

    /// Begins an item. `whole` is what it will be, `empty` what it is until then.
    fn begin(&mut self, whole: Value, empty: &Value) -> Piece {
        let mut item = whole.clone();
        for (name, value) in empty.as_object().into_iter().flatten() {
            item[name] = value.clone();
        }
        self.item = whole;
        let fields = json!({"output_index": self.output.len(), "item": item});
        self.event("response.output_item.added", fields)
    }

    fn end(&mut self) -> Piece {
        let fields = json!({"output_index": self.output.len(), "item": self.item});
        let piece = self.event("response.output_item.done", fields);
        self.output.push(self.item.take());
        piece
    }

    fn thought(&mut self, part: Part) -> Vec<Piece> {
        let text = self.answer.thought.unwrap_or_default();
        let summary = json!({"type": "summary_text", "text": text});
        match part {
            Part::Begins => {
                let whole =
                    json!({"id": id("rs"), "type": "reasoning", "summary": [summary], "encrypted_content": "ZW5j"});
                let part = json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
                let begun = self.begin(whole, &json!({"summary": [], "encrypted_content": null}));
                vec![begun, self.about("response.reasoning_summary_part.added", part)]
            }
            Part::Piece(piece) => {
                let fields = json!({"summary_index": 0, "delta": piece});
                vec![self.about("response.reasoning_summary_text.delta", fields)]
            }
            Part::Ends => vec![
                self.about("response.reasoning_summary_text.done", json!({"summary_index": 0, "text": text})),
                self.about("response.reasoning_summary_part.done", json!({"summary_index": 0, "part": summary})),
                self.end(),
            ],
        }
    }

    fn text(&mut self, part: Part) -> Vec<Piece> {
        let text = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        match part {
            Part::Begins => {
                let content = [text(&self.answer.text)];
                let whole = json!({
                    "id": id("msg"), "type": "message", "role": "assistant", "status": "completed", "content": content,
                });
                let part = json!({"content_index": 0, "part": text("")});
                let begun = self.begin(whole, &json!({"status": "in_progress", "content": []}));
                vec![begun, self.about("response.content_part.added", part)]
            }
            Part::Piece(piece) => {
                let fields = json!({"content_index": 0, "delta": piece, "logprobs": []});
                vec![self.about("response.output_text.delta", fields)]
            }
            Part::Ends => {
                let whole = &self.answer.text;
                let done = json!({"content_index": 0, "text": whole, "logprobs": []});
                vec![
                    self.about("response.output_text.done", done),
                    self.about("response.content_part.done", json!({"content_index": 0, "part": text(whole)})),
                    self.end(),
                ]
            }
        }
    }

    fn call(&mut self, index: usize, part: Part) -> Vec<Piece> {
        let call = &self.answer.calls[index];
        // Two kinds of tools, and each has a word of its own for everything.
        let (kind, id_kind, input, event) = match call.is_free {
            true => ("custom_tool_call", "ctc", "input", "response.custom_tool_call_input"),
            false => ("function_call", "fc", "arguments", "response.function_call_arguments"),
        };
        match part {
            Part::Begins => {
                let whole = json!({
                    "id": id(id_kind), "type": kind, "status": "completed", "call_id": id("call"), "name": call.name,
                    input: call.written(),
                });
                vec![self.begin(whole, &json!({"status": "in_progress", input: ""}))]
            }
            Part::Piece(piece) => vec![self.about(&format!("{event}.delta"), json!({"delta": piece}))],
            Part::Ends => {
                let mut fields = json!({input: call.written()});
                if !call.is_free {
                    fields["name"] = call.name.clone().into();
                }
                vec![self.about(&format!("{event}.done"), fields), self.end()]
            }
        }
    }
}

impl Writer for Responses<'_> {
    fn write(&mut self, beat: Beat) -> Vec<Piece> {
        match beat {
            Beat::Begin => {
                let created = json!({"response": self.response});
                vec![self.event("response.created", created), self.response("in_progress")]
            }
            Beat::Thought(part) => self.thought(part),
            Beat::Text(part) => self.text(part),
            Beat::Call(index, part) => self.call(index, part),
            Beat::End => {
                self.response["output"] = std::mem::take(&mut self.output).into();
                self.response["usage"] = usage(self.answer);
                vec![self.response("completed")]
            }
            Beat::Fail(cause) => {
                let (_, code, message) = words(cause);
                self.response["error"] = json!({"code": code.unwrap_or("server_error"), "message": message});
                vec![self.response("failed")]
            }
            Beat::Break => vec![Piece::Break],
            Beat::Silence => vec![Piece::Silence],
        }
    }
}

/// The answer in one piece: what a stream ends with.
pub(super) fn whole(answer: &Answer) -> Value {
    let mut writer = Responses::new(answer);
    for beat in answer.beats() {
        writer.write(beat);
    }
    writer.response
}

fn usage(answer: &Answer) -> Value {
    let usage = answer.usage;
    json!({
        "input_tokens": usage.all_input(),
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.all_input() + usage.output,
    })
}

/// An error's body; what belongs into `headers` is put there.
pub(super) fn refuse(refusal: &Refusal, now: u64, headers: &mut HeaderMap) -> Value {
    let (kind, code, message) = words(refusal.cause);
    let mut error = json!({"message": message, "type": kind, "param": null, "code": code});
    if refusal.cause == Cause::UsageLimit {
        let seconds = refusal.retry_after.unwrap_or_default();
        error["plan_type"] = "plus".into();
        error["resets_at"] = (now + seconds).into();
        error["resets_in_seconds"] = seconds.into();
        headers.insert("x-codex-primary-used-percent", 100.into());
        headers.insert("x-codex-primary-window-minutes", 300.into());
        headers.insert("x-codex-primary-reset-at", (now + seconds).into());
    }
    json!({"error": error})
}

/// What the API answers where a scenario names no status.
pub(super) fn status(cause: Cause) -> u16 {
    match cause {
        Cause::Key => 401,
        Cause::Permission => 403,
        Cause::TooLong => 400,
        Cause::RateLimit | Cause::UsageLimit | Cause::Quota => 429,
        Cause::Overload => 503,
        Cause::Fault => 500,
    }
}

/// An error's type, code and message.
pub(super) fn words(cause: Cause) -> (&'static str, Option<&'static str>, &'static str) {
    match cause {
        Cause::Key => (
            "invalid_request_error",
            Some("invalid_api_key"),
            "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys.",
        ),
        Cause::Permission => (
            "invalid_request_error",
            Some("model_not_found"),
            "Project `proj_mock` does not have access to this model.",
        ),
        Cause::TooLong => (
            "invalid_request_error",
            Some("context_length_exceeded"),
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
        ),
        Cause::RateLimit => (
            "tokens",
            Some("rate_limit_exceeded"),
            "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 1s.",
        ),
        Cause::UsageLimit => ("usage_limit_reached", None, "The usage limit has been reached"),
        Cause::Quota => (
            "insufficient_quota",
            Some("insufficient_quota"),
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        Cause::Overload => (
            "server_error",
            Some("server_is_overloaded"),
            "Our servers are currently overloaded. Please try again later.",
        ),
        Cause::Fault => {
            ("server_error", None, "The server had an error while processing your request. Sorry about that!")
        }
    }
}
