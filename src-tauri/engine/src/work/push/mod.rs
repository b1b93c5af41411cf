//! Pushing one branch of the vault to the address recorded when the project was made.
//!
//! Nothing of any configuration counts, the agent's least of all. Before git pushes, the address is asked as git would
//! ask it, without following anybody: that is how a repository that moved is noticed (libgit2 follows within a host) and
//! how a server's own words are heard (libgit2 keeps only the status). A token is given once, and only to the recorded
//! address; nothing is ever forced; and only what the remote itself reports as taken is success, since a declined hook
//! looks like one.

mod address;
mod agent;
mod attempt;
mod known_hosts;
mod look;
mod rejection;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use git2::{Oid, Repository};
use tokio_util::sync::CancellationToken;

pub use address::Way;
pub use rejection::{Error, Reason};

use self::attempt::Attempt;
pub(super) use self::{address::Address, look::USER};
use crate::secrets::Secret;

/// How many names are tried beside a branch that others have moved on.
const SIBLINGS: u32 = 20;

/// Where GitHub runs what a repository says, with the repository's secrets.
const WORKFLOWS: &str = ".github/workflows";

/// A token and the one host it is for.
#[derive(Clone, Debug)]
pub struct Token {
    pub host: String,
    pub secret: Secret,
}

/// A branch to push, and where to. Pushing what is there already succeeds, so it may be repeated at any time.
#[derive(Clone, Debug)]
pub struct Push {
    repository: PathBuf,
    url: String,
    branch: String,
    token: Option<Token>,
    known_hosts: Option<PathBuf>,
}

/// What a push did to the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Created,
    Updated,
    /// It was there already.
    None,
}

/// A push that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The branch on the remote: the one asked for, or a sibling.
    pub branch: String,
    pub commit: Oid,
    pub change: Change,
    pub way: Way,
    /// What the remote printed, plain and bounded: GitHub's link to a new pull request, for one.
    pub said: String,
}

impl Push {
    /// Pushes `refs/heads/<branch>` of the bare repository at `repository` to `url`, which is what was recorded when the
    /// project was made.
    pub fn new(repository: impl Into<PathBuf>, url: impl Into<String>, branch: impl Into<String>) -> Self {
        Self { repository: repository.into(), url: url.into(), branch: branch.into(), token: None, known_hosts: None }
    }

    /// With this token, where the address is on the token's host.
    #[must_use]
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// With this `known_hosts`, which tells an unknown host from one that changed. libgit2 itself reads the one in the
    /// person's home, and both must know the host.
    #[must_use]
    pub fn known_hosts(mut self, path: impl Into<PathBuf>) -> Self {
        self.known_hosts = Some(path.into());
        self
    }

    /// Pushes, within `limit`, until `cancelled`.
    ///
    /// A push that was given up while the pack was on its way may still arrive: the next one finds it there.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn run(&self, cancelled: &CancellationToken, limit: Duration) -> Result<Pushed, Error> {
        self.to(&self.branch, cancelled, limit).await
    }

    /// Pushes; where the branch there has commits that are not here, to `<branch>-2`, `<branch>-3` and so on. `limit` is
    /// for all of it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn run_or_sibling(&self, cancelled: &CancellationToken, limit: Duration) -> Result<Pushed, Error> {
        let end = tokio::time::Instant::now() + limit;
        let mut pushed = self.run(cancelled, limit).await;
        for number in 2..SIBLINGS {
            match &pushed {
                Err(error) if error.reason == Reason::NotFastForward => {}
                _ => break,
            }
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            pushed = self.to(&sibling(&self.branch, number), cancelled, left).await;
        }
        pushed
    }

    async fn to(&self, destination: &str, cancelled: &CancellationToken, limit: Duration) -> Result<Pushed, Error> {
        let address = Address::read(&self.url, self.token.as_ref())?;
        let way = address.way(&self.url, self.token.as_ref());
        let token = address.token(self.token.as_ref()).map(|token| token.secret.clone());
        let is_given_up = Arc::new(AtomicBool::new(false));
        let work = async {
            if let Address::Web(url) = &address {
                look::look(url, token.as_ref()).await?;
            }
            let attempt = Attempt {
                repository: self.repository.clone(),
                address: address.clone(),
                token: token.clone(),
                known_hosts: self.known_hosts.clone(),
                source: self.branch.clone(),
                destination: destination.to_owned(),
                is_given_up: Arc::clone(&is_given_up),
            };
            let joined = tokio::task::spawn_blocking(move || attempt.push()).await;
            joined.unwrap_or_else(|_| Err(Error::new(Reason::Failed, "what it answered cannot be read")))
        };
        let done = tokio::select! {
            biased;
            () = cancelled.cancelled() => Err(Error::new(Reason::Cancelled, "")),
            done = tokio::time::timeout(limit, work) => done.unwrap_or_else(|_| Err(Error::timed_out(limit))),
        };
        is_given_up.store(true, Ordering::Relaxed);
        match done {
            Ok(taken) => {
                tracing::info!(branch = destination, change = ?taken.change, %way, "pushed");
                let branch = destination.to_owned();
                Ok(Pushed { branch, commit: taken.commit, change: taken.change, way, said: taken.said })
            }
            Err(error) => {
                tracing::warn!(branch = destination, reason = error.reason.code(), %way, "not pushed");
                Err(error.by(&way))
            }
        }
    }
}

/// The name tried where a branch is in the way: `<branch>-2` for 2.
pub fn sibling(branch: &str, number: u32) -> String {
    format!("{branch}-{number}")
}

/// The paths under `.github/workflows` that differ between two commits; without `from`, all that `to` has.
///
/// # Errors
/// Where a commit is not in the repository.
pub fn workflows_changed(repository: &Repository, from: Option<Oid>, to: Oid) -> Result<Vec<String>, git2::Error> {
    let tree = |commit: Oid| repository.find_commit(commit)?.tree();
    let (from, to) = (from.map(tree).transpose()?, tree(to)?);
    let mut options = git2::DiffOptions::new();
    // Renames are a removal and an addition here, and a name that only differs in case is the same folder to GitHub.
    options.pathspec(WORKFLOWS).disable_pathspec_match(true).ignore_case(true).skip_binary_check(true);
    let diff = repository.diff_tree_to_tree(from.as_ref(), Some(&to), Some(&mut options))?;
    let mut paths: Vec<String> = diff
        .deltas()
        .flat_map(|delta| [delta.old_file().path_bytes(), delta.new_file().path_bytes()])
        .flatten()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}
