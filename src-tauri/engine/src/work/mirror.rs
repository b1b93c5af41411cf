//! The project's mirror: a bare repository with upstream's branches and tags.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use git2::{AutotagOption, FetchOptions, FetchPrune, Oid, RemoteCallbacks, Repository};

use super::{Error, Source};
use crate::model::SandboxId;

/// The branches upstream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    pub default: String,
    /// All of them, by name.
    pub all: Vec<String>,
}

/// A mirror on disk. Blocking: call it where waiting is allowed. A clone is another handle to the same mirror, and only
/// through one and its clones is a mirror written: one after the other, since Git's own locks refuse and do not wait.
#[derive(Clone, Debug)]
pub struct Mirror {
    path: PathBuf,
    writing: Arc<Mutex<()>>,
}

impl Mirror {
    /// The mirror at this path, whether or not it is there yet.
    pub fn at(path: PathBuf) -> Self {
        Self { path, writing: Arc::default() }
    }

    /// The folder a workspace borrows objects from.
    pub fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    /// Makes the mirror where it is missing and brings it up to date with upstream.
    ///
    /// # Errors
    /// `Empty` where upstream has no commit, `Remote` where it refuses or cannot be reached.
    pub fn update(&self, source: &Source) -> Result<Branches, Error> {
        let _writing = self.begin_writing();
        let repository = match Repository::open_bare(&self.path) {
            Ok(repository) => repository,
            Err(_) => Repository::init_bare(&self.path)?,
        };
        let address = source.address();
        let named = |error: git2::Error| remote_error(&address, &error);
        let mut remote = repository.remote_anonymous(&address).map_err(named)?;
        let mut options = FetchOptions::new();
        options.remote_callbacks(credentials()).download_tags(AutotagOption::All).prune(FetchPrune::On);
        remote.fetch(&["+refs/heads/*:refs/heads/*"], Some(&mut options), None).map_err(named)?;
        let default = default_branch(&mut remote, source);
        drop(remote);
        self.branches(default.as_deref()).map_err(|error| match error {
            Error::Empty(_) => Error::Empty(address),
            other => other,
        })
    }

    /// The branches as of the last update; `preferred` is the default where it exists.
    ///
    /// # Errors
    /// `Empty` where there is none.
    pub fn branches(&self, preferred: Option<&str>) -> Result<Branches, Error> {
        let repository = Repository::open_bare(&self.path)?;
        let mut all = Vec::new();
        for branch in repository.branches(Some(git2::BranchType::Local))? {
            // A name that is not UTF-8 can't be chosen by a person; it is mirrored all the same.
            if let Ok(Some(name)) = branch?.0.name() {
                all.push(name.to_owned());
            }
        }
        all.sort();
        let wanted = preferred.into_iter().chain(["main", "master"]);
        let default = wanted
            .into_iter()
            .find(|name| all.iter().any(|branch| branch == name))
            .map(str::to_owned)
            .or_else(|| all.first().cloned())
            .ok_or_else(|| Error::Empty(self.path.display().to_string()))?;
        Ok(Branches { default, all })
    }

    /// The commit a branch points at, pinned for a sandbox so that nothing it borrows is ever pruned.
    ///
    /// # Errors
    /// `NoSuchBranch`.
    pub fn pin(&self, branch: &str, sandbox: SandboxId) -> Result<Oid, Error> {
        let _writing = self.begin_writing();
        let repository = Repository::open_bare(&self.path)?;
        let commit = repository
            .find_branch(branch, git2::BranchType::Local)
            .and_then(|found| found.get().peel_to_commit())
            .map_err(|_| Error::NoSuchBranch { branch: branch.to_owned() })?;
        repository.reference(&format!("refs/courier/pins/{sandbox}"), commit.id(), true, "pinned for a sandbox")?;
        Ok(commit.id())
    }

    /// Lets go of what was pinned for a sandbox whose workspace is gone.
    ///
    /// # Errors
    /// `Git`.
    pub fn unpin(&self, sandbox: SandboxId) -> Result<(), Error> {
        let _writing = self.begin_writing();
        if !self.path.exists() {
            return Ok(());
        }
        match Repository::open_bare(&self.path)?.find_reference(&format!("refs/courier/pins/{sandbox}")) {
            Ok(mut pin) => Ok(pin.delete()?),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Mirror {
    /// The app may have been killed while it wrote: a lock that is there now is nobody's.
    fn begin_writing(&self) -> MutexGuard<'_, ()> {
        let guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        remove_locks(&self.path);
        guard
    }
}

/// Removes Git's lock files (`HEAD.lock`, `refs/heads/main.lock`; no reference's name ends so). What cannot be removed is
/// named by the write it hinders.
fn remove_locks(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "objects" => remove_locks(&path),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|extension| extension == "lock") => {
                _ = std::fs::remove_file(&path);
            }
            _ => {}
        }
    }
}

/// SSH through the person's agent; nothing else is known yet, so a server that asks for a password is refused.
fn credentials() -> RemoteCallbacks<'static> {
    let mut callbacks = RemoteCallbacks::new();
    let mut asked = 0;
    callbacks.credentials(move |_url, user, allowed| {
        asked += 1;
        match user {
            Some(user) if allowed.is_ssh_key() && asked == 1 => git2::Cred::ssh_key_from_agent(user),
            _ => Err(git2::Error::from_str("it asks for credentials, and none are known")),
        }
    });
    callbacks
}

/// The branch upstream's HEAD names: asked of the other side, or read from the person's own working copy.
fn default_branch(remote: &mut git2::Remote<'_>, source: &Source) -> Option<String> {
    if let Source::Folder(path) = source {
        let repository = Repository::open(path).ok()?;
        return repository.head().ok()?.shorthand().ok().map(str::to_owned);
    }
    let name = remote.default_branch().ok()?;
    std::str::from_utf8(&name).ok()?.strip_prefix("refs/heads/").map(str::to_owned)
}

fn remote_error(address: &str, error: &git2::Error) -> Error {
    if super::is_no_space(error) {
        return Error::DiskFull;
    }
    Error::Remote { address: address.to_owned(), message: error.message().to_owned() }
}

#[cfg(test)]
mod tests {
    use courier_test_support::repositories::Repository as Upstream;

    use super::*;

    #[test]
    fn a_lock_that_a_killed_app_left_hinders_nobody() {
        let (place, upstream) = (tempfile::TempDir::new().unwrap(), Upstream::ordinary().unwrap());
        let (mirror, source) = (Mirror::at(place.path().to_owned()), Source::parse(&upstream.source()).unwrap());
        let default = mirror.update(&source).unwrap().default;
        let sandbox = SandboxId::fresh();
        let branch = format!("refs/heads/{default}.lock");
        for lock in ["HEAD.lock", "packed-refs.lock", "FETCH_HEAD.lock", &branch] {
            std::fs::write(place.path().join(lock), "").unwrap();
        }
        mirror.update(&source).unwrap();
        std::fs::create_dir_all(place.path().join("refs/courier/pins")).unwrap();
        std::fs::write(place.path().join(format!("refs/courier/pins/{sandbox}.lock")), "").unwrap();
        mirror.pin(&default, sandbox).unwrap();
    }

    #[test]
    fn many_at_once_wait_for_each_other() {
        let (place, upstream) = (tempfile::TempDir::new().unwrap(), Upstream::ordinary().unwrap());
        let (mirror, source) = (Mirror::at(place.path().to_owned()), Source::parse(&upstream.source()).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let branches = mirror.update(&source).unwrap();
                    mirror.pin(&branches.default, SandboxId::fresh()).unwrap();
                });
            }
        });
    }
}
