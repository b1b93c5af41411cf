//! A sandbox's life: one actor per live sandbox, and the supervisor that holds the one map of them.

mod actor;
mod blocked;
mod clocks;
mod elsewhere;
mod ending;
mod hindrances;
mod ingest;
mod launch;
mod presence;
mod provisioning;
mod saving;
mod supervisor;
mod turn;

pub(crate) use actor::Request;
pub(crate) use clocks::Clocks;
pub(crate) use hindrances::Hindrances;
pub(crate) use launch::{billed_to, is_key_inside, prepare};
pub(crate) use saving::{Error as NotSaved, Occasion, Saving, author, save};
pub(crate) use supervisor::Supervisor;

use std::{path::PathBuf, sync::Arc};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    delivery::Deliverer,
    host::Host,
    model::{Clock, ProviderKind, SandboxId},
    provider::Provider,
    store::{SandboxRow, Store},
    work::{self, Checkpoints},
};

/// What every actor works with.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub clocks: Clocks,
    pub hindrances: Hindrances,
    pub host: Arc<Host>,
    pub providers: Vec<Arc<dyn Provider>>,
    pub saving: Saving,
    pub deliverer: Deliverer,
    pub tasks: TaskTracker,
    /// Cancelled when the engine shuts down: everything detaches.
    pub shutdown: CancellationToken,
}

impl Surroundings {
    pub(crate) fn provider(&self, kind: ProviderKind) -> Option<Arc<dyn Provider>> {
        self.providers.iter().find(|provider| provider.kind() == kind).cloned()
    }

    /// What takes a sandbox's checkpoints.
    pub(crate) async fn checkpoints(&self, row: &SandboxRow) -> Result<Checkpoints, work::Error> {
        self.host.checkpoints(row.project, self.host.home().join("checkpoints")).await
    }

    /// A sandbox's own folder.
    pub(crate) fn directory(&self, sandbox: SandboxId) -> PathBuf {
        self.host.home().join("sandboxes").join(sandbox.to_string())
    }
}
