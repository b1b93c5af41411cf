//! Providers that make machines on an account: whose account it is, and which machines nobody owns any more.

use std::{collections::HashMap, time::Duration};

use uuid::Uuid;

use super::{Engine, Error};
use crate::{
    model::{ProviderKind, SandboxId},
    provider::{Owned, ProviderId, Used},
    sandbox::{Request, Supervisor, Surroundings},
    secrets::CredentialKind,
    settings::Settings,
    store::{self, jobs, sandboxes, settings},
};

/// Under which the installation's id is stored.
const INSTALLATION: &str = "installation";
/// How often the machines are looked at: what becomes of one from outside is seen within a second.
const LOOK: Duration = Duration::from_millis(700);

/// A machine of the account that no sandbox owns: it may cost money for nothing.
#[derive(Clone, Debug)]
pub struct UnownedMachine {
    pub provider: ProviderKind,
    pub id: String,
    pub is_paused: bool,
    /// What it was made from.
    pub template: String,
    /// Since when it runs, as the provider writes times.
    pub since: String,
    /// Another installation of this app made it, with the same account: it may be in use there.
    pub is_of_another: bool,
}

/// Tells every provider whose account it works on, as the settings and keys say now.
pub(super) async fn sign_in(around: &Surroundings) -> Result<(), Error> {
    let Some(provider) = around.provider(ProviderKind::E2b) else { return Ok(()) };
    let settings = Settings::load(&around.store).await?;
    // One that cannot be read is missing; the Doctor says why.
    let key = around.host.stored(CredentialKind::E2bKey).await.ok().flatten();
    let account = match key {
        None => None,
        Some(stored) => {
            let installation = installation(around).await?;
            let account = settings.e2b_account(stored.secret, &installation);
            Some(account.map_err(|error| Error::invalid(error.to_string()))?)
        }
    };
    Ok(provider.sign_in(account)?)
}

/// What tells this installation's machines from those of another with the same account.
async fn installation(around: &Surroundings) -> Result<String, store::Error> {
    around
        .store
        .write(|tx| {
            let known: Option<String> = settings::get(tx, INSTALLATION)?;
            if let Some(known) = known {
                return Ok(known);
            }
            let fresh = Uuid::new_v4().simple().to_string();
            settings::set(tx, INSTALLATION, &Some(&fresh))?;
            Ok(fresh)
        })
        .await
}

/// Compares the account with the rows: a machine of ours whose sandbox has ended is owed an end.
pub(super) async fn reconcile(around: &Surroundings) -> Result<(), Error> {
    let Some(provider) = around.provider(ProviderKind::E2b) else { return Ok(()) };
    let (now, owned) = (around.clock.now(), provider.owned().await?);
    for machine in owned.into_iter().filter(|machine| machine.is_of_this) {
        let Some(sandbox) = machine.sandbox else { continue };
        let ended = around.store.write(move |tx| match sandboxes::get(tx, sandbox) {
            Ok(row) if !row.lifecycle.status.is_live() => {
                jobs::insert(tx, jobs::Kind::Destroy, sandbox, now)?;
                Ok(true)
            }
            Ok(_) | Err(store::Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        });
        if ended.await? {
            tracing::warn!(%sandbox, machine = %machine.id.0, "a machine outlived its sandbox; it is ended");
        }
    }
    Ok(())
}

/// Looks again and again how the machines are, with one question for all of them, and has those looked at closer that
/// became something else without us: paused, ended or woken from outside.
pub(super) fn watch(around: &Surroundings, supervisor: &Supervisor) {
    let (watching, supervisor) = (around.clone(), supervisor.clone());
    let Some(provider) = around.provider(ProviderKind::E2b) else { return };
    around.tasks.spawn(async move {
        let shutdown = watching.shutdown.clone();
        let mut ticker = tokio::time::interval(LOOK);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut known: HashMap<SandboxId, bool> = HashMap::new();
        while shutdown.run_until_cancelled(ticker.tick()).await.is_some() {
            let has_any = watching.store.read(|connection| sandboxes::has_live(connection, ProviderKind::E2b)).await;
            if !has_any.unwrap_or(false) {
                known.clear();
                continue;
            }
            // Nobody knows, and everybody asks for themselves every few seconds.
            let Some(Ok(owned)) = shutdown.run_until_cancelled(provider.owned()).await else { continue };
            let of_this = owned.into_iter().filter(|machine| machine.is_of_this);
            let found: HashMap<SandboxId, bool> =
                of_this.filter_map(|machine| Some((machine.sandbox?, machine.is_paused))).collect();
            for (sandbox, was_paused) in &known {
                if found.get(sandbox) != Some(was_paused) {
                    supervisor.tell(*sandbox, Request::Check).await;
                }
            }
            known = found;
        }
    });
}

impl Engine {
    /// The machines of the person's accounts that bear the app's mark and that no sandbox here owns.
    ///
    /// # Errors
    /// `MissingKey`, or `Provider` where the account could not be asked.
    pub async fn machine_list(&self) -> Result<Vec<UnownedMachine>, Error> {
        let Some(provider) = self.around.provider(ProviderKind::E2b) else { return Ok(Vec::new()) };
        let mut unowned = Vec::new();
        for machine in provider.owned().await? {
            if !self.is_owned(&machine).await? {
                unowned.push(UnownedMachine {
                    provider: ProviderKind::E2b,
                    id: machine.id.0,
                    is_paused: machine.is_paused,
                    template: machine.template,
                    since: machine.since,
                    is_of_another: !machine.is_of_this,
                });
            }
        }
        Ok(unowned)
    }

    async fn is_owned(&self, machine: &Owned) -> Result<bool, Error> {
        let Some(sandbox) = machine.sandbox else { return Ok(false) };
        match self.around.store.read(move |c| sandboxes::get(c, sandbox)).await {
            Ok(_) => Ok(true),
            Err(store::Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a machine that no sandbox owns. One that does not bear the app's mark is never touched.
    ///
    /// # Errors
    /// `NotFound` where there is no such machine; what the provider says.
    pub async fn machine_destroy(&self, id: &str) -> Result<(), Error> {
        let is_listed = self.machine_list().await?.iter().any(|machine| machine.id == id);
        match self.around.provider(ProviderKind::E2b).filter(|_| is_listed) {
            Some(provider) => Ok(provider.destroy(&ProviderId(id.to_owned())).await?),
            None => Err(Error::no_machine(id)),
        }
    }

    /// What a sandbox uses now, where its provider tells.
    ///
    /// # Errors
    /// `NotFound`; what the provider says.
    pub async fn sandbox_used(&self, id: crate::model::SandboxId) -> Result<Option<Used>, Error> {
        let row = self.around.store.read(move |c| sandboxes::get(c, id)).await?;
        match (self.around.provider(row.provider), row.provider_id) {
            (Some(provider), Some(machine)) if row.lifecycle.status.is_live() => {
                Ok(provider.used(&ProviderId(machine)).await?)
            }
            _ => Ok(None),
        }
    }
}
