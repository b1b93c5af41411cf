//! What a checkpoint changed since the base: what holds a push.

use std::{collections::HashMap, sync::Arc};

use gix::{
    ObjectId,
    bstr::{BStr, BString, ByteSlice},
    diff::tree::{Recorder, State, recorder::Change},
    objs::{
        FindExt, TreeRefIter,
        tree::{EntryMode, EntryRef},
    },
};

use super::{
    Taken, failure, names,
    objects::Objects,
    rules::{Attributed, Attributes, join},
};
use crate::request::Failure;

/// What is beneath it runs elsewhere once it is pushed.
const WORKFLOWS: [&str; 2] = [".github", "workflows"];

/// Paths a person must know of before they are pushed.
#[derive(Default)]
pub(super) struct Held {
    pub lfs: Vec<String>,
    pub workflows: Vec<String>,
}

/// What lies at a path: contents, a link, a folder or a repository.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Lies {
    id: ObjectId,
    mode: EntryMode,
}

impl Held {
    pub fn between(
        base: ObjectId,
        tree: ObjectId,
        objects: &Objects,
        attributed: &[Arc<Attributed>],
    ) -> Result<Self, Failure> {
        let mut held = Self::default();
        if base == tree {
            return Ok(held);
        }
        held.find_workflows(base, tree, objects)?;
        // All that changed since the base is much to look through: only where somebody speaks of large-file storage.
        if attributed.iter().any(|file| file.mentions_lfs()) {
            held.find_lfs(base, tree, objects, &mut Asked::new(attributed))?;
        }
        Ok(held)
    }

    fn find_workflows(&mut self, base: ObjectId, tree: ObjectId, objects: &Objects) -> Result<(), Failure> {
        let (before, now) = (workflows(base, objects)?, workflows(tree, objects)?);
        if before == now {
            return Ok(());
        }
        let folder = join(WORKFLOWS[0].into(), WORKFLOWS[1].into());
        let folder: &BStr = folder.as_ref();
        let is_folder = |lies: &Lies| lies.mode.is_tree();
        if [before, now].iter().flatten().any(|lies| !is_folder(lies)) {
            add(&mut self.workflows, folder);
        }
        let within = |lies: Option<Lies>| lies.filter(is_folder).map(|lies| lies.id);
        for (path, _) in files(within(before), within(now), objects)? {
            add(&mut self.workflows, join(folder, path.as_ref()).as_ref());
        }
        Ok(())
    }

    fn find_lfs(
        &mut self,
        base: ObjectId,
        tree: ObjectId,
        objects: &Objects,
        asked: &mut Asked,
    ) -> Result<(), Failure> {
        for (path, now) in files(Some(base), Some(tree), objects)? {
            if now.is_some_and(|mode| mode.is_blob()) && asked.is_lfs(path.as_ref()) {
                add(&mut self.lfs, path.as_ref());
            }
        }
        Ok(())
    }
}

/// What a tree has where workflows are.
fn workflows(tree: ObjectId, objects: &Objects) -> Result<Option<Lies>, Failure> {
    let mut at = Some(Lies { id: tree, mode: gix::objs::tree::EntryKind::Tree.into() });
    for name in WORKFLOWS {
        // Only folders are opened: anything else may be of any size.
        let Some(folder) = at.filter(|lies| lies.mode.is_tree()) else { return Ok(None) };
        let mut buffer = Vec::new();
        let mut entries = entries(Some(folder.id), objects, &mut buffer)?.filter_map(Result::ok);
        let found = entries.find(|entry: &EntryRef<'_>| entry.filename == name);
        at = found.map(|entry| Lies { id: entry.oid.to_owned(), mode: entry.mode });
    }
    Ok(at)
}

/// The files, links and repositories that differ between two trees, and what they are now.
fn files(
    before: Option<ObjectId>,
    now: Option<ObjectId>,
    objects: &Objects,
) -> Result<Vec<(BString, Option<EntryMode>)>, Failure> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (left, right) = (entries(before, objects, &mut left)?, entries(now, objects, &mut right)?);
    let mut recorder = Recorder::default();
    gix::diff::tree(left, right, State::default(), &objects.odb, &mut recorder)
        .map_err(|error| failure(COMPARE, error))?;
    let file = |change| match change {
        Change::Addition { entry_mode, path, .. } | Change::Modification { entry_mode, path, .. } => {
            entry_mode.is_no_tree().then_some((path, Some(entry_mode)))
        }
        Change::Deletion { entry_mode, path, .. } => entry_mode.is_no_tree().then_some((path, None)),
    };
    Ok(recorder.records.into_iter().filter_map(file).collect())
}

/// A tree's entries; none is the empty tree.
fn entries<'a>(tree: Option<ObjectId>, objects: &Objects, buffer: &'a mut Vec<u8>) -> Result<TreeRefIter<'a>, Failure> {
    match tree {
        Some(id) => objects.odb.find_tree_iter(&id, buffer).map_err(|error| failure(COMPARE, error)),
        None => Ok(TreeRefIter::from_bytes(&[], gix::hash::Kind::Sha1)),
    }
}

const COMPARE: &str = "compare with the base";

fn add(list: &mut Vec<String>, path: &BStr) {
    if list.len() < Taken::LISTED {
        list.push(names::shown(path));
    }
}

/// The files of attributes, by folder.
struct Asked {
    by_folder: HashMap<BString, Arc<Attributed>>,
    attributes: Attributes,
}

impl Asked {
    fn new(attributed: &[Arc<Attributed>]) -> Self {
        let by_folder = attributed.iter().map(|file| (file.folder.clone(), Arc::clone(file))).collect();
        Self { by_folder, attributes: Attributes::new() }
    }

    fn is_lfs(&mut self, path: &BStr) -> bool {
        let mut folder = path;
        let nearest = loop {
            let Some(slash) = folder.rfind_byte(b'/') else { break self.by_folder.get(BStr::new("")) };
            folder = folder[..slash].as_bstr();
            if let Some(file) = self.by_folder.get(folder) {
                break Some(file);
            }
        };
        nearest.is_some_and(|file| self.attributes.is_lfs(Some(file), path))
    }
}
