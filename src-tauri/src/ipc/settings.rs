//! Settings: commands and wire types.

use std::collections::BTreeMap;

use courier_engine::{engine::Engine, model, settings};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::State;

use super::{error::IpcError, sandboxes::Status};

/// Everything a person can set, apart from keys.
#[derive(Clone, Debug, Serialize, Deserialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    theme: Theme,
    notifications: BTreeMap<Status, bool>,
    claude_path: Option<String>,
    anthropic_base_url: Option<String>,
    github_enterprise_host: Option<String>,
    has_seen_close_notice: bool,
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
            claude_path: settings.claude_path,
            anthropic_base_url: settings.anthropic_base_url,
            github_enterprise_host: settings.github_enterprise_host,
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
            claude_path: settings.claude_path,
            anthropic_base_url: settings.anthropic_base_url,
            github_enterprise_host: settings.github_enterprise_host,
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
