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
    let ends = inner.and_then(|inner| inner.resets_at).or_else(|| said.as_ref()?.resets_at);
    if failure.kind == ErrorKind::RateLimited {
        failure.retry_at = ends.and_then(|seconds| plausible_epoch(seconds, now));
    }
    failure
}
