//! From the tips to everything they name: nothing is missing, nothing is dangerous, nothing is there unasked.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use git2::{ObjectType, Odb, OdbObject, Oid};

use super::{
    Error, Limits, Refusal,
    bundle::Tips,
    known::Known,
    objects::{self, BadTree, Commit},
    quarantine::Quarantine,
};

/// How large a tree shows to whoever walks it: a small one may name the same folder a thousand times over, on each level.
#[derive(Clone, Copy, Default)]
struct Extent {
    files: u64,
    depth: u32,
}

/// A tree of which some folders are still to be looked at.
struct Open {
    tree: Oid,
    folders: Vec<Oid>,
    extent: Extent,
}

pub(super) struct Walk<'a> {
    odb: Odb<'static>,
    known: &'a Known<'a>,
    limits: &'a Limits,
    deadline: Instant,
    /// What came, by kind, without what is known.
    came: HashMap<Oid, ObjectType>,
    reached: HashSet<Oid>,
    extents: HashMap<Oid, Extent>,
}

impl<'a> Walk<'a> {
    pub fn new(
        quarantine: &Quarantine,
        known: &'a Known<'a>,
        limits: &'a Limits,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let odb = quarantine.objects()?;
        let mut came = HashMap::new();
        for id in quarantine.list()? {
            if known.contains(id) {
                continue;
            }
            let (size, kind) = odb.read_header(id).map_err(|error| Refusal::Pack(error.message().to_owned()))?;
            let most = match kind {
                ObjectType::Commit => limits.commit,
                ObjectType::Tree => limits.tree,
                _ => limits.object,
            };
            if size as u64 > most {
                return Err(Refusal::Limit { what: format!("a {}", word(kind)), limit: most }.into());
            }
            came.insert(id, kind);
        }
        Ok(Self { odb, known, limits, deadline, came, reached: HashSet::new(), extents: HashMap::new() })
    }

    /// Hands over how many commits are new.
    pub fn all_from(mut self, tips: &Tips) -> Result<u32, Error> {
        let mut commits = 0;
        let mut waiting: Vec<Oid> = tips.head.into_iter().chain(tips.stash).collect();
        while let Some(id) = waiting.pop() {
            self.check_kind(id, ObjectType::Commit)?;
            if !self.is_new(id) || !self.reached.insert(id) {
                continue;
            }
            self.look_at_clock()?;
            let object = self.read(id)?;
            let commit = Commit::parse(object.data()).map_err(|why| invalid(ObjectType::Commit, id, why))?;
            drop(object);
            self.check_kind(commit.tree, ObjectType::Tree)?;
            self.tree(commit.tree)?;
            waiting.extend(commit.parents);
            commits += 1;
        }
        if self.reached.len() != self.came.len() {
            return Err(Refusal::Unasked.into());
        }
        Ok(commits)
    }

    /// A tree with all beneath it, each looked at once.
    fn tree(&mut self, root: Oid) -> Result<(), Error> {
        let mut open = Vec::new();
        let mut next = Some(root);
        loop {
            if let Some(tree) = next.take() {
                if let Some(extent) = self.extents.get(&tree).copied() {
                    match open.last_mut() {
                        Some(above) => self.add(above, extent)?,
                        None => return Ok(()),
                    }
                } else {
                    if open.len() as u64 >= u64::from(self.limits.depth) {
                        return Err(self.too_deep());
                    }
                    let begun = self.begin(tree)?;
                    open.push(begun);
                }
            }
            let Some(above) = open.last_mut() else { return Ok(()) };
            next = above.folders.pop();
            if next.is_none()
                && let Some(done) = open.pop()
            {
                self.extents.insert(done.tree, done.extent);
                next = Some(done.tree);
            }
        }
    }

    /// Reads one tree and checks each of its entries.
    fn begin(&mut self, tree: Oid) -> Result<Open, Error> {
        self.look_at_clock()?;
        if !self.is_new(tree) {
            let (files, folders) = objects::subtrees(self.known.read(tree)?.data());
            return Ok(Open { tree, folders, extent: Extent { files, depth: 1 } });
        }
        self.reached.insert(tree);
        let object = self.odb.read(tree).map_err(|error| Refusal::Pack(error.message().to_owned()))?;
        let entries = objects::tree(object.data()).map_err(|bad| match bad {
            BadTree::Shape(why) => invalid(ObjectType::Tree, tree, why),
            BadTree::Name(name) => {
                let name = String::from_utf8_lossy(&name[..name.len().min(255)]).into_owned();
                Refusal::Name { tree: tree.to_string(), name }.into()
            }
        })?;
        let mut folders = Vec::new();
        for entry in &entries {
            let Some(kind) = entry.mode.kind() else { continue };
            self.check_kind(entry.id, kind)?;
            if kind == ObjectType::Tree {
                folders.push(entry.id);
            } else if self.came.contains_key(&entry.id) {
                self.reached.insert(entry.id);
            }
        }
        Ok(Open { tree, folders, extent: Extent { files: entries.len() as u64, depth: 1 } })
    }

    fn add(&self, above: &mut Open, extent: Extent) -> Result<(), Error> {
        above.extent.files = above.extent.files.saturating_add(extent.files);
        above.extent.depth = above.extent.depth.max(extent.depth + 1);
        if above.extent.files > self.limits.files {
            return Err(Refusal::Limit { what: "the number of files".to_owned(), limit: self.limits.files }.into());
        }
        if above.extent.depth > self.limits.depth { Err(self.too_deep()) } else { Ok(()) }
    }

    fn too_deep(&self) -> Error {
        Refusal::Limit { what: "how deep folders nest".to_owned(), limit: self.limits.depth.into() }.into()
    }

    /// Whether it came with this bundle, and so was not looked at before.
    fn is_new(&self, id: Oid) -> bool {
        self.came.contains_key(&id)
    }

    fn check_kind(&self, id: Oid, wanted: ObjectType) -> Result<(), Error> {
        match self.came.get(&id).copied().or_else(|| self.known.kind(id)) {
            Some(kind) if kind == wanted => Ok(()),
            Some(_) => Err(invalid(wanted, id, "it is of another kind")),
            None => Err(Refusal::Missing { what: word(wanted).to_owned(), id: id.to_string() }.into()),
        }
    }

    fn read(&self, id: Oid) -> Result<OdbObject<'_>, Error> {
        self.odb.read(id).map_err(|error| Refusal::Pack(error.message().to_owned()).into())
    }

    fn look_at_clock(&self) -> Result<(), Error> {
        if Instant::now() > self.deadline { Err(Error::TooSlow) } else { Ok(()) }
    }
}

fn word(kind: ObjectType) -> &'static str {
    match kind {
        ObjectType::Commit => "commit",
        ObjectType::Tree => "tree",
        ObjectType::Blob => "file",
        _ => "object",
    }
}

fn invalid(kind: ObjectType, id: Oid, why: &str) -> Error {
    Refusal::Object { what: word(kind).to_owned(), id: id.to_string(), why: why.to_owned() }.into()
}
