//! What a secret looks like: a mistake of copying is told at once, not by a refused turn.

use super::{CredentialKind, Secret};

/// The shortest that is taken for a whole key, in characters: a real one has about a hundred.
const SHORTEST: usize = 20;

/// Why a text is no such secret. Says nothing of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the field is empty")]
    Empty,
    #[error("there is a blank or a line break inside: was more copied than the key?")]
    Blank,
    #[error("there are characters in it that no key has")]
    Character,
    #[error("it is too short: was only a part of it copied?")]
    TooShort,
    #[error("it does not begin with {0}")]
    Prefix(&'static str),
    #[error("this is an {}: it belongs into that field", name(*.0))]
    OtherKind(CredentialKind),
}

impl CredentialKind {
    /// The secret of this kind that `text` is, blanks around it removed.
    ///
    /// Anthropic's keys begin with `sk-ant-`, a subscription's tokens (`claude setup-token`) with `sk-ant-oat`.
    pub fn check(self, text: &str) -> Result<Secret, Malformed> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Malformed::Empty);
        }
        if text.contains(char::is_whitespace) {
            return Err(Malformed::Blank);
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Malformed::Character);
        }
        let is_token = text.starts_with("sk-ant-oat");
        match self {
            Self::AnthropicKey if is_token => return Err(Malformed::OtherKind(Self::ClaudeOauthToken)),
            Self::AnthropicKey if !text.starts_with("sk-ant-") => return Err(Malformed::Prefix("sk-ant-")),
            Self::ClaudeOauthToken if !is_token && text.starts_with("sk-ant-") => {
                return Err(Malformed::OtherKind(Self::AnthropicKey));
            }
            Self::ClaudeOauthToken if !is_token => return Err(Malformed::Prefix("sk-ant-oat")),
            _ => {}
        }
        if text.len() < SHORTEST {
            return Err(Malformed::TooShort);
        }
        Ok(Secret::new(text))
    }
}

fn name(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::AnthropicKey => "Anthropic API key",
        CredentialKind::ClaudeOauthToken => "OAuth token of a Claude subscription",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_of_copying_are_named() {
        use CredentialKind::{AnthropicKey, ClaudeOauthToken};
        let (key, token) = ("sk-ant-api03-0123456789", "sk-ant-oat01-0123456789");
        for (kind, text, mistake) in [
            (AnthropicKey, " \n", Malformed::Empty),
            (AnthropicKey, "sk-ant-api03-01234 56789", Malformed::Blank),
            (AnthropicKey, "sk-ant-api03-012345\u{200b}6789", Malformed::Character),
            (AnthropicKey, "sk-ant-api03\0-0123456789", Malformed::Character),
            (AnthropicKey, "sk-ant-", Malformed::TooShort),
            (AnthropicKey, "sk-proj-0123456789012345", Malformed::Prefix("sk-ant-")),
            (AnthropicKey, token, Malformed::OtherKind(ClaudeOauthToken)),
            (ClaudeOauthToken, key, Malformed::OtherKind(AnthropicKey)),
            (ClaudeOauthToken, "0123456789012345678901234", Malformed::Prefix("sk-ant-oat")),
        ] {
            assert_eq!(kind.check(text).unwrap_err(), mistake, "{text:?}");
        }
        assert_eq!(AnthropicKey.check(&format!(" {key}\n")).unwrap().expose(), key);
        assert_eq!(ClaudeOauthToken.check(token).unwrap().expose(), token);
        let words = Malformed::OtherKind(ClaudeOauthToken).to_string();
        assert_eq!(words, "this is an OAuth token of a Claude subscription: it belongs into that field");
    }
}
