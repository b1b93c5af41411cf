//! What E2B's answers mean. Messages are those of its public specification and its own clients.

use std::time::Duration;

use serde::Deserialize;

use crate::{net, provider};

/// Why a call came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The machine is not there: it was ended, or never was.
    NotFound,
    /// It is paused already, or on its way from one state to the other.
    Conflict(String),
    /// Asked too often; again after this long.
    RateLimited(Duration),
    /// It will not be done, however often it is asked.
    Refused(Refusal),
    /// Nobody knows: no answer, half of one, or one of somebody in between.
    Unknown(String),
}

/// A no that a person can do something about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub kind: &'static str,
    pub cause: String,
    pub remedy: &'static str,
}

/// The longest words of theirs that are shown.
const WORDS: usize = 300;
/// How long to wait where a limit does not say.
const UNSAID: Duration = Duration::from_secs(1);

/// The body of an error.
#[derive(Debug, Deserialize)]
struct Told {
    /// The SDKs decide by this, and not by the status of the answer.
    code: Option<u16>,
    message: Option<String>,
}

impl Failure {
    pub(super) fn of(error: &reqwest::Error) -> Self {
        Self::Unknown(net::told(error))
    }

    /// An answer that is no success.
    pub(super) fn answered(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let told = serde_json::from_slice::<Told>(body).ok();
        let words = told.as_ref().and_then(|told| told.message.as_deref()).map(|words| net::plain(words, None, WORDS));
        let code = told.as_ref().and_then(|told| told.code).filter(|code| (400..600).contains(code)).unwrap_or(status);
        let Some(words) = words else {
            // Somebody in between: a proxy's page, or nothing.
            return Self::Unknown(format!("HTTP {status}"));
        };
        let refused = |kind, remedy| Self::Refused(Refusal { kind, cause: words.clone(), remedy });
        match code {
            401 | 403 => refused("rejected_key", "Set a key of this account in Settings, under Keys."),
            404 if words.contains("template") => {
                refused("template", "Choose a template of this account in Settings, or build this one.")
            }
            404 => Self::NotFound,
            // The proxy's word for a machine that is ended or paused.
            502 if words.contains("was not found") => Self::NotFound,
            409 => Self::Conflict(words),
            429 if words.contains("maximum number of concurrent") => refused(
                "capacity",
                "Stop or pause another sandbox of this account, or raise its limit; then run again.",
            ),
            429 => {
                Self::RateLimited(retry_after.and_then(|text| text.parse().ok()).map_or(UNSAID, Duration::from_secs))
            }
            400 if words.contains("Timeout cannot be greater") => {
                refused("plan_limit", "Choose a shorter running time, or a plan that allows this one.")
            }
            400..=499 => refused("provider", "Check what was asked for; the message is E2B's."),
            _ => Self::Unknown(words),
        }
    }

    /// Whether asking again may help, and after how long at least.
    pub(super) fn again(&self) -> Option<Duration> {
        match self {
            Self::RateLimited(after) => Some(*after),
            Self::Unknown(_) => Some(Duration::ZERO),
            Self::NotFound | Self::Conflict(_) | Self::Refused(_) => None,
        }
    }
}

impl From<Failure> for provider::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotFound => Self::Gone,
            Failure::Conflict(words) => Self::Unreachable(words),
            Failure::RateLimited(_) => Self::Unreachable("E2B is asked too often".to_owned()),
            Failure::Refused(Refusal { kind, cause, remedy }) => {
                Self::Refused { kind, cause, remedy: remedy.to_owned() }
            }
            Failure::Unknown(words) => Self::Unreachable(format!("E2B could not be reached: {words}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> Failure {
        Failure::answered(status, Some("7"), body.as_bytes())
    }

    #[test]
    fn every_answer_has_its_meaning() {
        let refusal = |failure| match failure {
            Failure::Refused(refusal) => refusal.kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal(answered(401, r#"{"code":401,"message":"Invalid API key format"}"#)), "rejected_key");
        assert_eq!(refusal(answered(404, r#"{"code":404,"message":"template 'x' not found"}"#)), "template");
        let limit = r#"{"code":400,"message":"Timeout cannot be greater than 1 hours"}"#;
        assert_eq!(refusal(answered(400, limit)), "plan_limit");
        let full = r#"{"code":429,"message":"you have reached the maximum number of concurrent E2B sandboxes (20)"}"#;
        assert_eq!(refusal(answered(429, full)), "capacity");
        let often = answered(429, r#"{"code":429,"message":"Rate limit exceeded"}"#);
        assert_eq!(often.again(), Some(Duration::from_secs(7)));
        assert!(matches!(answered(404, r#"{"code":404,"message":"sandbox \"x\" not found"}"#), Failure::NotFound));
        assert!(matches!(answered(502, r#"{"message":"The sandbox was not found"}"#), Failure::NotFound));
        assert!(matches!(answered(409, r#"{"code":409,"message":"still transitioning"}"#), Failure::Conflict(_)));
        assert!(matches!(answered(500, r#"{"code":500,"message":"oops"}"#), Failure::Unknown(_)));
        let page = answered(503, "<html>Service Unavailable</html>");
        assert!(matches!(&page, Failure::Unknown(words) if words == "HTTP 503"));
        assert_eq!(page.again(), Some(Duration::ZERO));
    }
}
