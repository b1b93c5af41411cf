//! Checkpoints in-process (placeholder).
use std::path::PathBuf;

use courier_checkpoint::{
    bring::Bringing,
    request::{Answer, Cause, Request},
    take::{self, Author, Seeding},
};
use git2::Oid;

use super::{Error, Vault};
use crate::model::{SandboxId, Timestamp};

pub use courier_checkpoint::{
    bring::Brought,
    take::{Taken, Why},
};

#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub vault: Vault,
    pub private: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Taking {
    pub sandbox: SandboxId,
    pub name: String,
    pub workspace: PathBuf,
    pub base: String,
    pub head: Option<String>,
    pub message: String,
    pub author: (String, String),
    pub at: Timestamp,
}

impl Checkpoints {
    pub async fn seed(&self, _sandbox: SandboxId, workspace: &std::path::Path, base: &str) -> Result<(), Error> {
        let _writing = self.vault.wait_to_write().await?;
        let request = Request::Seed(Seeding {
            vault: self.vault.path().to_owned(),
            workspace: workspace.to_owned(),
            private: self.private.clone(),
            base: base.to_owned(),
        });
        self.ask(request).await.map(drop)
    }
    pub async fn take(&self, taking: Taking) -> Result<Taken, Error> {
        let _writing = self.vault.wait_to_write().await?;
        let request = Request::Take(take::Taking {
            vault: self.vault.path().to_owned(),
            workspace: taking.workspace,
            private: self.private.clone(),
            reference: format!("refs/courier/{}/{}", taking.sandbox, taking.name),
            base: taking.base,
            head: taking.head,
            message: taking.message,
            author: Author { name: taking.author.0, email: taking.author.1 },
            at: taking.at.millis() / 1000,
            limits: take::Limits::default(),
        });
        match self.ask(request).await? {
            Answer::Taken(taken) => Ok(taken),
            _ => unreachable!(),
        }
    }
    pub async fn bring_in(
        &self,
        sandbox: SandboxId,
        bundle: Option<PathBuf>,
        head: Oid,
        verified: Vec<String>,
    ) -> Result<Brought, Error> {
        let _writing = self.vault.wait_to_write().await?;
        let request = Request::Bring(Bringing {
            bundle,
            vault: self.vault.path().to_owned(),
            mirror: self.vault.mirror().objects(),
            head: head.to_string(),
            verified,
            references: format!("refs/courier/{sandbox}"),
            limits: courier_checkpoint::bring::Limits::default(),
        });
        match self.ask(request).await? {
            Answer::Brought(brought) => Ok(brought),
            _ => unreachable!(),
        }
    }
    async fn ask(&self, request: Request) -> Result<Answer, Error> {
        let answer = tokio::task::spawn_blocking(move || request.answer()).await.unwrap();
        match answer {
            Answer::Failed(failure) if failure.cause == Cause::DiskFull => Err(Error::DiskFull),
            Answer::Failed(failure) => Err(Error::Git(git2::Error::from_str(&failure.message))),
            answer => Ok(answer),
        }
    }
}
