//! Reads one turn of OpenCode.
//!
//! The traps, all seen: no event says the end; a call is told only when it is done, and one that returned 3 is "completed";
//! tokens are per step, their input without what came from the cache and their output without the reasoning; an error is
//! told twice; its own retries are silent, except that a step begins anew where an answer broke off; an answer that was cut
//! short at the model's limit, and a call nobody was there to allow, both end the turn with exit code 0.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::tool::State;
use crate::{
    agent::{
        Exit, Failure,
        page::{Events, Page, told},
    },
    model::{ErrorKind, Timestamp, Usage},
    transcript::{
        json::{Loose, Str},
        one_line, plausible_epoch,
    },
};

#[derive(Debug, Default)]
pub(super) struct OpenCodeEvents {
    /// One row per step, the last report of it counts.
    steps: BTreeMap<String, Usage>,
    /// Whether the last step was the answer's last.
    is_finished: bool,
    failure: Option<Failure>,
    /// It failed once and went on: then it returns 1, however well it ends.
    has_recovered: bool,
    /// Whether the last answer was longer than the model may write.
    is_cut_short: bool,
    /// The message whose step has begun and not ended.
    open_step: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow, rename = "sessionID")]
    session: Option<Str<'a>>,
    /// Milliseconds since 1970.
    #[serde(default)]
    timestamp: Option<f64>,
    #[serde(borrow)]
    part: Option<Part<'a>>,
    #[serde(borrow)]
    error: Option<Told<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    id: Loose<'a>,
    #[serde(borrow, default, rename = "messageID")]
    message_id: Loose<'a>,
    #[serde(borrow, default)]
    text: Loose<'a>,
    #[serde(borrow, default)]
    tool: Loose<'a>,
    #[serde(borrow, default, rename = "callID")]
    call_id: Loose<'a>,
    #[serde(borrow)]
    state: Option<State<'a>>,
    #[serde(borrow, default)]
    reason: Loose<'a>,
    tokens: Option<Tokens>,
    synthetic: Option<bool>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    total: Option<u64>,
    input: u64,
    output: u64,
    reasoning: u64,
    cache: Cache,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Cache {
    read: u64,
    write: u64,
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    name: Loose<'a>,
    #[serde(borrow)]
    data: Option<Data<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    #[serde(borrow, default)]
    message: Loose<'a>,
    status_code: Option<u16>,
    #[serde(borrow, default)]
    response_body: Loose<'a>,
    #[serde(borrow, default)]
    response_headers: Loose<'a>,
}

#[derive(Deserialize)]
struct Headers<'a> {
    #[serde(borrow, rename = "retry-after")]
    retry_after: Option<Str<'a>>,
}

/// What a body may say about a limit's end, in seconds since 1970.
#[derive(Deserialize)]
struct Body {
    error: Limit,
}

#[derive(Deserialize)]
struct Limit {
    resets_at: Option<f64>,
}

impl OpenCodeEvents {
    fn begin_step(&mut self, part: &Part<'_>, page: &mut Page) {
        (self.is_finished, self.is_cut_short) = (false, false);
        if let Some(earlier) = self.failure.take() {
            self.has_recovered = true;
            page.warn(earlier.message);
        }
        let message = part.message_id.text().filter(|id| !id.is_empty());
        if message.is_some() && message.as_deref() == self.open_step.as_deref() {
            page.retry("The model's answer broke off. Trying again.".to_owned(), None);
        }
        self.open_step = message.map(std::borrow::Cow::into_owned);
        page.doing = Some("thinks");
    }

    fn finish_step(&mut self, part: &Part<'_>) {
        let id = part.id.text().unwrap_or_default().into_owned();
        if let Some(tokens) = part.tokens {
            self.steps.insert(id, tokens.usage());
        }
        let reason = part.reason.text().unwrap_or_default();
        (self.is_finished, self.is_cut_short) = (reason != "tool-calls", reason == "length");
        self.open_step = None;
    }

    fn use_tool(&mut self, part: &Part<'_>, page: &mut Page) -> bool {
        let (Some(state), Some(id), Some(name)) = (&part.state, part.call_id.text(), part.tool.text()) else {
            return false;
        };
        state.show(&id, &name, page);
        if state.is_refused() {
            let message = format!("OpenCode asked whether it may use \"{name}\", and nobody is there to be asked");
            self.failure = Some(Failure { kind: ErrorKind::Permission, message, retry_at: None });
        }
        true
    }
}

impl Events for OpenCodeEvents {
    fn name(&self) -> &'static str {
        "OpenCode"
    }

    fn line(&mut self, line: &str, page: &mut Page) -> bool {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return false };
        if let Some(session) = &line.session {
            page.session = Some(session.to_string());
        }
        let Some(part) = &line.part else {
            let Some(error) = line.error.filter(|_| &*line.kind == "error") else { return false };
            self.failure = Some(error.failure(line.timestamp, page.now));
            return true;
        };
        match &*line.kind {
            "step_start" => self.begin_step(part, page),
            // Its own words to the model, about a conversation it has summarised.
            "text" if part.synthetic == Some(true) => page.warn(one_line(&part.text.text().unwrap_or_default())),
            "text" => page.text(&part.text.text().unwrap_or_default()),
            "reasoning" => page.thinking(&part.text.text().unwrap_or_default()),
            "tool_use" => return self.use_tool(part, page),
            "step_finish" => self.finish_step(part),
            _ => return false,
        }
        true
    }

    fn usage(&self) -> Option<Usage> {
        self.steps.values().copied().reduce(|sum, step| sum.plus(&step))
    }

    fn concluded(&mut self, exit: Exit) -> Option<Result<(), Failure>> {
        match (self.failure.take(), exit) {
            (Some(failure), _) => Some(Err(failure)),
            (None, Exit::Code(_)) if self.is_cut_short => {
                let message = "the answer was longer than the model may write".to_owned();
                Some(Err(Failure { kind: ErrorKind::LimitReached, message, retry_at: None }))
            }
            (None, Exit::Code(code)) if self.is_finished && (code == 0 || self.has_recovered) => Some(Ok(())),
            _ => None,
        }
    }
}

impl Tokens {
    fn usage(self) -> Usage {
        let usage = Usage {
            input: self.input,
            output: self.output.saturating_add(self.reasoning),
            cache_write: self.cache.write,
            cache_read: self.cache.read,
        };
        let parts = [usage.input, usage.output, usage.cache_write, usage.cache_read];
        let sum = parts.into_iter().fold(0, u64::saturating_add);
        if let Some(total) = self.total.filter(|total| *total != sum) {
            tracing::warn!(total, sum, "OpenCode's step has another total than its parts");
        }
        usage
    }
}

impl Told<'_> {
    fn failure(&self, at: Option<f64>, now: Timestamp) -> Failure {
        let name = self.name.text().unwrap_or_default();
        let Some(data) = &self.data else { return told(None, &name, &name) };
        let message = data.message.text().unwrap_or_default();
        // The body has the endpoint's own code where the message is only a sentence.
        let code = format!("{name} {}", data.response_body.text().unwrap_or_default().to_lowercase());
        let mut failure = told(data.status_code, &code, &message);
        match &*name {
            "ContextOverflowError" => failure.kind = ErrorKind::ContextTooLong,
            "ProviderAuthError" if data.status_code.is_none() => failure.kind = ErrorKind::RejectedKey,
            "MessageAbortedError" => failure.kind = ErrorKind::Interrupted,
            _ => {}
        }
        if failure.kind == ErrorKind::RateLimited {
            failure.retry_at = data.limit_ends(at).and_then(|millis| plausible_epoch(millis, now));
        }
        failure
    }
}

impl Data<'_> {
    /// When the limit ends, in milliseconds since 1970: as the body says, else so long after the event of `at` as the answer
    /// said.
    fn limit_ends(&self, at: Option<f64>) -> Option<f64> {
        let body = self.response_body.text();
        let told = body.and_then(|body| serde_json::from_str::<Body>(&body).ok()?.error.resets_at);
        if let Some(seconds) = told {
            return Some(seconds * 1000.0);
        }
        let wait: f64 = self.response_headers.read::<Headers<'_>>()?.retry_after?.trim().parse().ok()?;
        Some(at? + wait * 1000.0)
    }
}
