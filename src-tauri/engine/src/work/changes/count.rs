//! Counts lines, on all processors where there is much to count.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use git2::{DiffOptions, Oid, Patch};
use gix::{
    ObjectId,
    hash::Kind,
    objs::FindExt,
    odb::{self, Handle, HeaderExt, pack::cache::lru::MemoryCappedHashmap, store::init::Options},
};
use sha1::{Digest, Sha1};

use super::{
    LARGEST, count_lines, is_binary, is_lfs_pointer,
    list::{ChangedFile, Entry},
};
use crate::work::{Error, Vault};

/// How many files one thread takes at a time; fewer are counted by one.
const PART: usize = 64;
/// More threads than this only wait for the disk.
const THREADS: usize = 8;
/// Lines on each side that are counted without libgit2.
const FEW: isize = 6;
/// Bytes each keeps of what others in a pack are made from.
const CACHE: usize = 8 << 20;

pub(super) fn all(vault: &Vault, entries: &[Entry]) -> Result<Vec<ChangedFile>, Error> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors.min(THREADS).min(entries.len().div_ceil(PART)).max(1);
    let next = AtomicUsize::new(0);
    // Each thread has its own handle and takes the next part, since files differ much.
    let work = || -> Result<Vec<(usize, Vec<ChangedFile>)>, Error> {
        let mut reader = Reader::open(vault)?;
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(PART, Ordering::Relaxed);
            let Some(part) = entries.get(start..entries.len().min(start + PART)).filter(|part| !part.is_empty()) else {
                return Ok(done);
            };
            done.push((start, part.iter().map(|entry| one(&mut reader, entry)).collect::<Result<_, _>>()?));
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

fn one(reader: &mut Reader, entry: &Entry) -> Result<ChangedFile, Error> {
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
    let [before, after] = reader.read(entry.blobs)?;
    (file.size_before, file.size_after) = (before.size(), after.size());
    let Some([old, new]) = before.bytes().and_then(|old| Some([old, after.bytes()?])) else {
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

/// Reads contents and hashes them by the processor: what was overwritten is not counted. (libgit2 looks for collisions as it
/// hashes, which took longer than all else together; what is shown or delivered is read by it.)
struct Reader {
    objects: PathBuf,
    /// Refuses what is too large, and what is made of something too large.
    odb: Handle,
    buffers: [Vec<u8>; 2],
}

impl Reader {
    fn open(vault: &Vault) -> Result<Self, Error> {
        let objects = vault.path().join("objects");
        let limit = usize::try_from(LARGEST).expect("it is small");
        let options = Options { alloc_limit_bytes: Some(limit), ..Options::default() };
        let mut odb = odb::at_opts(&objects, Kind::Sha1, None, options).map_err(unreadable)?;
        odb.set_pack_cache(|| Box::new(MemoryCappedHashmap::new(CACHE)));
        Ok(Self { objects, odb, buffers: Default::default() })
    }

    fn read(&mut self, blobs: [Option<Oid>; 2]) -> Result<[Content<'_>; 2], Error> {
        let [before, after] = &mut self.buffers;
        let of = |blob, buffer| Content::of(&self.odb, &self.objects, blob, buffer);
        Ok([of(blobs[0], before)?, of(blobs[1], after)?])
    }
}

/// A file's contents on one side.
enum Content<'a> {
    Nothing,
    TooLarge(u64),
    Whole(&'a [u8]),
}

impl<'a> Content<'a> {
    fn of(odb: &Handle, objects: &Path, blob: Option<Oid>, buffer: &'a mut Vec<u8>) -> Result<Self, Error> {
        let Some(blob) = blob else { return Ok(Self::Nothing) };
        let blob = ObjectId::try_from(blob.as_bytes()).expect("both are SHA-1");
        if odb.find(&blob, buffer).is_err() {
            // Asking each for its size first would take as long as reading the small ones.
            let odb = odb::at(objects, Kind::Sha1).map_err(unreadable)?;
            let size = odb.header(blob).map_err(unreadable)?.size();
            if size > LARGEST {
                return Ok(Self::TooLarge(size));
            }
            odb.find(&blob, buffer).map_err(unreadable)?;
        }
        let begin = format!("blob {}\0", buffer.len());
        if Sha1::new_with_prefix(begin).chain_update(&*buffer).finalize()[..] != *blob.as_bytes() {
            return Err(unreadable(format_args!("object {blob} is not what its name says: hash mismatch")));
        }
        Ok(Self::Whole(buffer))
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::TooLarge(size) => Some(*size),
            Self::Whole(bytes) => Some(bytes.len() as u64),
        }
    }

    fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::TooLarge(_) => None,
            Self::Whole(bytes) => Some(bytes),
        }
    }
}

/// A reader's words in git's error.
fn unreadable(error: impl std::fmt::Display) -> Error {
    git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Odb, error.to_string()).into()
}

/// How many lines were added and deleted, as git counts them. Only where both sides have some is there anything to compare.
fn lines(old: &[u8], new: &[u8]) -> Result<(u32, u32), Error> {
    let count = |content| u32::try_from(count_lines(content)).unwrap_or(u32::MAX);
    if old == new {
        return Ok((0, 0));
    }
    let (different_old, different_new) = without_common_ends(old, new);
    if different_old.is_empty() || different_new.is_empty() {
        return Ok((count(different_new), count(different_old)));
    }
    if let Some(counted) = few(different_old, different_new) {
        return Ok(counted);
    }
    let mut options = DiffOptions::new();
    options.context_lines(0).force_text(true);
    let patch = Patch::from_buffers(old, None, new, None, Some(&mut options))?;
    let (_, added, deleted) = patch.line_stats()?;
    Ok((u32::try_from(added).unwrap_or(u32::MAX), u32::try_from(deleted).unwrap_or(u32::MAX)))
}

/// Both without the lines they begin with alike and those they end with alike: most of a changed file.
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

/// The least lines that can have been added and deleted, if both are at most `FEW` (Myers' greedy algorithm). libgit2 finds
/// the same, but hashes both files first.
///
/// Git finds more than the least where it passes over a line that is repeated often, and it does so only among more than six
/// lines of the same side that the other has not at all: 4 × 2 < 2 + 7 (`xdl_clean_mmatch` in git's `xdiff/xprepare.c`).
/// Those would all be among the ones counted.
fn few(old: &[u8], new: &[u8]) -> Option<(u32, u32)> {
    const MOST: isize = 2 * FEW;
    let [old, new] = [old, new].map(|side| side.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>());
    let (height, width) = (old.len().cast_signed(), new.len().cast_signed());
    if (width - height).abs() > FEW {
        return None;
    }
    // How many lines of `old` are passed on each diagonal, which is as many lines of `old` ahead of `new`.
    let mut reached = [0_isize; 2 * (MOST + 2) as usize];
    let at = |diagonal: isize| (diagonal + MOST + 1).cast_unsigned();
    for changed in 0..=MOST {
        for diagonal in (-changed..=changed).step_by(2) {
            let (added, deleted) = (reached[at(diagonal + 1)], reached[at(diagonal - 1)] + 1);
            let is_added = diagonal == -changed || (diagonal != changed && deleted <= added);
            let mut passed = if is_added { added } else { deleted };
            while passed < height && old.get(passed.cast_unsigned()) == new.get((passed - diagonal).cast_unsigned()) {
                passed += 1;
            }
            reached[at(diagonal)] = passed;
            if passed >= height && passed - diagonal >= width {
                let (added, deleted) = ((changed + width - height) / 2, (changed + height - width) / 2);
                let is_few = added.max(deleted) <= FEW;
                return is_few.then_some((u32::try_from(added).ok()?, u32::try_from(deleted).ok()?));
            }
        }
    }
    None
}
