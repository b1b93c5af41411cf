//! What lies where in a sandbox's folder, and how it is written so that a reader never sees half of it.
//!
//! ```text
//! <directory>/
//!   keeper.lock   held while a keeper lives         keeper.json   who that is
//!   keeper.sock   asks it                           keeper.log    what it had to say
//!   ended         why the sandbox is no more        refused.log   what the proxy refused
//!   turns/<turn id>/
//!     out  err    what the agent printed, redacted  exit          how it ended, and how long both are
//!     late        the first of what came after that
//! ```

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The lock a living keeper holds.
pub const LOCK: &str = "keeper.lock";
/// A [`crate::protocol::KeeperRecord`].
pub const RECORD: &str = "keeper.json";
/// What the keeper and bubblewrap had to say.
pub const LOG: &str = "keeper.log";
/// An [`crate::protocol::EndedRecord`].
pub const ENDED: &str = "ended";
/// One line of JSON per refused connection.
pub const REFUSED: &str = "refused.log";
/// The folder of all turns.
pub const TURNS: &str = "turns";
/// A turn's standard output.
pub const OUT: &str = "out";
/// A turn's standard error.
pub const ERR: &str = "err";
/// An [`ExitRecord`].
pub const EXIT: &str = "exit";
/// What was printed after `exit`, by what the turn left running.
pub const LATE: &str = "late";

/// How a turn's process ended. Neither code nor signal: nobody saw it end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// What killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The final length of `out`.
    pub out_len: u64,
    /// The final length of `err`.
    pub err_len: u64,
    /// Until when the model's maker takes no more, where it said so last: Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<i64>,
}

/// Where a turn's spool is.
pub fn turn_directory(directory: &Path, turn: &str) -> PathBuf {
    directory.join(TURNS).join(turn)
}

/// Whether this can name a turn: it becomes a folder and a variable's value.
pub fn is_turn_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Claims a turn by making its folder; `false`: somebody did before.
pub fn claim(directory: &Path, turn: &str) -> io::Result<bool> {
    let place = turn_directory(directory, turn);
    let mut made = private_directory().create(&place);
    if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        // The folder of all turns was taken away; those before are over, and this one is none of them.
        made = private_directory().create(directory.join(TURNS)).and_then(|()| private_directory().create(&place));
    }
    match made {
        Ok(()) => sync_directory(&directory.join(TURNS)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// How a turn ended, once it has.
pub fn read_exit(turn_directory: &Path) -> io::Result<Option<ExitRecord>> {
    match fs::read(turn_directory.join(EXIT)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes `exit` for the turns an earlier keeper left open: it is gone, and what it had not written is lost.
pub fn settle_orphans(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory.join(TURNS))? {
        let place = entry?.path();
        if !place.is_dir() || place.join(EXIT).exists() {
            continue;
        }
        let length = |name| fs::metadata(place.join(name)).map_or(0, |file| file.len());
        let record = ExitRecord { out_len: length(OUT), err_len: length(ERR), ..ExitRecord::default() };
        write_whole(&place, EXIT, &serde_json::to_vec(&record)?)?;
    }
    Ok(())
}

/// Writes a file so that it is there whole or not at all, also after the power went.
pub fn write_whole(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = directory.join(format!(".{name}.new"));
    draft_file(&draft, bytes)?.sync_all()?;
    fs::rename(&draft, directory.join(name))?;
    sync_directory(directory)
}

/// Writes a file so that whoever reads it sees it whole; for what means nothing once the machine was restarted.
pub fn write_at_once(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = directory.join(format!(".{name}.new"));
    draft_file(&draft, bytes)?;
    fs::rename(&draft, directory.join(name))
}

fn draft_file(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = private_file().create(true).truncate(true).write(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Takes the lock of a sandbox's keeper for as long as the file lives; `None`: another keeper has it.
pub fn lock(directory: &Path) -> io::Result<Option<File>> {
    let file = private_file().create(true).truncate(false).write(true).open(directory.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a lock that is held still lies where others look for it: without it nobody finds its keeper.
#[cfg(unix)]
pub(crate) fn is_in_place(lock: &File, directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |file: io::Result<fs::Metadata>| file.map(|file| (file.dev(), file.ino()));
    match (of(lock.metadata()), of(fs::metadata(directory.join(LOCK)))) {
        (Ok(held), Ok(found)) => held == found,
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => false,
        // Nobody knows: as if it were.
        _ => true,
    }
}

/// Whether a keeper lives. Asking takes a shared lock for a moment, so that a keeper about to start may have to try
/// twice.
pub fn is_locked(directory: &Path) -> io::Result<bool> {
    let file = match File::open(directory.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes what a new keeper needs; what is there already stays.
pub fn prepare(directory: &Path) -> io::Result<()> {
    private_directory().recursive(true).create(directory.join(TURNS))
}

/// Options for a file that only the app's own user can read.
pub fn private_file() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn private_directory() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_claimed_once() {
        let place = tempfile::tempdir().unwrap();
        prepare(place.path()).unwrap();
        assert!(claim(place.path(), "t1").unwrap());
        assert!(!claim(place.path(), "t1").unwrap());
    }

    #[test]
    fn a_turn_id_can_be_no_path() {
        assert!(is_turn_id("0198c0de-aaaa-7000-8000-000000000000"));
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\0b"] {
            assert!(!is_turn_id(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_lock_tells_whether_a_keeper_lives() {
        let place = tempfile::tempdir().unwrap();
        assert!(!is_locked(place.path()).unwrap(), "no keeper was ever here");
        let held = lock(place.path()).unwrap().expect("free");
        assert!(is_locked(place.path()).unwrap());
        assert!(lock(place.path()).unwrap().is_none());
        drop(held);
        assert!(!is_locked(place.path()).unwrap());
    }

    #[test]
    fn a_lock_whose_folder_was_deleted_is_not_in_place() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("sandbox");
        prepare(&directory).unwrap();
        let held = lock(&directory).unwrap().expect("free");
        assert!(is_in_place(&held, &directory));
        fs::remove_dir_all(&directory).unwrap();
        assert!(!is_in_place(&held, &directory));
        prepare(&directory).unwrap();
        let _other = lock(&directory).unwrap().expect("a new file's lock is free");
        assert!(!is_in_place(&held, &directory), "another's lock at the same place is not its own");
    }

    #[test]
    fn a_turn_can_be_claimed_after_all_turns_were_deleted() {
        let place = tempfile::tempdir().unwrap();
        prepare(place.path()).unwrap();
        fs::remove_dir_all(place.path().join(TURNS)).unwrap();
        assert!(claim(place.path(), "t1").unwrap());
        assert!(!claim(place.path(), "t1").unwrap());
    }

    #[test]
    fn what_an_earlier_keeper_left_open_is_settled_with_what_is_there() {
        let place = tempfile::tempdir().unwrap();
        prepare(place.path()).unwrap();
        claim(place.path(), "open").unwrap();
        fs::write(turn_directory(place.path(), "open").join(OUT), b"four").unwrap();
        claim(place.path(), "done").unwrap();
        let done = ExitRecord { code: Some(0), ..ExitRecord::default() };
        let json = serde_json::to_vec(&done).unwrap();
        write_whole(&turn_directory(place.path(), "done"), EXIT, &json).unwrap();
        settle_orphans(place.path()).unwrap();
        let open = read_exit(&turn_directory(place.path(), "open")).unwrap().unwrap();
        assert_eq!(open, ExitRecord { out_len: 4, ..ExitRecord::default() });
        assert_eq!(read_exit(&turn_directory(place.path(), "done")).unwrap(), Some(done));
    }
}
