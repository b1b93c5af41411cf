//! The person's settings, as the engine needs them.

use std::collections::BTreeMap;

use courier_keeper::upstream::Upstream;
use serde::{Deserialize, Serialize};

use crate::{
    forge::Host,
    model::{AgentKind, Status},
    store::{self, Store, settings},
};

const NAME: &str = "person";

/// Everything a person can set, apart from keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// `system`, `light` or `dark`.
    pub theme: String,
    /// Which changes of status are told by a notification.
    pub notifications: BTreeMap<Status, bool>,
    /// Where Claude Code is, if the search does not find the right one.
    pub claude_path: Option<String>,
    /// Where Anthropic's API is, if not at Anthropic.
    pub anthropic_base_url: Option<String>,
    /// The GitHub Enterprise host, if there is one: `github.example.org`.
    pub github_enterprise_host: Option<String>,
    pub has_seen_close_notice: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            theme: "system".to_owned(),
            notifications: Status::ALL.iter().map(|status| (*status, *status != Status::Creating)).collect(),
            claude_path: None,
            anthropic_base_url: None,
            github_enterprise_host: None,
            has_seen_close_notice: false,
        }
    }
}

/// A setting that cannot be.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Settings {
    pub(crate) async fn load(store: &Store) -> Result<Self, store::Error> {
        store.read(|connection| settings::get(connection, NAME)).await
    }

    pub(crate) async fn save(self, store: &Store) -> Result<(), store::Error> {
        store.write(move |tx| settings::set(tx, NAME, &self)).await
    }

    /// Empty fields become unset ones, and what cannot be is refused.
    pub(crate) fn checked(mut self) -> Result<Self, Invalid> {
        let blank = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        self.claude_path = blank(self.claude_path);
        self.anthropic_base_url = blank(self.anthropic_base_url).map(|url| url.trim_end_matches('/').to_owned());
        if let Some(Err(error)) = self.anthropic_base_url.as_ref().map(|url| url.parse::<Upstream>()) {
            return Err(Invalid(error.to_string()));
        }
        self.github_enterprise_host = blank(self.github_enterprise_host);
        if let Some(Err(error)) = self.github_enterprise_host.as_ref().map(|host| host.parse::<Host>()) {
            return Err(Invalid(format!("the GitHub Enterprise host: {error}")));
        }
        if !["system", "light", "dark"].contains(&self.theme.as_str()) {
            return Err(Invalid(format!("there is no theme {:?}", self.theme)));
        }
        Ok(self)
    }

    /// The GitHub Enterprise host; one that an older version let pass counts as none.
    pub(crate) fn github_enterprise(&self) -> Option<Host> {
        self.github_enterprise_host.as_ref().and_then(|host| host.parse().ok())
    }

    /// Where an agent's program is, if a person has said so.
    pub(crate) fn path_of(&self, agent: AgentKind) -> Option<String> {
        match agent {
            AgentKind::Claude => self.claude_path.clone(),
            AgentKind::Shell | AgentKind::Codex | AgentKind::Opencode | AgentKind::Pi => None,
        }
    }

    /// Where an agent's model is, if a person has said so.
    pub(crate) fn base_url_for(&self, agent: AgentKind) -> Option<String> {
        match agent {
            AgentKind::Claude => self.anthropic_base_url.clone(),
            AgentKind::Shell | AgentKind::Codex | AgentKind::Opencode | AgentKind::Pi => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_base_url(url: &str) -> Settings {
        Settings { anthropic_base_url: Some(url.to_owned()), ..Settings::default() }
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        assert!(with_base_url("http://127.0.0.1:18080/s/happy").checked().is_ok());
        assert!(with_base_url("http://localhost:1").checked().is_ok());
        assert!(with_base_url("https://gateway.example.org/v1").checked().is_ok());
        let refused = with_base_url("http://gateway.example.org").checked().unwrap_err().to_string();
        assert!(refused.contains("unencrypted") && refused.contains("use https://"), "cause and remedy: {refused}");
        assert!(with_base_url("gateway.example.org").checked().is_err());
        let refused = with_base_url("https://me:secret@gateway.example.org").checked().unwrap_err().to_string();
        assert!(refused.contains("leave it out") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn an_empty_field_is_an_unset_one() {
        assert_eq!(with_base_url("  ").checked().unwrap().anthropic_base_url, None);
    }
}
