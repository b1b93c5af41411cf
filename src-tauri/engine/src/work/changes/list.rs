//! The list of files that differ.

use std::thread;

use git2::{Delta, Diff, DiffFindOptions, DiffOptions, FileMode, Oid};

use super::{Between, count};
use crate::work::{Error, Vault};

/// Similar files are looked for up to so many pairs; beyond, only those that are the same.
const PAIRS: usize = 40_000;
/// Exact renames are looked for up to so many files: a whole tree moved is as long a list without.
const MOVED: usize = 50_000;

/// The files that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// By path.
    pub files: Vec<ChangedFile>,
    /// How many more there are that are not listed.
    pub more: usize,
    /// Of those listed whose lines were counted.
    pub additions: u64,
    pub deletions: u64,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// For a person: what is not UTF-8 is replaced. It is also the name to ask for it.
    pub path: String,
    /// Where it was, if it moved.
    pub old_path: Option<String>,
    pub kind: Kind,
    /// Lines; `None` where there are none to count (a binary file, a submodule) or too many.
    pub additions: Option<u32>,
    pub deletions: Option<u32>,
    pub is_binary: bool,
    pub size_before: Option<u64>,
    pub size_after: Option<u64>,
    pub is_lfs_pointer: bool,
    pub is_submodule: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
    /// Its contents may have changed too.
    Renamed,
    /// A file became a link or a submodule, or the other way round.
    TypeChanged,
    /// Only whether it can be run.
    Mode,
}

/// What git says of one, before anything is read.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub kind: Kind,
    pub path: Vec<u8>,
    pub old_path: Option<Vec<u8>>,
    /// The contents on each side; a submodule has none.
    pub blobs: [Option<Oid>; 2],
    pub is_submodule: bool,
}

pub(super) fn changed_files(vault: &Vault, between: Between, most: usize) -> Result<Changes, Error> {
    let repository = vault.open()?;
    let [from, to] = between.trees(&repository)?;
    let mut options = DiffOptions::new();
    options.include_typechange(true).skip_binary_check(true);
    let mut diff = repository.diff_tree_to_tree(from.as_ref(), to.as_ref(), Some(&mut options))?;
    // What is where it was has not moved: it is counted while moved files are looked for.
    let stays = |status| status == Delta::Modified;
    let (modified, modified_count) = entries(&diff, stays, most);
    let (others, modified_files) = thread::scope(|scope| {
        let files = scope.spawn(|| count::all(vault, &modified));
        let others = find_moved(&mut diff).map(|()| entries(&diff, |status| !stays(status), most));
        (others, files.join().expect("counting does not panic"))
    });
    let (others, others_count) = others?;
    let files = modified_files?.into_iter().chain(count::all(vault, &others)?);
    let mut files: Vec<_> = modified.iter().chain(&others).map(|entry| &entry.path).zip(files).collect();
    files.sort_by_key(|(path, _)| *path);
    files.truncate(most);
    let files: Vec<ChangedFile> = files.into_iter().map(|(_, file)| file).collect();
    let more = (modified_count + others_count).saturating_sub(most);
    let sum = |count: fn(&ChangedFile) -> Option<u32>| files.iter().filter_map(count).map(u64::from).sum();
    Ok(Changes { more, additions: sum(|file| file.additions), deletions: sum(|file| file.deletions), files })
}

/// Those that differ in this way, by path, at most so many; and how many there are.
fn entries(diff: &Diff<'_>, is_wanted: impl Fn(Delta) -> bool, most: usize) -> (Vec<Entry>, usize) {
    let wanted = diff.deltas().filter(|delta| is_wanted(delta.status()));
    let mut entries: Vec<Entry> = wanted.filter_map(|delta| entry(&delta)).collect();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let count = entries.len();
    entries.truncate(most);
    (entries, count)
}

/// Finds moved files, within limits.
pub(super) fn find_moved(diff: &mut Diff<'_>) -> Result<(), Error> {
    let (mut added, mut deleted) = (0_usize, 0_usize);
    for delta in diff.deltas() {
        added += usize::from(delta.status() == Delta::Added);
        deleted += usize::from(delta.status() == Delta::Deleted);
    }
    if added == 0 || deleted == 0 || added.max(deleted) > MOVED {
        return Ok(());
    }
    let mut options = DiffFindOptions::new();
    options.renames(true).rename_limit(added.max(deleted)).exact_match_only(added.saturating_mul(deleted) > PAIRS);
    diff.find_similar(Some(&mut options))?;
    Ok(())
}

fn entry(delta: &git2::DiffDelta<'_>) -> Option<Entry> {
    let (old, new) = (delta.old_file(), delta.new_file());
    let kind = match delta.status() {
        Delta::Added => Kind::Added,
        Delta::Deleted => Kind::Deleted,
        Delta::Renamed => Kind::Renamed,
        Delta::Typechange => Kind::TypeChanged,
        Delta::Modified if old.id() == new.id() => Kind::Mode,
        Delta::Modified => Kind::Modified,
        _ => return None,
    };
    let blob = |file: &git2::DiffFile<'_>| (!file.id().is_zero() && file.mode() != FileMode::Commit).then(|| file.id());
    Some(Entry {
        kind,
        path: new.path_bytes().or(old.path_bytes())?.to_vec(),
        old_path: (kind == Kind::Renamed).then(|| old.path_bytes().map(<[u8]>::to_vec)).flatten(),
        blobs: [blob(&old), blob(&new)],
        is_submodule: [old.mode(), new.mode()].contains(&FileMode::Commit),
    })
}
