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
    e2b: E2bSettings,
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

/// Where E2B is, and what its machines are made from.
#[derive(Clone, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct E2bSettings {
    /// The domain of a self-hosted one; null: the public service.
    domain: Option<String>,
    /// Where its control plane is, if the domain does not tell.
    api_url: Option<String>,
    /// Where its machines are reached, if the domain does not tell.
    sandbox_url: Option<String>,
    /// The template of each agent's machines.
    templates: BTreeMap<AgentKind, String>,
}

impl From<settings::E2bSettings> for E2bSettings {
    fn from(set: settings::E2bSettings) -> Self {
        let settings::E2bSettings { domain, api_url, sandbox_url, templates } = set;
        let templates = templates.into_iter().map(|(agent, name)| (agent.into(), name)).collect();
        Self { domain, api_url, sandbox_url, templates }
    }
}

impl From<E2bSettings> for settings::E2bSettings {
    fn from(set: E2bSettings) -> Self {
        let E2bSettings { domain, api_url, sandbox_url, templates } = set;
        let templates = templates.into_iter().map(|(agent, name)| (agent.into(), name)).collect();
        Self { domain, api_url, sandbox_url, templates }
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
            e2b: settings.e2b.into(),
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
            e2b: settings.e2b.into(),
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
