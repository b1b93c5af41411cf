//! The folders of sandboxes, once nothing runs in them: removed, measured, looked into.
//!
//! An agent may have left anything there: symbolic links, pipes, folders nobody may read, folders deeper than any path,
//! names that are no text. So nothing is reached by a path: every folder is opened by its name in the one before, links
//! are not followed, and no other file system is entered.

mod look;
mod measure;
mod remove;

use std::{io, path::PathBuf};

pub(crate) use look::{has_stash, written_since};
pub(crate) use measure::{Measure, Measured};
pub(crate) use remove::Owned;

/// Marks a folder as a sandbox's own: without it, none may ever be removed.
pub(crate) const MARKER: &str = ".courier-sandbox";

/// What an agent works in, and what it printed: gone once a sandbox's files are cleaned. Its marker and the keeper's last
/// words stay.
pub(crate) const FILES: [&str; 5] = ["workspace", "workspace.unfinished", "workspace.lock", "home", "turns"];

/// Why a folder was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It may not be: it is not certain that it is a sandbox's.
    #[error("{path} was left alone: {why}")]
    NotOurs { path: PathBuf, why: &'static str },
    /// Something is mounted in it.
    #[error("{0} lies on another file system, and was left alone")]
    Elsewhere(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The engine shuts down.
    #[error("removing was broken off")]
    BrokenOff,
}

/// One at a time, and what was measured last: shared by whoever deletes, removes and measures.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// Held from the decision to stop a sandbox that is deleted until that is recorded: stopped twice, it would not be
    /// waited for.
    pub deleting: tokio::sync::Mutex<()>,
    /// Held while files are removed.
    pub removing: tokio::sync::Mutex<()>,
    /// What was measured, and when.
    pub measured: tokio::sync::Mutex<Option<(std::time::Instant, std::sync::Arc<Measured>)>>,
}
