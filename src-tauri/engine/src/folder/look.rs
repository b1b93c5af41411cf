//! What can be told of a workspace without opening it as a repository: its configuration is the agent's.

use std::path::Path;

use crate::model::Timestamp;

/// How many entries are looked at.
#[cfg(unix)]
const ENTRIES: u32 = 200_000;

/// Whether changes were put away with `git stash`: they are in no commit of any branch.
#[cfg(unix)]
pub(crate) fn has_stash(workspace: &Path) -> bool {
    use std::io::Read;

    use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};

    /// The longest list of packed references that is read.
    const PACKED: u64 = 16 << 20;
    const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    let looked = || {
        let workspace = openat(CWD, workspace, FOLDER, Mode::empty())?;
        let git = openat(&workspace, ".git", FOLDER, Mode::empty())?;
        let refs = openat(&git, "refs", FOLDER, Mode::empty())?;
        if statat(&refs, "stash", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(true);
        }
        // It may be a pipe by now: opening one for reading would wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let packed = openat(&git, "packed-refs", flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&packed)?.st_mode) != FileType::RegularFile {
            return Ok(false);
        }
        let mut text = Vec::new();
        std::fs::File::from(packed).take(PACKED).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(text.split(|byte| *byte == b'\n').any(|line| line.ends_with(b" refs/stash")))
    };
    // What cannot be looked at holds nothing Git would find either.
    looked().unwrap_or(false)
}

/// How many files were written since then, `.git` left out; at least. By the time the file system keeps for itself,
/// which no program inside can set.
#[cfg(unix)]
pub(crate) fn written_since(workspace: &Path, since: Timestamp) -> u32 {
    use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

    const DEPTH: usize = 128;
    let open = |parent: std::os::fd::BorrowedFd<'_>, name: &std::ffi::CStr| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(parent, name, flags, Mode::empty()).ok()?;
        Some((Dir::read_from(&folder).ok()?, folder))
    };
    let Some(root) = path(workspace).and_then(|path| open(CWD, &path)) else { return 0 };
    let (mut levels, mut left, mut written) = (vec![root], ENTRIES, 0);
    while let Some((entries, folder)) = levels.last_mut() {
        let Some(Ok(entry)) = entries.next() else {
            levels.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b".." | b".git") {
            continue;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        let Ok(found) = statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            written += u32::from(found.st_ctime > since.millis() / 1000);
        } else if levels.len() < DEPTH {
            let next = levels.last().and_then(|(_, folder)| open(std::os::fd::AsFd::as_fd(folder), name));
            levels.extend(next);
        }
    }
    written
}

#[cfg(unix)]
fn path(path: &Path) -> Option<std::ffi::CString> {
    std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())).ok()
}

#[cfg(not(unix))]
pub(crate) fn has_stash(workspace: &Path) -> bool {
    workspace.join(".git").join("refs").join("stash").is_file()
}

#[cfg(not(unix))]
pub(crate) fn written_since(_workspace: &Path, _since: Timestamp) -> u32 {
    0
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{fs, time::UNIX_EPOCH};

    use courier_test_support::repositories::Repository;

    use super::*;

    #[test]
    fn a_stash_is_seen_wherever_git_keeps_it() {
        let repository = Repository::ordinary().unwrap();
        assert!(!has_stash(repository.path()));
        repository.write("README.md", "changed").unwrap();
        repository.git(&["stash"]).unwrap();
        assert!(has_stash(repository.path()));
        repository.git(&["pack-refs", "--all"]).unwrap();
        assert!(!repository.path().join(".git/refs/stash").exists(), "it is packed now");
        assert!(has_stash(repository.path()));
        repository.git(&["stash", "drop"]).unwrap();
        assert!(!has_stash(repository.path()));
    }

    #[test]
    fn a_repository_that_is_none_is_looked_at_without_waiting() {
        let place = tempfile::tempdir().unwrap();
        assert!(!has_stash(place.path()));
        fs::create_dir_all(place.path().join(".git/refs")).unwrap();
        let pipe = place.path().join(".git/packed-refs");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert!(!has_stash(place.path()));
        let other = Repository::ordinary().unwrap();
        other.write("README.md", "changed").unwrap();
        other.git(&["stash"]).unwrap();
        fs::remove_dir_all(place.path().join(".git")).unwrap();
        std::os::unix::fs::symlink(other.path().join(".git"), place.path().join(".git")).unwrap();
        assert!(!has_stash(place.path()), "what lies elsewhere is not looked at");
    }

    #[test]
    fn files_written_since_are_counted_whatever_time_they_claim() {
        let repository = Repository::ordinary().unwrap();
        let written = fs::metadata(repository.path().join("src/main.sh")).unwrap();
        let written = std::os::unix::fs::MetadataExt::ctime(&written);
        assert_eq!(written_since(repository.path(), Timestamp::from_millis((written + 60) * 1000)), 0);
        let file = fs::File::options().write(true).open(repository.path().join("README.md")).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(written_since(repository.path(), Timestamp::from_millis((written - 60) * 1000)), 5, "all of them");
    }
}
