//! What a clone on another machine is made from.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use git2::{Oid, PackBuilder, Repository};

use crate::{
    model::SandboxId,
    work::{Error, Vault},
};

/// Where the objects of upstream take more, only the newest commit travels, in bytes.
const LARGE: u64 = 256 << 20;

/// A pack, and what is in it.
#[derive(Clone, Debug)]
pub struct Shipment {
    pub pack: PathBuf,
    pub size: u64,
    /// The commit the branch begins at.
    pub head: Oid,
    /// The working tree.
    pub tree: Oid,
    /// Commits whose parents stay behind; none where the whole history travels.
    pub shallow: Vec<Oid>,
}

impl Shipment {
    /// Packs what a sandbox begins with: its base and the history of that, and a checkpoint where it begins from one. Blocking.
    ///
    /// # Errors
    /// `NoSuchCommit`, `DiskFull`, `Git` or `Io`.
    pub fn pack(
        vault: &Vault,
        sandbox: SandboxId,
        base: Oid,
        checkpoint: Option<Oid>,
        folder: &Path,
    ) -> Result<Self, Error> {
        let is_large = size_of(&vault.mirror().objects()) > LARGE;
        Self::pack_as(vault, sandbox, base, checkpoint, folder, is_large)
    }

    pub(super) fn pack_as(
        vault: &Vault,
        sandbox: SandboxId,
        base: Oid,
        checkpoint: Option<Oid>,
        folder: &Path,
        is_large: bool,
    ) -> Result<Self, Error> {
        vault.prepare(sandbox)?;
        let repository = vault.open()?;
        let find = |id: Oid| repository.find_commit(id).map_err(|error| Error::no_commit(id, error));
        let (head, tree) = match checkpoint.map(find).transpose()? {
            Some(checkpoint) => (checkpoint.parent_id(0).unwrap_or(base), checkpoint.tree_id()),
            None => (base, find(base)?.tree_id()),
        };
        let mut walk = repository.revwalk()?;
        walk.push(head)?;
        walk.push(base)?;
        if is_large {
            for parent in find(base)?.parent_ids() {
                walk.hide(parent)?;
            }
        }
        let commits: HashSet<Oid> = walk.collect::<Result<_, _>>()?;
        let shallow = edges(&repository, &commits)?;
        let mut builder = repository.packbuilder()?;
        // As many as there are processors.
        builder.set_threads(0);
        if shallow.is_empty() {
            let mut walk = repository.revwalk()?;
            walk.push(head)?;
            walk.push(base)?;
            builder.insert_walk(&mut walk)?;
        } else {
            for commit in &commits {
                builder.insert_commit(*commit)?;
            }
        }
        builder.insert_tree(tree)?;
        let (pack, size) = write(&mut builder, folder)?;
        Ok(Self { pack, size, head, tree, shallow })
    }
}

impl Shipment {
    /// Packs a checkpoint's tree alone, whole. Blocking.
    ///
    /// # Errors
    /// `NoSuchCommit`, `DiskFull`, `Git` or `Io`.
    pub fn tree_of(vault: &Vault, sandbox: SandboxId, checkpoint: Oid, folder: &Path) -> Result<Self, Error> {
        vault.prepare(sandbox)?;
        let repository = vault.open()?;
        let commit = repository.find_commit(checkpoint).map_err(|error| Error::no_commit(checkpoint, error))?;
        let mut builder = repository.packbuilder()?;
        builder.insert_tree(commit.tree_id())?;
        let (pack, size) = write(&mut builder, folder)?;
        Ok(Self { pack, size, head: checkpoint, tree: commit.tree_id(), shallow: Vec::new() })
    }
}

fn write(builder: &mut PackBuilder<'_>, folder: &Path) -> Result<(PathBuf, u64), Error> {
    let io = |source| Error::io(folder, source);
    fs::create_dir_all(folder).map_err(io)?;
    builder.write(folder, 0o600)?;
    let name = builder.name()?.ok_or_else(|| git2::Error::from_str("a pack without a name"))?;
    let pack = folder.join(format!("pack-{name}.pack"));
    let size = fs::metadata(&pack).map_err(io)?.len();
    Ok((pack, size))
}

/// Those of them whose parents are not all among them.
fn edges(repository: &Repository, commits: &HashSet<Oid>) -> Result<Vec<Oid>, Error> {
    let mut edges = Vec::new();
    for id in commits {
        if repository.find_commit(*id)?.parent_ids().any(|parent| !commits.contains(&parent)) {
            edges.push(*id);
        }
    }
    edges.sort();
    Ok(edges)
}

/// The files of a folder and those beneath it, in bytes; what cannot be read counts nothing.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.filter_map(Result::ok).filter_map(|entry| {
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { size_of(&entry.path()) } else { found.len() })
    });
    sizes.sum()
}
