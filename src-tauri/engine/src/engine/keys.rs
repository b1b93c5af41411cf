//! Keys and agents, as a person sees them.

use super::{Engine, Error};
use crate::{
    agent::{self, Agent},
    model::{AgentKind, ProviderKind},
    sandbox::{billed_to, is_key_inside},
    secrets::{CredentialKind, Secret},
    settings::Settings,
    store::Change,
};

/// A key that can be stored, without the key.
#[derive(Clone, Debug)]
pub struct CredentialInfo {
    pub kind: CredentialKind,
    pub name: &'static str,
    /// `None`: not set. A short secret has no last four characters to show.
    pub last_four: Option<String>,
    /// It is kept in memory only, and gone when the app ends.
    pub is_session_only: bool,
    pub used_by: Vec<AgentKind>,
}

/// An agent and whether it could start now.
#[derive(Clone, Debug)]
pub struct AgentInfo {
    pub agent: &'static dyn Agent,
    pub version: Option<String>,
    pub is_installed: bool,
    /// Who would pay.
    pub billed_to: Option<String>,
    /// It would have that key itself, in a sandbox of this machine.
    pub is_key_inside: bool,
    /// Why it could not start, with the remedy.
    pub problem: Option<String>,
}

impl Engine {
    /// Every key that can be stored.
    ///
    /// Where no keychain answers none is set; the Doctor says why.
    pub async fn credential_list(&self) -> Vec<CredentialInfo> {
        let mut list = Vec::new();
        for kind in CredentialKind::ALL {
            list.push(self.credential_info(*kind).await);
        }
        list
    }

    async fn credential_info(&self, kind: CredentialKind) -> CredentialInfo {
        let stored = self.around.host.stored(kind).await.unwrap_or(None);
        let used_by = agent::agents().iter().filter(|agent| agent.credentials().contains(&kind));
        CredentialInfo {
            kind,
            name: kind.name(),
            is_session_only: stored.as_ref().is_some_and(|stored| stored.is_session_only),
            last_four: stored.map(|stored| stored.secret.last_four()),
            used_by: used_by.map(|agent| agent.kind()).collect(),
        }
    }

    /// Stores a key in the keychain, or for this session only.
    ///
    /// # Errors
    /// `Invalid` where it is not such a key, `NoKeychain`.
    pub async fn credential_set(
        &self,
        kind: CredentialKind,
        secret: Secret,
        session_only: bool,
    ) -> Result<CredentialInfo, Error> {
        let secret = kind.check(secret.expose())?;
        self.around.host.store_credential(kind, secret, session_only).await?;
        self.sign_in(kind).await?;
        self.feed().publish(Change::Credentials);
        Ok(self.credential_info(kind).await)
    }

    /// Removes a key; one that is not there is removed already.
    ///
    /// # Errors
    /// `NoKeychain`.
    pub async fn credential_remove(&self, kind: CredentialKind) -> Result<(), Error> {
        let removed = self.around.host.remove_credential(kind).await;
        self.sign_in(kind).await?;
        self.feed().publish(Change::Credentials);
        Ok(removed?)
    }

    async fn sign_in(&self, kind: CredentialKind) -> Result<(), Error> {
        if kind == CredentialKind::E2bKey { super::machines::sign_in(&self.around).await } else { Ok(()) }
    }

    /// Every agent of the registry, and whether it could start now.
    ///
    /// # Errors
    /// What the database says.
    pub async fn agent_list(&self) -> Result<Vec<AgentInfo>, Error> {
        let settings = Settings::load(&self.around.store).await?;
        let provider = self.around.provider(ProviderKind::Local);
        let mut list = Vec::new();
        for agent in agent::agents() {
            let cli = self.around.host.find_cli(*agent, &settings).await;
            let credential = self.around.host.credential_for(*agent, agent.default_model(), &settings).await;
            let problem = cli.as_ref().err().or(credential.as_ref().err());
            let inside = |kind| provider.as_ref().is_some_and(|local| is_key_inside(*agent, kind, local.as_ref()));
            list.push(AgentInfo {
                agent: *agent,
                is_key_inside: matches!(&credential, Ok(Some((kind, _))) if inside(*kind)),
                is_installed: cli.is_ok(),
                problem: problem.map(|error| format!("{}. {}", error.message, error.remedy)),
                version: cli.ok().and_then(|cli| cli.version),
                billed_to: credential.ok().flatten().map(|(kind, secret)| billed_to(kind, &secret)),
            });
        }
        Ok(list)
    }
}
