//! `courier settings`.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use courier_engine::engine::Engine;

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
    /// Where Anthropic's API is.
    AnthropicBaseUrl,
    /// system, light or dark.
    Theme,
}

pub(crate) async fn run(engine: &Engine, command: Command, output: &Output) -> Result<ExitCode, Failure> {
    let mut settings = engine.settings().await?;
    if let Command::Set { name, value } = command {
        match name {
            Name::ClaudePath => settings.claude_path = value,
            Name::AnthropicBaseUrl => settings.anthropic_base_url = value,
            Name::Theme => settings.theme = value.unwrap_or_else(|| "system".to_owned()),
        }
        engine.settings_set(settings).await?;
        settings = engine.settings().await?;
    }
    let unset = || "(not set)".to_owned();
    let text = format!(
        "claude-path         {}\nanthropic-base-url  {}\ntheme               {}",
        settings.claude_path.clone().unwrap_or_else(unset),
        settings.anthropic_base_url.clone().unwrap_or_else(unset),
        settings.theme,
    );
    output.line(&text, &serde_json::to_value(&settings).unwrap_or_default())?;
    Ok(ExitCode::SUCCESS)
}
