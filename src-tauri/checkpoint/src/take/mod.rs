//! Taking a checkpoint of a working tree: all of it but what is ignored becomes a commit in the vault.
//!
//! The workspace is an agent's, `.git` and all. So it is never opened as a repository: what changed is told by an index
//! of our own ([`private`]), files are opened by us ([`folder`]), rules are read by us ([`rules`]), and there is no
//! configuration that could name a program. What is there is compared in one walk ([`walk`]); only what differs is read.
//!
//! The order at the end is what makes it safe to be killed anywhere: objects, made durable; the reference; then what is
//! remembered for the next time.
//!
//! On purpose different from `git add -A`: the workspace's configuration, `info/exclude`, index and filters count for
//! nothing; a submodule's folder whose `.git` is gone but not its files is a folder; and what cannot be taken is listed.

mod changes;
mod contents;
#[cfg(unix)]
mod folder;
#[cfg(not(unix))]
#[path = "folder_elsewhere.rs"]
mod folder;
mod look;
mod names;
mod nested;
mod objects;
mod private;
mod rules;
mod seed;
mod walk;

use std::{error::Error, io, path::PathBuf};

use gix::{
    ObjectId,
    bstr::{BStr, ByteSlice},
    index::{State, entry::Flags},
    objs::{self, FindExt},
};
use serde::{Deserialize, Serialize};

pub use self::seed::seed;
use self::{
    changes::Held,
    objects::{Commit, Objects, Reference},
    private::{Draft, Last},
    walk::{Found, Walk},
};
use crate::request::{Cause, Failure};

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

/// Takes one.
///
/// # Errors
/// `NoSuchCommit`, `TooLarge`, `DiskFull`, `BadRequest`, or `Failed`: then the last checkpoint and what is remembered
/// of it are as they were.
pub fn take(request: &Taking) -> Result<Taken, Failure> {
    let reference = Reference::parse(&request.vault, &request.reference)?;
    let objects = Objects::open(&request.vault)?;
    let base = parse_id(&request.base)?;
    let base_tree = objects.tree_of(base)?;
    let parent = request.head.as_deref().map(parse_id).transpose()?.unwrap_or(base);
    objects.tree_of(parent)?;
    let draft = Draft::begin(&request.private)?;
    let Last { mut index, tree: last_tree, commit: last_commit, began } =
        Last::load(&request.private, base_tree, &objects);
    let walk =
        Walk { vault: &request.vault, workspace: &request.workspace, index: &index, began, limits: request.limits };
    let (mut found, bytes) = walk.run()?;
    list_nested(&mut found, base_tree, &objects);
    let files_changed = count(&found, &index);
    let mut written = std::mem::take(&mut found.written);
    let tree = write_tree(last_tree, &found, &index, &objects, &mut written)?;
    let same = last_commit.filter(|(commit, of)| *of == parent && tree == last_tree && objects.has(commit));
    let commit = match same {
        Some((commit, _)) => commit,
        None => {
            let Taking { message, author, at, .. } = request;
            objects.write_commit(&Commit { tree, parent, message, author, at: *at }, &mut written)?
        }
    };
    objects.flush(&written)?;
    reference.write(commit)?;
    let held = Held::between(base_tree, tree, &objects, &found.attributed)?;
    let mut skipped = std::mem::take(&mut found.skipped);
    // Several threads found them, each in its own time.
    skipped.listed.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    if same.is_some() && found.changed.is_empty() && found.gone.is_empty() {
        draft.abandon();
    } else {
        apply(found, &mut index);
        draft.finish(&index, tree, Some((commit, parent)))?;
    }
    Ok(Taken {
        commit: commit.to_string(),
        tree: tree.to_string(),
        parent: parent.to_string(),
        is_same_as_last: same.is_some(),
        files_changed,
        skipped: skipped.listed,
        skipped_count: skipped.count,
        lfs: held.lfs,
        workflows: held.workflows,
        bytes,
    })
}

/// Lists the repositories within that the base does not have like this: their contents are nowhere but there.
fn list_nested(found: &mut Found, base: ObjectId, objects: &Objects) {
    for (path, id) in std::mem::take(&mut found.nested) {
        let mut buffer = Vec::new();
        let parts = path.split_str("/");
        let known = objects.odb.find_tree_iter(&base, &mut buffer).ok().and_then(|tree| {
            let mut buffer = Vec::new();
            tree.lookup_entry(&objects.odb, &mut buffer, parts).ok().flatten()
        });
        if known.is_none_or(|entry| entry.oid != id) {
            found.skipped.add(path.as_ref(), Why::Nested);
        }
    }
}

/// How many paths differ from the last checkpoint.
fn count(found: &Found, index: &State) -> u64 {
    let differs = |change: &&walk::Change| change.at.is_none_or(|at| !is_as_stored(change, index, at));
    (found.gone.len() + found.changed.iter().filter(differs).count()) as u64
}

/// Whether only its times are new.
fn is_as_stored(change: &walk::Change, index: &State, at: usize) -> bool {
    let entry = &index.entries()[at];
    entry.id == change.id && entry.mode == change.mode
}

/// The last tree with what changed; only trees on the way to that are written.
fn write_tree(
    last: ObjectId,
    found: &Found,
    index: &State,
    objects: &Objects,
    written: &mut Vec<ObjectId>,
) -> Result<ObjectId, Failure> {
    let failed = |error: gix::Error| failure("write the tree", error);
    let root = if last.is_empty_tree() {
        objs::Tree::empty()
    } else {
        let mut buffer = Vec::new();
        objects.odb.find_tree(&last, &mut buffer).map_err(failed)?.into()
    };
    let mut editor = objs::tree::Editor::new(root, &objects.odb, gix::hash::Kind::Sha1);
    for at in &found.gone {
        let path = index.entries()[*at].path(index);
        editor.remove(path.split_str("/").map(BStr::new)).map_err(failed)?;
    }
    for change in &found.changed {
        if change.at.is_some_and(|at| is_as_stored(change, index, at)) {
            continue;
        }
        let mode = change.mode.to_tree_entry_mode().expect("a file, a link or a commit");
        let path = change.path.split_str("/").map(BStr::new);
        editor.upsert(path, mode.kind(), change.id).map_err(failed)?;
    }
    editor.write(|tree| {
        let mut bytes = Vec::new();
        objs::WriteTo::write_to(tree, &mut bytes).map_err(|error| failure("write the tree", error))?;
        objects.write(objs::Kind::Tree, &bytes, written)
    })
}

/// Brings the index up to what was found.
fn apply(found: Found, index: &mut State) {
    let mut new = Vec::new();
    for change in found.changed {
        match change.at {
            Some(at) => {
                let entry = &mut index.entries_mut()[at];
                (entry.stat, entry.id, entry.mode) = (change.stat, change.id, change.mode);
            }
            None => new.push(change),
        }
    }
    if !found.gone.is_empty() {
        let gone: std::collections::HashSet<usize> = found.gone.into_iter().collect();
        index.remove_entries(|at, _, _| gone.contains(&at));
    }
    if !new.is_empty() {
        for change in new {
            index.dangerously_push_entry(change.stat, change.id, Flags::empty(), change.mode, change.path.as_ref());
        }
        index.sort_entries();
    }
}

fn parse_id(text: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(text.as_bytes())
        .map_err(|_| Failure::new(Cause::BadRequest, format!("read {text:?} as a commit's id")))
}

/// What could not be done, and why. Where the disk is full it says so, wherever in the chain of causes that stands.
fn failure(what: &str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    let error = error.into();
    let (mut texts, mut is_full) = (Vec::<String>::new(), false);
    let mut at: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(cause) = at {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        is_full |= matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded));
        let text = cause.to_string();
        if !texts.iter().any(|before| before.contains(&text)) {
            texts.push(text);
        }
        at = cause.source();
    }
    let text = texts.join(": ");
    is_full |= ["No space left", "quota exceeded"].iter().any(|words| text.contains(words));
    Failure::new(if is_full { Cause::DiskFull } else { Cause::Failed }, format!("{what}: {text}"))
}
