//! A clean copy of a checkpoint's files, to open in an editor.
//!
//! Never the live workspace: its `.git` is the agent's, and editors run what a repository's configuration says. The copy
//! is no repository. Nothing is converted, links are links, and a name that leads out of the folder ends it. Each folder
//! and file is made new, so that nothing is ever written through a link, whatever the file system takes for the same name.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use courier_checkpoint::bring::is_safe_name;
use git2::{FileMode, ObjectType, Odb, Oid, Repository, Tree};

use super::{Error, Vault};

/// How much a copy may take, in bytes and files.
const BYTES: u64 = 8 << 30;
const FILES: u64 = 500_000;
/// How deep folders may nest.
const DEPTH: usize = 1000;

/// The copies there are: one folder per commit.
#[derive(Clone, Debug)]
pub struct Checkouts {
    folder: PathBuf,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    pub commit: Oid,
    pub path: PathBuf,
    /// When it was asked for last.
    pub used: SystemTime,
}

impl Checkouts {
    /// Those in this folder, which is ours alone.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A copy of a commit's files, made where it is missing. A person may have changed files in it: they stay.
    ///
    /// # Errors
    /// `NoSuchCommit`, `TooLarge`, `BadName`, `DiskFull`, `Git` or `Io`; what was begun is removed.
    pub fn open(&self, vault: &Vault, commit: Oid) -> Result<PathBuf, Error> {
        let path = self.folder.join(commit.to_string());
        let unfinished = self.folder.join(format!("{commit}.unfinished"));
        if path.is_dir() {
            touch(&path);
            return Ok(path);
        }
        make_private(&self.folder)?;
        remove(&unfinished)?;
        if let Err(error) = fill(&vault.open()?, commit, &unfinished) {
            // The reason matters more than the leftovers, which the next attempt removes.
            _ = remove(&unfinished);
            return Err(error);
        }
        fs::rename(&unfinished, &path).map_err(|source| Error::io(&path, source))?;
        Ok(path)
    }

    /// All of them, the one used last first.
    ///
    /// # Errors
    /// `Io`.
    pub fn list(&self) -> Result<Vec<Checkout>, Error> {
        let io = |source| Error::io(&self.folder, source);
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io)?;
            let commit =
                entry.file_name().to_str().filter(|name| name.len() == 40).and_then(|name| Oid::from_str(name).ok());
            if let (Some(commit), Ok(used)) = (commit, entry.metadata().and_then(|about| about.modified())) {
                found.push(Checkout { commit, path: entry.path(), used });
            }
        }
        found.sort_by_key(|checkout| std::cmp::Reverse(checkout.used));
        Ok(found)
    }

    /// Removes one, and what a crash left of it.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove(&self, commit: Oid) -> Result<(), Error> {
        remove(&self.folder.join(format!("{commit}.unfinished")))?;
        remove(&self.folder.join(commit.to_string()))
    }
}

fn fill(repository: &Repository, commit: Oid, path: &Path) -> Result<(), Error> {
    let tree = repository
        .find_commit(commit)
        .and_then(|found| found.tree())
        .map_err(|error| Error::no_commit(commit, error))?;
    Survey { repository, files: 0, bytes: 0 }.tree(&tree, 0)?;
    make_private(path)?;
    write(repository, &repository.odb()?, &tree, path)
}

fn write(repository: &Repository, odb: &Odb<'_>, tree: &Tree<'_>, folder: &Path) -> Result<(), Error> {
    for entry in tree {
        let path = folder.join(name_of(entry.name_bytes())?);
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::BadName(path.display().to_string()),
            _ => Error::io(&path, source),
        };
        match (entry.kind(), entry.filemode()) {
            (Some(ObjectType::Tree), _) => {
                fs::create_dir(&path).map_err(io)?;
                write(repository, odb, &repository.find_tree(entry.id())?, &path)?;
            }
            (Some(ObjectType::Blob), mode) => make(&path, odb.read(entry.id())?.data(), mode).map_err(io)?,
            // A submodule: its folder, as git itself leaves it.
            _ => fs::create_dir(&path).map_err(io)?,
        }
    }
    Ok(())
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere not every name can be one")]
fn name_of(bytes: &[u8]) -> Result<PathBuf, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

#[cfg(unix)]
fn make(path: &Path, content: &[u8], mode: i32) -> io::Result<()> {
    use std::os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _};
    if mode == i32::from(FileMode::Link) {
        return std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(content), path);
    }
    let mode = if mode == i32::from(FileMode::BlobExecutable) { 0o755 } else { 0o644 };
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}

#[cfg(not(unix))]
fn name_of(bytes: &[u8]) -> Result<PathBuf, Error> {
    let name = std::str::from_utf8(bytes).ok().filter(|name| !name.contains(['\\', ':']));
    name.map(PathBuf::from).ok_or_else(|| Error::BadName(String::from_utf8_lossy(bytes).into_owned()))
}

/// Links are written as files that say where they point, as git does there.
#[cfg(not(unix))]
fn make(path: &Path, content: &[u8], _: i32) -> io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(content)
}

/// Looks at a tree before any of it is written.
struct Survey<'a> {
    repository: &'a Repository,
    files: u64,
    bytes: u64,
}

impl Survey<'_> {
    fn tree(&mut self, tree: &Tree<'_>, depth: usize) -> Result<(), Error> {
        let odb = self.repository.odb()?;
        for entry in tree {
            let name = entry.name_bytes();
            if !is_safe_name(name) {
                return Err(Error::BadName(String::from_utf8_lossy(name).into_owned()));
            }
            self.files += 1;
            match entry.kind() {
                Some(ObjectType::Blob) => self.bytes += odb.read_header(entry.id())?.0 as u64,
                Some(ObjectType::Tree) if depth >= DEPTH => {
                    return Err(too_large("how deep folders nest", DEPTH as u64));
                }
                Some(ObjectType::Tree) => self.tree(&self.repository.find_tree(entry.id())?, depth + 1)?,
                _ => {}
            }
            if self.files > FILES {
                return Err(too_large("the number of files", FILES));
            }
            if self.bytes > BYTES {
                return Err(too_large("what the files take", BYTES));
            }
        }
        Ok(())
    }
}

fn too_large(what: &'static str, limit: u64) -> Error {
    Error::TooLarge { what, limit }
}

/// Files that belong to an agent may be programs that run as their owner: nobody else may enter.
fn make_private(path: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| Error::io(path, source))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, error)),
        _ => Ok(()),
    }
}

/// Notes that it was used: a file that comes and goes changes the folder's time.
fn touch(path: &Path) {
    let file = path.join(".courier-used");
    // Where it cannot be written it only counts as older than it is.
    _ = fs::write(&file, "").and_then(|()| fs::remove_file(&file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::bench::Bench;

    fn checkouts(bench: &Bench) -> Checkouts {
        Checkouts::at(bench.path().join("checkouts"))
    }

    #[cfg(unix)]
    #[test]
    fn the_files_are_there_as_they_were_and_no_repository_is() {
        use std::os::unix::fs::PermissionsExt;
        let bench = Bench::new();
        let commit = bench.commit_modes(
            &[
                (".gitattributes", Some(b"*.txt text eol=crlf\n*.id ident\n*.bin filter=lfs\n"), 0o100_644),
                ("a.txt", Some(b"one\ntwo\n"), 0o100_644),
                ("a.id", Some(b"$Id$\n"), 0o100_644),
                ("run.sh", Some(b"#!/bin/sh\n"), 0o100_755),
                ("out", Some(b"/etc/passwd"), 0o120_000),
                ("module", Some(b"1234567890123456789012345678901234567890"), 0o160_000),
            ],
            bench.base,
        );
        let path = checkouts(&bench).open(&bench.vault, commit).unwrap();
        assert_eq!(fs::read(path.join("a.txt")).unwrap(), b"one\ntwo\n", "nothing is converted");
        assert_eq!(fs::read(path.join("a.id")).unwrap(), b"$Id$\n");
        assert_eq!(path.join("run.sh").metadata().unwrap().permissions().mode() & 0o111, 0o111);
        assert_eq!(fs::read_link(path.join("out")).unwrap(), Path::new("/etc/passwd"));
        assert!(!path.join(".git").exists());
        assert!(path.join("src/main.sh").exists());
        assert!(!bench.vault.path().join("index").exists(), "the vault has no index");
        fs::write(path.join("a.txt"), "edited").unwrap();
        assert_eq!(checkouts(&bench).open(&bench.vault, commit).unwrap(), path);
        assert_eq!(fs::read(path.join("a.txt")).unwrap(), b"edited", "what is there is used again");
        let base = checkouts(&bench).open(&bench.vault, bench.base).unwrap();
        let listed: Vec<PathBuf> = checkouts(&bench).list().unwrap().into_iter().map(|found| found.path).collect();
        assert_eq!(listed.len(), 2);
        assert!(listed.contains(&base));
        checkouts(&bench).remove(commit).unwrap();
        assert_eq!(checkouts(&bench).list().unwrap().len(), 1);
    }

    /// A tree no index would make: libgit2 writes it when it is not asked to look.
    fn raw_tree(bench: &Bench, entries: &[(&str, &str, Oid)]) -> Oid {
        let mut data = Vec::new();
        for (mode, name, id) in entries {
            data.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            data.extend_from_slice(id.as_bytes());
        }
        bench.vault.write(|repository| Ok(repository.odb()?.write(ObjectType::Tree, &data)?)).unwrap()
    }

    fn commit_of(bench: &Bench, tree: Oid) -> Oid {
        let text = format!("tree {tree}\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nx\n");
        bench.vault.write(|repository| Ok(repository.odb()?.write(ObjectType::Commit, text.as_bytes())?)).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_leads_out_ends_it() {
        let bench = Bench::new();
        let blob = bench.vault.write(|repository| Ok(repository.blob(b"pwned")?)).unwrap();
        let folder = raw_tree(&bench, &[("100644", "pwned", blob)]);
        for name in ["..", ".git", ".GIT", "git~1", ".git ", "a\\..\\..\\b", "."] {
            let tree = raw_tree(&bench, &[("40000", name, folder)]);
            let refused = checkouts(&bench).open(&bench.vault, commit_of(&bench, tree));
            assert!(matches!(refused, Err(Error::BadName(_))), "{name}: {refused:?}");
        }
        // A link, and a file that would be written through it.
        let outside = bench.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let link = bench.vault.write(|repository| Ok(repository.blob(outside.to_str().unwrap().as_bytes())?)).unwrap();
        let tree = raw_tree(&bench, &[("120000", "a", link), ("40000", "a", folder)]);
        let refused = checkouts(&bench).open(&bench.vault, commit_of(&bench, tree));
        assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing is written through a link");
        assert!(!bench.path().join("pwned").exists());
    }

    #[cfg(unix)]
    #[test]
    fn an_object_that_was_overwritten_is_noticed() {
        let bench = Bench::new();
        let blob = bench.vault.write(|repository| Ok(repository.blob(b"honest\n")?)).unwrap();
        let other = bench.vault.write(|repository| Ok(repository.blob(b"not at all honest\n")?)).unwrap();
        let commit = commit_of(&bench, raw_tree(&bench, &[("100644", "file", blob)]));
        let loose = |id: Oid| {
            let text = id.to_string();
            bench.vault.path().join("objects").join(&text[..2]).join(&text[2..])
        };
        fs::remove_file(loose(blob)).unwrap();
        fs::copy(loose(other), loose(blob)).unwrap();
        let refused = checkouts(&bench).open(&bench.vault, commit);
        assert!(matches!(&refused, Err(Error::Git(error)) if error.message().contains("mismatch")), "{refused:?}");
        assert!(checkouts(&bench).list().unwrap().is_empty());
    }
}
