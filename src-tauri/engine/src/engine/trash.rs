//! The trash: a sandbox is deleted softly, can be restored at any time, and is purged only when a person says so, after
//! hearing what exists nowhere else.
//!
//! - Delete is recorded at once (hidden, not counted), then the sandbox is stopped like any other, its work saved first.
//! - A purge is recorded before it begins and can be broken off anywhere: it goes on at the next tick, or start. The row
//!   goes last.
//! - Nothing is reclaimed by itself.

mod facts;
mod purge;
mod storage;

pub use facts::PurgeFacts;
pub use storage::{Storage, StorageEntry};

use super::{Code, Engine, Error};
use crate::{
    model::{Activity, ProjectId, SandboxId},
    sandbox::{Request, Supervisor, Surroundings},
    store::{self, SandboxRow, sandboxes, trash},
};

impl Engine {
    /// Moves a sandbox to the trash, and stops it where it is live. Returns once both are recorded; one that is in the
    /// trash, or stopping, already stays so.
    ///
    /// # Errors
    /// `NotFound`; where only the stop failed, what that says: it is tried again by itself.
    pub async fn sandbox_delete(&self, id: SandboxId) -> Result<(), Error> {
        let _one_at_a_time = self.around.host.upkeep.deleting.lock().await;
        let now = self.around.clock.now();
        let sandbox = self
            .around
            .store
            .write(move |tx| {
                trash::delete(tx, id, now)?;
                sandboxes::get(tx, id)
            })
            .await?;
        // A second stop would not wait for the agent, nor for its work to be saved.
        if sandbox.lifecycle.status.is_live() && sandbox.lifecycle.activity != Activity::Stopping {
            self.sandbox_stop(id).await?;
        }
        Ok(())
    }

    /// Takes a sandbox out of the trash, whatever its status is.
    ///
    /// # Errors
    /// `NotFound`; `IllegalState` where it is being purged.
    pub async fn sandbox_restore(&self, id: SandboxId) -> Result<(), Error> {
        if self.around.store.write(move |tx| trash::restore(tx, id)).await? {
            return Ok(());
        }
        Err(Error::new(Code::IllegalState, "the sandbox is being purged", "Part of it is gone already."))
    }

    /// What is in the trash, of one project or of all, the last deleted first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn trash_list(&self, project: Option<ProjectId>) -> Result<Vec<SandboxRow>, Error> {
        let rows = self.around.store.read(move |c| trash::deleted(c, project)).await?;
        Ok(rows.into_iter().map(|row| self.around.hindrances.shown(row)).collect())
    }
}

/// What is owed to what was deleted: a stop that could not be recorded, a purge that was broken off.
pub(super) async fn run_due(around: &Surroundings, supervisor: &Supervisor) -> Result<(), store::Error> {
    stop_deleted(around, supervisor).await?;
    let purging = around.store.read(trash::purging).await?;
    // What is removed just now may be one of them; then the next tick looks again.
    if purging.is_empty() || around.host.upkeep.removing.try_lock().is_err() {
        return Ok(());
    }
    let (worker, supervisor) = (around.clone(), supervisor.clone());
    // Removing may take long, and others are due.
    around.tasks.spawn(async move {
        for id in purging {
            if let Err(error) = purge::carry_out(&worker, &supervisor, id).await {
                tracing::warn!(sandbox = %id, %error, "a purge could not be finished; trying again");
            }
        }
    });
    Ok(())
}

async fn stop_deleted(around: &Surroundings, supervisor: &Supervisor) -> Result<(), store::Error> {
    let _one_at_a_time = around.host.upkeep.deleting.lock().await;
    for row in around.store.read(sandboxes::live).await? {
        if row.deleted_at.is_some() && row.lifecycle.activity != Activity::Stopping {
            let answer = supervisor.ask(row.id, Request::Stop).await;
            if let Some(Err(error)) = answer {
                tracing::warn!(sandbox = %row.id, %error, "a deleted sandbox could not be stopped; trying again");
            }
        }
    }
    Ok(())
}
