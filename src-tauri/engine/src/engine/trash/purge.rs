//! Purging: everything the app keeps of a sandbox is removed, in an order in which each step may be done again.

use std::{path::PathBuf, time::Duration};

use super::super::{Code, Engine, Error};
use crate::{
    folder::{self, Owned},
    model::{ProjectId, SandboxId},
    provider::ProviderId,
    sandbox::{Supervisor, Surroundings},
    store::{SandboxRow, sandboxes, trash},
    work,
};

/// How long an owner may take to leave a sandbox that has ended, and how often that is looked for.
const LEAVING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// How long making sure that nothing of it runs may take.
const DESTROY: Duration = Duration::from_secs(60);

impl Engine {
    /// Removes a sandbox that is in the trash and has ended: its conversation and log, its files, its checkpoints. What it
    /// consumed stays, with project and title. Returns once all is gone; broken off, it goes on by itself.
    ///
    /// # Errors
    /// `NotFound`; `IllegalState` where it is not in the trash, or has not ended; `DataFolder` where its folder is not
    /// certain to be ours, or cannot be removed.
    pub async fn sandbox_purge(&self, id: SandboxId) -> Result<(), Error> {
        let (around, supervisor) = (self.around.clone(), self.supervisor.clone());
        // Whoever asked may stop waiting: what was begun goes on.
        let work = self.around.tasks.spawn(async move {
            begin(&around, &supervisor, id).await?;
            carry_out(&around, &supervisor, id).await
        });
        work.await.map_err(|_| Error::shutting_down())?
    }

    /// Purges everything in the trash that has ended, and says how many that were. What still ends stays there.
    ///
    /// # Errors
    /// The first of what could not be purged; the others were.
    pub async fn trash_empty(&self) -> Result<u32, Error> {
        let (mut purged, mut failed) = (0, None);
        for row in self.trash_list(None).await? {
            if row.lifecycle.status.is_live() {
                continue;
            }
            match self.sandbox_purge(row.id).await {
                Ok(()) => purged += 1,
                Err(error) if error.code() == Code::ShuttingDown => return Err(error),
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        failed.map_or(Ok(purged), Err)
    }
}

/// Records that a sandbox is being purged, where it may be.
async fn begin(around: &Surroundings, supervisor: &Supervisor, id: SandboxId) -> Result<(), Error> {
    let now = around.clock.now();
    let row = around.store.read(move |c| sandboxes::get(c, id)).await?;
    if row.deleted_at.is_none() {
        let message = "the sandbox is not in the trash";
        return Err(Error::new(Code::IllegalState, message, "Delete it first; until it is purged it can be restored."));
    }
    if row.lifecycle.status.is_live() || !has_left(supervisor, id).await {
        return Err(still_ending());
    }
    // Before anything is removed: what is not ours stays, and so does the row that leads to it.
    let (home, name) = (around.host.home().to_owned(), id.to_string());
    blocking(move || Ok(Owned::claim(&home, &name).map(drop)?)).await?;
    around
        .store
        .write(move |tx| {
            let row = sandboxes::get(tx, id)?;
            if row.deleted_at.is_none() || row.lifecycle.status.is_live() {
                return Err(still_ending());
            }
            trash::begin_purge(tx, id, now)?;
            Ok(sandboxes::set_headline(tx, id, "is being purged")?)
        })
        .await
}

fn still_ending() -> Error {
    Error::new(
        Code::IllegalState,
        "the sandbox has not ended yet: its work is still being saved",
        "Wait until it has ended, then purge it.",
    )
}

/// Whether nobody owns a sandbox any more. Its owner outlives the end it records by a moment.
pub(super) async fn has_left(supervisor: &Supervisor, id: SandboxId) -> bool {
    let leaving = async {
        while supervisor.has_owner(id) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LEAVING, leaving).await.is_ok()
}

/// Does what is left of a purge that is recorded.
pub(super) async fn carry_out(around: &Surroundings, supervisor: &Supervisor, id: SandboxId) -> Result<(), Error> {
    let _one_at_a_time = around.host.upkeep.removing.lock().await;
    if !around.store.read(move |c| trash::is_purging(c, id)).await? {
        // Somebody else has done it.
        return Ok(());
    }
    if !has_left(supervisor, id).await {
        return Err(still_ending());
    }
    let row = around.store.read(move |c| sandboxes::get(c, id)).await?;
    let removed = remove(around, &row).await;
    around.host.upkeep.measured.lock().await.take();
    if let Err(error) = &removed
        && error.code() != Code::ShuttingDown
    {
        let headline = format!("could not be purged: {error}");
        around.store.write(move |tx| sandboxes::set_headline(tx, id, &headline)).await?;
    }
    removed
}

async fn remove(around: &Surroundings, row: &SandboxRow) -> Result<(), Error> {
    let id = row.id;
    // An ending may have been given up, and a keeper outlives the app: only now is it certain that nothing of it runs.
    if let Some(provider) = around.provider(row.provider) {
        let provider_id = ProviderId(row.provider_id.clone().unwrap_or_else(|| id.to_string()));
        match tokio::time::timeout(DESTROY, provider.destroy(&provider_id)).await {
            Ok(Ok(()) | Err(crate::provider::Error::Gone | crate::provider::Error::Unsupported)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(crate::provider::Error::Deadline { what: "the sandbox's end", limit: DESTROY }.into()),
        }
    }
    let (home, shutdown) = (around.host.home().to_owned(), around.shutdown.clone());
    let (vault, mirror) = (around.host.vault(row.project), around.host.mirror(row.project));
    let branch = row.branch.clone();
    let workspace = around.directory(id).join("workspace");
    blocking(move || {
        if let Some(owned) = Owned::claim(&home, &id.to_string())? {
            // It may have been stopped while it was cloned, and that goes on to its end.
            work::wait_for_clone(&workspace)?;
            owned.remove(&|| !shutdown.is_cancelled())?;
        }
        if vault.path().exists() {
            vault.forget(id, &branch)?;
        }
        // Last, since a workspace borrows what is pinned.
        Ok(mirror.unpin(id)?)
    })
    .await?;
    if let Ok(checkpoints) = around.checkpoints(row).await {
        checkpoints.forget(id).await?;
    }
    while around.store.write(move |tx| trash::remove_piece(tx, id)).await? {
        if around.shutdown.is_cancelled() {
            return Err(Error::shutting_down());
        }
    }
    Ok(around.store.write(move |tx| trash::remove(tx, id)).await?)
}

/// The project's vault.
pub(super) fn vault(around: &Surroundings, project: ProjectId) -> PathBuf {
    around.host.home().join("projects").join(project.to_string()).join("vault.git")
}

/// Runs work that waits for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::shutting_down())?
}

impl From<folder::Error> for Error {
    fn from(error: folder::Error) -> Self {
        let (code, remedy) = match &error {
            folder::Error::NotOurs { .. } | folder::Error::Elsewhere(_) => {
                (Code::DataFolder, "Look at it, move or remove it yourself, then try again.")
            }
            folder::Error::Io { .. } => (Code::DataFolder, "See what holds it, then try again."),
            folder::Error::BrokenOff => return Self::shutting_down(),
        };
        Self::new(code, error.to_string(), remedy)
    }
}
