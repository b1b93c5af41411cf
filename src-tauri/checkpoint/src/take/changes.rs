//! What a checkpoint changed since the base: what holds a push.

use std::{collections::HashMap, sync::Arc};

use gix::{
    ObjectId,
    bstr::{BStr, BString, ByteSlice},
    diff::tree::{Recorder, State, recorder::Change},
    objs::{FindExt, tree::EntryMode},
};

use super::{
    Taken, failure, names,
    objects::Objects,
    rules::{Attributed, Attributes},
};
use crate::request::Failure;

/// Paths a person must know of before they are pushed.
#[derive(Default)]
pub(super) struct Held {
    pub lfs: Vec<String>,
    pub workflows: Vec<String>,
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
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let failed = |error: gix::Error| failure("compare with the base", error);
        let left = objects.odb.find_tree_iter(&base, &mut left).map_err(failed)?;
        let right = objects.odb.find_tree_iter(&tree, &mut right).map_err(failed)?;
        let mut recorder = Recorder::default();
        gix::diff::tree(left, right, State::default(), &objects.odb, &mut recorder)
            .map_err(|error| failure("compare with the base", error))?;
        let mut asked = attributed.iter().any(|file| file.mentions_lfs()).then(|| Asked::new(attributed));
        for change in recorder.records {
            let (path, now): (BString, Option<EntryMode>) = match change {
                Change::Addition { entry_mode, path, .. } | Change::Modification { entry_mode, path, .. } => {
                    (path, Some(entry_mode))
                }
                Change::Deletion { entry_mode, path, .. } if entry_mode.is_no_tree() => (path, None),
                Change::Deletion { .. } => continue,
            };
            if now.is_some_and(|mode| mode.is_tree()) {
                continue;
            }
            if path == ".github/workflows" || path.starts_with(b".github/workflows/") {
                add(&mut held.workflows, path.as_ref());
            }
            let is_file = now.is_some_and(|mode| mode.is_blob());
            if is_file && asked.as_mut().is_some_and(|asked| asked.is_lfs(path.as_ref())) {
                add(&mut held.lfs, path.as_ref());
            }
        }
        Ok(held)
    }
}

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
