//! Where a pack lies until it is known to be good: a folder inside the vault that nothing borrows from.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use git2::{Indexer, Odb, Oid, Repository, RepositoryInitOptions};

use super::{
    Error, Limits, Refusal,
    bundle::Bundle,
    known::{Known, objects_of},
    pack::Shape,
};

/// Removed with all that is in it when it is dropped; what a killed worker left is removed by the next of that sandbox.
#[derive(Debug)]
pub(super) struct Quarantine {
    path: PathBuf,
    vault: PathBuf,
}

impl Quarantine {
    /// `name` is a reference's: what is written for it is written one after the other.
    pub fn new(vault: &Path, name: &str) -> Result<Self, Error> {
        let path = vault.join(format!("incoming-{}", name.replace('/', "-")));
        let failed = |error: io::Error| Error::io("the quarantine", &error);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut options = RepositoryInitOptions::new();
        options.bare(true).external_template(false).mkdir(true);
        Repository::init_opts(&path, &options).map_err(|error| Error::git("the quarantine", &error))?;
        Ok(Self { path, vault: vault.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What came, and nothing else.
    pub fn objects(&self) -> Result<Odb<'static>, Error> {
        objects_of(&self.path.join("objects"))
    }

    /// Has libgit2 unpack and index the pack. A delta may build on what is known and on nothing else: the vault's other
    /// objects are not to be seen from here.
    pub fn index(
        &self,
        bundle: &Bundle,
        shape: &Shape,
        known: &Known<'_>,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<(), Error> {
        let wrote = |error: git2::Error| Error::git("the quarantine", &error);
        let repository = Repository::open_bare(&self.path).map_err(wrote)?;
        let odb = repository.odb().map_err(wrote)?;
        let mut copied = 0;
        for base in shape.bases.iter().filter(|base| known.contains(**base)) {
            let object = known.read(*base)?;
            copied += object.len() as u64;
            if copied > limits.unpacked {
                return Err(
                    Refusal::Limit { what: "what the pack builds on".to_owned(), limit: limits.unpacked }.into()
                );
            }
            odb.write(object.kind(), object.data()).map_err(wrote)?;
        }
        let folder = self.path.join("objects/pack");
        let mut indexer = Indexer::new(Some(&odb), &folder, 0o400, false).map_err(damaged)?;
        indexer.progress(|_| Instant::now() <= deadline);
        let mut pack = bundle.pack()?;
        let mut buffer = vec![0; 1 << 16];
        let failed = |error: io::Error| {
            if Instant::now() > deadline {
                return Error::TooSlow;
            }
            match error.get_ref().and_then(|inner| inner.downcast_ref::<git2::Error>()) {
                Some(inner) => damaged(git2::Error::from_str(inner.message())),
                None => Error::io("the quarantine", &error),
            }
        };
        loop {
            let read = pack.read(&mut buffer).map_err(|error| Error::io("the quarantine", &error))?;
            if read == 0 {
                break;
            }
            indexer.write_all(&buffer[..read]).map_err(failed)?;
        }
        let committed = indexer.commit();
        if Instant::now() > deadline {
            return Err(Error::TooSlow);
        }
        committed.map_err(damaged)?;
        Ok(())
    }

    /// Every object of the pack.
    pub fn list(&self) -> Result<Vec<Oid>, Error> {
        let mut ids = Vec::new();
        let listed = self.objects()?.foreach(|id| {
            ids.push(*id);
            true
        });
        listed.map_err(|error| Error::git("the quarantine", &error))?;
        Ok(ids)
    }

    /// Moves the pack into the vault, for good: on the disk before anything points at it. The index comes last, since it
    /// makes the pack be seen.
    pub fn move_in(&self) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("the vault", &error);
        let from = self.path.join("objects/pack");
        let to = self.vault.join("objects/pack");
        fs::create_dir_all(&to).map_err(failed)?;
        for extension in ["pack", "idx"] {
            for entry in fs::read_dir(&from).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|end| end == extension))
                else {
                    continue;
                };
                File::open(&path).and_then(|file| file.sync_all()).map_err(failed)?;
                fs::rename(&path, to.join(name)).map_err(failed)?;
            }
        }
        if cfg!(unix) {
            File::open(&to).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // What is left takes room and does no harm; the next one removes it.
        _ = fs::remove_dir_all(&self.path);
    }
}

/// What libgit2 says of a pack is the agent's fault, but for a full disk.
#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn damaged(error: git2::Error) -> Error {
    match Error::git("", &error) {
        Error::DiskFull => Error::DiskFull,
        _ => Refusal::Pack(error.message().to_owned()).into(),
    }
}
