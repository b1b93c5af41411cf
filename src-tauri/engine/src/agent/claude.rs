//! Claude Code.
//!
//! What is said here about its command line was seen with version 2.1.332: `claude --help`, and turns driven against a
//! scripted model. The prompt goes to standard input: there a text of 1 MB arrives whole, and one that begins with `-`
//! is no option. One that begins with `/` and names a command of Claude Code is that command, as a person who types it
//! expects; an unknown one is sent to the model as it is. An empty one is refused ("Input must be provided").

mod blocks;
mod calls;
mod event;
mod parse;
mod plan;
mod usage;
mod verdict;

use super::{Agent, Cli, EnvValue, Launch, Model, Parser, Process, Session};
use crate::{
    model::{AgentKind, Usage},
    secrets::CredentialKind,
};

/// The registry's entry.
#[derive(Debug)]
pub(super) struct Claude;

const CLI: Cli = Cli {
    program: "claude",
    version_argument: "--version",
    minimum_version: (2, 1, 0),
    install: "npm install -g @anthropic-ai/claude-code@latest",
    native: None,
    node: None,
};

/// The aliases stand for the newest of their line (`claude --help`, `--model`).
const MODELS: &[Model] = &[
    Model { id: "opus", name: "Claude Opus (newest)" },
    Model { id: "sonnet", name: "Claude Sonnet (newest)" },
    Model { id: "haiku", name: "Claude Haiku (newest)" },
];

/// Arguments of every turn. The permission flag is what the sandbox is for: the agent is never asked, and never asks.
const ARGUMENTS: [&str; 6] = [
    "-p",
    "--output-format",
    "stream-json",
    "--verbose", // Without it the format above is refused.
    "--include-partial-messages",
    "--dangerously-skip-permissions",
];

/// What else decides what is started, read or kept: ours alone.
const OWN: [&str; 32] = [
    "-p",
    "--print",
    "--output-format",
    "--input-format",
    "--verbose",
    "--include-partial-messages",
    "--dangerously-skip-permissions",
    "--permission-mode",
    "--model",
    "--effort",
    "--session-id",
    "--resume",
    "-r",
    "--continue",
    "-c",
    "--fork-session",
    "--no-session-persistence",
    "--replay-user-messages",
    "--bg",
    "--background",
    "--cloud",
    "--desktop",
    "--teleport",
    "--remote-control",
    "--from-pr",
    "--worktree",
    "-w",
    "--tmux",
    "--version",
    "-v",
    "--help",
    "-h",
];

/// Variables of every turn: a sandbox's agent neither changes itself nor talks to anybody but its model.
const ENVIRONMENT: [(&str, &str); 7] = [
    // Its own ten take over two minutes, also for a key that was refused; a person sends again with one key.
    ("CLAUDE_CODE_MAX_RETRIES", "5"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_BUG_COMMAND", "1"),
    ("DISABLE_INSTALLATION_CHECKS", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
];

impl Agent for Claude {
    fn kind(&self) -> AgentKind {
        AgentKind::Claude
    }

    fn name(&self) -> &'static str {
        "Claude Code"
    }

    fn models(&self) -> &'static [Model] {
        MODELS
    }

    /// None: what the account may use differs, and the CLI chooses the best of it.
    fn default_model(&self) -> Option<&'static str> {
        None
    }

    /// A subscription's token is more than a key, and so has no endpoint for the gateway: with it the CLI asks about account
    /// and limits in places of its own.
    fn credentials(&self) -> &'static [CredentialKind] {
        &[CredentialKind::AnthropicKey, CredentialKind::ClaudeOauthToken]
    }

    fn cli(&self) -> Option<&'static Cli> {
        Some(&CLI)
    }

    fn hosts(&self) -> &'static [&'static str] {
        &["api.anthropic.com"]
    }

    /// `claude --help`, `--effort`.
    fn efforts(&self) -> &'static [&'static str] {
        &["low", "medium", "high", "xhigh", "max"]
    }

    fn own_options(&self) -> &'static [&'static str] {
        &OWN
    }

    fn launch(&self, launch: &Launch<'_>) -> Process {
        let mut argv = vec![launch.program.to_string_lossy().into_owned()];
        argv.extend(ARGUMENTS.map(str::to_owned));
        let mut option = |name: &str, value: &str| argv.extend([name.to_owned(), value.to_owned()]);
        if let Some(model) = launch.model {
            option("--model", model);
        }
        if let Some(effort) = launch.effort {
            option("--effort", effort);
        }
        match &launch.session {
            Session::Fresh(id) => option("--session-id", id),
            Session::Resume(id) => option("--resume", id),
            Session::Continue => argv.push("--continue".to_owned()),
        }
        argv.extend(launch.extra_arguments.iter().cloned());

        let mut env: Vec<_> =
            ENVIRONMENT.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value.to_owned()))).into();
        if let Some((kind, value)) = &launch.credential {
            let name = match kind {
                CredentialKind::AnthropicKey => Some("ANTHROPIC_API_KEY"),
                CredentialKind::ClaudeOauthToken => Some("CLAUDE_CODE_OAUTH_TOKEN"),
                // Not named above.
                _ => None,
            };
            env.extend(name.map(|name| (name.to_owned(), value.clone())));
        }
        if let Some(url) = launch.base_url {
            env.push(("ANTHROPIC_BASE_URL".to_owned(), EnvValue::Plain(url.to_owned())));
        }
        Process { argv, env, stdin: launch.prompt.as_bytes().to_vec() }
    }

    fn parser(&self, _before: Option<Usage>) -> Box<dyn Parser> {
        Box::<parse::ClaudeParser>::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::secrets::Secret;

    fn launch(prompt: &str, session: Session, kind: CredentialKind) -> Process {
        Claude.launch(&Launch {
            program: PathBuf::from("/opt/claude"),
            interpreter: None,
            prompt,
            model: Some("sonnet"),
            session,
            credential: Some((kind, EnvValue::Secret(Secret::new("sk-ant-canary")))),
            base_url: Some("http://127.0.0.1:1/model"),
            effort: Some("high"),
            extra_arguments: &["--add-dir".to_owned(), "/x".to_owned()],
        })
    }

    #[test]
    fn a_turn_is_a_command_line_without_prompt_or_secret() {
        let prompt = "--help /me ü".repeat(50_000);
        let process = launch(&prompt, Session::Fresh("id".into()), CredentialKind::AnthropicKey);
        let line = process.argv.join(" ");
        assert!(line.starts_with("/opt/claude -p --output-format stream-json --verbose"), "{line}");
        assert!(line.ends_with("--model sonnet --effort high --session-id id --add-dir /x"), "{line}");
        assert!(!line.contains("canary") && !line.contains("/me"), "both would be public");
        assert!(!format!("{:?}", process.env).contains("canary"));
        assert_eq!(process.stdin, prompt.as_bytes());
    }

    #[test]
    fn each_credential_has_its_own_variable() {
        for (kind, name, other) in [
            (CredentialKind::AnthropicKey, "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
            (CredentialKind::ClaudeOauthToken, "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"),
        ] {
            let process = launch("", Session::Continue, kind);
            let has = |name| process.env.iter().any(|(known, _)| known == name);
            assert!(has(name) && !has(other) && has("ANTHROPIC_BASE_URL"), "{:?}", process.env);
            assert!(process.argv.contains(&"--continue".to_owned()));
        }
        let resumed = launch("", Session::Resume("old".into()), CredentialKind::AnthropicKey);
        assert!(resumed.argv.join(" ").contains("--resume old"));
    }
}
