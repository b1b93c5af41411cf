//! Settings: commands and wire types.

use std::collections::BTreeMap;

use courier_engine::{engine::Engine, model, settings};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::State;

use super::{
    error::IpcError,
    keys::CredentialKind,
    sandboxes::{AgentKind, Status},
};

/// Everything a person can set, apart from keys.
#[derive(Clone, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    theme: Theme,
    notifications: BTreeMap<Status, bool>,
    /// What is set for single agents.
    agents: BTreeMap<AgentKind, AgentSettings>,
    /// Where the API is that a key opens, if not at the key's maker.
    base_urls: BTreeMap<CredentialKind, String>,
    github_enterprise_host: Option<String>,
    /// After how many minutes without output a working agent is said to be quiet.
    quiet_after_minutes: u32,
    has_seen_close_notice: bool,
}

/// What a person can set for one agent.
#[derive(Clone, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct AgentSettings {
    /// Where its program is, if the search does not find the right one.
    path: Option<String>,
    /// One of the agent's efforts.
    effort: Option<String>,
    /// Arguments of every turn, beside ours.
    extra_arguments: Vec<String>,
}

impl From<settings::AgentSettings> for AgentSettings {
    fn from(set: settings::AgentSettings) -> Self {
        Self { path: set.path, effort: set.effort, extra_arguments: set.extra_arguments }
    }
}

impl From<AgentSettings> for settings::AgentSettings {
    fn from(set: AgentSettings) -> Self {
        Self { path: set.path, effort: set.effort, extra_arguments: set.extra_arguments }
    }
}

/// Light or dark, or what the system says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub enum Theme {
    System,
    Light,
    Dark,
}

impl From<settings::Settings> for Settings {
    fn from(settings: settings::Settings) -> Self {
        let theme = match settings.theme.as_str() {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::System,
        };
        Self {
            theme,
            notifications: settings.notifications.into_iter().map(|(status, on)| (Status::from(status), on)).collect(),
            agents: settings.agents.into_iter().map(|(agent, set)| (agent.into(), set.into())).collect(),
            base_urls: settings.base_urls.into_iter().map(|(kind, url)| (kind.into(), url)).collect(),
            github_enterprise_host: settings.github_enterprise_host,
            quiet_after_minutes: settings.quiet_after_minutes,
            has_seen_close_notice: settings.has_seen_close_notice,
        }
    }
}

impl From<Settings> for settings::Settings {
    fn from(settings: Settings) -> Self {
        let theme = match settings.theme {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        };
        Self {
            theme: theme.to_owned(),
            notifications: settings
                .notifications
                .into_iter()
                .map(|(status, on)| (model::Status::from(status), on))
                .collect(),
            agents: settings.agents.into_iter().map(|(agent, set)| (agent.into(), set.into())).collect(),
            base_urls: settings.base_urls.into_iter().map(|(kind, url)| (kind.into(), url)).collect(),
            github_enterprise_host: settings.github_enterprise_host,
            quiet_after_minutes: settings.quiet_after_minutes,
            has_seen_close_notice: settings.has_seen_close_notice,
        }
    }
}

/// The person's settings.
#[tauri::command]
#[specta::specta]
pub async fn settings_get(engine: State<'_, Engine>) -> Result<Settings, IpcError> {
    Ok(engine.settings().await?.into())
}

/// Changes them.
#[tauri::command]
#[specta::specta]
pub async fn settings_set(engine: State<'_, Engine>, settings: Settings) -> Result<(), IpcError> {
    Ok(engine.settings_set(settings.into()).await?)
}
