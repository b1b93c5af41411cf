//! The APIs, and what a writer of one is.

use axum::http::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::{
    answer::{Answer, Beat, Piece},
    anthropic, chat,
    conversation::Conversation,
    responses,
    scenario::{Cause, Refusal},
};

/// A way to ask a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's chat completions, which most others speak too.
    Chat,
}

/// Writes the beats of an answer as events of one API.
pub(super) trait Writer {
    fn write(&mut self, beat: Beat) -> Vec<Piece>;
}

impl Api {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        [("/messages", Api::Messages), ("/responses", Api::Responses), ("/chat/completions", Api::Chat)]
            .into_iter()
            .find_map(|(end, api)| path.ends_with(end).then_some(api))
    }

    pub(super) fn read(self, body: &Value) -> Conversation {
        match self {
            Api::Messages => anthropic::read(body),
            Api::Responses => responses::read(body),
            Api::Chat => chat::read(body),
        }
    }

    /// Where the conversation stands in a body.
    pub(super) fn turns(self, body: &Value) -> &Value {
        match self {
            Api::Messages | Api::Chat => &body["messages"],
            Api::Responses => &body["input"],
        }
    }

    /// How hard the model is asked to think, in the API's own word.
    pub(super) fn effort(self, body: &Value) -> Option<&str> {
        match self {
            Api::Messages => body["output_config"]["effort"].as_str().or_else(|| body["thinking"]["type"].as_str()),
            Api::Responses => body["reasoning"]["effort"].as_str(),
            Api::Chat => body["reasoning_effort"].as_str().or_else(|| body["reasoning"]["effort"].as_str()),
        }
    }

    /// Whether the request asks to see what the model thinks.
    pub(super) fn wants_thoughts(self, body: &Value) -> bool {
        match self {
            Api::Messages => matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive")),
            Api::Responses => body["reasoning"].is_object(),
            Api::Chat => true, // Whoever has thoughts in this API sends them unasked.
        }
    }

    /// Whether the answer says what it consumed.
    pub(super) fn tells_usage(self, body: &Value) -> bool {
        self != Api::Chat || body["stream"] != true || body["stream_options"]["include_usage"] == true
    }

    /// The answer as a stream.
    pub(super) fn stream(self, answer: &Answer) -> Vec<Piece> {
        let mut writer: Box<dyn Writer + '_> = match self {
            Api::Messages => Box::new(anthropic::Messages::new(answer)),
            Api::Responses => Box::new(responses::Responses::new(answer)),
            Api::Chat => Box::new(chat::Chat::new(answer)),
        };
        let beats = answer.beats();
        beats.into_iter().flat_map(|beat| writer.write(beat)).collect()
    }

    /// The answer in one piece.
    pub(super) fn whole(self, answer: &Answer) -> Value {
        match self {
            Api::Messages => anthropic::whole(answer),
            Api::Responses => responses::whole(answer),
            Api::Chat => chat::whole(answer),
        }
    }

    /// What it answers for a cause where a scenario names no status.
    pub(super) fn status(self, cause: Cause) -> u16 {
        match self {
            Api::Messages => anthropic::status(cause),
            Api::Responses | Api::Chat => responses::status(cause),
        }
    }

    /// An error's body and headers. `now` is in Unix seconds.
    pub(super) fn refuse(self, refusal: &Refusal, now: u64) -> (Value, HeaderMap) {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = refusal.retry_after {
            headers.insert("retry-after", seconds.into());
        }
        let body = match self {
            Api::Messages => anthropic::refuse(refusal, now, &mut headers),
            Api::Responses | Api::Chat => responses::refuse(refusal, now, &mut headers),
        };
        (body, headers)
    }

    /// The header that names a request, for support.
    pub(super) fn request_id(self) -> (&'static str, HeaderValue) {
        let name = if self == Api::Messages { "request-id" } else { "x-request-id" };
        (name, HeaderValue::from_static("req_mock"))
    }
}
