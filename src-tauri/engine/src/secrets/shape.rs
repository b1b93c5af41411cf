//! What a secret looks like: a mistake of copying is told at once, not by a refused turn.

use super::{CredentialKind, Secret};

/// The shortest that is taken for a whole key, in characters: a real one has about a hundred.
const SHORTEST: usize = 20;

/// How GitHub's tokens begin: of a person (classic, fine-grained), of an OAuth app, of an app for a person, of an app.
/// `ghr_` is none of them: it only gets new ones.
pub(crate) const GITHUB: [&str; 5] = ["ghp_", "github_pat_", "gho_", "ghu_", "ghs_"];

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
    #[error("it looks like another one, {}: it belongs into that field", .0.name())]
    OtherKind(CredentialKind),
}

impl CredentialKind {
    /// The secret of this kind that `text` is, blanks around it removed.
    ///
    /// Anthropic's keys begin with `sk-ant-`, a subscription's tokens (`claude setup-token`) with `sk-ant-oat`, OpenRouter's
    /// keys with `sk-or-`, OpenAI's with `sk-` alone, GitHub's with one of [`GITHUB`]; its old ones are 40 hexadecimal digits.
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
        if self == Self::CompatibleKey {
            return Ok(Secret::new(text)); // Whoever runs a server of their own gives it the keys they like.
        }
        match looks_like(text) {
            Some(kind) if kind == self || (kind.is_of_forge() && self.is_of_forge()) => {}
            Some(other) => return Err(Malformed::OtherKind(other)),
            None => return Err(Malformed::Prefix(self.prefix())),
        }
        if text.len() < SHORTEST {
            return Err(Malformed::TooShort);
        }
        Ok(Secret::new(text))
    }

    /// How it begins, in words.
    fn prefix(self) -> &'static str {
        match self {
            Self::AnthropicKey => "sk-ant-",
            Self::ClaudeOauthToken => "sk-ant-oat",
            Self::OpenaiKey | Self::CompatibleKey => "sk-",
            Self::OpenrouterKey => "sk-or-",
            Self::GithubToken | Self::GithubEnterpriseToken => "ghp_ or github_pat_",
            Self::E2bKey => "e2b_",
        }
    }
}

/// Whose key a text is, by how it begins.
fn looks_like(text: &str) -> Option<CredentialKind> {
    use CredentialKind as K;
    const BEGINNINGS: [(&str, K); 5] = [
        ("e2b_", K::E2bKey),
        ("sk-ant-oat", K::ClaudeOauthToken),
        ("sk-ant-", K::AnthropicKey),
        ("sk-or-", K::OpenrouterKey),
        ("sk-", K::OpenaiKey),
    ];
    if is_github(text) {
        return Some(K::GithubToken);
    }
    BEGINNINGS.iter().find(|(beginning, _)| text.starts_with(beginning)).map(|(_, kind)| *kind)
}

/// Whether a word looks like a key or token of the usual makers, known to us or not: such a word is never published.
pub(crate) fn looks_secret(word: &str) -> bool {
    const PREFIXES: [&str; 18] = [
        "e2b_", "sk-", "ghr_", "glpat-", "gldt-", "xoxb-", "xoxp-", "xoxa-", "xapp-", "npm_", "pypi-", "dop_v1_",
        "hf_", "AKIA", "ASIA", "AIza", "rk_live_", "sk_live_",
    ];
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let is_known = PREFIXES.iter().chain(&GITHUB).any(|prefix| word.starts_with(prefix));
    // A signed token: three parts, of which the first two are JSON in base 64.
    let is_signed = word.starts_with("eyJ") && word.split('.').count() == 3 && word.contains(".eyJ");
    is_word && word.len() >= SHORTEST && ((is_known && has_digit) || is_signed)
}

/// Whether GitHub could have made this token.
fn is_github(text: &str) -> bool {
    let is_old = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_old || GITHUB.iter().any(|prefix| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_told_from_words() {
        for secret in [
            "sk-ant-api03-0123456789abc",
            "ghp_0123456789abcdefghij",
            "AKIA0123456789ABCDEF",
            "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
            "glpat-0123456789abcdefghij",
        ] {
            assert!(looks_secret(secret), "{secret}");
        }
        for word in [
            "sk-learn",
            "ghp_",
            "npm_config_registry_setting",
            "a-plain-but-rather-long-word-1",
            "hf_hub_download_files",
        ] {
            assert!(!looks_secret(word), "{word}");
        }
    }

    #[test]
    fn mistakes_of_copying_are_named() {
        use CredentialKind::{
            AnthropicKey, ClaudeOauthToken, CompatibleKey, GithubEnterpriseToken, GithubToken, OpenaiKey, OpenrouterKey,
        };
        let (key, token) = ("sk-ant-api03-0123456789", "sk-ant-oat01-0123456789");
        for (kind, text, mistake) in [
            (AnthropicKey, " \n", Malformed::Empty),
            (AnthropicKey, "sk-ant-api03-01234 56789", Malformed::Blank),
            (AnthropicKey, "sk-ant-api03-012345\u{200b}6789", Malformed::Character),
            (AnthropicKey, "sk-ant-api03\0-0123456789", Malformed::Character),
            (AnthropicKey, "sk-ant-", Malformed::TooShort),
            (AnthropicKey, "sk-proj-0123456789012345", Malformed::OtherKind(OpenaiKey)),
            (AnthropicKey, "proj-0123456789012345", Malformed::Prefix("sk-ant-")),
            (OpenaiKey, key, Malformed::OtherKind(AnthropicKey)),
            (OpenaiKey, "sk-or-v1-0123456789012345", Malformed::OtherKind(OpenrouterKey)),
            (OpenrouterKey, "sk-proj-0123456789012345", Malformed::OtherKind(OpenaiKey)),
            (CompatibleKey, " ", Malformed::Empty),
            (AnthropicKey, token, Malformed::OtherKind(ClaudeOauthToken)),
            (ClaudeOauthToken, key, Malformed::OtherKind(AnthropicKey)),
            (ClaudeOauthToken, "0123456789012345678901234", Malformed::Prefix("sk-ant-oat")),
            (GithubToken, key, Malformed::OtherKind(AnthropicKey)),
            (GithubEnterpriseToken, token, Malformed::OtherKind(ClaudeOauthToken)),
            (GithubToken, "ghp_0123", Malformed::TooShort),
            (GithubToken, "ghr_0123456789012345678901234567", Malformed::Prefix("ghp_ or github_pat_")),
            (GithubToken, "0123456789abcdef", Malformed::Prefix("ghp_ or github_pat_")),
        ] {
            assert_eq!(kind.check(text).unwrap_err(), mistake, "{text:?}");
        }
        assert_eq!(AnthropicKey.check(&format!(" {key}\n")).unwrap().expose(), key);
        assert_eq!(ClaudeOauthToken.check(token).unwrap().expose(), token);
        for text in [
            "ghp_0123456789abcdefghij",
            "github_pat_0123456789_abc",
            "gho_0123456789abcdefghij",
            "ghs_0123456789abcdefghij",
            "0123456789abcdef0123456789ABCDEF01234567",
        ] {
            for kind in [GithubToken, GithubEnterpriseToken] {
                assert_eq!(kind.check(text).unwrap().expose(), text);
            }
        }
        let words = Malformed::OtherKind(ClaudeOauthToken).to_string();
        assert_eq!(words, "it looks like another one, Claude subscription token: it belongs into that field");
        assert_eq!(CompatibleKey.check("ollama").unwrap().expose(), "ollama");
        assert_eq!(OpenaiKey.check("sk-proj-0123456789012345").unwrap().expose(), "sk-proj-0123456789012345");
    }
}
