//! A pack of the objects somebody lacks: how a checkpoint enters a sandbox, or a branch the person's own repository.
//!
//! A sandbox never borrows from the vault, or it would see its neighbours' work: it is given what it needs.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use git2::{ObjectType, Odb, OdbLookupFlags, Oid, Repository};

use super::Error;

/// What hangs on `tip` (a commit with its history, or a tree) and is not in `there`, commits first.
///
/// What is there is taken to be whole: nothing beneath it is looked at.
pub(super) fn lacking(vault: &Repository, there: &Odb<'_>, tips: &[Oid]) -> Result<Vec<Oid>, Error> {
    let (mut listed, mut seen, odb) = (Vec::new(), HashSet::new(), vault.odb()?);
    let mut waiting: Vec<Oid> = tips.to_vec();
    while let Some(id) = waiting.pop() {
        if there.exists_ext(id, OdbLookupFlags::NO_REFRESH) || !seen.insert(id) {
            continue;
        }
        let (_, kind) = odb.read_header(id).map_err(|error| Error::no_commit(id, error))?;
        match kind {
            ObjectType::Commit => {
                let commit = vault.find_commit(id)?;
                waiting.push(commit.tree_id());
                waiting.extend(commit.parent_ids());
            }
            ObjectType::Tree => {
                for entry in &vault.find_tree(id)? {
                    if entry.kind() != Some(ObjectType::Commit) {
                        waiting.push(entry.id());
                    }
                }
            }
            _ => {}
        }
        listed.push(id);
    }
    Ok(listed)
}

/// Writes these objects as a pack with its index into a folder `objects/pack`, durably. Hands over the pack, or nothing
/// where there is nothing to write.
pub(super) fn write_into(vault: &Repository, objects: &[Oid], folder: &Path) -> Result<Option<PathBuf>, Error> {
    let failed = |source: io::Error| Error::io(folder, source);
    if objects.is_empty() {
        return Ok(None);
    }
    let mut builder = vault.packbuilder()?;
    for id in objects {
        builder.insert_object(*id, None)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    builder.write(folder, 0o444)?;
    let name = builder.name()?.ok_or_else(|| git2::Error::from_str("a pack without a name"))?;
    let pack = folder.join(format!("pack-{name}.pack"));
    for path in [&pack, &pack.with_extension("idx")] {
        fs::File::open(path).and_then(|file| file.sync_all()).map_err(failed)?;
    }
    Ok(Some(pack))
}
