//! The one map of live sandboxes, and the one ticker that compares them with what truly runs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Surroundings,
    actor::{self, Handle, Request},
};
use crate::{
    agent,
    engine::Error,
    model::SandboxId,
    store::{self, SandboxRow, sandboxes},
};

/// How often every live sandbox is compared with its provider.
const CHECK: Duration = Duration::from_secs(5);

/// Starts actors and finds them.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    around: Surroundings,
    actors: Arc<Mutex<HashMap<SandboxId, Handle>>>,
}

impl Supervisor {
    /// Takes up every live sandbox of an earlier life, and begins to watch.
    pub(crate) async fn start(around: Surroundings) -> Result<Self, store::Error> {
        let supervisor = Self { around: around.clone(), actors: Arc::default() };
        for row in around.store.read(sandboxes::live).await? {
            supervisor.adopt(row);
        }
        let watching = supervisor.clone();
        around.tasks.spawn(async move {
            let shutdown = watching.around.shutdown.clone();
            let mut ticker = tokio::time::interval(CHECK);
            ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while shutdown.run_until_cancelled(ticker.tick()).await.is_some() {
                for handle in watching.handles() {
                    // A full inbox is busy enough to notice by itself.
                    _ = handle.inbox.try_send(Request::Check);
                }
                // An owner that stopped (the database could not be written) is replaced by one that reads the row anew.
                match watching.around.store.read(sandboxes::live).await {
                    Ok(rows) => rows.into_iter().for_each(|row| watching.adopt(row)),
                    Err(error) => tracing::warn!(%error, "live sandboxes could not be listed"),
                }
            }
        });
        Ok(supervisor)
    }

    /// Gives a live sandbox its actor.
    pub(crate) fn adopt(&self, row: SandboxRow) {
        let id = row.id;
        let (Some(agent), Some(provider)) = (agent::agent(row.agent), self.around.provider(row.provider)) else {
            tracing::error!(sandbox = %id, agent = %row.agent, provider = %row.provider, "nothing here can run this sandbox");
            return;
        };
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if actors.get(&id).is_some_and(|handle| !handle.inbox.is_closed()) {
            return;
        }
        actors.insert(id, actor::spawn(self.around.clone(), row, agent, provider));
    }

    /// Asks an actor and waits for its answer; `None` where the sandbox is not live.
    pub(crate) async fn ask(
        &self,
        id: SandboxId,
        request: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Request,
    ) -> Option<Result<(), Error>> {
        let handle = self.actors.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()?;
        let (reply, answer) = oneshot::channel();
        handle.inbox.send(request(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Tells an actor something, where the sandbox is live.
    pub(crate) async fn tell(&self, id: SandboxId, request: Request) {
        let handle = self.actors.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(handle) = handle {
            // It may have ended in the meantime, and then there is nothing to tell.
            _ = handle.inbox.send(request).await;
        }
    }

    /// Whether a sandbox has an owner, who sees to whatever is owed.
    pub(crate) fn has_owner(&self, id: SandboxId) -> bool {
        let actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors.get(&id).is_some_and(|handle| !handle.inbox.is_closed())
    }

    /// Every owner there is; those that have ended are forgotten.
    fn handles(&self) -> Vec<Handle> {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors.retain(|_, handle| !handle.inbox.is_closed());
        actors.values().cloned().collect()
    }
}
