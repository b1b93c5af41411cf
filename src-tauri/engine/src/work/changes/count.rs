//! Counts lines, on all processors where there is much to count.

use std::{
    io::Read,
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use git2::{DiffOptions, Odb, OdbObject, Oid, Patch};

use super::{
    LARGEST, count_lines, is_binary, is_lfs_pointer,
    list::{ChangedFile, Entry},
};
use crate::work::{Error, Vault};

/// How many files one thread takes at a time; fewer are counted by one.
const PART: usize = 64;
/// More threads than this only wait for the disk.
const THREADS: usize = 8;

pub(super) fn all(vault: &Vault, entries: &[Entry]) -> Result<Vec<ChangedFile>, Error> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors.min(THREADS).min(entries.len().div_ceil(PART)).max(1);
    let next = AtomicUsize::new(0);
    // Each thread has its own handle and takes the next part, since files differ much.
    let work = || -> Result<Vec<(usize, Vec<ChangedFile>)>, Error> {
        let repository = vault.open()?;
        let odb = repository.odb()?;
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(PART, Ordering::Relaxed);
            let Some(part) = entries.get(start..entries.len().min(start + PART)).filter(|part| !part.is_empty()) else {
                return Ok(done);
            };
            done.push((start, part.iter().map(|entry| one(&odb, entry)).collect::<Result<_, _>>()?));
        }
    };
    let mut parts = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut parts = work()?;
        for other in others {
            parts.extend(other.join().expect("counting does not panic")?);
        }
        Ok::<_, Error>(parts)
    })?;
    parts.sort_by_key(|(start, _)| *start);
    Ok(parts.into_iter().flat_map(|(_, files)| files).collect())
}

fn one(odb: &Odb<'_>, entry: &Entry) -> Result<ChangedFile, Error> {
    let mut file = ChangedFile {
        path: String::from_utf8_lossy(&entry.path).into_owned(),
        old_path: entry.old_path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned()),
        kind: entry.kind,
        additions: None,
        deletions: None,
        is_binary: false,
        size_before: None,
        size_after: None,
        is_lfs_pointer: false,
        is_submodule: entry.is_submodule,
    };
    let [before, after] = entry.blobs;
    let (before, after) = (Content::of(odb, before)?, Content::of(odb, after)?);
    (file.size_before, file.size_after) = (before.size(), after.size());
    let Some([old, new]) = before.read().and_then(|old| Some([old, after.read()?])) else {
        // Too large to be read: what it begins with is not known.
        return Ok(file);
    };
    file.is_binary = is_binary(old) || is_binary(new);
    file.is_lfs_pointer = is_lfs_pointer(old) || is_lfs_pointer(new);
    let has_lines = entry.blobs.iter().any(Option::is_some);
    if !file.is_binary && has_lines {
        let (added, deleted) = lines(old, new)?;
        (file.additions, file.deletions) = (Some(added), Some(deleted));
    }
    Ok(file)
}

/// A file's contents on one side.
enum Content<'odb> {
    Nothing,
    TooLarge(u64),
    Loose(Vec<u8>),
    Packed(OdbObject<'odb>),
}

impl<'odb> Content<'odb> {
    fn of(odb: &'odb Odb<'_>, blob: Option<Oid>) -> Result<Self, Error> {
        let Some(blob) = blob else { return Ok(Self::Nothing) };
        if let Some(loose) = Self::loose(odb, blob) {
            return Ok(loose);
        }
        let size = odb.read_header(blob)?.0 as u64;
        if size > LARGEST { Ok(Self::TooLarge(size)) } else { Ok(Self::Packed(odb.read(blob)?)) }
    }

    /// What a checkpoint wrote, opened once for its size and its contents. None where it is packed, or not what its id
    /// says: reading it in the other way tells.
    fn loose(odb: &Odb<'_>, blob: Oid) -> Option<Self> {
        let (reader, length, kind) = odb.reader(blob).ok()?;
        let size = length as u64;
        if size > LARGEST {
            return Some(Self::TooLarge(size));
        }
        let mut bytes = Vec::with_capacity(length + 1);
        reader.take(size + 1).read_to_end(&mut bytes).ok()?;
        let is_whole = bytes.len() == length && Oid::hash_object(kind, &bytes).ok()? == blob;
        is_whole.then_some(Self::Loose(bytes))
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::TooLarge(size) => Some(*size),
            Self::Loose(bytes) => Some(bytes.len() as u64),
            Self::Packed(object) => Some(object.len() as u64),
        }
    }

    fn read(&self) -> Option<&[u8]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::TooLarge(_) => None,
            Self::Loose(bytes) => Some(bytes),
            Self::Packed(object) => Some(object.data()),
        }
    }
}

/// How many lines were added and deleted. Only where both sides have some is there anything to compare.
fn lines(old: &[u8], new: &[u8]) -> Result<(u32, u32), Error> {
    let count = |content| u32::try_from(count_lines(content)).unwrap_or(u32::MAX);
    if old == new {
        return Ok((0, 0));
    }
    if old.is_empty() || new.is_empty() {
        return Ok((count(new), count(old)));
    }
    let (old, new) = without_common_ends(old, new);
    if old.is_empty() || new.is_empty() {
        return Ok((count(new), count(old)));
    }
    let mut options = DiffOptions::new();
    options.context_lines(0).force_text(true);
    let patch = Patch::from_buffers(old, None, new, None, Some(&mut options))?;
    let (_, added, deleted) = patch.line_stats()?;
    Ok((u32::try_from(added).unwrap_or(u32::MAX), u32::try_from(deleted).unwrap_or(u32::MAX)))
}

/// Both without the lines they begin with alike and those they end with alike: most of a changed file, which is then not
/// compared line by line.
fn without_common_ends<'a>(old: &'a [u8], new: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let alike = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let begin = old[..alike].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let (old, new) = (&old[begin..], &new[begin..]);
    let alike = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    // What ends alike begins with a whole line on both sides: after the first line's end among it.
    let tail = &old[old.len() - alike..];
    let end = tail.iter().position(|&byte| byte == b'\n').map_or(0, |end| tail.len() - end - 1);
    (&old[..old.len() - end], &new[..new.len() - end])
}
