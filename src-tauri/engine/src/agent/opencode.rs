//! OpenCode.
//!
//! What is said here about its command line was seen with version 1.18.33: `opencode run --help`, and turns driven against
//! a scripted model. The prompt goes to standard input (as an argument it arrives in quotes). Its settings come in a
//! variable, which names the variable that holds the key. A session belongs to the directory it was begun in: every sandbox
//! has one.

mod parse;
mod tool;

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
    minimum_version: (1, 18, 3),
    install: "npm install -g opencode-ai@latest",
    native: Some("opencode-*/bin/opencode"),
    node: None,
};

/// Of its own catalogue (`opencode models`): of a model that is not in it, it does not know how much it can read, and so
/// never summarises a long conversation in time.
const MODELS: &[Model] = &[
    Model { id: "anthropic/claude-opus-5-5", name: "Claude Opus 5.5" },
    Model { id: "anthropic/claude-sonnet-5", name: "Claude Sonnet 5" },
    Model { id: "openai/gpt-6-sol", name: "GPT-6 Sol" },
    Model { id: "openrouter/openai/gpt-6-sol", name: "GPT-6 Sol by OpenRouter" },
];

const OWN: [&str; 29] = [
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
    "-i",
    "--title",
    "--thinking",
    "--auto",
    "--agent",
    "--password",
    "-p",
    "--help",
    "-h",
    "--version",
    "-v",
];

/// What a conversation is called in its own list, which nobody sees.
const TITLE: &str = "CodeCourier";

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
        argv.extend(["run", "--format", "json", "--thinking", "--auto"].map(str::to_owned));
        let mut option = |name: &str, value: &str| argv.extend([name.to_owned(), value.to_owned()]);
        let mut env: Vec<_> =
            ENVIRONMENT.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value.to_owned()))).into();
        if let Some((kind, value)) = &launch.credential {
            let model = model_of(launch.model, *kind);
            option("--model", &format!("{}/{model}", makers::name(*kind)));
            env.push((KEY_VARIABLE.to_owned(), value.clone()));
            let settings = settings(*kind, model, launch.base_url, launch.effort.is_some()).to_string();
            env.push(("OPENCODE_CONFIG_CONTENT".to_owned(), EnvValue::Plain(settings)));
        }
        if !matches!(launch.session, Session::Resume(_)) {
            // Without one it asks the model for a title, which costs tokens that no event tells of.
            option("--title", TITLE);
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

/// The model that is asked for; where none was chosen, a good one that its catalogue knows.
fn model_of(chosen: Option<&str>, kind: CredentialKind) -> &str {
    match (chosen, kind) {
        (None, CredentialKind::OpenaiKey) => "gpt-6-sol",
        (None, CredentialKind::OpenrouterKey) => "openai/gpt-6-sol",
        _ => makers::model_of(chosen, kind),
    }
}

/// Its settings: one provider, which takes its key from the environment. A model its catalogue does not know is declared.
fn settings(kind: CredentialKind, model: &str, base_url: Option<&str>, thinks: bool) -> Value {
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
        if thinks {
            // Without this word it leaves the effort out of what it asks.
            provider["models"][model]["reasoning"] = true.into();
        }
    }
    let name = makers::name(kind);
    json!({
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": [name],
        "provider": { name: provider },
        "small_model": format!("{name}/{model}"),
        // The sandbox is what stands in the way: it never asks. `--auto` answers for the agent itself, but not for those it
        // calls, who would wait for ever; and to read a file `.env` is asked for unless it is allowed by name.
        "permission": {
            "read": "allow",
            "edit": "allow",
            "bash": "allow",
            "webfetch": "allow",
            "external_directory": "allow",
            "doom_loop": "allow",
        },
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::secrets::Secret;

    fn launch(
        prompt: &str,
        model: Option<&str>,
        session: Session,
        kind: CredentialKind,
        effort: Option<&str>,
    ) -> Process {
        OpenCode.launch(&Launch {
            program: PathBuf::from("/opt/opencode"),
            interpreter: None,
            prompt,
            model,
            session,
            credential: Some((kind, EnvValue::Secret(Secret::new("sk-canary")))),
            base_url: Some("http://127.0.0.1:1/model"),
            effort,
            extra_arguments: &["--print-logs".to_owned()],
        })
    }

    fn settings_of(process: &Process) -> Value {
        let (_, value) = process.env.iter().find(|(name, _)| name == "OPENCODE_CONFIG_CONTENT").unwrap();
        let EnvValue::Plain(text) = value else { panic!("the settings hold no secret") };
        assert!(!text.contains("canary"), "{text}");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_turn_is_a_command_line_without_prompt_or_secret() {
        let prompt = "--help /me ü".repeat(50_000);
        let process = launch(&prompt, None, Session::Fresh("id".into()), CredentialKind::AnthropicKey, Some("high"));
        let line = process.argv.join(" ");
        assert!(line.starts_with("/opt/opencode run --format json --thinking --auto "), "{line}");
        assert!(line.contains("--model anthropic/claude-sonnet-5 --title CodeCourier --variant high"), "{line}");
        assert!(line.ends_with(" --print-logs") && !line.contains("canary") && !line.contains("/me"), "{line}");
        assert!(!format!("{:?}", process.env).contains("canary"));
        assert_eq!(process.stdin, prompt.as_bytes());
        let options = &settings_of(&process)["provider"]["anthropic"]["options"];
        assert_eq!(options["apiKey"], "{env:CODECOURIER_MODEL_KEY}");
        assert_eq!(options["baseURL"], "http://127.0.0.1:1/model/v1");
    }

    #[test]
    fn a_session_goes_on_under_its_own_name() {
        let line = |session| launch("", None, session, CredentialKind::OpenaiKey, None).argv.join(" ");
        let resumed = line(Session::Resume("ses_1".into()));
        assert!(resumed.contains("--session ses_1") && !resumed.contains("--title"), "{resumed}");
        assert!(line(Session::Continue).contains("--title CodeCourier --continue"));
    }

    #[test]
    fn each_maker_has_a_provider_of_its_own() {
        let settings = |kind, model, effort| settings_of(&launch("", model, Session::Continue, kind, effort));
        let openai = settings(CredentialKind::OpenaiKey, None, None);
        assert!(openai["provider"]["openai"]["models"]["gpt-6-sol"].is_object(), "{openai}");
        assert_eq!(openai["enabled_providers"], json!(["openai"]));
        let router = settings(CredentialKind::OpenrouterKey, Some("openrouter/z-ai/glm-5"), None);
        assert!(router["provider"]["openrouter"]["models"]["z-ai/glm-5"].is_object(), "{router}");
        let own = settings(CredentialKind::CompatibleKey, Some("compatible/llama"), Some("high"));
        let provider = &own["provider"]["compatible"];
        assert_eq!(provider["npm"], "@ai-sdk/openai-compatible");
        assert_eq!(provider["models"]["llama"]["reasoning"], true, "or the effort is left out");
        assert_eq!(provider["options"]["baseURL"], "http://127.0.0.1:1/model");
    }

    #[test]
    fn what_would_be_asked_is_allowed() {
        let settings = settings_of(&launch("", None, Session::Continue, CredentialKind::AnthropicKey, None));
        for asked in ["read", "external_directory", "doom_loop"] {
            assert_eq!(settings["permission"][asked], "allow", "{asked}: nobody is there to be asked");
        }
    }
}
