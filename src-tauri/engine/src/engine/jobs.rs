//! Durable jobs: what must still happen when nobody waits for it any more. One kind so far: destroying what a sandbox
//! that was given up may have left behind.

use std::time::Duration;

use crate::{
    provider::ProviderId,
    sandbox::Surroundings,
    store::{self, jobs, sandboxes},
};

/// How often due jobs are looked for.
const TICK: Duration = Duration::from_secs(30);

/// Runs due jobs until the engine shuts down.
pub(super) fn start(around: &Surroundings) {
    let worker = around.clone();
    around.tasks.spawn(async move {
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while worker.shutdown.run_until_cancelled(ticker.tick()).await.is_some() {
            if let Err(error) = run_due(&worker).await {
                tracing::warn!(%error, "jobs could not be run; trying again");
            }
        }
    });
}

async fn run_due(around: &Surroundings) -> Result<(), store::Error> {
    for sandbox in around.store.read(jobs::due_destroys).await? {
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
    Ok(())
}
