//! A checkpoint of a tree that was brought out and checked.

use git2::{AttrCheckFlags, AttrValue, Delta, Diff, Index, Oid, Repository};

use crate::{
    model::SandboxId,
    work::{Error, Skipped, Taken, Vault, Why, branch::signature},
};

/// The most paths that are named as holding a push.
const LISTED: usize = 1000;
/// What is beneath it runs elsewhere once it is pushed.
const WORKFLOWS: &str = ".github/workflows";

/// A checkpoint to make.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    pub sandbox: SandboxId,
    /// What its reference is called.
    pub name: &'a str,
    /// The commit that came out; only its tree counts.
    pub snapshot: Oid,
    /// The commit the sandbox began with.
    pub base: Oid,
    /// The agent's own commit: the parent.
    pub head: Oid,
    /// The last checkpoint.
    pub last: Option<Oid>,
    pub message: &'a str,
    pub author: (&'a str, &'a str),
    /// Milliseconds since 1970.
    pub at: crate::model::Timestamp,
    /// Paths that were left out since they are too large.
    pub left_out: Vec<String>,
}

/// Makes it. One of the same tree and parent as the last is the last. Blocking.
///
/// # Errors
/// `NoSuchCommit`, `DiskFull` or `Git`.
pub fn record(vault: &Vault, recording: &Recording<'_>) -> Result<Taken, Error> {
    let Recording { sandbox, name, snapshot, base, head, last, .. } = *recording;
    vault.write_for(sandbox, |repository| {
        let find = |id: Oid| repository.find_commit(id).map_err(|error| Error::no_commit(id, error));
        let (snapshot, base, head) = (find(snapshot)?, find(base)?, find(head)?);
        let last = last.and_then(|last| repository.find_commit(last).ok());
        let tree = snapshot.tree()?;
        let is_same = last.as_ref().is_some_and(|last| {
            last.tree_id() == tree.id() && last.parent_id(0).is_ok_and(|parent| parent == head.id())
        });
        let commit = match last.as_ref().filter(|_| is_same) {
            Some(last) => last.id(),
            None => {
                let author = signature(recording.author, recording.at)?;
                repository.commit(None, &author, &author, recording.message, &tree, &[&head])?
            }
        };
        repository.reference(&format!("refs/courier/{sandbox}/{name}"), commit, true, "checkpoint")?;
        let before = last.as_ref().map_or_else(|| base.tree(), git2::Commit::tree)?;
        let since_last = repository.diff_tree_to_tree(Some(&before), Some(&tree), None)?;
        let since_base = repository.diff_tree_to_tree(Some(&base.tree()?), Some(&tree), None)?;
        let skipped = recording.left_out.iter().map(|path| Skipped { path: path.clone(), why: Why::TooLarge });
        Ok(Taken {
            commit,
            tree: tree.id(),
            parent: head.id(),
            is_same_as_last: is_same,
            files_changed: since_last.deltas().len() as u64,
            skipped: skipped.collect(),
            skipped_count: recording.left_out.len() as u64,
            lfs: large_files(vault, &since_base, tree.id())?,
            workflows: paths(&since_base, |path, _| is_workflow(path)),
            bytes: 0,
        })
    })
}

fn is_workflow(path: &[u8]) -> bool {
    path.strip_prefix(WORKFLOWS.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Of what changed, the paths for a person that are wanted.
fn paths(diff: &Diff<'_>, mut is_wanted: impl FnMut(&[u8], Delta) -> bool) -> Vec<String> {
    let changed = diff.deltas().filter_map(|delta| {
        let path = delta.new_file().path_bytes().or(delta.old_file().path_bytes())?.to_vec();
        is_wanted(&path, delta.status()).then(|| String::from_utf8_lossy(&path).into_owned())
    });
    changed.take(LISTED).collect()
}

/// Of what changed, what belongs into large-file storage, by the tree's own attributes.
fn large_files(vault: &Vault, since_base: &Diff<'_>, tree: Oid) -> Result<Vec<String>, Error> {
    // A handle of its own: its index is this tree.
    let repository = vault.open()?;
    let mut index = Index::new()?;
    index.read_tree(&repository.find_tree(tree)?)?;
    let mentions = |repository: &Repository, id: Oid| {
        repository.find_blob(id).is_ok_and(|blob| blob.content().windows(3).any(|word| word == b"lfs"))
    };
    let is_attributes = |path: &[u8]| path == b".gitattributes" || path.ends_with(b"/.gitattributes");
    if !index.iter().any(|entry| is_attributes(&entry.path) && mentions(&repository, entry.id)) {
        return Ok(Vec::new());
    }
    repository.set_index(&mut index)?;
    let flags = AttrCheckFlags::INDEX_ONLY | AttrCheckFlags::NO_SYSTEM;
    Ok(paths(since_base, |path, status| {
        let Ok(path) = std::str::from_utf8(path) else { return false };
        let filter = repository.get_attr(std::path::Path::new(path), "filter", flags).ok().flatten();
        status != Delta::Deleted && AttrValue::from_string(filter) == AttrValue::String("lfs")
    }))
}
