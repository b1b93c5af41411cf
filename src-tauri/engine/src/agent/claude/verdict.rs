//! How a turn of Claude Code ended, told from everything it said.
//!
//! The traps, all seen: an endpoint's error is a `result` with subtype "success" and `is_error`; a missing permission
//! exits 0; an interruption by a control request or SIGINT exits 0; a connection that was never made is called
//! `server_error`; SIGTERM leaves no result at all.

use crate::{
    agent::{Exit, Failure, failure},
    model::{ErrorKind, Timestamp},
    transcript::{
        json::{Loose, Str},
        plausible_epoch,
    },
};

use super::event::{Line, RateLimit};

const NAME: &str = "Claude Code";

/// What was said about how the turn goes.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The last result: `Some(None)` a success. A turn has several when background work wakes the agent again.
    concluded: Option<Option<Failure>>,
    /// The agent works again after its last result.
    reopened: bool,
    /// What the last failure of the model's endpoint was.
    endpoint: Option<Endpoint>,
    /// The agent noted that a person interrupted it.
    interrupted: bool,
    /// When the limit ends that a request ran into.
    limit_ends: Option<Timestamp>,
    /// Tasks in the background.
    background: Vec<String>,
}

#[derive(Debug)]
struct Endpoint {
    status: Option<u16>,
    code: String,
    text: String,
}

impl Endpoint {
    fn kind(&self, no_key: bool) -> Option<ErrorKind> {
        if no_key && self.status.is_none() && self.code.contains("authentication_failed") {
            return Some(ErrorKind::MissingKey);
        }
        if self.code.contains("max_output_tokens") {
            return Some(ErrorKind::LimitReached);
        }
        failure::Evidence { status: self.status, code: &self.code, text: &self.text }.kind()
    }
}

impl Said {
    /// The agent works (again). Gives the failure its last result told of, once.
    pub fn reopened(&mut self) -> Option<Failure> {
        self.reopened = self.concluded.is_some();
        self.concluded.as_mut().and_then(Option::take)
    }

    /// A message the agent made up because its model's endpoint failed.
    pub fn endpoint_failed(&mut self, line: &Line<'_>, text: &str, now: Timestamp) {
        let codes = [line.error, line.api_error_type, line.api_error].map(|code| code.text().unwrap_or_default());
        self.rate_limit(line.rate_limit_info, now);
        self.endpoint = Some(Endpoint { status: line.api_error_status, code: codes.join(" "), text: text.to_owned() });
    }

    /// Text in a message of role `user`.
    pub fn user(&mut self, text: &str) {
        self.interrupted |= text.starts_with("[Request interrupted by user");
    }

    /// Remembers when a limit ends; gives words where the person should know.
    pub fn rate_limit(&mut self, info: Loose<'_>, now: Timestamp) -> Option<(&'static str, Option<Timestamp>)> {
        let limit: RateLimit<'_> = info.read()?;
        let ends = limit.resets_at.and_then(|seconds| plausible_epoch(seconds, now));
        match &*limit.status {
            "rejected" => {
                self.limit_ends = ends;
                Some(("The usage limit is reached.", ends))
            }
            "allowed_warning" => Some(("The usage limit is nearly reached.", ends)),
            _ => None,
        }
    }

    /// A task goes on in the background.
    pub fn remember_background(&mut self, task: String) {
        self.background.push(task);
    }

    /// A task has ended; whether it was in the background.
    pub fn forget_background(&mut self, task: &str) -> bool {
        let before = self.background.len();
        self.background.retain(|known| known != task);
        self.background.len() < before
    }

    /// Reads a result.
    pub fn conclude(&mut self, line: &Line<'_>, no_key: bool, now: Timestamp) {
        let subtype = line.subtype.as_deref().unwrap_or_default();
        let failed = line.is_error || subtype.starts_with("error");
        let failure = failed.then(|| self.failure(line, subtype, no_key, now));
        (self.endpoint, self.interrupted, self.reopened) = (None, false, false);
        self.concluded = Some(failure);
    }

    /// What the last result said: `Some(None)` is a success; `None`: there is no result, or the agent went on after it.
    pub fn concluded(&mut self) -> Option<Option<Failure>> {
        if self.reopened { None } else { self.concluded.take() }
    }

    fn failure(&self, line: &Line<'_>, subtype: &str, no_key: bool, now: Timestamp) -> Failure {
        let reason = line.terminal_reason.as_deref().unwrap_or_default();
        let errors = line.errors.read::<Vec<Str<'_>>>().unwrap_or_default();
        // Its notes to its own developers are no words for a person.
        let errors = errors.iter().map(|error| &**error).filter(|error| !error.starts_with("[ede_diagnostic]"));
        let mut text = line.result.text().unwrap_or_default().into_owned();
        for error in errors {
            text = if text.is_empty() { error.to_owned() } else { format!("{text}\n{error}") };
        }
        let codes = [line.error, line.api_error_type, line.api_error].map(|code| code.text().unwrap_or_default());
        let mut said = Endpoint { status: line.api_error_status, code: codes.join(" "), text };
        if let Some(endpoint) = &self.endpoint {
            said.status = said.status.or(endpoint.status);
            said.code = format!("{} {}", said.code, endpoint.code);
            if said.text.is_empty() {
                said.text.clone_from(&endpoint.text);
            }
        }
        let kind = match (subtype, reason) {
            ("error_max_turns" | "error_max_budget_usd", _) | (_, "max_turns" | "budget_exhausted") => {
                ErrorKind::LimitReached
            }
            (_, "prompt_too_long") => ErrorKind::ContextTooLong,
            (_, reason) if reason.starts_with("aborted") => ErrorKind::Interrupted,
            ("error_during_execution", _) if self.interrupted => ErrorKind::Interrupted,
            _ => said.kind(no_key).unwrap_or(ErrorKind::Other),
        };
        let retry_at = if kind == ErrorKind::RateLimited {
            self.limit_ends.or_else(|| {
                // An older wording: "Claude AI usage limit reached|1760000400".
                let (_, seconds) = said.text.rsplit_once('|')?;
                plausible_epoch(seconds.trim().parse().ok()?, now)
            })
        } else {
            None
        };
        let message = match (kind, said.text.is_empty()) {
            (ErrorKind::Interrupted, _) => format!("{NAME} was interrupted"),
            (_, true) => format!("{NAME} failed without saying why ({subtype})"),
            (_, false) => said.text,
        };
        Failure { kind, message, retry_at }
    }

    /// Why there is no result.
    pub fn unconcluded(&self, exit: Exit, interrupted: bool, begun: bool, no_key: bool, stderr: &str) -> Failure {
        let (kind, message) = failure::of_exit(NAME, exit, interrupted || self.interrupted);
        let failure = |kind, message| Failure { kind, message, retry_at: None };
        if kind == ErrorKind::Interrupted {
            return failure(kind, message);
        }
        if let Some(endpoint) = &self.endpoint
            && let Some(kind) = endpoint.kind(no_key)
        {
            return failure(kind, endpoint.text.clone());
        }
        match (stderr.is_empty(), begun, kind) {
            (true, ..) => failure(kind, message),
            // It refused to begin, and said why.
            (false, false, ErrorKind::Crashed) if matches!(exit, Exit::Code(1..=125)) => {
                let said = failure::Evidence { status: None, code: "", text: stderr };
                failure(said.kind().unwrap_or(ErrorKind::Other), stderr.to_owned())
            }
            _ => failure(kind, format!("{message}:\n{stderr}")),
        }
    }
}

/// What a retry under way says to the person, and when it is due.
pub(super) fn retry(line: &Line<'_>, at: Timestamp) -> (String, Option<Timestamp>) {
    let code = line.error.text().unwrap_or_default();
    let status = line.error_status.map(|status| format!(" ({status})")).unwrap_or_default();
    let kind = failure::Evidence { status: line.error_status, code: &code, text: "" }.kind();
    let what = match kind {
        Some(ErrorKind::RejectedKey | ErrorKind::MissingKey) => "The key was refused",
        Some(ErrorKind::RateLimited) => "The rate limit is reached",
        Some(ErrorKind::Overloaded) if line.error_status == Some(529) => "The model is overloaded",
        // Said by whoever stands before the service: the gateway most of all.
        Some(ErrorKind::Overloaded) if matches!(line.error_status, Some(502 | 504)) => {
            "The model's service could not be reached"
        }
        Some(ErrorKind::Overloaded) => "The model's service failed",
        _ if line.error_status.is_none() => "The model's service could not be reached",
        _ => "The model's service refused the request",
    };
    let attempt = match (line.attempt, line.max_retries) {
        (Some(attempt), Some(most)) => format!(" (attempt {attempt} of {most})"),
        _ => String::new(),
    };
    // A day is more than any wait; what is longer is a mistake of units.
    let delay = line.retry_delay_ms.filter(|delay| (0.0..=86_400_000.0).contains(delay));
    let wait = delay.map(|delay| format!(" in {:.1} s", delay / 1000.0)).unwrap_or_default();
    let due = delay.map(|delay| at + std::time::Duration::from_millis(delay as u64));
    (format!("{what}{status}. Trying again{wait}{attempt}."), due)
}
