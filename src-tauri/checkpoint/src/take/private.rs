//! What is remembered between two checkpoints of a sandbox: an index of our own, the last tree, the last commit.
//!
//! One file in a folder that no agent sees. It is written beside its place and renamed into it, so that a crash leaves
//! the last one; and it carries a checksum, so that what a power failure leaves is not taken for one. Whatever is wrong
//! with it, everything can be read anew: it only saves time.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use gix::{
    ObjectId,
    index::{State, entry::stat::Time, write},
};
use serde::{Deserialize, Serialize};

use super::{failure, objects::Objects};
use crate::request::Failure;

const VERSION: u32 = 1;

/// What the last checkpoint left.
pub(super) struct Last {
    pub index: State,
    pub tree: ObjectId,
    /// The last commit and its parent; none after a seeding.
    pub commit: Option<(ObjectId, ObjectId)>,
    /// When it began. What changed since, even in the same instant, is looked into whatever its times say.
    pub began: Time,
}

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    tree: String,
    commit: Option<(String, String)>,
    began: (u32, u32),
    checksum: u64,
}

impl Last {
    /// As it was left; else the base, of which nothing is known to be unchanged.
    pub fn load(private: &Path, base: ObjectId, objects: &Objects) -> Self {
        Self::read(&private.join("last"), objects).unwrap_or_else(|| Self::of_tree(base, objects))
    }

    /// Everything in a tree, and nothing known about the files. A tree that no index can hold (an upstream with names
    /// Git refuses) counts as empty: its files are then new ones.
    pub fn of_tree(tree: ObjectId, objects: &Objects) -> Self {
        let began = Time::default();
        match State::from_tree(&tree, &objects.odb, super::names::RULES) {
            Ok(index) => Self { index, tree, commit: None, began },
            Err(_) => Self {
                index: State::new(gix::hash::Kind::Sha1),
                tree: ObjectId::empty_tree(gix::hash::Kind::Sha1),
                commit: None,
                began,
            },
        }
    }

    fn read(path: &Path, objects: &Objects) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let body = &bytes[end + 1..];
        if head.version != VERSION || head.checksum != checksum(body) {
            return None;
        }
        let id = |text: &str| ObjectId::from_hex(text.as_bytes()).ok();
        let tree = id(&head.tree).filter(|tree| objects.has(tree))?;
        let commit = match &head.commit {
            Some((commit, parent)) => Some((id(commit)?, id(parent)?)),
            None => None,
        };
        let none = gix::index::decode::Options { thread_limit: Some(1), ..Default::default() };
        let (index, _) = State::from_bytes(body, UNIX_EPOCH.into(), gix::hash::Kind::Sha1, none).ok()?;
        Some(Self { index, tree, commit, began: Time { secs: head.began.0, nsecs: head.began.1 } })
    }
}

/// What will be remembered of the checkpoint that begins now.
pub(super) struct Draft {
    file: File,
    draft: PathBuf,
    place: PathBuf,
    began: Time,
}

impl Draft {
    pub fn begin(private: &Path) -> Result<Self, Failure> {
        let io = |error| failure("write what is remembered", error);
        fs::create_dir_all(private).map_err(io)?;
        let (draft, place) = (private.join("next"), private.join("last"));
        // A new file: its time is the time of the clock that files are dated by.
        _ = fs::remove_file(&draft);
        let file = File::create(&draft).map_err(io)?;
        let modified = file.metadata().and_then(|found| found.modified()).map_err(io)?;
        let began = modified.try_into().unwrap_or_default();
        Ok(Self { file, draft, place, began })
    }

    /// Remembers it.
    pub fn finish(
        mut self,
        index: &State,
        tree: ObjectId,
        commit: Option<(ObjectId, ObjectId)>,
    ) -> Result<(), Failure> {
        let mut body = Vec::new();
        let options = write::Options { extensions: write::Extensions::None, skip_hash: true };
        index.write_to(&mut body, options).map_err(|error| failure("write the index", error))?;
        body.extend_from_slice(&[0; 20]); // Where an index has its hash.
        let head = Head {
            version: VERSION,
            tree: tree.to_string(),
            commit: commit.map(|(commit, parent)| (commit.to_string(), parent.to_string())),
            began: (self.began.secs, self.began.nsecs),
            checksum: checksum(&body),
        };
        let write = |file: &mut File| -> io::Result<()> {
            let mut head = serde_json::to_vec(&head)?;
            head.push(b'\n');
            file.write_all(&head)?;
            file.write_all(&body)?;
            fs::rename(&self.draft, &self.place)
        };
        write(&mut self.file).map_err(|error| {
            _ = fs::remove_file(&self.draft);
            failure("write what is remembered", error)
        })
    }

    /// Nothing is new.
    pub fn abandon(self) {
        _ = fs::remove_file(&self.draft);
    }
}

/// Tells a whole file from a torn one, and need not withstand anybody.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder().iter().fold(bytes.len() as u64, |hash, byte| mix(hash, u64::from(*byte)));
    words.fold(rest, |hash, word| mix(hash, u64::from_le_bytes(word.try_into().expect("eight bytes"))))
}
