//! The project's mirror: a bare repository with upstream's branches and tags.

use std::path::{Path, PathBuf};

use git2::{AutotagOption, FetchOptions, FetchPrune, Oid, RemoteCallbacks, Repository};

use super::{
    Error, Source,
    push::{Address, Token, USER},
    writer::Writer,
};
use crate::{model::SandboxId, secrets::Secret};

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
    writer: Writer,
}

impl Mirror {
    /// The mirror at this path, whether or not it is there yet.
    pub fn at(path: PathBuf) -> Self {
        Self { writer: Writer::at(path) }
    }

    /// The bare repository.
    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    /// The folder a workspace borrows objects from.
    pub fn objects(&self) -> PathBuf {
        self.path().join("objects")
    }

    /// Makes the mirror where it is missing and brings it up to date with upstream.
    ///
    /// # Errors
    /// `Empty` where upstream has no commit, `Remote` where it refuses or cannot be reached.
    pub fn update(&self, source: &Source, token: Option<&Token>) -> Result<Branches, Error> {
        let _writing = self.writer.begin();
        let repository = match Repository::open_bare(self.path()) {
            Ok(repository) => repository,
            Err(_) => Repository::init_bare(self.path())?,
        };
        let address = source.address();
        let named = |error: git2::Error| remote_error(&address, &error);
        // Where a token is stored, it is also the way for an address of SSH. What is no address of a push is fetched as it
        // stands.
        let known = Address::read(&address, token).ok();
        let asked = known.as_ref().map_or_else(|| address.clone(), Address::text);
        let token = known.as_ref().and_then(|known| Some((known.clone(), known.token(token)?.secret.clone())));
        let mut remote = repository.remote_anonymous(&asked).map_err(named)?;
        let mut options = FetchOptions::new();
        options.remote_callbacks(credentials(token)).download_tags(AutotagOption::All).prune(FetchPrune::On);
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
        let repository = Repository::open_bare(self.path())?;
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
            .ok_or_else(|| Error::Empty(self.path().display().to_string()))?;
        Ok(Branches { default, all })
    }

    /// The commit a branch points at, pinned for a sandbox so that nothing it borrows is ever pruned.
    ///
    /// # Errors
    /// `NoSuchBranch`.
    pub fn pin(&self, branch: &str, sandbox: SandboxId) -> Result<Oid, Error> {
        let _writing = self.writer.begin();
        let repository = Repository::open_bare(self.path())?;
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
        let _writing = self.writer.begin();
        if !self.path().exists() {
            return Ok(());
        }
        match Repository::open_bare(self.path())?.find_reference(&format!("refs/courier/pins/{sandbox}")) {
            Ok(mut pin) => Ok(pin.delete()?),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Pins a commit that another sandbox began from.
    ///
    /// # Errors
    /// `Git` where it is not here.
    pub fn pin_commit(&self, commit: Oid, sandbox: SandboxId) -> Result<Oid, Error> {
        let _writing = self.writer.begin();
        let repository = Repository::open_bare(self.path())?;
        repository.find_commit(commit)?;
        repository.reference(&format!("refs/courier/pins/{sandbox}"), commit, true, "pinned for a sandbox")?;
        Ok(commit)
    }
}

/// SSH through the person's agent; a token where one is stored, once, and only for exactly the address it belongs to.
fn credentials(token: Option<(Address, Secret)>) -> RemoteCallbacks<'static> {
    let mut callbacks = RemoteCallbacks::new();
    let mut asked = 0;
    callbacks.credentials(move |url, user, allowed| {
        asked += 1;
        match (&token, user) {
            (Some((address, token)), _) if allowed.is_user_pass_plaintext() && asked == 1 && address.is_same(url) => {
                git2::Cred::userpass_plaintext(USER, token.expose())
            }
            (Some(_), _) => Err(git2::Error::from_str("the stored token was refused, or the repository moved")),
            (None, Some(user)) if allowed.is_ssh_key() && asked == 1 => git2::Cred::ssh_key_from_agent(user),
            (None, _) => Err(git2::Error::from_str("it asks for credentials, and none are known")),
        }
    });
    callbacks
}

/// The branch upstream's HEAD names: asked of the other side, or read from the person's own working copy.
fn default_branch(remote: &mut git2::Remote<'_>, source: &Source) -> Option<String> {
    if let Source::Folder(_) = source {
        return source.checked_out();
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
        let default = mirror.update(&source, None).unwrap().default;
        let sandbox = SandboxId::fresh();
        let branch = format!("refs/heads/{default}.lock");
        for lock in ["HEAD.lock", "packed-refs.lock", "FETCH_HEAD.lock", &branch] {
            std::fs::write(place.path().join(lock), "").unwrap();
        }
        mirror.update(&source, None).unwrap();
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
                    let branches = mirror.update(&source, None).unwrap();
                    mirror.pin(&branches.default, SandboxId::fresh()).unwrap();
                });
            }
        });
    }
}
