//! `.gitignore` and `.gitattributes`, as they lie in the workspace. We read the files ourselves (see [`super::folder`]);
//! what the lines mean is gix's knowledge.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use gix::{
    attrs::{Search, StateRef, search::MetadataCollection},
    bstr::{BStr, BString, ByteSlice},
    filter::plumbing::{self, eol, pipeline, pipeline::convert::ToGitOutcome},
    glob::{pattern::Case, search::pattern::List},
    ignore::search::{Ignore, pattern_matching_relative_path},
};

use super::folder::Folder;

/// More than this is no file of rules.
const MOST: u64 = 4 << 20;

const CASE: Case = if cfg!(any(windows, target_os = "macos")) { Case::Fold } else { Case::Sensitive };

/// The patterns of one `.gitignore`, and those above it.
pub(super) struct Ignored {
    list: List<Ignore>,
    above: Option<Arc<Ignored>>,
}

impl Ignored {
    /// Those of the `.gitignore` in a folder, if it can be read. A pipe, a link, a folder of that name counts as none.
    pub fn read(folder: &Folder, path: &BStr, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let Some(bytes) = read(folder, ".gitignore") else { return above };
        let place = place(path, ".gitignore");
        match place.and_then(|place| List::from_bytes(&bytes, place, Some(Path::new("")), Ignore::default()).ok()) {
            Some(list) => Some(Arc::new(Self { list, above })),
            None => above,
        }
    }

    /// Whether a path is, by the last pattern that says anything about it, the nearest file first.
    pub fn is(rules: Option<&Arc<Self>>, path: &BStr, is_folder: bool) -> bool {
        let name = path.rfind_byte(b'/').map(|slash| slash + 1);
        let mut at = rules;
        while let Some(rules) = at {
            if let Some(found) = pattern_matching_relative_path(&rules.list, path, name, Some(is_folder), CASE) {
                return !found.pattern.is_negative();
            }
            at = rules.above.as_ref();
        }
        false
    }
}

/// One `.gitattributes`, and those above it.
pub(super) struct Attributed {
    /// The folder it lies in.
    pub folder: BString,
    bytes: Vec<u8>,
    above: Option<Arc<Attributed>>,
}

impl Attributed {
    pub fn read(folder: &Folder, path: &BStr, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        match read(folder, ".gitattributes") {
            Some(bytes) => Some(Arc::new(Self { folder: path.to_owned(), bytes, above })),
            None => above,
        }
    }

    /// Whether large-file storage is spoken of at all.
    pub fn mentions_lfs(&self) -> bool {
        self.bytes.find(b"lfs").is_some()
    }
}

/// A file of rules, as a path within the workspace.
fn place(folder: &BStr, name: &str) -> Option<PathBuf> {
    gix::path::from_bstring(join(folder, name.into())).ok()
}

fn read(folder: &Folder, name: &str) -> Option<Vec<u8>> {
    let (file, look) = folder.file(name.into()).ok()?;
    let mut bytes = Vec::with_capacity(look.size.min(MOST) as usize);
    file.take(MOST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MOST).then_some(bytes)
}

/// A thread's reader of attributes, and what they do to contents. No filter program is known to it, so none can run.
pub(super) struct Attributes {
    search: Search,
    collection: MetadataCollection,
    entered: Vec<Arc<Attributed>>,
    pipeline: plumbing::Pipeline,
}

impl Attributes {
    pub fn new() -> Self {
        let mut attributes = Self {
            search: Search::default(),
            collection: MetadataCollection::default(),
            entered: Vec::new(),
            pipeline: pipeline(),
        };
        let built_in = b"[attr]binary -diff -merge -text";
        _ = attributes.search.add_patterns_buffer(built_in, "[builtin]".into(), None, &mut attributes.collection, true);
        attributes
    }

    /// Makes the files that apply in a folder those that are asked.
    fn enter(&mut self, attributed: Option<&Arc<Attributed>>) {
        let mut wanted: Vec<&Arc<Attributed>> = Vec::new();
        let mut at = attributed;
        while let Some(level) = at {
            wanted.push(level);
            at = level.above.as_ref();
        }
        wanted.reverse();
        let shared = self.entered.iter().zip(&wanted).take_while(|(is, wanted)| Arc::ptr_eq(is, wanted)).count();
        for _ in shared..self.entered.len() {
            self.search.pop_pattern_list();
        }
        self.entered.truncate(shared);
        for level in &wanted[shared..] {
            let place = place(level.folder.as_ref(), ".gitattributes").unwrap_or_default();
            // Macros are for the top only. A list that can't be made is an empty one, so that each level has one.
            let is_top = level.folder.is_empty();
            let add = |search: &mut Search, collection: &mut MetadataCollection, bytes: &[u8]| {
                search.add_patterns_buffer(bytes, place.clone(), Some(Path::new("")), collection, is_top)
            };
            if add(&mut self.search, &mut self.collection, &level.bytes).is_err() {
                _ = add(&mut self.search, &mut self.collection, b"");
            }
            self.entered.push(Arc::clone(level));
        }
    }

    /// Contents as they are stored: line ends, `$Id$` and encodings undone. What cannot be converted stays as it is.
    /// `before` is what was stored last, which decides about line ends that Git guesses.
    pub fn convert(
        &mut self,
        attributed: Option<&Arc<Attributed>>,
        path: &BStr,
        bytes: Vec<u8>,
        before: &mut dyn FnMut(&mut Vec<u8>) -> Option<()>,
    ) -> Vec<u8> {
        if attributed.is_none() || bytes.is_empty() {
            return bytes;
        }
        self.enter(attributed);
        let bytes = if bytes.starts_with(&[0xfe, 0xff]) && self.is(path, "working-tree-encoding", "utf-16") {
            swapped(&bytes)
        } else {
            bytes
        };
        let (search, collection) = (&self.search, &self.collection);
        let mut ask = |path: &BStr, out: &mut gix::attrs::search::Outcome| {
            out.initialize(collection);
            search.pattern_matching_relative_path(path, CASE, Some(false), out);
        };
        let Ok(place) = gix::path::from_bstr(path) else { return bytes };
        let mut before = |buffer: &mut Vec<u8>| {
            buffer.clear();
            Ok(before(buffer))
        };
        let converted = match self.pipeline.convert_to_git(bytes.as_slice(), &place, &mut ask, &mut before) {
            Ok(ToGitOutcome::Buffer(converted)) => Some(converted.to_vec()),
            Ok(_) | Err(_) => None,
        };
        const LARGE: usize = 8 << 20;
        if bytes.len() > LARGE {
            self.pipeline = pipeline(); // Its buffers with it.
        }
        converted.unwrap_or(bytes)
    }

    /// Whether large-file storage is to take this path.
    pub fn is_lfs(&mut self, attributed: Option<&Arc<Attributed>>, path: &BStr) -> bool {
        self.enter(attributed);
        self.is(path, "filter", "lfs")
    }

    fn is(&self, path: &BStr, name: &str, value: &str) -> bool {
        let mut out = gix::attrs::search::Outcome::default();
        out.initialize_with_selection(&self.collection, [name]);
        self.search.pattern_matching_relative_path(path, CASE, Some(false), &mut out);
        out.iter_selected().any(|found| match found.assignment.state {
            StateRef::Value(is) => is.as_bstr().eq_ignore_ascii_case(value.as_bytes()),
            _ => false,
        })
    }
}

fn pipeline() -> plumbing::Pipeline {
    let options = pipeline::Options {
        drivers: Vec::new(),
        eol_config: eol::Configuration::default(),
        crlf_roundtrip_check: pipeline::CrlfRoundTripCheck::Skip,
        encodings_with_roundtrip_check: Vec::new(),
    };
    plumbing::Pipeline::new(Default::default(), gix::hash::Kind::Sha1, options)
}

/// UTF-16 with the other byte order: the decoder only knows the one its name stands for.
fn swapped(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(2).flat_map(|pair| pair.iter().rev().copied()).collect()
}

/// A path in a folder; the root is empty.
pub(super) fn join(folder: &BStr, name: &BStr) -> BString {
    let mut path = BString::from(Vec::with_capacity(folder.len() + 1 + name.len()));
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
