//! What the app takes on the disk, sandbox by sandbox, and which of it can be removed without losing anything.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    super::{Code, Engine, Error},
    facts::{Found, WouldLose},
    purge::{blocking, has_left},
};
use crate::{
    folder::{FILES, Measure, Measured, Owned},
    model::{ProjectId, SandboxId, Status, Timestamp},
    store::{SandboxRow, trash},
};

/// How long a measurement is good for.
const FRESH: Duration = Duration::from_secs(10);

/// What the app takes on the disk, in bytes.
#[derive(Clone, Debug)]
pub struct Storage {
    pub total: u64,
    pub mirrors: u64,
    pub vaults: u64,
    /// The database, with all conversations and raw logs. What is purged makes room in it; its file stays as large.
    pub database: u64,
    /// Every sandbox, the newest first.
    pub entries: Vec<StorageEntry>,
    /// Everything was measured; else it is at least as much.
    pub is_whole: bool,
}

/// What a sandbox takes, in bytes, and what of it can go.
#[derive(Clone, Debug)]
pub struct StorageEntry {
    pub sandbox: SandboxId,
    pub title: String,
    pub project: ProjectId,
    pub status: Status,
    /// Its folder, and its raw log.
    pub bytes: u64,
    pub workspace_bytes: u64,
    pub home_bytes: u64,
    /// What its turns printed, before it was stored.
    pub spool_bytes: u64,
    /// Its raw log, which is part of the database.
    pub log_bytes: u64,
    /// Clean, pushed and idle: its files can be removed without losing anything.
    pub is_safe: bool,
    /// Why it is, or why not.
    pub reason: String,
    pub ended_at: Option<Timestamp>,
    pub is_deleted: bool,
    pub files_cleaned_at: Option<Timestamp>,
}

impl Engine {
    /// What the app takes on the disk. Measured at most every few seconds.
    ///
    /// # Errors
    /// What the database says.
    pub async fn storage(&self) -> Result<Storage, Error> {
        let measured = self.measured().await?;
        let (rows, logs) =
            self.around.store.read(|c| Ok::<_, crate::store::Error>((trash::all(c)?, trash::log_bytes(c)?))).await?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let sizes = measured.sandboxes.get(&row.id).copied().unwrap_or_default();
            let log_bytes = logs.get(&row.id).copied().unwrap_or(0);
            let (is_safe, reason) = match self.safety(&row).await? {
                Ok(reason) => (true, reason),
                Err(reason) => (false, reason.to_string()),
            };
            entries.push(StorageEntry {
                sandbox: row.id,
                title: row.title,
                project: row.project,
                status: row.lifecycle.status,
                bytes: sizes.all + log_bytes,
                workspace_bytes: sizes.workspace,
                home_bytes: sizes.home,
                spool_bytes: sizes.spools,
                log_bytes,
                is_safe,
                reason,
                ended_at: row.ended_at,
                is_deleted: row.deleted_at.is_some(),
                files_cleaned_at: row.files_cleaned_at,
            });
        }
        let (mirrors, vaults) =
            measured.projects.values().fold((0, 0), |sum, project| (sum.0 + project.0, sum.1 + project.1));
        let (database, is_whole) = (measured.database, measured.is_whole);
        Ok(Storage { total: measured.all, mirrors, vaults, database, entries, is_whole })
    }

    /// Removes the files of ended sandboxes: workspace, home and spools. Conversation, raw log and checkpoints stay. Says
    /// how many bytes that freed.
    ///
    /// # Errors
    /// `NotFound`; `IllegalState` with the reason where one of them is not safe: nothing was removed then. `DataFolder`
    /// where a folder is not certain to be ours, or cannot be removed.
    pub async fn storage_clean(&self, sandboxes: Vec<SandboxId>) -> Result<u64, Error> {
        let engine = self.clone();
        // Whoever asked may stop waiting: what was begun goes on.
        let work = self.around.tasks.spawn(async move { engine.clean(sandboxes).await });
        work.await.map_err(|_| Error::shutting_down())?
    }

    async fn clean(&self, sandboxes: Vec<SandboxId>) -> Result<u64, Error> {
        let upkeep = &self.around.host.upkeep;
        let _one_at_a_time = upkeep.removing.lock().await;
        for id in &sandboxes {
            has_left(&self.supervisor, *id).await;
            let row = self.sandbox_get(*id).await?;
            if let Err(reason) = self.safety(&row).await? {
                let message = format!("the files of “{}” cannot be removed: {reason}", row.title);
                return Err(Error::new(Code::IllegalState, message, "Choose only what is marked as safe."));
            }
        }
        let mut freed = 0;
        for id in sandboxes {
            let (home, now) = (self.around.host.home().to_owned(), self.around.clock.now());
            let name = id.to_string();
            let (before, folder) = (Measure::new(), self.around.directory(id));
            let owned = {
                let (home, name) = (home.clone(), name.clone());
                blocking(move || Ok(Owned::claim(&home, &name)?)).await?
            };
            let Some(owned) = owned else { continue };
            self.around.store.write(move |tx| trash::set_files_cleaned(tx, id, now)).await?;
            let shutdown = self.around.shutdown.clone();
            freed += blocking(move || {
                let mut measure = before;
                let before = measure.sandbox(&folder).all;
                owned.remove_entries(&FILES, &|| !shutdown.is_cancelled())?;
                Ok(before.saturating_sub(Measure::new().sandbox(&folder).all))
            })
            .await?;
        }
        upkeep.measured.lock().await.take();
        Ok(freed)
    }

    /// Whether a sandbox's files can be removed without losing anything; either way why.
    async fn safety(&self, row: &SandboxRow) -> Result<Result<String, WouldLose>, Error> {
        let id = row.id;
        if row.lifecycle.status.is_live() || self.supervisor.has_owner(id) {
            return Ok(Err(WouldLose::new("it has not ended")));
        }
        let (around, row) = (&self.around, row.clone());
        if around.store.read(move |c| trash::is_purging(c, id)).await? {
            return Ok(Err(WouldLose::new("it is being purged")));
        }
        if row.files_cleaned_at.is_some() {
            return Ok(Ok("its files were removed".to_owned()));
        }
        Ok(Found::of(around, row).await?.safety())
    }

    async fn measured(&self) -> Result<Arc<Measured>, Error> {
        // Who asks meanwhile waits for the same measurement.
        let mut last = self.around.host.upkeep.measured.lock().await;
        if let Some((at, measured)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(measured.clone());
        }
        let home = self.around.host.home().to_owned();
        let measured = Arc::new(blocking(move || Ok(Measure::home(&home))).await?);
        *last = Some((Instant::now(), measured.clone()));
        Ok(measured)
    }
}
