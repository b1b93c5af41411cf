//! The project's vault: a bare repository with the sandboxes' checkpoints and commits, which borrows the mirror's objects.
//!
//! ```text
//! refs/courier/<sandbox>/head     the agent's own HEAD, as it came in by a bundle
//! refs/courier/<sandbox>/stash    what the agent put aside
//! refs/courier/<sandbox>/branch   the head with what was uncommitted on top: what is pushed
//! refs/courier/<sandbox>/<name>   a checkpoint: its parent is the agent's head, its tree the working tree
//! refs/heads/<branch>             the same commit as `branch`, under the name it is pushed to
//! ```
//!
//! Whatever is written for one sandbox (by the worker or here) is written one after the other, and whoever does sees to
//! that; different sandboxes need not wait for each other, but for [`Vault::write`].
//!
//! No sandbox sees it. What hangs on a sandbox's references stays until [`Vault::forget`]; nothing is ever pruned.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use git2::{ErrorCode, Odb, Oid, Repository, RepositoryInitOptions, Sort};

use super::{
    Error, Mirror,
    writer::{Writer, Writing, remove_locks},
};
use crate::model::SandboxId;

/// A vault on disk. Blocking: call it where waiting is allowed. A clone is another handle to the same vault, and only
/// through one and its clones it is written.
#[derive(Clone, Debug)]
pub struct Vault {
    writer: Writer,
    mirror: Mirror,
}

/// A reference of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRef {
    /// What follows `refs/courier/<sandbox>/`.
    pub name: String,
    pub commit: Oid,
}

impl Vault {
    /// The vault at this path, whether or not it is there yet.
    pub fn at(path: PathBuf, mirror: Mirror) -> Self {
        Self { writer: Writer::sparing(path, "refs/courier"), mirror }
    }

    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Waits until nobody else writes, and makes the vault where it is missing.
    ///
    /// # Errors
    /// `DiskFull`, `Git` or `Io`.
    pub fn begin_writing(&self) -> Result<Writing<'_>, Error> {
        let writing = self.writer.begin();
        self.make()?;
        Ok(writing)
    }

    /// Makes the vault where it is missing and frees what a killed worker of this sandbox left locked: to be called before
    /// one is started, which then needs nobody's turn.
    ///
    /// # Errors
    /// `DiskFull`, `Git` or `Io`.
    pub fn prepare(&self, sandbox: SandboxId) -> Result<(), Error> {
        self.write_for(sandbox, |_| Ok(()))
    }

    /// Writes for one sandbox: what a killed worker left locked is freed.
    pub(super) fn write_for<T>(
        &self,
        sandbox: SandboxId,
        write: impl FnOnce(&Repository) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _writing = self.begin_writing()?;
        remove_locks(&self.path().join(format!("refs/courier/{sandbox}")), None);
        write(&self.open()?)
    }

    /// Writes, one after the other.
    ///
    /// # Errors
    /// What `write` answers; `DiskFull`, `Git` or `Io`.
    pub fn write<T>(&self, write: impl FnOnce(&Repository) -> Result<T, Error>) -> Result<T, Error> {
        let _writing = self.begin_writing()?;
        write(&self.open()?)
    }

    /// To read: the vault with the mirror's objects.
    ///
    /// # Errors
    /// `Git`, where it was not made yet too.
    pub fn open(&self) -> Result<Repository, Error> {
        Ok(Repository::open_bare(self.path())?)
    }

    /// What upstream has, and nothing else.
    ///
    /// # Errors
    /// `Git`, or `Io` where its path cannot be given to git.
    pub fn upstream_objects(&self) -> Result<Odb<'static>, Error> {
        let (odb, path) = (Odb::new()?, self.mirror.objects());
        let text = path
            .to_str()
            .ok_or_else(|| Error::Io { path: path.clone(), source: io::ErrorKind::InvalidFilename.into() })?;
        odb.add_disk_alternate(text)?;
        Ok(odb)
    }

    /// Makes it where it is missing; only its owner may enter. Where the data folder was moved, it borrows from the new
    /// place.
    fn make(&self) -> Result<(), Error> {
        let path = self.path();
        let io = |source| Error::io(path, source);
        if !path.join("HEAD").exists() {
            let mut folder = fs::DirBuilder::new();
            folder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
            folder.create(path).map_err(io)?;
            let mut options = RepositoryInitOptions::new();
            let repository = Repository::init_opts(path, options.bare(true).external_template(false))?;
            // Whoever runs git in there by hand must not have it collect what only a crash left unnamed.
            repository.config()?.set_i32("gc.auto", 0)?;
        }
        let line = format!("{}\n", self.mirror.objects().display());
        let alternates = path.join("objects/info/alternates");
        if fs::read_to_string(&alternates).is_ok_and(|found| found == line) {
            return Ok(());
        }
        fs::create_dir_all(path.join("objects/info")).map_err(io)?;
        let unfinished = path.join("objects/info/alternates.new");
        let mut file = fs::File::create(&unfinished).map_err(io)?;
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        fs::rename(&unfinished, &alternates).map_err(io)
    }
}

/// References, and how commits hang together.
impl Vault {
    /// A sandbox's references, by name.
    ///
    /// # Errors
    /// `Git`.
    pub fn list(&self, sandbox: SandboxId) -> Result<Vec<SandboxRef>, Error> {
        let (repository, under) = (self.open()?, format!("refs/courier/{sandbox}/"));
        let mut found = Vec::new();
        for reference in repository.references_glob(&format!("{under}*"))? {
            let reference = reference?;
            let name = reference.name().ok().and_then(|name| name.strip_prefix(&under));
            if let (Some(name), Some(commit)) = (name, reference.target()) {
                found.push(SandboxRef { name: name.to_owned(), commit });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// What a sandbox's reference names, by its short name.
    ///
    /// # Errors
    /// `Git`.
    pub fn commit_of(&self, sandbox: SandboxId, name: &str) -> Result<Option<Oid>, Error> {
        self.target(&format!("refs/courier/{sandbox}/{name}"))
    }

    /// What is to be pushed under this branch's name.
    ///
    /// # Errors
    /// `Git`.
    pub fn branch(&self, branch: &str) -> Result<Option<Oid>, Error> {
        self.target(&format!("refs/heads/{branch}"))
    }

    fn target(&self, reference: &str) -> Result<Option<Oid>, Error> {
        match self.open()?.refname_to_id(reference) {
            Ok(commit) => Ok(Some(commit)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a sandbox's references, and its branch where that is still what this sandbox made of it. Objects stay.
    ///
    /// # Errors
    /// `Git`.
    pub fn forget(&self, sandbox: SandboxId, branch: &str) -> Result<(), Error> {
        let made = self.commit_of(sandbox, "branch")?;
        self.write_for(sandbox, |repository| {
            if made.is_some() && repository.refname_to_id(&format!("refs/heads/{branch}")).ok() == made {
                repository.find_reference(&format!("refs/heads/{branch}"))?.delete()?;
            }
            for found in self.list(sandbox)? {
                repository.find_reference(&format!("refs/courier/{sandbox}/{}", found.name))?.delete()?;
            }
            Ok(())
        })
    }

    /// Whether one commit is another's ancestor, or the same.
    ///
    /// # Errors
    /// `Git`, where one of them is not there too.
    pub fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, Error> {
        Ok(ancestor == commit || self.open()?.graph_descendant_of(commit, ancestor)?)
    }

    /// How many commits on the way to this one upstream does not have on any branch.
    ///
    /// # Errors
    /// `Git`.
    pub fn unpushed(&self, commit: Oid) -> Result<usize, Error> {
        let (repository, mirror) = (self.open()?, Repository::open_bare(self.mirror.path())?);
        let mut walk = repository.revwalk()?;
        walk.set_sorting(Sort::NONE)?;
        walk.push(commit)?;
        for reference in mirror.references_glob("refs/heads/*")? {
            if let Some(upstream) = reference?.target() {
                walk.hide(upstream)?;
            }
        }
        let mut count = 0;
        for found in walk {
            found?;
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::work::bench::Bench;

    #[test]
    fn it_is_made_on_first_use_and_borrows_what_upstream_has() {
        let bench = Bench::new();
        assert!(bench.vault.open().is_err(), "nobody wrote yet");
        let base = bench.base;
        bench.vault.write(|repository| Ok(repository.find_commit(base).map(|_| ())?)).unwrap();
        let objects = bench.vault.path().join("objects");
        assert_eq!(fs::read_dir(objects.join("pack")).unwrap().count(), 0, "it has nothing of its own");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(bench.vault.path().metadata().unwrap().permissions().mode() & 0o077, 0);
        }
        fs::write(objects.join("info/alternates"), "/nowhere\n").unwrap();
        bench.vault.write(|repository| Ok(repository.find_commit(base).map(|_| ())?)).unwrap();
    }

    #[test]
    fn a_lock_that_a_killed_worker_left_hinders_nobody() {
        let bench = Bench::new();
        let sandbox = SandboxId::fresh();
        let name = format!("refs/courier/{sandbox}/head");
        let set = |repository: &Repository| {
            for name in [name.as_str(), "refs/heads/a"] {
                repository.reference(name, bench.base, true, "")?;
            }
            Ok(())
        };
        bench.vault.write_for(sandbox, set).unwrap();
        let neighbours = bench.vault.path().join("refs/courier/another");
        fs::create_dir(&neighbours).unwrap();
        for lock in ["HEAD.lock", "packed-refs.lock", "refs/heads/a.lock", &format!("{name}.lock")] {
            fs::write(bench.vault.path().join(lock), "").unwrap();
        }
        fs::write(neighbours.join("head.lock"), "").unwrap();
        bench.vault.write_for(sandbox, set).unwrap();
        assert!(neighbours.join("head.lock").exists(), "that one may be in use");
        let incoming = bench.vault.path().join("incoming-refs-courier-another");
        fs::create_dir(&incoming).unwrap();
        fs::write(incoming.join("config.lock"), "").unwrap();
        bench.vault.write(set).unwrap();
        assert!(incoming.join("config.lock").exists(), "somebody makes a place for what comes in");
    }

    #[test]
    fn many_at_once_wait_for_each_other() {
        let bench = Bench::new();
        let ids: Vec<SandboxId> = (0..8).map(|_| SandboxId::fresh()).collect();
        std::thread::scope(|scope| {
            for id in &ids {
                let (vault, base) = (bench.vault.clone(), bench.base);
                scope.spawn(move || {
                    let name = format!("refs/courier/{id}/head");
                    vault.write(|repository| Ok(repository.reference(&name, base, false, "").map(|_| ())?)).unwrap();
                });
            }
        });
        for id in ids {
            assert_eq!(bench.vault.commit_of(id, "head").unwrap(), Some(bench.base));
        }
    }

    #[test]
    fn a_sandbox_is_forgotten_and_its_neighbour_is_not() {
        let bench = Bench::new();
        let (one, other) = (SandboxId::fresh(), SandboxId::fresh());
        let commit = bench.commit(&[("new.txt", Some("one\n"))], bench.base);
        bench
            .vault
            .write(|repository| {
                for name in [
                    format!("refs/courier/{one}/head"),
                    format!("refs/courier/{one}/branch"),
                    format!("refs/courier/{one}/turns/1"),
                    format!("refs/courier/{other}/head"),
                    "refs/heads/mine".to_owned(),
                    "refs/heads/others".to_owned(),
                ] {
                    repository.reference(&name, commit, false, "")?;
                }
                Ok(())
            })
            .unwrap();
        let names: BTreeSet<String> = bench.vault.list(one).unwrap().into_iter().map(|found| found.name).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["branch", "head", "turns/1"]);
        bench.vault.forget(one, "mine").unwrap();
        assert!(bench.vault.list(one).unwrap().is_empty());
        assert_eq!(bench.vault.branch("mine").unwrap(), None);
        assert_eq!(bench.vault.branch("others").unwrap(), Some(commit));
        assert_eq!(bench.vault.commit_of(other, "head").unwrap(), Some(commit));
        bench.vault.forget(one, "mine").unwrap();
    }

    #[test]
    fn what_upstream_lacks_is_counted() {
        let bench = Bench::new();
        let one = bench.commit(&[("a", Some("a"))], bench.base);
        let two = bench.commit(&[("b", Some("b"))], one);
        assert_eq!(bench.vault.unpushed(bench.base).unwrap(), 0);
        assert_eq!(bench.vault.unpushed(two).unwrap(), 2);
        assert!(bench.vault.is_ancestor(bench.base, two).unwrap() && bench.vault.is_ancestor(two, two).unwrap());
        assert!(!bench.vault.is_ancestor(two, one).unwrap());
        bench
            .upstream
            .git(&["fetch", "--quiet", &bench.vault.path().to_string_lossy(), &format!("{one}:refs/heads/merged")])
            .unwrap();
        bench.mirror.update(&bench.source, None).unwrap();
        assert_eq!(bench.vault.unpushed(two).unwrap(), 1);
    }
}
