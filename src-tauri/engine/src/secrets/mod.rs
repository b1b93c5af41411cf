//! Keys: where they live and how they are kept out of everything else.
//!
//! A secret comes in once, is checked ([`CredentialKind::check`]), and lives in the operating system's keychain
//! ([`Keychain`]) or, where there is none, in memory until the application ends ([`SessionOnly`]). Never in a file.

mod keychain;
mod redact;
mod session;
mod shape;

use std::fmt;

pub use keychain::Keychain;
pub(crate) use redact::TextRedactor;
pub use session::SessionOnly;
pub use shape::Malformed;
pub(crate) use shape::looks_secret;

use crate::model::word;

word! {
    /// A secret a person can store.
    ///
    /// The compatible key is the one of a model server that speaks OpenAI's API, at the address of the settings; such a
    /// server on the own machine may need none.
    ///
    /// The E2B key makes machines; no agent names it either, and no machine ever holds it.
    ///
    /// The GitHub tokens are the app's own, for pushing and for pull requests: no agent names them, and none ever enters a
    /// sandbox. The first is for github.com alone, the second for the GitHub Enterprise host of the settings.
    CredentialKind {
        AnthropicKey = "anthropic_key", ClaudeOauthToken = "claude_oauth_token", OpenaiKey = "openai_key",
        OpenrouterKey = "openrouter_key", CompatibleKey = "compatible_key",
        GithubToken = "github_token", GithubEnterpriseToken = "github_enterprise_token",
        E2bKey = "e2b_key",
    }
}

impl CredentialKind {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AnthropicKey => "Anthropic key",
            Self::ClaudeOauthToken => "Claude subscription token",
            Self::OpenaiKey => "OpenAI key",
            Self::OpenrouterKey => "OpenRouter key",
            Self::CompatibleKey => "OpenAI-compatible key",
            Self::GithubToken => "GitHub token",
            Self::GithubEnterpriseToken => "GitHub Enterprise token",
            Self::E2bKey => "E2B key",
        }
    }

    /// Whether it opens a forge, and no model.
    pub fn is_of_forge(self) -> bool {
        matches!(self, Self::GithubToken | Self::GithubEnterpriseToken)
    }
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

/// Why a secret could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no keychain to ask. `remedy` says how to get one.
    #[error("no keychain answers ({reason}). {remedy}")]
    NoKeychain { reason: String, remedy: &'static str },
    /// The keychain is there, but locked, or the person did not let us in.
    #[error("the keychain is locked ({reason}). Unlock it and try again")]
    Locked { reason: String },
    /// No such secret was stored.
    #[error("no {0} is stored")]
    NotFound(CredentialKind),
    /// The keychain failed in another way.
    #[error("the keychain failed: {0}")]
    Failed(String),
}

/// Where secrets are kept. The methods block (a keychain may ask the person): call them from `spawn_blocking`.
pub trait Secrets: Send + Sync + fmt::Debug {
    /// The stored secret, or [`Error::NotFound`].
    fn get(&self, kind: CredentialKind) -> Result<Secret, Error>;

    /// Stores a secret in the place of the one before.
    fn set(&self, kind: CredentialKind, secret: &Secret) -> Result<(), Error>;

    /// Removes a secret. One that is not there is removed already.
    fn remove(&self, kind: CredentialKind) -> Result<(), Error>;
}
