//! Keys: where they live and how they are kept out of everything else.

mod redact;

use std::fmt;

pub(crate) use redact::TextRedactor;

use crate::model::word;

word! {
    /// A secret a person can store.
    CredentialKind { AnthropicKey = "anthropic_key", ClaudeOauthToken = "claude_oauth_token" }
}

/// A secret value. Its `Debug` says only that it is one.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value that must not be printed.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself; every use of this is a place to review.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The last four characters, which is all of it that is ever shown; nothing of a secret shorter than twelve.
    pub fn last_four(&self) -> String {
        let count = self.0.chars().count();
        if count < 12 { String::new() } else { self.0.chars().skip(count - 4).collect() }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
