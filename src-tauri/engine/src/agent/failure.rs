//! Why a turn failed: what agents have in common when they say so.
//!
//! Each agent words its failures differently, but underneath are the same answers of the same endpoints: an HTTP
//! status, the endpoint's code for it, a sentence. An exit code alone never decides; it is only asked when nothing
//! was said.

use super::Exit;
use crate::model::ErrorKind;

/// What an agent told about the failure of its model's endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence<'a> {
    /// The HTTP status.
    pub status: Option<u16>,
    /// The agent's or the endpoint's code: `rate_limit`, `authentication_error`, …
    pub code: &'a str,
    /// The sentence for the person.
    pub text: &'a str,
}

impl Evidence<'_> {
    /// What kind of failure this is; `None` where nothing known was said.
    pub fn kind(self) -> Option<ErrorKind> {
        let text = self.text.to_lowercase();
        let said = |words: &[&str]| words.iter().any(|word| text.contains(word) || self.code.contains(word));
        // Codex's, which goes on to say where more could be bought.
        if said(&["hit your usage limit"]) {
            return Some(ErrorKind::RateLimited);
        }
        // Sentences first where one status has several meanings: an empty account answers 400, 402 or 429.
        if said(&[
            "credit balance",
            "insufficient_quota",
            "billing",
            "payment required",
            "purchase more credits",
            "quota exceeded",
        ]) {
            return Some(ErrorKind::Billing);
        }
        if said(&[
            "prompt is too long",
            "prompt_too_long",
            "context_length_exceeded",
            "context window",
            "too many tokens",
        ]) {
            return Some(ErrorKind::ContextTooLong);
        }
        if said(&[
            "no conversation found",
            "session not found",
            "no session found",
            "session found in different project",
        ]) {
            return Some(ErrorKind::SessionNotFound);
        }
        // The gateway's words: it answers in the model's place, with the status of a failing service.
        if said(&["codecourier could not reach"]) {
            return Some(ErrorKind::Network);
        }
        if self.status.is_none() && said(&["not logged in", "no api key", "missing api key", "api key not found"]) {
            return Some(ErrorKind::MissingKey);
        }
        match self.status {
            Some(401) => return Some(ErrorKind::RejectedKey),
            Some(402) => return Some(ErrorKind::Billing),
            Some(403) => return Some(ErrorKind::Permission),
            Some(413) => return Some(ErrorKind::ContextTooLong),
            Some(429) => return Some(ErrorKind::RateLimited),
            Some(500..=599) => return Some(ErrorKind::Overloaded),
            _ => {}
        }
        if said(&["rate_limit", "rate limit", "usage limit reached", "hit your"]) {
            return Some(ErrorKind::RateLimited);
        }
        if said(&["authentication", "invalid api key", "unauthorized", "run /login"]) {
            return Some(ErrorKind::RejectedKey);
        }
        // Before the codes for a failing service: a connection that never came to be is reported under them too.
        if said(&NETWORK) {
            return Some(ErrorKind::Network);
        }
        if said(&["overloaded", "server_error", "internal server error", "at capacity", "high demand"]) {
            return Some(ErrorKind::Overloaded);
        }
        if said(&["permission_error", "permission_denied", "not_allowed", "forbidden"]) {
            return Some(ErrorKind::Permission);
        }
        None
    }
}

/// What agents, their HTTP libraries and the operating system say when the endpoint cannot be reached.
const NETWORK: [&str; 22] = [
    "connection_failed",
    "econnrefused",
    "econnreset",
    "etimedout",
    "enotfound",
    "eai_again",
    "epipe",
    "connection refused",
    "connection lost",
    "connection reset",
    "connection error",
    "connection closed",
    "socket hang up",
    "unable to connect",
    "fetch failed",
    "stream disconnected",
    "error sending request",
    "network error",
    "other side closed",
    "idle timeout",
    "body timeout",
    "terminated: ",
];

/// How a process ended that said nothing decisive itself, in words and as a kind.
pub(crate) fn of_exit(name: &str, exit: Exit, interrupted: bool) -> (ErrorKind, String) {
    if interrupted {
        return (ErrorKind::Interrupted, format!("{name} was interrupted"));
    }
    match exit {
        Exit::Unknown => (ErrorKind::Interrupted, format!("{name} went away, and nobody saw how")),
        Exit::Signal(signal) => of_signal(name, signal),
        // The shell's and many programs' way to say that a signal ended them.
        Exit::Code(code @ 129..=159) => of_signal(name, code - 128),
        Exit::Code(127) => {
            let words = "was not found in the sandbox (exit code 127); if it was updated since, run the sandbox again";
            (ErrorKind::MissingCli, format!("{name} {words}"))
        }
        Exit::Code(126) => (ErrorKind::MissingCli, format!("{name} could not be executed (exit code 126)")),
        Exit::Code(code) => {
            (ErrorKind::Crashed, format!("{name} ended without finishing its answer (exit code {code})"))
        }
    }
}

/// A signal that asks a program to end came from somebody; the others are a crash, or the kernel short of memory.
fn of_signal(name: &str, signal: i32) -> (ErrorKind, String) {
    let (kind, by) = match signal {
        1 => (ErrorKind::Interrupted, " (HUP)"),
        2 => (ErrorKind::Interrupted, " (INT)"),
        15 => (ErrorKind::Interrupted, " (TERM)"),
        6 => (ErrorKind::Crashed, " (ABRT)"),
        9 => (ErrorKind::Crashed, " (KILL): was the machine short of memory?"),
        11 => (ErrorKind::Crashed, " (SEGV)"),
        _ => (ErrorKind::Crashed, ""),
    };
    (kind, format!("{name} was ended by signal {signal}{by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_endpoints_say_is_told_apart() {
        use ErrorKind as K;
        let cases = [
            (Some(401), "authentication_failed", "Invalid API key", Some(K::RejectedKey)),
            (None, "authentication_failed", "Not logged in · Please run /login", Some(K::MissingKey)),
            (Some(401), "authentication_failed", "OAuth token expired · Please run /login", Some(K::RejectedKey)),
            (Some(403), "permission_error", "Your organization has been disabled.", Some(K::Permission)),
            (Some(400), "invalid_request", "Credit balance is too low", Some(K::Billing)),
            (Some(429), "insufficient_quota", "You exceeded your current quota", Some(K::Billing)),
            (Some(429), "rate_limit", "This request would exceed your rate limit.", Some(K::RateLimited)),
            (None, "rate_limit", "You've hit your session limit · resets 3pm", Some(K::RateLimited)),
            (Some(529), "server_error", "529 Overloaded", Some(K::Overloaded)),
            (
                Some(400),
                "invalid_request",
                "prompt is too long: 250000 tokens > 200000 maximum",
                Some(K::ContextTooLong),
            ),
            (None, "server_error", "Connection refused (ECONNREFUSED)", Some(K::Network)),
            (None, "server_error", "connection_failed", Some(K::Network)),
            (
                Some(502),
                "server_error",
                "API Error: 502 CodeCourier could not reach api.anthropic.com: Connection refused",
                Some(K::Network),
            ),
            (Some(502), "server_error", "Bad gateway", Some(K::Overloaded)),
            (None, "", "No conversation found with session ID: 1", Some(K::SessionNotFound)),
            (None, "", "No session found matching '1'", Some(K::SessionNotFound)),
            (None, "", "Session found in different project: /elsewhere", Some(K::SessionNotFound)),
            (Some(404), "not_found_error", "model: no-such-model", None),
            (None, "", "error: unknown option '--x'", None),
        ];
        for (status, code, text, kind) in cases {
            assert_eq!(Evidence { status, code, text }.kind(), kind, "{status:?} {code} {text}");
        }
    }

    #[test]
    fn an_end_without_words_is_told_by_its_signal() {
        let kind = |exit, interrupted| of_exit("It", exit, interrupted).0;
        assert_eq!(kind(Exit::Code(0), false), ErrorKind::Crashed);
        assert_eq!(kind(Exit::Code(0), true), ErrorKind::Interrupted);
        assert_eq!(kind(Exit::Code(143), false), ErrorKind::Interrupted);
        assert_eq!(kind(Exit::Signal(15), false), ErrorKind::Interrupted);
        assert_eq!(kind(Exit::Signal(9), false), ErrorKind::Crashed);
        assert_eq!(kind(Exit::Signal(9), true), ErrorKind::Interrupted);
        assert_eq!(kind(Exit::Code(127), false), ErrorKind::MissingCli);
        assert_eq!(kind(Exit::Unknown, false), ErrorKind::Interrupted);
    }
}
