//! What a bundle may build on: upstream's objects, and what this sandbox brought before.

use std::collections::HashSet;

use git2::{ObjectType, Odb, OdbLookupFlags, OdbObject, Oid, Repository};

use super::{Bringing, Error, Limits, Refusal, objects};

/// The objects that need no walk.
pub(super) struct Known<'vault> {
    mirror: Odb<'static>,
    vault: Odb<'vault>,
    /// What this sandbox brought before, and upstream does not have.
    own: HashSet<Oid>,
}

impl<'vault> Known<'vault> {
    pub fn new(vault: &'vault Repository, bringing: &Bringing) -> Result<Self, Error> {
        let mirror = objects_of(&bringing.mirror)?;
        let vault = vault.odb().map_err(|error| Error::git("the vault", &error))?;
        let mut known = Self { mirror, vault, own: HashSet::new() };
        known.learn(&bringing.verified, &bringing.limits)?;
        Ok(known)
    }

    /// Everything that hangs on commits which were verified when they came in.
    fn learn(&mut self, verified: &[String], limits: &Limits) -> Result<(), Error> {
        let mut waiting = Vec::new();
        for tip in verified {
            waiting.push(objects::id(tip.as_bytes()).ok_or_else(|| Error::Failed(format!("{tip:?} names no commit")))?);
        }
        while let Some(id) = waiting.pop() {
            if self.is_upstream(id) || !self.own.insert(id) {
                continue;
            }
            if self.own.len() > limits.objects as usize * 4 {
                return Err(Error::Failed("the sandbox brought too much to be looked through".to_owned()));
            }
            let object = self.vault.read(id).map_err(|error| Error::git("the vault", &error))?;
            match object.kind() {
                ObjectType::Commit => {
                    let commit = objects::Commit::parse(object.data()).map_err(|why| Error::Failed(why.to_owned()))?;
                    waiting.extend(commit.parents);
                    waiting.push(commit.tree);
                }
                ObjectType::Tree => {
                    let entries = objects::tree(object.data());
                    for entry in entries.map_err(|_| Error::Failed(format!("the vault's tree {id} is broken")))? {
                        match entry.mode.kind() {
                            Some(ObjectType::Tree) => waiting.push(entry.id),
                            Some(_) if !self.is_upstream(entry.id) => _ = self.own.insert(entry.id),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_upstream(&self, id: Oid) -> bool {
        // Nothing is added while we look, so what is not found is not looked for again.
        self.mirror.exists_ext(id, OdbLookupFlags::NO_REFRESH)
    }

    pub fn contains(&self, id: Oid) -> bool {
        self.own.contains(&id) || self.is_upstream(id)
    }

    /// What the sandbox brought before, as against upstream's.
    pub fn is_own(&self, id: Oid) -> bool {
        self.own.contains(&id)
    }

    pub fn kind(&self, id: Oid) -> Option<ObjectType> {
        if !self.contains(id) {
            return None;
        }
        self.odb(id).read_header(id).ok().map(|(_, kind)| kind)
    }

    pub fn read(&self, id: Oid) -> Result<OdbObject<'_>, Error> {
        if !self.contains(id) {
            return Err(Refusal::Missing { what: "object".to_owned(), id: id.to_string() }.into());
        }
        self.odb(id).read(id).map_err(|error| Error::git("the vault", &error))
    }

    fn odb(&self, id: Oid) -> &Odb<'_> {
        if self.is_own(id) { &self.vault } else { &self.mirror }
    }
}

/// The objects in a folder, and only those: what it borrows is not looked at.
pub(super) fn objects_of(folder: &std::path::Path) -> Result<Odb<'static>, Error> {
    let failed = |error: git2::Error| Error::git("the objects", &error);
    let odb = Odb::new().map_err(failed)?;
    let path =
        folder.to_str().ok_or_else(|| Error::Failed(format!("{} is not a name git can take", folder.display())))?;
    odb.add_disk_alternate(path).map_err(failed)?;
    Ok(odb)
}
