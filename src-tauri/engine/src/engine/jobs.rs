//! Durable jobs: what must still happen when nobody waits for it any more. What is owed to the trash is looked for at the
//! same time.

use std::time::Duration;

use crate::{
    delivery,
    provider::ProviderId,
    sandbox::{Occasion, Supervisor, Surroundings, save},
    store::{
        self, SandboxRow,
        jobs::{self, Attempt, DueJob, Kind},
        sandboxes,
    },
};

use super::{continuing, trash};

/// How often due jobs are looked for.
const TICK: Duration = Duration::from_secs(30);
/// How long to wait before what failed is tried again: longer each time, and never longer than the last.
const AGAIN: [u64; 6] = [30, 60, 5 * 60, 15 * 60, 60 * 60, 6 * 60 * 60];
/// How often the work of a sandbox that went away is tried to be saved: what cannot be read stays unreadable.
const SAVES: u32 = 5;

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
    delivery::watch(around);
}

async fn run_due(around: &Surroundings, supervisor: &Supervisor) -> Result<(), store::Error> {
    // Where nothing is live any more, nobody else looks whether the clock was set.
    around.clocks.settle(&around.store).await?;
    let now = around.clock.now();
    for job in around.store.read(move |connection| jobs::due(connection, now)).await? {
        if matches!(job.kind, Kind::Destroy | Kind::Save) && supervisor.has_owner(job.sandbox) {
            // It was given up while it was being made: what arrives after a destroy would stay.
            continue;
        }
        let sandbox = job.sandbox;
        let row = match around.store.read(move |connection| sandboxes::get(connection, sandbox)).await {
            Ok(row) => row,
            Err(error) => {
                // The others' turn comes all the same.
                tracing::warn!(%sandbox, %error, "a sandbox that is owed something could not be read");
                continue;
            }
        };
        let attempt = match job.kind {
            Kind::Destroy => destroy(around, &row, job).await,
            Kind::Save => save_left(around, &row, job).await?,
            Kind::Continue => continuing::go_on(around, supervisor, &row, job.attempts).await?,
            // It records by itself how it went; a slow server does not hold up the others.
            Kind::Deliver => {
                let around = around.clone();
                around.tasks.clone().spawn(async move { around.deliverer.retry(&around, sandbox).await });
                continue;
            }
        };
        let now = around.clock.now();
        around.store.write(move |tx| jobs::record(tx, job.kind, sandbox, &attempt, now)).await?;
    }
    trash::run_due(around, supervisor).await
}

/// How long to wait after this many attempts.
pub(crate) fn again(attempts: u32) -> Duration {
    let index = usize::try_from(attempts).unwrap_or(usize::MAX).min(AGAIN.len() - 1);
    Duration::from_secs(AGAIN[index])
}

async fn destroy(around: &Surroundings, row: &SandboxRow, job: DueJob) -> Attempt {
    let Some(provider) = around.provider(row.provider) else { return Attempt::Done };
    let id = ProviderId(row.provider_id.clone().unwrap_or_else(|| row.id.to_string()));
    let again = |cause: String| Attempt::Again { cause, after: again(job.attempts) };
    if !provider.keeps_files() && !row.base_commit.is_empty() {
        // It was given up while nobody could reach it, and its work goes with it.
        match save(around, provider.clone(), row, &Occasion::Ending { is_answering: true }).await {
            Ok(_) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => return again(error.to_string()),
        }
    }
    match provider.destroy(&id).await {
        Ok(()) => Attempt::Done,
        Err(error) => again(error.to_string()),
    }
}

/// Saves what a sandbox that went away by itself left behind, and delivers it where the project says so.
async fn save_left(around: &Surroundings, row: &SandboxRow, job: DueJob) -> Result<Attempt, store::Error> {
    let Some(provider) = around.provider(row.provider) else { return Ok(Attempt::Done) };
    match save(around, provider, row, &Occasion::Ending { is_answering: false }).await {
        Ok(_) => {
            if delivery::begin_at_end(around, row.id).await? {
                let (around, id) = (around.clone(), row.id);
                around.tasks.clone().spawn(async move { around.deliverer.run(&around, id).await });
            }
            Ok(Attempt::Done)
        }
        Err(error) if job.attempts < SAVES => {
            Ok(Attempt::Again { cause: error.to_string(), after: again(job.attempts) })
        }
        Err(error) => {
            tracing::warn!(sandbox = %row.id, %error, "what a lost sandbox left could not be saved");
            let id = row.id;
            around.store.write(move |tx| sandboxes::set_unsaved(tx, id, true)).await?;
            Ok(Attempt::Done)
        }
    }
}
