//! Durable jobs: what must still happen when nobody waits for it any more. One kind so far: destroying what a sandbox
//! that was given up may have left behind. What is owed to the trash is looked for at the same time.

use std::time::Duration;

use crate::{
    provider::ProviderId,
    sandbox::{Supervisor, Surroundings},
    store::{self, jobs, sandboxes},
};

use super::trash;

/// How often due jobs are looked for.
const TICK: Duration = Duration::from_secs(30);

/// Runs due jobs until the engine shuts down.
pub(super) fn start(around: &Surroundings, supervisor: &Supervisor) {
    let (worker, supervisor) = (around.clone(), supervisor.clone());
    around.tasks.spawn(async move {
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let shutdown = worker.shutdown.clone();
        while shutdown.run_until_cancelled(ticker.tick()).await.is_some() {
            // What is broken off is still due at the next start.
            if let Some(Err(error)) = shutdown.run_until_cancelled(run_due(&worker, &supervisor)).await {
                tracing::warn!(%error, "jobs could not be run; trying again");
            }
        }
    });
}

async fn run_due(around: &Surroundings, supervisor: &Supervisor) -> Result<(), store::Error> {
    for sandbox in around.store.read(jobs::due_destroys).await? {
        if supervisor.has_owner(sandbox) {
            // It was given up while it was being made: what arrives after a destroy would stay.
            continue;
        }
        let row = match around.store.read(move |connection| sandboxes::get(connection, sandbox)).await {
            Ok(row) => row,
            Err(error) => {
                // The others' turn comes all the same.
                tracing::warn!(%sandbox, %error, "a sandbox to destroy could not be read");
                continue;
            }
        };
        let Some(provider) = around.provider(row.provider) else { continue };
        let id = ProviderId(row.provider_id.unwrap_or_else(|| sandbox.to_string()));
        let error = provider.destroy(&id).await.err().map(|error| error.to_string());
        around.store.write(move |tx| jobs::record_destroy(tx, sandbox, error.as_deref())).await?;
    }
    trash::run_due(around, supervisor).await
}
