//! One writer at a time: Git's own locks refuse and do not wait.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Who may write a bare repository of ours. A clone stands in the same queue.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    path: PathBuf,
    turn: Arc<Mutex<()>>,
}

/// The turn to write, until it is dropped. It may be held while others (a worker) write on one's behalf.
#[derive(Debug)]
pub struct Writing {
    _turn: OwnedMutexGuard<()>,
}

impl Writer {
    pub fn at(path: PathBuf) -> Self {
        Self { path, turn: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the turn, where waiting is allowed.
    pub fn begin(&self) -> Writing {
        self.taken(Arc::clone(&self.turn).blocking_lock_owned())
    }

    /// Waits for the turn.
    pub async fn wait(&self) -> Writing {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.taken(turn)
    }

    /// The app may have been killed while it wrote: a lock that is there now is nobody's.
    fn taken(&self, turn: OwnedMutexGuard<()>) -> Writing {
        remove_locks(&self.path);
        Writing { _turn: turn }
    }
}

/// Removes Git's lock files (`HEAD.lock`, `refs/heads/main.lock`; no reference's name ends so). What cannot be removed is
/// named by the write it hinders.
fn remove_locks(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && name != "objects" => remove_locks(&path),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|extension| extension == "lock") => {
                _ = std::fs::remove_file(&path);
            }
            _ => {}
        }
    }
}
