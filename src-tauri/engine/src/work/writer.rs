//! One writer at a time: Git's own locks refuse and do not wait.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Who may write a bare repository of ours. A clone stands in the same queue.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    path: PathBuf,
    /// References others write without asking for the turn.
    spared: Option<&'static str>,
    turn: Arc<Mutex<()>>,
}

/// The turn to write, until it is dropped.
#[derive(Debug)]
pub struct Writing<'a> {
    _turn: MutexGuard<'a, ()>,
}

impl Writer {
    pub fn at(path: PathBuf) -> Self {
        Self { path, spared: None, turn: Arc::default() }
    }

    /// Nobody's turn but for the references in this folder, of which each has a writer of its own.
    pub fn sparing(path: PathBuf, spared: &'static str) -> Self {
        Self { path, spared: Some(spared), turn: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the turn, where waiting is allowed. The app may have been killed while it wrote: a lock that is there now is nobody's.
    pub fn begin(&self) -> Writing<'_> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let spared = self.spared.map(|spared| self.path.join(spared));
        remove_locks_beside(&self.path);
        remove_locks(&self.path.join("refs"), spared.as_deref());
        Writing { _turn: turn }
    }
}

/// Removes Git's lock files of references (`refs/heads/main.lock`; no reference's name ends so). What cannot be removed is
/// named by the write it hinders.
pub(super) fn remove_locks(folder: &Path, spared: Option<&Path>) {
    remove_locks_beside(folder);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && spared != Some(&path) {
            remove_locks(&path, spared);
        }
    }
}

/// The same of a folder's own files alone (`HEAD.lock`, `packed-refs.lock`): what comes in has a folder of its own beside
/// them, whose locks are somebody's.
fn remove_locks_beside(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_lock = path.extension().is_some_and(|extension| extension == "lock");
        if is_lock && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            _ = std::fs::remove_file(&path);
        }
    }
}
