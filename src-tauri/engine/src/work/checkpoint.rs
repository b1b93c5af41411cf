//! Checkpoints of sandboxes' working trees, taken by the [`Worker`] into the project's vault.

use std::path::{Path, PathBuf};

use courier_checkpoint::{
    bring::{self, Bringing},
    jail::Sight,
    request::{Answer, Request},
    take,
};
use git2::Oid;

pub use courier_checkpoint::{
    bring::Brought,
    take::{Limits, Skipped, Why},
};

use super::{
    Error, Vault,
    worker::{Worker, WorkerError},
};
use crate::model::SandboxId;

/// Takes checkpoints in one project. Two of one sandbox must not be taken at once; of different ones they may.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub worker: Worker,
    pub vault: Vault,
    /// Where each sandbox has a folder with what is remembered between two checkpoints. No sandbox sees it.
    pub private: PathBuf,
    pub limits: Limits,
}

/// A checkpoint to take.
#[derive(Clone, Debug)]
pub struct Taking<'a> {
    pub sandbox: SandboxId,
    /// What the reference is called, `refs/courier/<sandbox>/<name>`: a turn's id, `pause`, `stop`… One of that name is
    /// replaced.
    pub name: &'a str,
    pub workspace: &'a Path,
    /// The commit the sandbox began with.
    pub base: Oid,
    /// The agent's own commit, where one was brought into the vault: the parent instead of `base`.
    pub head: Option<Oid>,
    pub message: &'a str,
    pub author: (&'a str, &'a str),
    /// Seconds since 1970.
    pub at: i64,
}

/// A checkpoint that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub commit: Oid,
    pub tree: Oid,
    pub parent: Oid,
    /// Nothing changed since the last one: the reference names the same commit.
    pub is_same_as_last: bool,
    /// Paths added, changed or removed since the last checkpoint.
    pub files_changed: u64,
    /// What could not be taken, the first thousand; a sandbox with any is not destroyed without asking.
    pub skipped: Vec<Skipped>,
    /// How many there were.
    pub skipped_count: u64,
    /// Paths changed since the base that belong into large-file storage: they hold the push.
    pub lfs: Vec<String>,
    /// Paths changed since the base beneath `.github/workflows`: they hold the push until confirmed.
    pub workflows: Vec<String>,
    /// Bytes of the contents read.
    pub bytes: u64,
}

/// Whose commits a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The agent's own.
    Agents,
    /// Ours: the working tree of a sandbox whose files are elsewhere.
    Snapshot,
}

impl Whose {
    fn references(self, sandbox: SandboxId) -> String {
        match self {
            Self::Agents => format!("refs/courier/{sandbox}"),
            Self::Snapshot => format!("refs/courier/{sandbox}/{SNAPSHOT}"),
        }
    }
}

/// The folder of references a snapshot comes in under; its commit is `<this>/head`.
pub(crate) const SNAPSHOT: &str = "inside";

impl Checkpoints {
    /// Learns what a fresh clone of `base` holds, so that the first checkpoint costs what was changed. To be called
    /// before anybody works in it; without it the first checkpoint reads everything.
    ///
    /// # Errors
    /// `DiskFull`, `Io` or `Worker`.
    pub async fn seed(&self, sandbox: SandboxId, workspace: &Path, base: Oid) -> Result<(), Error> {
        self.prepare(sandbox).await?;
        let private = self.private_of(sandbox).await?;
        let request = Request::Seed(take::Seeding {
            vault: self.vault.path().to_owned(),
            workspace: workspace.to_owned(),
            private: private.clone(),
            base: base.to_string(),
        });
        match self.worker.ask(&request, &self.sight(workspace, private)).await? {
            Answer::Seeded => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes a checkpoint. Where that fails, or is given up, the last one is as it was; a second attempt is the same
    /// as a first.
    ///
    /// # Errors
    /// `DiskFull`, `Io` or `Worker`.
    pub async fn take(&self, taking: &Taking<'_>) -> Result<Taken, Error> {
        self.prepare(taking.sandbox).await?;
        let private = self.private_of(taking.sandbox).await?;
        let (name, email) = taking.author;
        let request = Request::Take(take::Taking {
            vault: self.vault.path().to_owned(),
            workspace: taking.workspace.to_owned(),
            private: private.clone(),
            reference: format!("refs/courier/{}/{}", taking.sandbox, taking.name),
            base: taking.base.to_string(),
            head: taking.head.map(|head| head.to_string()),
            message: taking.message.to_owned(),
            author: take::Author { name: name.to_owned(), email: email.to_owned() },
            at: taking.at,
            limits: self.limits,
        });
        match self.worker.ask(&request, &self.sight(taking.workspace, private)).await? {
            Answer::Taken(taken) => Taken::try_from(taken),
            other => Err(unexpected(&other)),
        }
    }

    /// Brings in what the agent committed: `bundle` where there is anything new, which lies in a folder `beneath` that no
    /// agent can replace by another; `head` is what its HEAD names. `verified`: commits it brought before, or began with.
    ///
    /// # Errors
    /// `DiskFull`, `Io` or `Worker`: then nothing came in.
    pub async fn bring_in(
        &self,
        (sandbox, whose): (SandboxId, Whose),
        (bundle, beneath): (Option<PathBuf>, &Path),
        head: Oid,
        verified: Vec<String>,
    ) -> Result<Brought, Error> {
        self.prepare(sandbox).await?;
        // Never the bundle itself: a link in its place would be followed.
        let folder = bundle.is_some().then(|| beneath.to_owned());
        let request = Request::Bring(Bringing {
            bundle,
            vault: self.vault.path().to_owned(),
            mirror: self.vault.mirror().objects(),
            head: head.to_string(),
            verified,
            references: whose.references(sandbox),
            limits: bring::Limits::default(),
        });
        let read = folder.into_iter().chain([self.vault.mirror().objects()]).collect();
        let sight = Sight { read, write: vec![self.vault.path().to_owned()] };
        match self.worker.ask(&request, &sight).await? {
            Answer::Brought(brought) => Ok(brought),
            other => Err(unexpected(&other)),
        }
    }

    /// Forgets what is remembered of a sandbox; its checkpoints stay.
    ///
    /// # Errors
    /// `Io`.
    pub async fn forget(&self, sandbox: SandboxId) -> Result<(), Error> {
        let folder = self.private.join(sandbox.to_string());
        match tokio::fs::remove_dir_all(&folder).await {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::Io { path: folder, source }),
            _ => Ok(()),
        }
    }

    async fn prepare(&self, sandbox: SandboxId) -> Result<(), Error> {
        let vault = self.vault.clone();
        let prepared = tokio::task::spawn_blocking(move || vault.prepare(sandbox)).await;
        prepared.unwrap_or_else(|_| Err(WorkerError::missing().into()))
    }

    fn sight(&self, workspace: &Path, private: PathBuf) -> Sight {
        Sight {
            read: vec![workspace.to_owned(), self.vault.mirror().objects()],
            write: vec![self.vault.path().to_owned(), private],
        }
    }

    async fn private_of(&self, sandbox: SandboxId) -> Result<PathBuf, Error> {
        let folder = self.private.join(sandbox.to_string());
        match tokio::fs::create_dir_all(&folder).await {
            Ok(()) => Ok(folder),
            Err(source) => Err(Error::Io { path: folder, source }),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    WorkerError::NoAnswer(format!("it answered something else: {answer:?}")).into()
}

impl TryFrom<take::Taken> for Taken {
    type Error = Error;

    fn try_from(taken: take::Taken) -> Result<Self, Error> {
        let id = |text: &str| Oid::from_str(text);
        Ok(Self {
            commit: id(&taken.commit)?,
            tree: id(&taken.tree)?,
            parent: id(&taken.parent)?,
            is_same_as_last: taken.is_same_as_last,
            files_changed: taken.files_changed,
            skipped: taken.skipped,
            skipped_count: taken.skipped_count,
            lfs: taken.lfs,
            workflows: taken.workflows,
            bytes: taken.bytes,
        })
    }
}
