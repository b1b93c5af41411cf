//! OpenCode.
//!
//! What is said here about its command line was seen with version 1.18.33: `opencode run --help`, and turns driven against
//! a scripted model. The prompt goes to standard input (as an argument it arrives in quotes). Its settings come in a
//! variable, which names the variable that holds the key. A session belongs to the directory it was begun in: every sandbox
//! has one.

mod parse;

use serde_json::{Value, json};

use super::{
    Agent, Cli, EnvValue, Launch, Model, Parser, Process, Session,
    makers::{self, ANY, KEY_VARIABLE},
    page::LinesOf,
};
use crate::{
    model::{AgentKind, Usage},
    secrets::CredentialKind,
};

/// The registry's entry.
#[derive(Debug)]
pub(super) struct OpenCode;

const CLI: Cli = Cli {
    program: "opencode",
    version_argument: "--version",
    minimum_version: (1, 18, 0),
    install: "npm install -g opencode-ai@latest",
    native: Some("opencode-*/bin/opencode"),
    node: None,
};

const MODELS: &[Model] = &[
    Model { id: "anthropic/claude-opus-5-5", name: "Claude Opus 5.5" },
    Model { id: "anthropic/claude-sonnet-5", name: "Claude Sonnet 5" },
    Model { id: "openai/gpt-6.2-sol", name: "GPT-6.2 Sol" },
    Model { id: "openrouter/openai/gpt-6.2-sol", name: "GPT-6.2 Sol by OpenRouter" },
];

const OWN: [&str; 22] = [
    "--format",
    "--continue",
    "-c",
    "--session",
    "-s",
    "--fork",
    "--share",
    "--model",
    "-m",
    "--variant",
    "--attach",
    "--port",
    "--hostname",
    "--dir",
    "--command",
    "--file",
    "-f",
    "--interactive",
    "--help",
    "-h",
    "--version",
    "-v",
];

/// Nothing is fetched, shared or updated, and whoever it asks for is here.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
    ("OPENCODE_DISABLE_SHARE", "1"),
];

impl Agent for OpenCode {
    fn kind(&self) -> AgentKind {
        AgentKind::Opencode
    }

    fn name(&self) -> &'static str {
        "OpenCode"
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

    /// `--variant`: what the makers' models take; one that a model does not know changes nothing.
    fn efforts(&self) -> &'static [&'static str] {
        &["minimal", "low", "medium", "high", "max"]
    }

    /// Under less its many threads cannot be started (seen with 1,024).
    fn memory_mb(&self) -> u32 {
        4096
    }

    fn own_options(&self) -> &'static [&'static str] {
        &OWN
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let mut argv = vec![launch.program.to_string_lossy().into_owned()];
        argv.extend(["run", "--format", "json", "--thinking"].map(str::to_owned));
        let mut option = |name: &str, value: &str| argv.extend([name.to_owned(), value.to_owned()]);
        let mut env: Vec<_> =
            ENVIRONMENT.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value.to_owned()))).into();
        if let Some((kind, value)) = &launch.credential {
            let model = makers::model_of(launch.model, *kind);
            option("--model", &format!("{}/{model}", makers::name(*kind)));
            env.push((KEY_VARIABLE.to_owned(), value.clone()));
            let settings = settings(*kind, model, launch.base_url).to_string();
            env.push(("OPENCODE_CONFIG_CONTENT".to_owned(), EnvValue::Plain(settings)));
        }
        match &launch.session {
            Session::Fresh(_) => {}
            Session::Resume(id) => option("--session", id),
            Session::Continue => argv.push("--continue".to_owned()),
        }
        if let Some(effort) = launch.effort {
            argv.extend(["--variant".to_owned(), effort.to_owned()]);
        }
        argv.extend(launch.extra_arguments.iter().cloned());
        Process { argv, env, stdin: launch.prompt.as_bytes().to_vec() }
    }

    fn parser(&self, _before: Option<Usage>) -> Box<dyn Parser> {
        Box::new(LinesOf::new(parse::OpenCodeEvents::default()))
    }
}

/// Its settings: one provider, which takes its key from the environment. A model its catalogue does not know is declared.
fn settings(kind: CredentialKind, model: &str, base_url: Option<&str>) -> Value {
    let mut options = json!({ "apiKey": format!("{{env:{KEY_VARIABLE}}}") });
    // Its client of Anthropic's puts `/messages` behind the address, the others what is theirs.
    let url =
        base_url.map(|url| if kind == CredentialKind::AnthropicKey { format!("{url}/v1") } else { url.to_owned() });
    if let Some(url) = url {
        options["baseURL"] = url.into();
    }
    let mut provider = json!({ "options": options, "models": { model: {} } });
    if kind == CredentialKind::CompatibleKey {
        provider["npm"] = "@ai-sdk/openai-compatible".into();
        provider["name"] = "Own model server".into();
    }
    let name = makers::name(kind);
    json!({
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": [name],
        "provider": { name: provider },
        "small_model": format!("{name}/{model}"),
        // The sandbox is what stands in the way: it never asks.
        "permission": { "edit": "allow", "bash": "allow", "webfetch": "allow", "external_directory": "allow" },
    })
}
