//! Pi.
//!
//! What is said here about its command line was seen with version 1.6.0: `pi --help`, its own `docs/`, and turns driven
//! against a scripted model. The prompt goes to standard input: there a text of 1 MB arrives whole, and one that begins
//! with `-`, `/`, `@` or `!` is sent to the model as it is. With an empty one it does nothing at all and returns 0.
//!
//! It is a script for Node. Its endpoints stand in a file, which the turn's own process writes in its own HOME: whoever
//! wrote it from outside could be led elsewhere by a link that an earlier turn left there.

mod event;
mod parse;
mod verdict;

use serde_json::{Value, json};

use super::{
    Agent, Cli, Endpoint, EnvValue, Launch, Model, Parser, Process, Session,
    makers::{self, ANY, KEY_VARIABLE},
    page::LinesOf,
};
use crate::{
    model::{AgentKind, Usage},
    secrets::CredentialKind,
};

/// The registry's entry.
#[derive(Debug)]
pub(super) struct Pi;

const CLI: Cli = Cli {
    program: "pi",
    version_argument: "--version",
    // The oldest that was driven: fresh, continued, refused, cut off.
    minimum_version: (0, 87, 1),
    install: "npm install -g @earendil-works/pi-coding-agent@latest",
    native: None,
    node: Some((22, 19, 0)),
};

/// All of them in its own catalogue (`pi --list-models`).
const MODELS: &[Model] = &[
    Model { id: "anthropic/claude-opus-5-5", name: "Claude Opus 5.5" },
    Model { id: "anthropic/claude-sonnet-5", name: "Claude Sonnet 5" },
    Model { id: "anthropic/claude-haiku-5-5", name: "Claude Haiku 5.5" },
    Model { id: "openai/gpt-6.2-sol", name: "GPT-6.2 Sol" },
    Model { id: "openrouter/openai/gpt-6.2-sol", name: "GPT-6.2 Sol by OpenRouter" },
    Model { id: "openrouter/anthropic/claude-sonnet-5", name: "Claude Sonnet 5 by OpenRouter" },
];

/// It neither updates itself nor fetches or reports anything; what Node thinks of its own features is for Pi's makers.
const ENVIRONMENT: [(&str, &str); 4] =
    [("PI_OFFLINE", "1"), ("PI_SKIP_VERSION_CHECK", "1"), ("PI_TELEMETRY", "0"), ("NODE_NO_WARNINGS", "1")];

/// Holds the file of endpoints until it is written.
const ENDPOINTS_VARIABLE: &str = "CODECOURIER_ENDPOINTS";

/// Writes the file of endpoints, and becomes the agent. The folder of sessions is said because a repository may name
/// another, and would be obeyed (`.pi/settings.json`, `sessionDir`): conversations would lie in the work.
const RUN: &str = r#"umask 077
export PI_CODING_AGENT_DIR="$HOME/.pi/agent" PI_CODING_AGENT_SESSION_DIR="$HOME/.pi/agent/sessions"
mkdir -p "$PI_CODING_AGENT_DIR" && printf %s "$CODECOURIER_ENDPOINTS" > "$PI_CODING_AGENT_DIR/models.json" || exit 126
unset CODECOURIER_ENDPOINTS
exec "$@""#;

const OWN: [&str; 24] = [
    "-p",
    "--print",
    "--mode",
    "--provider",
    "--model",
    "--models",
    "--api-key",
    "--thinking",
    "--session",
    "--session-id",
    "--session-dir",
    "--continue",
    "-c",
    "--resume",
    "-r",
    "--fork",
    "--no-session",
    "--export",
    "--list-models",
    "--offline",
    "--help",
    "-h",
    "--version",
    "-v",
];

impl Agent for Pi {
    fn kind(&self) -> AgentKind {
        AgentKind::Pi
    }

    fn name(&self) -> &'static str {
        "Pi"
    }

    fn models(&self) -> &'static [Model] {
        MODELS
    }

    /// None: it depends on the key.
    fn default_model(&self) -> Option<&'static str> {
        None
    }

    fn credentials(&self) -> &'static [CredentialKind] {
        &ANY
    }

    fn credentials_for(&self, model: Option<&str>) -> &'static [CredentialKind] {
        makers::opened_by(&ANY, model)
    }

    fn cli(&self) -> Option<&'static Cli> {
        Some(&CLI)
    }

    fn hosts(&self) -> &'static [&'static str] {
        &["api.anthropic.com", "api.openai.com", "openrouter.ai"]
    }

    /// `pi --help`, `--thinking`. One that a model does not know becomes the next that it does.
    fn efforts(&self) -> &'static [&'static str] {
        &["off", "minimal", "low", "medium", "high", "xhigh", "max"]
    }

    fn own_options(&self) -> &'static [&'static str] {
        &OWN
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let mut argv: Vec<String> = ["/bin/sh", "-c", RUN, "pi"].map(str::to_owned).into();
        argv.extend(launch.interpreter.as_deref().map(|node| node.to_string_lossy().into_owned()));
        argv.push(launch.program.to_string_lossy().into_owned());
        argv.extend(["-p", "--mode", "json"].map(str::to_owned));
        let mut option = |name: &str, value: &str| argv.extend([name.to_owned(), value.to_owned()]);
        let mut env: Vec<_> =
            ENVIRONMENT.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value.to_owned()))).into();
        let mut endpoints = json!({});
        if let Some((kind, value)) = &launch.credential {
            let model = makers::model_of(launch.model, *kind);
            option("--provider", makers::name(*kind));
            option("--model", model);
            endpoints = self::endpoints(*kind, model, launch);
            env.push((KEY_VARIABLE.to_owned(), value.clone()));
        }
        env.push((ENDPOINTS_VARIABLE.to_owned(), EnvValue::Plain(endpoints.to_string())));
        if let Some(effort) = launch.effort {
            option("--thinking", effort);
        }
        match &launch.session {
            Session::Fresh(id) => option("--session-id", id),
            // Where it is gone that is said; `--session-id` would begin another under its name.
            Session::Resume(id) => option("--session", id),
            Session::Continue => argv.push("--continue".to_owned()),
        }
        argv.extend(launch.extra_arguments.iter().cloned());
        Process { argv, env, stdin: launch.prompt.as_bytes().to_vec() }
    }

    fn parser(&self, _before: Option<Usage>) -> Box<dyn Parser> {
        Box::new(LinesOf::new(parse::PiEvents::default()))
    }
}

/// Its file of endpoints (`models.json`): where the provider is, and the variable that holds its key.
///
/// The three makers are providers that Pi knows, so that each model is asked as its maker wants: newer ones of Anthropic
/// refuse a budget for thinking, older ones of OpenAI any thinking at all. Names its catalogue lacks are taken for models
/// like the provider's best. What it must be told:
///
/// - It asks OpenRouter for Anthropic's models with Anthropic's API, at an address without the `/v1` that all others are
///   asked at; described anew, one is asked with the API of the others.
/// - Of a server that a person has set nothing is known. It is asked to think only if the person says so: many refuse it.
fn endpoints(kind: CredentialKind, model: &str, launch: &Launch<'_>) -> Value {
    let own = Endpoint::of(kind).and_then(|endpoint| endpoint.address);
    let mut provider = json!({
        "baseUrl": launch.base_url.or(own).unwrap_or_default(),
        "apiKey": format!("${KEY_VARIABLE}"),
    });
    let described = match kind {
        CredentialKind::AnthropicKey | CredentialKind::OpenaiKey => None,
        CredentialKind::OpenrouterKey => is_anthropics(model).then(|| {
            json!({
                "id": model, "name": model, "reasoning": true, "input": ["text", "image"],
                "contextWindow": 200_000, "maxTokens": 32_000,
            })
        }),
        _ => Some(
            json!({ "id": model, "name": model, "reasoning": launch.effort.is_some_and(|effort| effort != "off") }),
        ),
    };
    if let Some(described) = described {
        provider["api"] = json!("openai-completions");
        provider["models"] = json!([described]);
    }
    json!({ "providers": { makers::name(kind): provider } })
}

/// Whether OpenRouter has it from Anthropic: `anthropic/claude-…`, `~anthropic/claude-opus-latest`.
fn is_anthropics(model: &str) -> bool {
    model.trim_start_matches('~').starts_with("anthropic/")
}

#[cfg(test)]
mod tests;
