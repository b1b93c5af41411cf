//! Finding what changed: one walk through the workspace, by several threads, compared with our own index.
//!
//! A folder is one job. What a job finds changed it reads and stores at once; what it cannot take it lists. Nothing of
//! the index is altered meanwhile: changes are gathered, and applied when the walk is over.

use std::{
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gix::{
    ObjectId,
    bstr::{BStr, BString},
    index::{
        Entry, State,
        entry::{Mode, Stat, stat::Time},
    },
    objs,
};

use super::{
    Limits, Skipped, Taken, Why,
    contents::{self, Contents},
    failure,
    folder::Folder,
    look::{Kind, Look},
    names,
    nested::{self, Nested},
    objects::Objects,
    rules::{Attributed, Attributes, Ignored, join},
};
use crate::request::{Cause, Failure};

/// Also where there are fewer processors, since they wait for the disk too; more would, and each holds a file.
const THREADS: usize = 4;

/// What is walked, and what it is compared with.
pub(super) struct Walk<'a> {
    pub vault: &'a Path,
    pub workspace: &'a Path,
    pub index: &'a State,
    pub began: Time,
    pub limits: Limits,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Found {
    pub changed: Vec<Change>,
    /// Entries of the index that are no more.
    pub gone: Vec<usize>,
    pub skipped: Skips,
    /// The repositories within.
    pub nested: Vec<(BString, ObjectId)>,
    /// The files of attributes.
    pub attributed: Vec<Arc<Attributed>>,
    /// Objects that were written.
    pub written: Vec<ObjectId>,
}

/// A path that is new, or different.
pub(super) struct Change {
    /// Its entry in the index, if it has one.
    pub at: Option<usize>,
    pub path: BString,
    pub mode: Mode,
    pub id: ObjectId,
    pub stat: Stat,
}

/// What was skipped: all are counted, the first are named.
#[derive(Default)]
pub(super) struct Skips {
    pub listed: Vec<Skipped>,
    pub count: u64,
}

impl Skips {
    pub fn add(&mut self, path: &BStr, why: Why) {
        self.count += 1;
        if self.listed.len() < Taken::LISTED {
            self.listed.push(Skipped { path: names::shown(path), why });
        }
    }

    fn append(&mut self, other: Self) {
        self.count += other.count;
        self.listed.extend(other.listed);
        self.listed.sort();
        self.listed.truncate(Taken::LISTED);
    }
}

/// One folder to look into.
struct Job {
    path: BString,
    /// Its entries in the index.
    range: Range<usize>,
    /// The entry that says it is a repository of its own.
    nested: Option<usize>,
    depth: usize,
    is_ignored: bool,
    ignored: Option<Arc<Ignored>>,
    attributed: Option<Arc<Attributed>>,
}

/// What all threads share.
struct Shared<'a> {
    walk: &'a Walk<'a>,
    root: Folder,
    jobs: Mutex<Jobs>,
    more: Condvar,
    /// Which entries of the index are still there.
    seen: Vec<AtomicBool>,
    entries: AtomicU64,
    bytes: AtomicU64,
    /// Held by whoever holds a large file, so that there is one in memory.
    large: Mutex<()>,
}

#[derive(Default)]
struct Jobs {
    waiting: Vec<Job>,
    busy: usize,
    /// Threads that wait for more.
    idle: usize,
    failure: Option<Failure>,
}

impl Walk<'_> {
    /// Walks all of it.
    pub fn run(&self) -> Result<(Found, u64), Failure> {
        let root = Folder::root(self.workspace).map_err(|error| failure("open the workspace", error))?;
        let everything = Job {
            path: BString::default(),
            range: 0..self.index.entries().len(),
            nested: None,
            depth: 0,
            is_ignored: false,
            ignored: None,
            attributed: None,
        };
        let shared = Shared {
            walk: self,
            root,
            jobs: Mutex::new(Jobs { waiting: vec![everything], ..Jobs::default() }),
            more: Condvar::new(),
            seen: self.index.entries().iter().map(|_| AtomicBool::new(false)).collect(),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            large: Mutex::new(()),
        };
        let found: Vec<Found> = std::thread::scope(|scope| {
            let walkers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| Walker::work(&shared))).collect();
            walkers
                .into_iter()
                .map(|walker| walker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<_, Failure>>()
        })?;
        if let Some(failure) = lock(&shared.jobs).failure.take() {
            return Err(failure);
        }
        let mut all = Found::default();
        for one in found {
            all.changed.extend(one.changed);
            all.skipped.append(one.skipped);
            all.nested.extend(one.nested);
            all.attributed.extend(one.attributed);
            all.written.extend(one.written);
        }
        let is_seen = |at: &usize| shared.seen[*at].load(Ordering::Relaxed);
        all.gone = (0..shared.seen.len()).filter(|at| !is_seen(at)).collect();
        keep_other_spellings(self, &shared.root, &mut all);
        Ok((all, shared.bytes.load(Ordering::Relaxed)))
    }
}

/// Where names differ only in case and the file system sees no difference, one of two files hides the other: what is
/// listed under one spelling is there under the other too, unless it is a new file that took its place.
fn keep_other_spellings(walk: &Walk<'_>, root: &Folder, found: &mut Found) {
    if !cfg!(any(windows, target_os = "macos")) {
        return;
    }
    let folded = |path: &BStr| path.to_ascii_lowercase();
    let new: std::collections::HashSet<Vec<u8>> =
        found.changed.iter().filter(|change| change.at.is_none()).map(|change| folded(change.path.as_ref())).collect();
    found.gone.retain(|at| {
        let path = walk.index.entries()[*at].path(walk.index);
        new.contains(&folded(path)) || root.look(path).is_err()
    });
}

/// One thread.
struct Walker<'a> {
    shared: &'a Shared<'a>,
    objects: Objects,
    attributes: Attributes,
    found: Found,
}

impl<'a> Walker<'a> {
    fn work(shared: &'a Shared<'a>) -> Result<Found, Failure> {
        // Whoever leaves early, by a failure or a panic, takes the others along.
        let guard = Guard(shared);
        let objects = Objects::open(shared.walk.vault)?;
        let mut walker = Self { shared, objects, attributes: Attributes::new(), found: Found::default() };
        while let Some(job) = shared.next() {
            let more = walker.folder(&job);
            shared.done(more);
        }
        std::mem::forget(guard);
        Ok(walker.found)
    }

    /// Looks into one folder; returns those within.
    fn folder(&mut self, job: &Job) -> Result<Vec<Job>, Failure> {
        let shared = self.shared;
        let left = shared.walk.limits.entries.saturating_sub(shared.entries.load(Ordering::Relaxed));
        let opened = shared.root.folder(job.path.as_ref()).and_then(|folder| Ok((folder.names(left)?, folder)));
        let (names, folder) = match opened {
            Ok(opened) => opened,
            // It went while we walked: what was in it is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !job.path.is_empty() => return Ok(Vec::new()),
            Err(error) if job.path.is_empty() => return Err(failure("read the workspace", error)),
            Err(_) => {
                self.keep(job, Why::Unreadable);
                return Ok(Vec::new());
            }
        };
        let count = shared.entries.fetch_add(names.len() as u64 + 1, Ordering::Relaxed) + names.len() as u64 + 1;
        if count > shared.walk.limits.entries {
            let most = shared.walk.limits.entries;
            return Err(Failure::new(Cause::TooLarge, format!("look at more than {most} files and folders")));
        }
        let has = |wanted: &str| names.iter().any(|(name, _)| name == wanted);
        if self.is_nested(job, has(".git"), names.len()) {
            return Ok(Vec::new());
        }
        let mut within =
            Within { job, folder: &folder, ignored: job.ignored.clone(), attributed: job.attributed.clone() };
        if has(".gitignore") && !job.is_ignored {
            within.ignored = Ignored::read(&folder, job.path.as_ref(), within.ignored);
        }
        if has(".gitattributes") {
            within.attributed = Attributed::read(&folder, job.path.as_ref(), within.attributed);
            self.found.attributed.extend(within.attributed.clone());
        }
        let mut more = Vec::new();
        for (name, kind) in &names {
            if name != ".git" {
                more.extend(self.name(&within, name.as_ref(), *kind)?);
            }
        }
        Ok(more)
    }

    /// Whether the folder is a repository of its own, and then all there is to do. One in which files were tracked
    /// already is an ordinary folder, whatever the agent made of it.
    fn is_nested(&mut self, job: &Job, has_git: bool, names: usize) -> bool {
        if job.path.is_empty() || !job.range.is_empty() {
            return false;
        }
        let path: &BStr = job.path.as_ref();
        let what =
            if has_git { nested::look(&self.shared.root, self.shared.walk.workspace, path) } else { Nested::Not };
        match what {
            Nested::At(id) => {
                self.found.nested.push((job.path.clone(), id));
                let is_known = job.nested.is_some_and(|at| self.shared.entry(at).id == id);
                self.see(job.nested);
                if !is_known {
                    let (at, path) = (job.nested, job.path.clone());
                    self.found.changed.push(Change { at, path, mode: Mode::COMMIT, id, stat: Stat::default() });
                }
                true
            }
            Nested::WithoutCommit => {
                self.keep(job, Why::NestedWithoutCommit);
                true
            }
            Nested::Outside => {
                self.found.skipped.add(path, Why::Outside);
                self.see(job.nested);
                job.nested.is_some()
            }
            // A submodule nobody has checked out is an empty folder; in one that is not empty the agent put files.
            Nested::Not if names == 0 => {
                self.see(job.nested);
                job.nested.is_some()
            }
            Nested::Not => false,
        }
    }

    /// One name in a folder; a folder of that name is a job.
    fn name(&mut self, within: &Within<'_>, name: &BStr, kind: Option<Kind>) -> Result<Option<Job>, Failure> {
        let path = join(within.job.path.as_ref(), name);
        let tracked = self.shared.find(path.as_ref(), &within.job.range);
        let (kind, look) = match kind {
            Some(Kind::Folder) => (Kind::Folder, None),
            Some(kind) if tracked.is_none() => (kind, None),
            _ => match within.folder.look(name) {
                Ok(look) => (look.kind, Some(look)),
                Err(error) => {
                    self.unreadable(&path, tracked, &error);
                    return Ok(None);
                }
            },
        };
        if kind == Kind::Folder {
            return Ok(self.subfolder(within, name, path, tracked));
        }
        if tracked.is_none() {
            if within.is_ignored(path.as_ref(), false) {
                return Ok(None);
            }
            if !names::is_valid(name, kind == Kind::Link) {
                self.found.skipped.add(path.as_ref(), Why::Name);
                return Ok(None);
            }
            if path.len() > names::LONGEST {
                self.found.skipped.add(path.as_ref(), Why::TooDeep);
                return Ok(None);
            }
        }
        if kind == Kind::Special {
            self.found.skipped.add(path.as_ref(), Why::Special);
            return Ok(None);
        }
        let look = match look.map_or_else(|| within.folder.look(name), Ok) {
            Ok(look) => look,
            Err(error) => {
                self.unreadable(&path, tracked, &error);
                return Ok(None);
            }
        };
        self.file(within, name, path, tracked, look)?;
        Ok(None)
    }

    fn subfolder(&mut self, within: &Within<'_>, name: &BStr, path: BString, tracked: Option<usize>) -> Option<Job> {
        let range = self.shared.beneath(path.as_ref(), &within.job.range);
        let nested = tracked.filter(|at| self.shared.entry(*at).mode == Mode::COMMIT);
        let is_ignored = within.is_ignored(path.as_ref(), true);
        if is_ignored && range.is_empty() && nested.is_none() {
            return None;
        }
        let depth = within.job.depth + 1;
        let (ignored, attributed) = (within.ignored.clone(), within.attributed.clone());
        let job = Job { path, range, nested, depth, is_ignored, ignored, attributed };
        if !names::is_valid(name, false) {
            self.keep(&job, Why::Name);
            return None;
        }
        if depth > names::DEEPEST || job.path.len() > names::LONGEST {
            self.keep(&job, Why::TooDeep);
            return None;
        }
        Some(job)
    }

    /// A file or a link: compared, and read where it differs.
    fn file(
        &mut self,
        within: &Within<'_>,
        name: &BStr,
        path: BString,
        tracked: Option<usize>,
        look: Look,
    ) -> Result<(), Failure> {
        let shared = self.shared;
        if tracked.is_some_and(|at| shared.is_unchanged(shared.entry(at), &look)) {
            self.see(tracked);
            return Ok(());
        }
        let limits = shared.walk.limits;
        if look.size > limits.file {
            self.found.skipped.add(path.as_ref(), Why::TooLarge);
            self.see(tracked);
            return Ok(());
        }
        let _large = (look.size > contents::LARGE).then(|| lock(&shared.large));
        let contents = match contents::read(within.folder, name, look, limits.file) {
            Ok(Contents::Bytes { bytes, look }) => (bytes, look),
            Ok(Contents::TooLarge) => {
                self.found.skipped.add(path.as_ref(), Why::TooLarge);
                self.see(tracked);
                return Ok(());
            }
            Err(error) => {
                self.unreadable(&path, tracked, &error);
                return Ok(());
            }
        };
        let (bytes, look) = contents;
        let total = shared.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
        if total > limits.bytes {
            return Err(Failure::new(Cause::TooLarge, format!("read more than {} bytes", limits.bytes)));
        }
        let before = tracked.map(|at| shared.entry(at));
        let (bytes, mode) = match look.kind {
            Kind::Link => (bytes, Mode::SYMLINK),
            _ => {
                let stored_mode = before.map(|entry| entry.mode);
                let stored = before.filter(|entry| entry.mode.contains(Mode::FILE)).map(|entry| entry.id);
                let objects = &self.objects;
                let mut before = |buffer: &mut Vec<u8>| contents::stored(objects, stored?, buffer);
                let attributed = within.attributed.as_ref();
                let converted = self.attributes.convert(attributed, path.as_ref(), bytes, &mut before);
                (converted, mode(look.kind, stored_mode))
            }
        };
        let id = super::objects::hash(objs::Kind::Blob, &bytes)?;
        if tracked.is_none_or(|at| shared.entry(at).id != id) {
            self.objects.write_as(id, objs::Kind::Blob, &bytes, &mut self.found.written)?;
        }
        self.see(tracked);
        self.found.changed.push(Change { at: tracked, path, mode, id, stat: look.stat });
        Ok(())
    }

    /// What the last checkpoint has of it stays, unless it went while we looked.
    fn unreadable(&mut self, path: &BString, tracked: Option<usize>, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.found.skipped.add(path.as_ref(), Why::Unreadable);
            self.see(tracked);
        }
    }

    /// A folder that can't be looked into: what the last checkpoint has of it stays.
    fn keep(&mut self, job: &Job, why: Why) {
        self.found.skipped.add(job.path.as_ref(), why);
        self.see(job.nested);
        job.range.clone().for_each(|at| self.see(Some(at)));
    }

    fn see(&mut self, at: Option<usize>) {
        if let Some(at) = at {
            self.shared.seen[at].store(true, Ordering::Relaxed);
        }
    }
}

/// A folder that is open, with the rules that apply in it.
struct Within<'a> {
    job: &'a Job,
    folder: &'a Folder,
    ignored: Option<Arc<Ignored>>,
    attributed: Option<Arc<Attributed>>,
}

impl Within<'_> {
    fn is_ignored(&self, path: &BStr, is_folder: bool) -> bool {
        self.job.is_ignored || Ignored::is(self.ignored.as_ref(), path, is_folder)
    }
}

/// Where files have no executable bit, what was recorded stays.
fn mode(kind: Kind, before: Option<Mode>) -> Mode {
    let is_executable = match kind {
        Kind::File { is_executable } if cfg!(unix) => is_executable,
        _ => before == Some(Mode::FILE_EXECUTABLE),
    };
    if is_executable { Mode::FILE_EXECUTABLE } else { Mode::FILE }
}

impl Shared<'_> {
    fn entry(&self, at: usize) -> &Entry {
        &self.walk.index.entries()[at]
    }

    /// The entry of this path, among these.
    fn find(&self, path: &BStr, range: &Range<usize>) -> Option<usize> {
        let entries = &self.walk.index.entries()[range.clone()];
        entries.binary_search_by(|entry| entry.path(self.walk.index).cmp(path)).ok().map(|at| range.start + at)
    }

    /// The entries beneath this folder, among these.
    fn beneath(&self, folder: &BStr, range: &Range<usize>) -> Range<usize> {
        let entries = &self.walk.index.entries()[range.clone()];
        let mut bound = folder.to_owned();
        bound.push(b'/');
        let start = entries.partition_point(|entry| entry.path(self.walk.index) < bound);
        let last = bound.len() - 1;
        bound[last] = b'/' + 1;
        let end = entries.partition_point(|entry| entry.path(self.walk.index) < bound);
        range.start + start..range.start + end
    }

    /// Whether a file is what it was, by what can be known without reading it. A change makes the time of change the
    /// present one, and nobody can set it back: an older one that is the same is proof.
    fn is_unchanged(&self, entry: &Entry, look: &Look) -> bool {
        let is_same_kind = match look.kind {
            Kind::Link => entry.mode == Mode::SYMLINK,
            Kind::File { .. } => entry.mode == mode(look.kind, Some(entry.mode)),
            _ => false,
        };
        let time = if cfg!(unix) { look.stat.ctime } else { look.stat.mtime };
        is_same_kind && entry.stat == look.stat && time < self.walk.began
    }

    /// The next folder; waits while others may still find some. None when all is done, or nothing can be.
    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.failure.is_some() {
                return None;
            }
            if let Some(job) = jobs.waiting.pop() {
                jobs.busy += 1;
                return Some(job);
            }
            if jobs.busy == 0 {
                return None;
            }
            jobs.idle += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
    }

    fn done(&self, more: Result<Vec<Job>, Failure>) {
        let mut jobs = lock(&self.jobs);
        jobs.busy -= 1;
        match more {
            Ok(more) => jobs.waiting.extend(more),
            Err(failure) => _ = jobs.failure.get_or_insert(failure),
        }
        // Most folders have none within, and waking somebody for nothing costs more than such a folder.
        let is_news = !jobs.waiting.is_empty() || jobs.busy == 0 || jobs.failure.is_some();
        if jobs.idle > 0 && is_news {
            self.more.notify_all();
        }
    }
}

/// Ends the walk for all when one of them ends it badly.
struct Guard<'a>(&'a Shared<'a>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let failure = || Failure::new(Cause::Defect, "walk through the workspace");
        lock(&self.0.jobs).failure.get_or_insert_with(failure);
        self.0.more.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
