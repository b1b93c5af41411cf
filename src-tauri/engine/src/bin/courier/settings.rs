//! `courier settings`.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use courier_engine::{engine::Engine, model::AgentKind, secrets::CredentialKind};

use crate::{Failure, print::Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the settings.
    Show,
    /// Change one; without a value it is unset.
    Set { name: Name, value: Option<String> },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Name {
    /// Where Claude Code is.
    ClaudePath,
    /// Where Codex is.
    CodexPath,
    /// Where OpenCode is.
    OpencodePath,
    /// Where Pi is.
    PiPath,
    /// Where Anthropic's API is.
    AnthropicBaseUrl,
    /// Where OpenAI's API is; the address that ends in /v1.
    OpenaiBaseUrl,
    /// Where OpenRouter's API is.
    OpenrouterBaseUrl,
    /// Where a model server is that speaks OpenAI's API.
    CompatibleBaseUrl,
    /// The domain of a self-hosted E2B.
    E2bDomain,
    /// Where E2B's control plane is, if its domain does not tell.
    E2bApiUrl,
    /// Where E2B's machines are reached, if its domain does not tell.
    E2bSandboxUrl,
    /// system, light or dark.
    Theme,
}

pub(crate) async fn run(engine: &Engine, command: Command, output: &Output) -> Result<ExitCode, Failure> {
    let mut settings = engine.settings().await?;
    if let Command::Set { name, value } = command {
        match name {
            Name::Theme => settings.theme = value.unwrap_or_else(|| "system".to_owned()),
            Name::E2bDomain => settings.e2b.domain = value,
            Name::E2bApiUrl => settings.e2b.api_url = value,
            Name::E2bSandboxUrl => settings.e2b.sandbox_url = value,
            path_or_url => match (agent_of(path_or_url), key_of(path_or_url)) {
                (Some(agent), _) => settings.agents.entry(agent).or_default().path = value,
                (_, Some(key)) => _ = settings.base_urls.insert(key, value.unwrap_or_default()),
                (None, None) => {}
            },
        }
        engine.settings_set(settings).await?;
        settings = engine.settings().await?;
    }
    let value = |name: &Name| match (name, agent_of(*name), key_of(*name)) {
        (_, Some(agent), _) => settings.agents.get(&agent).and_then(|set| set.path.clone()),
        (_, _, Some(key)) => settings.base_urls.get(&key).cloned(),
        (Name::E2bDomain, ..) => settings.e2b.domain.clone(),
        (Name::E2bApiUrl, ..) => settings.e2b.api_url.clone(),
        (Name::E2bSandboxUrl, ..) => settings.e2b.sandbox_url.clone(),
        (_, None, None) => Some(settings.theme.clone()),
    };
    let line = |name: &Name| {
        let written = name.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        format!("{written:<20}{}", value(name).unwrap_or_else(|| "(not set)".to_owned()))
    };
    let text: Vec<_> = Name::value_variants().iter().map(line).collect();
    output.line(&text.join("\n"), &serde_json::to_value(&settings).unwrap_or_default())?;
    Ok(ExitCode::SUCCESS)
}

/// Whose program's place this is.
fn agent_of(name: Name) -> Option<AgentKind> {
    match name {
        Name::ClaudePath => Some(AgentKind::Claude),
        Name::CodexPath => Some(AgentKind::Codex),
        Name::OpencodePath => Some(AgentKind::Opencode),
        Name::PiPath => Some(AgentKind::Pi),
        _ => None,
    }
}

/// Which key opens the API at this address.
fn key_of(name: Name) -> Option<CredentialKind> {
    match name {
        Name::AnthropicBaseUrl => Some(CredentialKind::AnthropicKey),
        Name::OpenaiBaseUrl => Some(CredentialKind::OpenaiKey),
        Name::OpenrouterBaseUrl => Some(CredentialKind::OpenrouterKey),
        Name::CompatibleBaseUrl => Some(CredentialKind::CompatibleKey),
        _ => None,
    }
}
