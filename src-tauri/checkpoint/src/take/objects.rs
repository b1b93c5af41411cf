//! The vault's objects: written loose into the vault itself, read from it and from what it borrows.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use gix::{
    ObjectId,
    bstr::BString,
    objs::{Exists, FindExt, Kind, Write as _},
    odb::{Handle, loose},
};

use super::{Author, failure};
use crate::request::{Cause, Failure};

/// With more objects than this the whole file system is flushed once, which is then sooner done than each by itself.
#[cfg(target_os = "linux")]
const FEW: usize = 512;

/// A thread's view of them.
pub(super) struct Objects {
    folder: PathBuf,
    pub odb: Handle,
    loose: loose::Store,
}

/// What a commit is made of.
pub(super) struct Commit<'a> {
    pub tree: ObjectId,
    pub parent: ObjectId,
    pub message: &'a str,
    pub author: &'a Author,
    pub at: i64,
}

impl Objects {
    pub fn open(vault: &Path) -> Result<Self, Failure> {
        let folder = vault.join("objects");
        let mut odb = gix::odb::at(&folder, gix::hash::Kind::Sha1).map_err(|error| failure("open the vault", error))?;
        // What is not there is about to be written: looking for a new pack each time would be the cost of it all.
        odb.refresh_never();
        let loose = loose::Store::at(&folder, gix::hash::Kind::Sha1);
        Ok(Self { folder, odb, loose })
    }

    /// The tree of a commit that must be there.
    pub fn tree_of(&self, commit: ObjectId) -> Result<ObjectId, Failure> {
        let mut buffer = Vec::new();
        match self.odb.find_commit(&commit, &mut buffer) {
            Ok(commit) => Ok(commit.tree()),
            Err(error) => Err(Failure::new(Cause::NoSuchCommit, format!("find commit {commit}: {error}"))),
        }
    }

    pub fn has(&self, id: &ObjectId) -> bool {
        self.odb.exists(id)
    }

    /// Writes an object unless it is there. Adds it to `written`, what must be durable: also one that is there already,
    /// since whoever wrote it may have been killed before that.
    pub fn write(&self, kind: Kind, bytes: &[u8], written: &mut Vec<ObjectId>) -> Result<ObjectId, Failure> {
        let id = hash(kind, bytes)?;
        self.write_as(id, kind, bytes, written)?;
        Ok(id)
    }

    pub fn write_as(&self, id: ObjectId, kind: Kind, bytes: &[u8], written: &mut Vec<ObjectId>) -> Result<(), Failure> {
        if !self.has(&id) {
            let write = self.loose.write_buf_with_known_id(kind, bytes, id);
            write.map_err(|error| failure("write an object", error))?;
            written.push(id);
        } else if self.loose.contains(&id) {
            written.push(id);
        }
        Ok(())
    }

    pub fn write_commit(&self, commit: &Commit<'_>, written: &mut Vec<ObjectId>) -> Result<ObjectId, Failure> {
        let signature = gix::actor::Signature {
            name: name(&commit.author.name),
            email: name(&commit.author.email),
            time: gix::date::Time { seconds: commit.at, offset: 0 },
        };
        let object = gix::objs::Commit {
            tree: commit.tree,
            parents: [commit.parent].into_iter().collect(),
            author: signature.clone(),
            committer: signature,
            encoding: None,
            message: commit.message.replace('\0', "").into(),
            extra_headers: Vec::new(),
        };
        let mut bytes = Vec::new();
        gix::objs::WriteTo::write_to(&object, &mut bytes).map_err(|error| failure("write the commit", error))?;
        self.write(Kind::Commit, &bytes, written)
    }

    /// Returns once the objects would survive a power failure.
    pub fn flush(&self, written: &[ObjectId]) -> Result<(), Failure> {
        self.flush_files(written).map_err(|error| failure("make objects durable", error))
    }

    fn flush_files(&self, written: &[ObjectId]) -> io::Result<()> {
        if written.is_empty() {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        if written.len() > FEW {
            use std::os::fd::AsRawFd;
            let folder = File::open(&self.folder)?;
            // SAFETY: an open descriptor.
            return match unsafe { libc::syncfs(folder.as_raw_fd()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
        }
        let files: BTreeSet<PathBuf> = written.iter().map(|id| self.loose.object_path(id)).collect();
        let all: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        flush_at_once(&all)?;
        // Where a file is made durable after it got its name, Linux's file systems make that durable with it.
        #[cfg(all(unix, not(target_os = "linux")))]
        {
            let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
            flush_at_once(&folders.into_iter().collect::<Vec<_>>())?;
        }
        if cfg!(unix) { File::open(&self.folder)?.sync_all() } else { Ok(()) }
    }
}

/// Several at a time: a file system's journal then takes them together.
fn flush_at_once(paths: &[&Path]) -> io::Result<()> {
    const AT_ONCE: usize = 8;
    std::thread::scope(|scope| {
        let share = paths.len().div_ceil(AT_ONCE).max(1);
        let flushers: Vec<_> = paths
            .chunks(share)
            .map(|paths| scope.spawn(move || paths.iter().try_for_each(|path| File::open(path)?.sync_all())))
            .collect();
        flushers
            .into_iter()
            .try_for_each(|flusher| flusher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

pub(super) fn hash(kind: Kind, bytes: &[u8]) -> Result<ObjectId, Failure> {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, bytes).map_err(|error| failure("hash an object", error))
}

/// Neither `<` nor a line's end may stand in a name.
fn name(text: &str) -> BString {
    let text: String = text.chars().filter(|letter| !letter.is_control() && !"<>".contains(*letter)).collect();
    if text.trim().is_empty() { "CodeCourier".into() } else { text.trim().into() }
}

/// A reference under `refs/courier/`, which is one file.
pub(super) struct Reference {
    folder: PathBuf,
    name: String,
    /// Not among the references: nobody is to take it for one, or for a lock that somebody left.
    draft: PathBuf,
}

impl Reference {
    /// `refs/courier/<sandbox>/<name>`, of letters, digits, `-` and `_` (and dots within).
    pub fn parse(vault: &Path, text: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_plain = |part: &&str| {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let is_odd = part.starts_with('.') || part.ends_with('.') || part.contains("..") || part.ends_with(".lock");
            (1..=200).contains(&part.len()) && part.bytes().all(is_letter) && !is_odd
        };
        match parts.as_slice() {
            ["refs", "courier", sandbox, name] if [sandbox, name].into_iter().all(is_plain) => Ok(Self {
                folder: vault.join("refs").join("courier").join(sandbox),
                name: (*name).to_owned(),
                draft: vault.join(format!("checkpoint.{sandbox}.{name}")),
            }),
            _ => Err(Failure::new(Cause::BadRequest, format!("make a reference of {text:?}"))),
        }
    }

    /// Makes it, whole or not at all; one of this name that is there already names the new commit then.
    pub fn write(&self, commit: ObjectId) -> Result<(), Failure> {
        let draft = &self.draft;
        let write = || {
            let is_new = !self.folder.exists();
            fs::create_dir_all(&self.folder)?;
            let mut file = File::create(draft)?;
            writeln!(file, "{commit}")?;
            file.sync_all()?;
            drop(file);
            fs::rename(draft, self.folder.join(&self.name))?;
            if cfg!(unix) {
                for folder in self.folder.ancestors().take(if is_new { 3 } else { 1 }) {
                    File::open(folder)?.sync_all()?;
                }
            }
            Ok(())
        };
        write().map_err(|error: io::Error| {
            _ = fs::remove_file(draft);
            failure("write the reference", error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_lies_where_it_must() {
        let vault = Path::new("/vault");
        assert!(Reference::parse(vault, "refs/courier/0192-ab/pause").is_ok());
        for bad in [
            "refs/heads/main",
            "refs/courier/a",
            "refs/courier/../b",
            "refs/courier/a/..",
            "refs/courier/a/b/c",
            "refs/courier/a/b.lock",
            "refs/courier//b",
            "refs/courier/a/.b",
            "refs/courier/a/b\n",
        ] {
            assert!(Reference::parse(vault, bad).is_err(), "{bad:?}");
        }
    }
}
