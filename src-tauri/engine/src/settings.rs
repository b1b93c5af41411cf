//! The person's settings, as the engine needs them.

use std::collections::BTreeMap;

use courier_keeper::upstream::Upstream;
use serde::{Deserialize, Serialize};

use crate::{
    agent::{Agent, Endpoint, agent},
    forge::Host,
    model::{AgentKind, Status},
    provider::e2b::{Account, NoAddress},
    secrets::{CredentialKind, Secret},
    store::{self, Store, settings},
};

const NAME: &str = "person";
/// How long an agent's extra arguments may be together, in bytes.
const MAX_ARGUMENTS: usize = 16 * 1024;

/// Everything a person can set, apart from keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// `system`, `light` or `dark`.
    pub theme: String,
    /// Which changes of status are told by a notification.
    pub notifications: BTreeMap<Status, bool>,
    /// What is set for single agents.
    pub agents: BTreeMap<AgentKind, AgentSettings>,
    /// Where the API is that a key opens, if not at the key's maker.
    pub base_urls: BTreeMap<CredentialKind, String>,
    /// The GitHub Enterprise host, if there is one: `github.example.org`.
    pub github_enterprise_host: Option<String>,
    /// Where E2B is, and what its machines are made from.
    pub e2b: E2bSettings,
    /// After how many minutes without output a working agent is said to be quiet.
    pub quiet_after_minutes: u32,
    pub has_seen_close_notice: bool,
}

/// What a person can set for one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSettings {
    /// Where its program is, if the search does not find the right one.
    pub path: Option<String>,
    /// How hard its models should think, one of the agent's efforts; `None`: as the agent likes.
    pub effort: Option<String>,
    /// Arguments of every turn, beside ours.
    pub extra_arguments: Vec<String>,
}

/// Where E2B is, if it is not the public service, and what machines are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct E2bSettings {
    /// The domain of a self-hosted one: `e2b.example.org`.
    pub domain: Option<String>,
    /// Where its control plane is, if the domain does not tell.
    pub api_url: Option<String>,
    /// Where its machines are reached, if the domain does not tell.
    pub sandbox_url: Option<String>,
    /// The template of each agent's machines; `base` where none is named.
    pub templates: BTreeMap<AgentKind, String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            theme: "system".to_owned(),
            notifications: Status::ALL.iter().map(|status| (*status, *status != Status::Creating)).collect(),
            agents: BTreeMap::new(),
            base_urls: BTreeMap::new(),
            github_enterprise_host: None,
            e2b: E2bSettings::default(),
            quiet_after_minutes: 5,
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
        for (kind, set) in &mut self.agents {
            set.path = blank(set.path.take());
            set.effort = blank(set.effort.take());
            let Some(agent) = agent(*kind) else { return Err(Invalid(format!("there is no agent {kind}"))) };
            check_effort(agent, set.effort.as_deref())?;
            check_arguments(agent, &set.extra_arguments)?;
        }
        self.agents.retain(|_, set| *set != AgentSettings::default());
        let urls = std::mem::take(&mut self.base_urls);
        for (kind, url) in urls.into_iter().filter_map(|(kind, url)| Some((kind, blank(Some(url))?))) {
            if Endpoint::of(kind).is_none() {
                return Err(Invalid(format!("{} has no address that could be set", kind.name())));
            }
            let url = url.trim_end_matches('/').to_owned();
            url.parse::<Upstream>().map_err(|error| Invalid(error.to_string()))?;
            self.base_urls.insert(kind, url);
        }
        self.github_enterprise_host = blank(self.github_enterprise_host);
        if let Some(Err(error)) = self.github_enterprise_host.as_ref().map(|host| host.parse::<Host>()) {
            return Err(Invalid(format!("the GitHub Enterprise host: {error}")));
        }
        for place in [&mut self.e2b.domain, &mut self.e2b.api_url, &mut self.e2b.sandbox_url] {
            *place = blank(place.take());
        }
        let templates = std::mem::take(&mut self.e2b.templates);
        self.e2b.templates =
            templates.into_iter().filter_map(|(agent, name)| Some((agent, blank(Some(name))?))).collect();
        self.e2b_account(Secret::new(""), "").map_err(|error| Invalid(error.to_string()))?;
        if !(1..=24 * 60).contains(&self.quiet_after_minutes) {
            return Err(Invalid("an agent is quiet after 1 minute at least, and after a day at most".to_owned()));
        }
        if !["system", "light", "dark"].contains(&self.theme.as_str()) {
            return Err(Invalid(format!("there is no theme {:?}", self.theme)));
        }
        Ok(self)
    }

    /// The account this key opens, for this installation of the app.
    ///
    /// # Errors
    /// `NoAddress`, where a machine could not be reached at such an address.
    pub(crate) fn e2b_account(&self, key: Secret, installation: &str) -> Result<Account, NoAddress> {
        let E2bSettings { domain, api_url, sandbox_url, .. } = &self.e2b;
        Account::new(key, domain.as_deref(), api_url.as_deref(), sandbox_url.as_deref(), installation.to_owned())
    }

    /// What an agent's machines are made from, where a person has said so.
    pub(crate) fn template_of(&self, agent: AgentKind) -> Option<String> {
        self.e2b.templates.get(&agent).cloned()
    }

    /// The GitHub Enterprise host; one that an older version let pass counts as none.
    pub(crate) fn github_enterprise(&self) -> Option<Host> {
        self.github_enterprise_host.as_ref().and_then(|host| host.parse().ok())
    }

    /// Where an agent's program is, if a person has said so.
    pub(crate) fn path_of(&self, agent: AgentKind) -> Option<String> {
        self.agents.get(&agent)?.path.clone()
    }

    /// Where the model is that a key opens, if a person has said so. A subscription's token goes where the key would.
    pub(crate) fn base_url_of(&self, credential: CredentialKind) -> Option<String> {
        let place = match credential {
            CredentialKind::ClaudeOauthToken => CredentialKind::AnthropicKey,
            other => other,
        };
        self.base_urls.get(&place).cloned()
    }

    /// The same with an agent's program at this place.
    #[must_use]
    pub fn with_path(mut self, agent: AgentKind, path: impl Into<String>) -> Self {
        self.agents.entry(agent).or_default().path = Some(path.into());
        self
    }

    /// The same with the API that a key opens at this address.
    #[must_use]
    pub fn with_base_url(mut self, credential: CredentialKind, url: impl Into<String>) -> Self {
        self.base_urls.insert(credential, url.into());
        self
    }
}

fn check_effort(agent: &dyn Agent, effort: Option<&str>) -> Result<(), Invalid> {
    match effort {
        Some(effort) if !agent.efforts().contains(&effort) => {
            let known = agent.efforts().join(", ");
            Err(Invalid(format!("{} knows no effort {effort:?}; it knows: {known}", agent.name())))
        }
        _ => Ok(()),
    }
}

/// What a person adds to an agent's command line stands behind what is ours, and must not change its meaning.
fn check_arguments(agent: &dyn Agent, arguments: &[String]) -> Result<(), Invalid> {
    let refuse = |why: String| Err(Invalid(format!("the extra arguments of {}: {why}", agent.name())));
    if arguments.iter().map(String::len).sum::<usize>() > MAX_ARGUMENTS {
        return refuse("they are longer than a command line may be".to_owned());
    }
    if let Some(first) = arguments.first().filter(|first| !first.starts_with('-')) {
        return refuse(format!("{first:?} would be taken for a message; begin with an option"));
    }
    for argument in arguments {
        let name = argument.split('=').next().unwrap_or_default();
        // A short option may stand before its value in the same word.
        let is = |own: &&str| *own == name || (own.len() == 2 && name.starts_with(own) && !name.starts_with("--"));
        if name == "--" || argument.contains('\0') || agent.own_options().iter().any(is) {
            return refuse(format!("{name} is set by CodeCourier itself; leave it out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_base_url(url: &str) -> Settings {
        Settings::default().with_base_url(CredentialKind::AnthropicKey, url)
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
        assert_eq!(with_base_url("  ").checked().unwrap(), Settings::default());
        assert_eq!(Settings::default().with_path(AgentKind::Claude, " ").checked().unwrap(), Settings::default());
    }

    fn with_arguments(arguments: &[&str]) -> Result<Settings, Invalid> {
        let extra_arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let claude = AgentSettings { extra_arguments, ..AgentSettings::default() };
        Settings { agents: [(AgentKind::Claude, claude)].into(), ..Settings::default() }.checked()
    }

    #[test]
    fn extra_arguments_leave_ours_alone() {
        assert!(with_arguments(&["--add-dir", "/x", "--tools=Bash"]).is_ok());
        for refused in [
            &["say hello"][..],
            &["--output-format=text"],
            &["--add-dir", "/x", "--resume", "id"],
            &["-pverbose"],
            &["--", "x"],
        ] {
            let error = with_arguments(refused).unwrap_err().to_string();
            assert!(error.starts_with("the extra arguments of Claude Code: "), "{error}");
        }
    }

    #[test]
    fn an_effort_is_one_the_agent_knows() {
        let with = |agent, effort: &str| {
            let set = AgentSettings { effort: Some(effort.to_owned()), ..AgentSettings::default() };
            Settings { agents: [(agent, set)].into(), ..Settings::default() }.checked()
        };
        assert!(with(AgentKind::Claude, "high").is_ok());
        assert!(with(AgentKind::Claude, "enormous").unwrap_err().to_string().contains("low, medium, high"));
        assert!(with(AgentKind::Shell, "low").is_err());
    }
}
