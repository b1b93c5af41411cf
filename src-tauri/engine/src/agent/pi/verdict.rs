//! Why Pi failed: what its endpoint told it, as Pi passes it on.

use serde::Deserialize;

use crate::{
    agent::{Failure, page::told},
    model::{ErrorKind, Timestamp},
    transcript::{json::Loose, plausible_epoch},
};

/// `429: {"message":"…","type":"rate_limit_error","code":"…"}`, or a sentence alone.
pub(super) fn failure(text: &str, now: Timestamp) -> Failure {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow, default)]
        message: Loose<'a>,
        #[serde(borrow)]
        error: Option<Inner<'a>>,
        resets_at: Option<f64>,
    }
    #[derive(Deserialize)]
    struct Inner<'a> {
        #[serde(borrow, default)]
        message: Loose<'a>,
        resets_at: Option<f64>,
    }
    let (status, body) = match text.split_once(": ").or_else(|| text.split_once(' ')) {
        Some((status, body)) if status.len() == 3 => (status.parse().ok(), body),
        _ => (None, text),
    };
    let said = serde_json::from_str::<Said<'_>>(body).ok();
    let inner = said.as_ref().and_then(|said| said.error.as_ref());
    let message = inner.and_then(|inner| inner.message.text()).or_else(|| said.as_ref()?.message.text());
    let mut failure = told(status, &body.to_lowercase(), message.as_deref().unwrap_or(body));
    // Node's word for a connection that was cut; a cause is not always told with it.
    if failure.kind == ErrorKind::Other && body.trim() == "terminated" {
        failure.kind = ErrorKind::Network;
    }
    let ends = inner.and_then(|inner| inner.resets_at).or_else(|| said.as_ref()?.resets_at);
    if failure.kind == ErrorKind::RateLimited {
        failure.retry_at = ends.and_then(|seconds| plausible_epoch(seconds, now));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_endpoint_told_is_read_out_of_pis_words() {
        let now = Timestamp::from_millis(1_796_000_000_000);
        let limit = r#"429: {"message":"Used up.","type":"usage_limit_reached","resets_at":1796003600}"#;
        let quota = r#"429: {"message":"Nothing left.","code":"insufficient_quota"}"#;
        let anthropic = r#"401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
        for (text, kind, message) in [
            (limit, ErrorKind::RateLimited, "Used up."),
            (quota, ErrorKind::Billing, "Nothing left."),
            (anthropic, ErrorKind::RejectedKey, "invalid x-api-key"),
            ("terminated", ErrorKind::Network, "terminated"),
            ("terminated: other side closed", ErrorKind::Network, "terminated: other side closed"),
            ("Something else", ErrorKind::Other, "Something else"),
        ] {
            let told = failure(text, now);
            assert_eq!((told.kind, &*told.message), (kind, message));
            let end = (text == limit).then(|| Timestamp::from_millis(1_796_003_600_000));
            assert_eq!(told.retry_at, end, "{text}");
        }
    }
}
