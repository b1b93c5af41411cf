//! Whose a model is: agents that know several makers take `maker/model`, and the maker says which key opens it.

use crate::secrets::CredentialKind;

/// The keys that open a model of any maker, the likeliest first.
pub(super) const ANY: [CredentialKind; 4] = [
    CredentialKind::AnthropicKey,
    CredentialKind::OpenaiKey,
    CredentialKind::OpenrouterKey,
    CredentialKind::CompatibleKey,
];

/// The variable that holds the key, or the token that stands for it.
pub(super) const KEY_VARIABLE: &str = "CODECOURIER_MODEL_KEY";

/// The maker before the first slash, where it is one we know, and the model's own name. Names with further slashes are
/// OpenRouter's: `openrouter/openai/gpt-6-sol`.
pub(super) fn split(model: &str) -> (Option<CredentialKind>, &str) {
    let known = model.split_once('/').and_then(|(maker, rest)| Some((of(maker)?, rest)));
    known.map_or((None, model), |(kind, rest)| (Some(kind), rest))
}

/// What opens this maker's models.
fn of(maker: &str) -> Option<CredentialKind> {
    ANY.into_iter().find(|kind| name(*kind) == maker)
}

/// A maker as it stands before the slash.
pub(super) fn name(kind: CredentialKind) -> &'static str {
    match kind {
        CredentialKind::OpenaiKey => "openai",
        CredentialKind::OpenrouterKey => "openrouter",
        CredentialKind::CompatibleKey => "compatible",
        _ => "anthropic",
    }
}

/// The model that is asked for, without its maker; where none was chosen, a good one that this key opens.
pub(super) fn model_of(chosen: Option<&str>, kind: CredentialKind) -> &str {
    match (chosen, kind) {
        (Some(model), _) => split(model).1,
        (None, CredentialKind::OpenaiKey) => "gpt-6.2-sol",
        (None, CredentialKind::OpenrouterKey) => "openai/gpt-6.2-sol",
        // Servers of one model take any name for it.
        (None, CredentialKind::CompatibleKey) => "default",
        (None, _) => "claude-sonnet-5",
    }
}

/// The keys that open this model among those an agent knows; all of them, where its name says nothing.
pub(super) fn opened_by(known: &'static [CredentialKind], model: Option<&str>) -> &'static [CredentialKind] {
    let Some(kind) = model.and_then(|model| split(model).0) else { return known };
    known.iter().position(|one| *one == kind).map_or(known, |index| &known[index..=index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_says_whose_key_opens_it() {
        assert_eq!(split("openai/gpt-6-sol"), (Some(CredentialKind::OpenaiKey), "gpt-6-sol"));
        assert_eq!(split("openrouter/openai/gpt-6-sol"), (Some(CredentialKind::OpenrouterKey), "openai/gpt-6-sol"));
        assert_eq!(split("someone/model"), (None, "someone/model"));
        assert_eq!(split("gpt-6-sol"), (None, "gpt-6-sol"));
        assert_eq!(opened_by(&ANY, Some("compatible/llama")), [CredentialKind::CompatibleKey]);
        assert_eq!(opened_by(&ANY, Some("llama")), ANY);
        assert_eq!(opened_by(&ANY, None), ANY);
        const OTHERS: &[CredentialKind] = &[CredentialKind::OpenaiKey];
        assert_eq!(opened_by(OTHERS, Some("anthropic/opus")), OTHERS, "a maker it does not know");
    }
}
