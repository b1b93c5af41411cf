//! Codex.
//!
//! What is said here about its command line was seen with version 0.171.0: `codex exec --help`, and turns driven against a
//! scripted model. The prompt goes to standard input, which `-` asks for; it takes 1,048,576 characters of it. The endpoint
//! is a provider of our own: its built-in one asks for a WebSocket first, and cannot be given a key in the environment.

mod parse;

use super::{
    Agent, Cli, Endpoint, Launch, Model, Parser, Process, Session,
    makers::{self, KEY_VARIABLE},
    page::LinesOf,
};
use crate::{
    model::{AgentKind, Usage},
    secrets::CredentialKind,
};

/// The registry's entry.
#[derive(Debug)]
pub(super) struct Codex;

const CLI: Cli = Cli {
    program: "codex",
    version_argument: "--version",
    minimum_version: (0, 171, 0),
    install: "npm install -g @openai/codex@latest",
    native: Some("@openai/codex-*/vendor/*/bin/codex"),
    node: None,
};

/// Its own catalogue's (`codex debug models`).
const MODELS: &[Model] = &[
    Model { id: "gpt-6.2-sol", name: "GPT-6.2 Sol" },
    Model { id: "gpt-6.2-astra", name: "GPT-6.2 Astra" },
    Model { id: "gpt-6-luna", name: "GPT-6 Luna" },
    Model { id: "gpt-5.5", name: "GPT-5.5" },
];

const CREDENTIALS: [CredentialKind; 3] =
    [CredentialKind::OpenaiKey, CredentialKind::OpenrouterKey, CredentialKind::CompatibleKey];

/// Its own sandbox would forbid writing `.git`; ours is around it.
const ARGUMENTS: [&str; 3] = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];

/// How often a request, and a stream that broke, is tried again: its own five take half a minute.
const RETRIES: u32 = 3;

const OWN: [&str; 24] = [
    "--json",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
    "--sandbox",
    "-s",
    "--full-auto",
    "--ask-for-approval",
    "-a",
    "--model",
    "-m",
    "--oss",
    "--local-provider",
    "--profile",
    "-p",
    "--cd",
    "-C",
    "--last",
    "--ephemeral",
    "--output-last-message",
    "-o",
    "--version",
    "-V",
    "--help",
];

impl Agent for Codex {
    fn kind(&self) -> AgentKind {
        AgentKind::Codex
    }

    fn name(&self) -> &'static str {
        "Codex"
    }

    fn models(&self) -> &'static [Model] {
        MODELS
    }

    /// None: its own choice is the newest its maker recommends.
    fn default_model(&self) -> Option<&'static str> {
        None
    }

    fn credentials(&self) -> &'static [CredentialKind] {
        &CREDENTIALS
    }

    fn credentials_for(&self, model: Option<&str>) -> &'static [CredentialKind] {
        makers::opened_by(&CREDENTIALS, model)
    }

    fn cli(&self) -> Option<&'static Cli> {
        Some(&CLI)
    }

    fn hosts(&self) -> &'static [&'static str] {
        &["api.openai.com", "openrouter.ai"]
    }

    /// `codex exec --help`: what its models take as `model_reasoning_effort`.
    fn efforts(&self) -> &'static [&'static str] {
        &["minimal", "low", "medium", "high", "xhigh"]
    }

    fn own_options(&self) -> &'static [&'static str] {
        &OWN
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let mut argv = vec![launch.program.to_string_lossy().into_owned(), "exec".to_owned()];
        match &launch.session {
            Session::Fresh(_) => {}
            Session::Resume(id) => argv.extend(["resume".to_owned(), id.clone()]),
            Session::Continue => argv.extend(["resume".to_owned(), "--last".to_owned()]),
        }
        argv.extend(ARGUMENTS.map(str::to_owned));
        let mut set = |setting: String| argv.extend(["-c".to_owned(), setting]);
        set("check_for_update_on_startup=false".to_owned());
        set("analytics.enabled=false".to_owned());
        let mut env = Vec::new();
        if let Some((kind, value)) = &launch.credential {
            let own = Endpoint::of(*kind).and_then(|endpoint| endpoint.address);
            let url = launch.base_url.or(own).unwrap_or_default();
            // A TOML string of these characters is a JSON string.
            let url = serde_json::Value::from(url);
            set("model_provider=\"codecourier\"".to_owned());
            set(format!(
                "model_providers.codecourier={{name=\"{}\",base_url={url},env_key=\"{KEY_VARIABLE}\",wire_api=\"responses\",\
                 request_max_retries={RETRIES},stream_max_retries={RETRIES}}}",
                makers::name(*kind)
            ));
            env.push((KEY_VARIABLE.to_owned(), value.clone()));
        }
        if let Some(effort) = launch.effort {
            set(format!("model_reasoning_effort=\"{effort}\""));
        }
        if let Some(model) = launch.model {
            argv.extend(["-m".to_owned(), makers::split(model).1.to_owned()]);
        }
        argv.extend(launch.extra_arguments.iter().cloned());
        argv.push("-".to_owned());
        Process { argv, env, stdin: launch.prompt.as_bytes().to_vec() }
    }

    fn parser(&self, before: Option<Usage>) -> Box<dyn Parser> {
        Box::new(LinesOf::new(parse::CodexEvents::after(before.unwrap_or_default())))
    }
}
