//! Pi.
//!
//! What is said here about its command line was seen with version 1.6.0: `pi --help`, and turns driven against a scripted
//! model. The prompt goes to standard input. It is a script for Node; its endpoints stand in a file, which the turn's own
//! process writes in its own HOME: whoever wrote it from outside could be led elsewhere by a link that an earlier turn
//! left there.

mod parse;

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
    minimum_version: (1, 6, 0),
    install: "npm install -g @earendil-works/pi-coding-agent@latest",
    native: None,
    node: Some((22, 19, 0)),
};

const MODELS: &[Model] = &[
    Model { id: "anthropic/claude-opus-5-5", name: "Claude Opus 5.5" },
    Model { id: "anthropic/claude-sonnet-5", name: "Claude Sonnet 5" },
    Model { id: "openai/gpt-6.2-sol", name: "GPT-6.2 Sol" },
    Model { id: "openrouter/openai/gpt-6.2-sol", name: "GPT-6.2 Sol by OpenRouter" },
];

/// It neither updates itself nor fetches anything; what Node thinks of its own features is for Pi's makers.
const ENVIRONMENT: [(&str, &str); 2] = [("PI_OFFLINE", "1"), ("NODE_NO_WARNINGS", "1")];

/// Holds the file of endpoints until it is written.
const ENDPOINTS_VARIABLE: &str = "CODECOURIER_ENDPOINTS";

/// Writes the file of endpoints, and becomes the agent.
const RUN: &str = r#"umask 077
mkdir -p "$HOME/.pi/agent" && printf %s "$CODECOURIER_ENDPOINTS" > "$HOME/.pi/agent/models.json" || exit 126
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

    /// `pi --help`, `--thinking`.
    fn efforts(&self) -> &'static [&'static str] {
        &["off", "minimal", "low", "medium", "high", "xhigh"]
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
            option("--provider", "codecourier");
            option("--model", model);
            endpoints = self::endpoints(*kind, model, launch.base_url);
            env.push((KEY_VARIABLE.to_owned(), value.clone()));
        }
        env.push((ENDPOINTS_VARIABLE.to_owned(), EnvValue::Plain(endpoints.to_string())));
        if let Some(effort) = launch.effort {
            option("--thinking", effort);
        }
        match &launch.session {
            // An id of ours would be warned about: there is no such session yet.
            Session::Fresh(_) => {}
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

/// Its file of endpoints (`models.json`): one provider with one model, which takes its key from the environment.
fn endpoints(kind: CredentialKind, model: &str, base_url: Option<&str>) -> Value {
    let api = match kind {
        CredentialKind::AnthropicKey => "anthropic-messages",
        CredentialKind::OpenaiKey => "openai-responses",
        _ => "openai-completions",
    };
    let own = Endpoint::of(kind).and_then(|endpoint| endpoint.address);
    let url = base_url.or(own).unwrap_or_default();
    json!({ "providers": { "codecourier": {
        "baseUrl": url,
        "api": api,
        "apiKey": format!("${KEY_VARIABLE}"),
        "models": [{
            "id": model, "name": model, "reasoning": true, "input": ["text", "image"],
            "contextWindow": 200_000, "maxTokens": 32_000,
        }],
    } } })
}
