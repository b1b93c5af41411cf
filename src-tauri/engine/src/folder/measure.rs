//! How much room folders take on the disk: links are not followed, what has several names is counted once, and no other
//! file system is entered.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use crate::model::{ProjectId, SandboxId};

/// How long measuring may take altogether, and how many entries are looked at: an agent can leave more than anybody
/// wants to wait for.
const LIMIT: Duration = Duration::from_secs(20);
const ENTRIES: u64 = 4_000_000;

/// What a sandbox's folder takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The clone, and what the agent made of it.
    pub workspace: u64,
    pub home: u64,
    /// What turns printed, as it was before it was stored.
    pub spools: u64,
    /// Everything.
    pub all: u64,
}

/// What the data folder takes, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub sandboxes: HashMap<SandboxId, Sizes>,
    /// Mirrors and vaults, by project.
    pub projects: HashMap<ProjectId, (u64, u64)>,
    pub database: u64,
    pub all: u64,
    /// Everything was looked at; else it is at least as much.
    pub is_whole: bool,
}

/// A measurement under way.
#[derive(Debug)]
pub(crate) struct Measure {
    until: Instant,
    entries: u64,
    /// Device and number of the files with several names that were counted.
    counted: HashSet<(i128, u64)>,
    is_whole: bool,
}

impl Measure {
    pub(crate) fn new() -> Self {
        Self { until: Instant::now() + LIMIT, entries: ENTRIES, counted: HashSet::new(), is_whole: true }
    }

    /// Measures the data folder. Blocking.
    pub(crate) fn home(home: &Path) -> Measured {
        let mut measure = Self::new();
        let mut found = Measured::default();
        for (name, path) in entries(&home.join("sandboxes")) {
            let sizes = measure.sandbox(&path);
            found.all += sizes.all;
            if let Ok(id) = name.parse() {
                found.sandboxes.insert(id, sizes);
            }
        }
        for (name, path) in entries(&home.join("projects")) {
            let mut sizes = (0, 0);
            for (name, path) in entries(&path) {
                let bytes = measure.bytes(&path);
                if name.starts_with("vault") { sizes.1 += bytes } else { sizes.0 += bytes }
            }
            found.all += sizes.0 + sizes.1;
            if let Ok(id) = name.parse() {
                found.projects.insert(id, sizes);
            }
        }
        for (name, path) in entries(home) {
            let bytes = match name.as_str() {
                "sandboxes" | "projects" => 0,
                _ => measure.bytes(&path),
            };
            found.all += bytes;
            if name.starts_with("courier.db") {
                found.database += bytes;
            }
        }
        found.is_whole = measure.is_whole;
        found
    }

    /// Measures a sandbox's folder. Blocking.
    pub(crate) fn sandbox(&mut self, folder: &Path) -> Sizes {
        let mut sizes = Sizes::default();
        for (name, path) in entries(folder) {
            let bytes = self.bytes(&path);
            sizes.all += bytes;
            match name.as_str() {
                "workspace" | "workspace.unfinished" => sizes.workspace += bytes,
                "home" => sizes.home += bytes,
                "turns" => sizes.spools += bytes,
                _ => {}
            }
        }
        sizes
    }
}

/// What lies in a folder of ours. One that is a link is not ours.
fn entries(folder: &Path) -> Vec<(String, std::path::PathBuf)> {
    if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Vec::new();
    }
    let read = std::fs::read_dir(folder).into_iter().flatten().flatten();
    read.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

#[cfg(unix)]
mod walk {
    use std::{os::fd::OwnedFd, path::Path, time::Instant};

    use rustix::{
        fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat},
        io::Errno,
    };

    use super::Measure;

    /// How many folders are open at once, one in another. What lies deeper is not counted.
    const DEPTH: usize = 128;

    /// A folder that is being read.
    struct Level {
        folder: OwnedFd,
        entries: Dir,
    }

    impl Level {
        fn open(folder: OwnedFd) -> Result<Self, Errno> {
            Ok(Self { entries: Dir::read_from(&folder)?, folder })
        }
    }

    impl Measure {
        /// What a file or a folder takes.
        pub(crate) fn bytes(&mut self, path: &Path) -> u64 {
            let Ok(root) = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) else { return 0 };
            let mut bytes = self.count(&root);
            if FileType::from_raw_mode(root.st_mode) != FileType::Directory {
                return bytes;
            }
            let mut levels = Vec::new();
            self.enter(&mut levels, CWD, path);
            while let Some(level) = levels.last_mut() {
                let Some(entry) = level.entries.next() else {
                    levels.pop();
                    continue;
                };
                let Ok(entry) = entry else {
                    self.is_whole = false;
                    levels.pop();
                    continue;
                };
                if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    continue;
                }
                if self.entries == 0 || Instant::now() > self.until {
                    self.is_whole = false;
                    return bytes;
                }
                self.entries -= 1;
                let Ok(found) = statat(&level.folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if found.st_dev != root.st_dev {
                    continue;
                }
                bytes += self.count(&found);
                if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                    continue;
                }
                if levels.len() == DEPTH {
                    self.is_whole = false;
                    continue;
                }
                let level = levels.last().expect("it was looked at just now");
                match open(&level.folder, entry.file_name()) {
                    Ok(level) => levels.push(level),
                    Err(_) => self.is_whole = false,
                }
            }
            bytes
        }

        fn enter(&mut self, levels: &mut Vec<Level>, parent: impl std::os::fd::AsFd, path: impl rustix::path::Arg) {
            match open(parent, path) {
                Ok(level) => levels.push(level),
                Err(_) => self.is_whole = false,
            }
        }

        fn count(&mut self, found: &Stat) -> u64 {
            let has_names = FileType::from_raw_mode(found.st_mode) != FileType::Directory && found.st_nlink > 1;
            if has_names && !self.counted.insert((found.st_dev.into(), found.st_ino)) {
                return 0;
            }
            // By POSIX always so many, whatever the file system's blocks are.
            u64::try_from(found.st_blocks).unwrap_or(0) * 512
        }
    }

    fn open(parent: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> Result<Level, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(parent, path, flags, Mode::empty())?;
        fstat(&folder)?;
        Level::open(folder)
    }
}

#[cfg(not(unix))]
impl Measure {
    /// What a file or a folder takes.
    pub(crate) fn bytes(&mut self, path: &Path) -> u64 {
        let mut waiting = vec![path.to_owned()];
        let mut bytes = 0;
        while let Some(path) = waiting.pop() {
            if self.entries == 0 || Instant::now() > self.until {
                self.is_whole = false;
                break;
            }
            self.entries -= 1;
            match path.symlink_metadata() {
                Ok(found) if found.is_dir() => waiting.extend(entries(&path).into_iter().map(|(_, path)| path)),
                Ok(found) => bytes += found.len(),
                Err(_) => self.is_whole = false,
            }
        }
        bytes
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_are_not_followed_and_what_has_two_names_counts_once() {
        let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("large"), vec![1; 8 << 20]).unwrap();
        let folder = place.path().join("sandbox");
        fs::create_dir_all(folder.join("workspace/deep/er")).unwrap();
        fs::create_dir_all(folder.join("home")).unwrap();
        let empty = Measure::new().sandbox(&folder).all;
        fs::write(folder.join("workspace/deep/er/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(folder.join("workspace/deep/er/file"), folder.join("home/again")).unwrap();
        symlink(outside.path(), folder.join("workspace/link")).unwrap();
        symlink(outside.path().join("large"), folder.join("large")).unwrap();
        let hole = fs::File::create(folder.join("home/hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let mut measure = Measure::new();
        let sizes = measure.sandbox(&folder);
        assert!(measure.is_whole);
        let added = sizes.all - empty;
        assert!(
            ((1 << 20)..(2 << 20)).contains(&added),
            "{added} bytes: one file of a megabyte, by either of its names"
        );
        assert_eq!(sizes.all, sizes.workspace + sizes.home + Measure::new().bytes(&folder.join("large")));
    }

    #[test]
    fn there_is_an_end_to_measuring() {
        let place = tempfile::tempdir().unwrap();
        let mut deep = place.path().to_owned();
        for _ in 0..200 {
            deep.push("a");
        }
        fs::create_dir_all(&deep).unwrap();
        let mut measure = Measure::new();
        measure.bytes(place.path());
        assert!(!measure.is_whole, "it says that there is more");
        let mut measure = Measure { entries: 2, ..Measure::new() };
        for name in ["one", "two", "three"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        measure.bytes(place.path());
        assert!(!measure.is_whole && measure.entries == 0);
    }
}
