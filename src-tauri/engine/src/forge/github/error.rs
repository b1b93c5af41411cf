//! Why GitHub did not do what it was asked: causes told apart, each with its remedy.

use std::{fmt, time::Duration};

use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde::Deserialize;

use crate::{
    model::{Timestamp, word},
    net,
    secrets::Secret,
};

/// How much of a refusal is read, in bytes.
pub(super) const SAID: usize = 16 * 1024;

/// How much of its words is kept.
const KEPT: usize = 2_000;

/// How long to wait where GitHub does not say: what its pages advise.
const UNTOLD: Duration = Duration::from_secs(60);

word! {
    /// What was in the way. Codes are stored.
    Reason {
        TokenRefused = "token_refused", SignOn = "sign_on", Scope = "scope", NoAccess = "no_access",
        NothingToPropose = "nothing_to_propose", AlreadyExists = "already_exists", NoBranch = "no_branch",
        NoDrafts = "no_drafts", Archived = "archived", Gone = "gone", Moved = "moved", Invalid = "invalid",
        RateLimited = "rate_limited", ServerFailed = "server_failed", Unreachable = "unreachable", Tls = "tls",
        TimedOut = "timed_out", Unreadable = "unreadable",
    }
}

impl Reason {
    /// The cause, to be read after "could not make the pull request: ".
    fn cause(self) -> &'static str {
        match self {
            Self::TokenRefused => "GitHub refused the token: it has expired, was revoked, or is incomplete",
            Self::SignOn => "the organisation wants the token authorised for its single sign-on",
            Self::Scope => "the token may not do this",
            Self::NoAccess => "there is no such repository, or the token may not see it",
            Self::NothingToPropose => "the branch has no commit that its base does not have",
            Self::AlreadyExists => "there is a pull request for this branch already",
            Self::NoBranch => "GitHub does not have the branch",
            Self::NoDrafts => "this repository has no draft pull requests",
            Self::Archived => "the repository is archived and read-only",
            Self::Gone => "the repository is disabled",
            Self::Moved => "the repository moved",
            Self::Invalid => "GitHub does not take it as it is",
            Self::RateLimited => "GitHub asks to wait",
            Self::ServerFailed => "GitHub failed",
            Self::Unreachable => "GitHub cannot be reached",
            Self::Tls => "GitHub did not prove who it is",
            Self::TimedOut => "GitHub did not answer in time",
            Self::Unreadable => "what answers is not GitHub's API",
        }
    }

    /// What a person can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::TokenRefused => "Make a new token and store it under Keys",
            Self::SignOn => {
                "Open the link, or the token's settings on GitHub under \"Configure SSO\", and authorise it"
            }
            Self::Scope => "Give the token the scope \"repo\" (fine-grained: Pull requests, read and write)",
            Self::NoAccess => "Check the address, and that the token is for this repository",
            Self::NothingToPropose => "Nothing is lost: all its commits are in the base branch",
            Self::AlreadyExists => "Try again: the one that is there is used",
            Self::NoBranch => "Push the branch first",
            Self::NoDrafts => "Make it without the draft option",
            Self::Archived => "Ask an owner to unarchive the repository",
            Self::Gone => "Ask GitHub's support, or the owner, why",
            Self::Moved => "Check that the new address is the same project's, and make the project anew with it",
            Self::Invalid => "Change what GitHub's words name, then try again",
            Self::RateLimited => "It is tried again by itself once the time is over",
            Self::ServerFailed => "It is tried again by itself; githubstatus.com says more",
            Self::Unreachable => "Check the network and the proxy; it is tried again by itself",
            Self::Tls => "Check the date of this machine, and whether a proxy stands between that it does not trust",
            Self::TimedOut => "It is tried again by itself; one that was made all the same is found then",
            Self::Unreadable => {
                "Check the enterprise host in the settings; a sign-in page of the network may stand between"
            }
        }
    }

    /// Whether trying again without changing anything can help.
    pub fn is_passing(self) -> bool {
        use Reason as R;
        matches!(
            self,
            R::RateLimited | R::ServerFailed | R::Unreachable | R::TimedOut | R::Unreadable | R::AlreadyExists
        )
    }
}

/// Until when a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    For(Duration),
    Until(Timestamp),
}

impl Wait {
    /// When to ask again, of an answer that came `now`. A clock that goes wrong costs an hour at most.
    pub fn end(self, now: Timestamp) -> Timestamp {
        const LONGEST: Duration = Duration::from_secs(3600);
        let longest = now + LONGEST;
        match self {
            Self::For(wait) => now + wait.min(LONGEST),
            Self::Until(end) => end.max(now + Duration::from_secs(1)).min(longest),
        }
    }
}

/// GitHub's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub reason: Reason,
    pub status: Option<u16>,
    /// What it answered: plain text, bounded, without the token.
    pub said: String,
    /// Of a limit.
    pub wait: Option<Wait>,
    /// Where a person settles it, on the host that answered.
    pub link: Option<String>,
}

/// GitHub's own words for what went wrong.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Words {
    message: String,
    errors: Vec<serde_json::Value>,
}

impl Error {
    pub(super) fn new(reason: Reason, said: impl Into<String>) -> Self {
        Self { reason, status: None, said: said.into(), wait: None, link: None }
    }

    /// By an answer that is no success.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap, body: &[u8], token: &Secret) -> Self {
        let words: Words = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<u64>().ok());
        let details: Vec<String> = words.errors.iter().map(detail).collect();
        let said = net::plain(&[&[words.message], details.as_slice()].concat().join("\n"), Some(token), KEPT);
        let low = said.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| low.contains(word));

        let is_limit = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::FORBIDDEN
                && (number("x-ratelimit-remaining") == Some(0)
                    || headers.contains_key(RETRY_AFTER)
                    || has(&["rate limit", "abuse detection"])));
        // An answer of one host sends nobody to another with the token's name on it.
        let link =
            text("x-github-sso").and_then(|value| value.split_once("url=")).map(|(_, url)| url.trim().to_owned());
        let link = link.filter(|url| url.starts_with("https://"));
        let reason = match status.as_u16() {
            _ if is_limit => Reason::RateLimited,
            401 => Reason::TokenRefused,
            403 if link.is_some() || has(&["saml"]) => Reason::SignOn,
            403 if has(&["archived"]) => Reason::Archived,
            403 => Reason::Scope,
            404 => Reason::NoAccess,
            410 => Reason::Gone,
            422 if has(&["no commits between"]) => Reason::NothingToPropose,
            422 if has(&["already exists"]) => Reason::AlreadyExists,
            422 if has(&["draft pull requests are not supported"]) => Reason::NoDrafts,
            422 if has(&["head: invalid", "base: invalid"]) => Reason::NoBranch,
            422 | 400 => Reason::Invalid,
            300..=399 => Reason::Moved,
            500..=599 => Reason::ServerFailed,
            _ => Reason::Unreadable,
        };
        let wait = is_limit.then(|| match (number("retry-after"), number("x-ratelimit-reset")) {
            (Some(seconds), _) => Wait::For(Duration::from_secs(seconds.min(86_400))),
            (None, Some(reset)) if number("x-ratelimit-remaining") == Some(0) => {
                Wait::Until(Timestamp::from_millis(i64::try_from(reset).unwrap_or(0).saturating_mul(1000)))
            }
            _ => Wait::For(UNTOLD),
        });
        Self { reason, status: Some(status.as_u16()), said, wait, link }
    }

    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        self.reason.remedy()
    }
}

/// One entry of `errors`: an object or, in places, a text.
fn detail(error: &serde_json::Value) -> String {
    let text = |name: &str| error[name].as_str();
    match (text("message"), text("field"), text("code"), error.as_str()) {
        (Some(message), ..) | (None, None, None, Some(message)) => message.to_owned(),
        (None, Some(field), Some(code), _) => format!("{field}: {code}"),
        _ => String::new(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.cause())?;
        match (self.status, self.said.as_str()) {
            (None, "") => Ok(()),
            (None, said) => write!(f, ": {said}"),
            (Some(status), "") => write!(f, " (status {status})"),
            (Some(status), said) => write!(f, " (status {status}): {said}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Error {
        let headers = headers.iter().map(|(name, value)| {
            (reqwest::header::HeaderName::from_static(name), reqwest::header::HeaderValue::from_static(value))
        });
        let token = Secret::new("ghp_canary0123456789");
        Error::of(StatusCode::from_u16(status).unwrap(), &headers.collect(), body.as_bytes(), &token)
    }

    #[test]
    fn refusals_are_told_apart() {
        let invalid = |message: &str| {
            format!(
                r#"{{"message":"Validation Failed","errors":[{{"resource":"PullRequest","code":"custom","message":"{message}"}}]}}"#
            )
        };
        for (status, body, reason) in [
            (401, r#"{"message":"Bad credentials"}"#.to_owned(), Reason::TokenRefused),
            (403, r#"{"message":"Resource not accessible by personal access token"}"#.to_owned(), Reason::Scope),
            (403, r#"{"message":"Repository was archived so is read-only."}"#.to_owned(), Reason::Archived),
            (403, r#"{"message":"Resource protected by organization SAML enforcement."}"#.to_owned(), Reason::SignOn),
            (404, r#"{"message":"Not Found"}"#.to_owned(), Reason::NoAccess),
            (410, "{}".to_owned(), Reason::Gone),
            (422, invalid("No commits between main and x"), Reason::NothingToPropose),
            (422, invalid("A pull request already exists for o:x."), Reason::AlreadyExists),
            (422, invalid("Draft pull requests are not supported in this repository."), Reason::NoDrafts),
            (422, r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"head","code":"invalid"}]}"#.to_owned(), Reason::NoBranch),
            (422, r#"{"message":"Validation Failed","errors":["as a text"]}"#.to_owned(), Reason::Invalid),
            (502, "<html>Unicorn</html>".to_owned(), Reason::ServerFailed),
            (301, "{}".to_owned(), Reason::Moved),
            (418, "not JSON".to_owned(), Reason::Unreadable),
        ] {
            assert_eq!(of(status, &[], &body).reason, reason, "{status} {body}");
        }
    }

    #[test]
    fn limits_say_until_when() {
        let now = Timestamp::from_millis(1_000_000);
        let primary = of(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1300")], "{}");
        assert_eq!(primary.reason, Reason::RateLimited);
        assert_eq!(primary.wait.unwrap().end(now), Timestamp::from_millis(1_300_000));
        let secondary = of(
            403,
            &[("retry-after", "90"), ("x-ratelimit-remaining", "4000")],
            r#"{"message":"You have exceeded a secondary rate limit"}"#,
        );
        assert_eq!(secondary.wait, Some(Wait::For(Duration::from_secs(90))));
        let untold = of(
            403,
            &[("x-ratelimit-remaining", "9")],
            r#"{"message":"You have triggered an abuse detection mechanism."}"#,
        );
        assert_eq!(untold.wait, Some(Wait::For(UNTOLD)));
        assert_eq!(of(429, &[], "{}").reason, Reason::RateLimited);
        let far = Wait::Until(Timestamp::from_millis(i64::MAX / 2)).end(now);
        assert_eq!(far, Timestamp::from_millis(4_600_000), "a wrong clock costs an hour");
        assert!(Wait::Until(Timestamp::from_millis(0)).end(now) > now, "a limit that is over is not asked in a circle");
    }

    #[test]
    fn a_link_to_sign_on_is_kept_and_a_token_is_not() {
        let error = of(
            403,
            &[("x-github-sso", "required; url=https://github.com/orgs/o/sso?authorization_request=A")],
            r#"{"message":"ghp_canary0123456789 no"}"#,
        );
        assert_eq!(error.reason, Reason::SignOn);
        assert_eq!(error.link.as_deref(), Some("https://github.com/orgs/o/sso?authorization_request=A"));
        assert!(!format!("{error:?} {error}").contains("canary"));
        let odd = of(403, &[("x-github-sso", "required; url=javascript:alert(1)")], "{}");
        assert_eq!((odd.reason, odd.link), (Reason::Scope, None));
    }
}
