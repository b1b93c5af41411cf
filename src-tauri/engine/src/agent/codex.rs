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
    minimum_version: (0, 160, 0),
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

/// Settings of every turn. Each part of Codex that asks anybody but its model is switched off.
const SETTINGS: [&str; 8] = [
    "check_for_update_on_startup=false",
    "analytics.enabled=false",
    "feedback.enabled=false",
    // Asks github.com and chatgpt.com for lists at every start.
    "features.plugins=false",
    "features.remote_plugin=false",
    "features.apps=false",
    // Without a server it would wait for ever.
    "features.unbounded_connection_retries=false",
    // The key is Codex's; the commands it runs do not see it.
    "shell_environment_policy.exclude=[\"CODECOURIER_MODEL_KEY\"]",
];

/// How often a request, and a stream that broke, is begun again, and how long a stream may be silent: of its own accord
/// Codex waits five times five minutes for a model that says nothing.
const PATIENCE: &str = "request_max_retries=3,stream_max_retries=3,stream_idle_timeout_ms=180000";

/// Options that are ours, or decide what is read or kept. `-c` is not among them: ours stand behind a person's, and the
/// last one holds.
const OWN: [&str; 29] = [
    "--json",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "--sandbox",
    "-s",
    "--approve-for-me",
    "--full-auto",
    "--model",
    "-m",
    "--oss",
    "--local-provider",
    "--profile",
    "-p",
    "--remote",
    "--remote-auth-token-env",
    "--cd",
    "-C",
    "--worktree",
    "--ephemeral",
    "--last",
    "--all",
    "--color",
    "--output-last-message",
    "-o",
    "--thread-source",
    "--help",
    "-h",
    "--version",
    "-V",
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

    /// `codex debug models`. What a model does not know is lowered to its highest.
    fn efforts(&self) -> &'static [&'static str] {
        &["low", "medium", "high", "xhigh", "max", "ultra"]
    }

    fn own_options(&self) -> &'static [&'static str] {
        &OWN
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let mut argv = vec![launch.program.to_string_lossy().into_owned(), "exec".to_owned()];
        let mut add = |argument: &str| argv.push(argument.to_owned());
        if !matches!(launch.session, Session::Fresh(_)) {
            add("resume");
        }
        ARGUMENTS.into_iter().for_each(&mut add);
        // Before ours: an option that takes many values would take the `-` at the end for one.
        launch.extra_arguments.iter().for_each(|argument| add(argument));
        let kind = launch.credential.as_ref().map(|(kind, _)| *kind);
        let provider = kind.map(|kind| provider(kind, launch.base_url));
        let effort = launch.effort.map(|effort| format!("model_reasoning_effort=\"{effort}\""));
        let settings =
            SETTINGS.into_iter().chain(provider.iter().flatten().map(String::as_str)).chain(effort.as_deref());
        for setting in settings {
            add("-c");
            add(setting);
        }
        let model = match (launch.model, kind) {
            // OpenRouter has no default of its own.
            (None, Some(kind @ CredentialKind::OpenrouterKey)) => Some(makers::model_of(None, kind)),
            (model, _) => model.map(|model| makers::split(model).1),
        };
        if let Some(model) = model {
            add("-m");
            add(model);
        }
        match &launch.session {
            // It chooses the id itself, and tells it.
            Session::Fresh(_) => {}
            Session::Resume(id) => add(id),
            Session::Continue => add("--last"),
        }
        add("-");
        let env = launch.credential.iter().map(|(_, value)| (KEY_VARIABLE.to_owned(), value.clone())).collect();
        Process { argv, env, stdin: launch.prompt.as_bytes().to_vec() }
    }

    fn parser(&self, before: Option<Usage>) -> Box<dyn Parser> {
        Box::new(LinesOf::new(parse::CodexEvents::after(before.unwrap_or_default())))
    }
}

/// The settings that say where the model is.
fn provider(kind: CredentialKind, base_url: Option<&str>) -> [String; 2] {
    let own = Endpoint::of(kind).and_then(|endpoint| endpoint.address);
    // A string of TOML, whose escapes are those of JSON.
    let url = serde_json::Value::from(base_url.or(own).unwrap_or_default());
    let table =
        format!("{{name=\"CodeCourier\",base_url={url},env_key=\"{KEY_VARIABLE}\",wire_api=\"responses\",{PATIENCE}}}");
    ["model_provider=\"codecourier\"".to_owned(), format!("model_providers.codecourier={table}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::EnvValue, secrets::Secret};

    fn launch(session: Session, extra_arguments: &[String]) -> Process {
        Codex.launch(&Launch {
            program: "/opt/codex".into(),
            interpreter: None,
            prompt: "--help",
            model: Some("openai/gpt-5.5"),
            session,
            credential: Some((CredentialKind::OpenaiKey, EnvValue::Secret(Secret::new("sk-canary")))),
            base_url: Some("http://127.0.0.1:1"),
            effort: Some("high"),
            extra_arguments,
        })
    }

    #[test]
    fn a_turn_is_a_command_line_without_prompt_or_secret() {
        let process = launch(Session::Fresh("ours".into()), &["-c".to_owned(), "model_provider=\"x\"".to_owned()]);
        let line = process.argv.join(" ");
        assert!(line.starts_with("/opt/codex exec --json") && line.ends_with(" -m gpt-5.5 -"), "{line}");
        assert!(!line.contains("canary") && !line.contains("--help") && !line.contains("ours"), "{line}");
        let at = |setting| line.rfind(setting).unwrap();
        assert!(at("model_provider=\"x\"") < at("model_provider=\"codecourier\""), "ours holds: {line}");
        assert_eq!(process.stdin, b"--help");
    }

    #[test]
    fn a_thread_is_taken_up_by_its_id_or_as_the_last_one() {
        let line = |session| launch(session, &[]).argv.join(" ");
        assert!(line(Session::Resume("id".into())).starts_with("/opt/codex exec resume --json"));
        assert!(line(Session::Resume("id".into())).ends_with(" id -"));
        assert!(line(Session::Continue).ends_with(" --last -"));
    }
}
