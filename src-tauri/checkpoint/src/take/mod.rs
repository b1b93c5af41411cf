//! Taking a checkpoint of a working tree.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A fresh clone nobody has worked in yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeding {
    pub vault: PathBuf,
    pub workspace: PathBuf,
    /// The sandbox's private folder, which no agent sees.
    pub private: PathBuf,
    /// The commit that was cloned, in hexadecimal.
    pub base: String,
}

/// A checkpoint to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taking {
    pub vault: PathBuf,
    pub workspace: PathBuf,
    pub private: PathBuf,
    /// The reference to make: `refs/courier/<sandbox>/<name>`.
    pub reference: String,
    pub base: String,
    /// The agent's own commit, where one was brought in: the checkpoint's parent instead of `base`.
    pub head: Option<String>,
    pub message: String,
    pub author: Author,
    /// Seconds since 1970.
    pub at: i64,
    pub limits: Limits,
}

/// Whom a commit names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    pub name: String,
    pub email: String,
}

/// What a checkpoint may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Files and folders looked at.
    pub entries: u64,
    /// Bytes of one file; a larger one is skipped and listed.
    pub file: u64,
    /// Bytes read in all.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 2_000_000, file: 100 << 20, bytes: 8 << 30 }
    }
}

/// A checkpoint that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub commit: String,
    pub tree: String,
    pub parent: String,
    /// Nothing changed since the last checkpoint: the reference names the same commit.
    pub is_same_as_last: bool,
    /// Paths added, changed or removed since the last checkpoint.
    pub files_changed: u64,
    /// What could not be taken; at most [`Taken::LISTED`] of them.
    pub skipped: Vec<Skipped>,
    /// How many there were.
    pub skipped_count: u64,
    /// Paths changed since the base that `filter=lfs` applies to; they are taken as they lie on the disk.
    pub lfs: Vec<String>,
    /// Paths changed since the base beneath `.github/workflows`.
    pub workflows: Vec<String>,
    /// Bytes of the contents read.
    pub bytes: u64,
}

impl Taken {
    /// How long each list of paths can be.
    pub const LISTED: usize = 1_000;
}

/// A path that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// For a person to read: what is not UTF-8 is replaced, and what is very long is cut.
    pub path: String,
    pub why: Why,
}

/// Why a path could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Larger than [`Limits::file`]. What the last checkpoint had stays.
    TooLarge,
    /// A pipe, a socket or a device.
    Special,
    /// Git takes no such name: `.git` in any spelling, or what some system takes for it.
    Name,
    /// A path longer than systems open, or more levels than trees should have.
    TooDeep,
    /// It could not be read, or changed while it was. What the last checkpoint had stays.
    Unreadable,
    /// A repository without a commit that could be read.
    NestedWithoutCommit,
    /// A repository of its own: its commit is recorded, its contents are not.
    Nested,
    /// A `.git` file that points outside the workspace; the folder's files are taken.
    Outside,
}
