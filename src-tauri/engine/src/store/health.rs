//! Whether a file is a database that holds what it should, asked before it is used. What is damaged is named and left
//! alone: nothing here repairs, and nothing begins anew over it.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::Error;

/// Up to this size the whole file is looked through at every start; a larger one would delay it. In bytes.
const LOOKED_THROUGH: u64 = 64 << 20;
/// Folders beside the database that are there only once it held something.
const TRACES: [&str; 2] = ["projects", "sandboxes"];

/// Looks at the file before SQLite may write to it.
pub(super) fn look_before(path: &Path) -> Result<(), Error> {
    let damaged = |cause: &str| Err(Error::Damaged { path: path.to_owned(), cause: cause.to_owned() });
    let length = match fs::metadata(path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
    };
    if length == 0 {
        // A new one would hide what is there, and what may still run.
        return if was_used(path) { damaged("it is empty or missing, but there are sandboxes") } else { Ok(()) };
    }
    match length_by_header(path) {
        Some(expected) if expected > length && !has_log(path) => damaged("it was cut short"),
        _ => Ok(()),
    }
}

/// Looks at the contents.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), Error> {
    let damaged = |cause: String| Err(Error::Damaged { path: path.to_owned(), cause });
    if fs::metadata(path).is_ok_and(|file| file.len() <= LOOKED_THROUGH) {
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return damaged(found);
        }
    }
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 && was_used(path) {
        return damaged("it holds nothing, but there are sandboxes".to_owned());
    }
    Ok(())
}

/// Where the file lies, and which file that was.
pub(super) struct Place {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Place {
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let file = number(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Whether the file that is open is still the one that lies there. SQLite goes on with one that was deleted.
    pub(super) fn is_same(&self) -> bool {
        // What cannot be looked at may be there.
        number(&self.path).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |found| found == self.file)
    }
}

#[cfg(unix)]
fn number(path: &Path) -> io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|file| Some((file.dev(), file.ino())))
}

/// Elsewhere an open file cannot be deleted.
#[cfg(not(unix))]
fn number(path: &Path) -> io::Result<Option<(u64, u64)>> {
    fs::metadata(path).map(|_| None)
}

/// Whether its folder has been in use.
fn was_used(path: &Path) -> bool {
    let has_entries =
        |folder: &str| fs::read_dir(path.with_file_name(folder)).is_ok_and(|mut entries| entries.next().is_some());
    TRACES.into_iter().any(has_entries)
}

/// Whether there is a write-ahead log that may hold what the file does not.
fn has_log(path: &Path) -> bool {
    fs::metadata(path.with_extension("db-wal")).is_ok_and(|file| file.len() > 0)
}

/// How long the file says it is; `None` where it does not say.
fn length_by_header(path: &Path) -> Option<u64> {
    let mut header = [0; 100];
    fs::File::open(path).ok()?.read_exact(&mut header).ok()?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    // The count is right only where these two agree (SQLite's file format, section 1.3.7).
    let is_valid = header.starts_with(b"SQLite format 3\0") && number(24) == number(92);
    is_valid.then(|| page_size * u64::from(number(28)))
}
