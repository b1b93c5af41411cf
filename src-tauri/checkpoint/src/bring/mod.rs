//! Takes an agent's own commits into the vault, out of a bundle made inside the sandbox.
//!
//! Whoever wrote the bundle is hostile. The file is copied once, since it may change while it is read; its header and the
//! shape of its pack are read by a small strict parser, which bounds every size before anything is unpacked; libgit2 then
//! indexes the pack in a quarantine inside the vault. From the tips everything is walked: what is neither in the pack,
//! nor upstream's, nor verified before is missing, and an entry no working tree may have ends it. Only then the pack is
//! moved in and the references are set.
//!
//! Upstream's objects and what this sandbox brought before are all that is known here: naming another sandbox's object
//! by its hash brings nothing.

mod bundle;
mod known;
mod names;
mod objects;
mod pack;
mod quarantine;
#[cfg(test)]
mod tests;
mod walk;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use git2::{ObjectType, Oid, Repository};
use serde::{Deserialize, Serialize};

use crate::request::{Cause, Failure};
use known::Known;
pub use names::is_safe as is_safe_name;
use quarantine::Quarantine;

/// What is to be taken in, and what is known already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bringing {
    /// The bundle; `None` where there is nothing new and only the reference moves. It lies in a folder the agent cannot
    /// replace by another (its own it may fill as it likes).
    pub bundle: Option<PathBuf>,
    /// The project's vault.
    pub vault: PathBuf,
    /// The objects of the project's mirror.
    pub mirror: PathBuf,
    /// The commit the agent's HEAD named, as the sandbox says; the bundle's own word counts where it has one.
    pub head: String,
    /// Commits this sandbox brought before, or began with.
    pub verified: Vec<String>,
    /// `refs/courier/<sandbox>`: `head` and `stash` beneath it are set.
    pub references: String,
    #[serde(default)]
    pub limits: Limits,
}

/// How much is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The bundle, in bytes.
    pub bundle: u64,
    /// How many objects it holds.
    pub objects: u32,
    /// A file, in bytes.
    pub object: u64,
    /// A tree, in bytes.
    pub tree: u64,
    /// A commit, in bytes.
    pub commit: u64,
    /// All objects unpacked, in bytes.
    pub unpacked: u64,
    /// How many files a commit's tree shows.
    pub files: u64,
    /// How deep folders nest.
    pub depth: u32,
    /// How long the pack may take to be indexed.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            bundle: 2048 * MIB,
            objects: 2_000_000,
            object: 512 * MIB,
            tree: 64 * MIB,
            commit: 4 * MIB,
            unpacked: 16 * 1024 * MIB,
            files: 2_000_000,
            depth: 1000,
            time: Duration::from_secs(240),
        }
    }
}

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// The commit the agent's HEAD names.
    pub head: String,
    /// What the agent put aside with `git stash`, the newest.
    pub stash: Option<String>,
    /// How many commits were new.
    pub commits: u32,
}

/// Why nothing came in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Error {
    /// The bundle is not one this program takes.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("it takes too long to read")]
    TooSlow,
    #[error("the disk is full")]
    DiskFull,
    /// What went wrong on this side.
    #[error("{0}")]
    Failed(String),
}

/// What is wrong with a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    #[error("there is no bundle")]
    NoBundle,
    #[error("the bundle is not a regular file")]
    NotAFile,
    #[error("the bundle is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the bundle's header is not one: {0}")]
    Header(String),
    #[error("the bundle is partial or of another kind: {0}")]
    Capability(String),
    #[error("the bundle holds a reference nobody asked for")]
    Reference,
    #[error("the bundle builds on {0}, which this project does not know")]
    Prerequisite(String),
    #[error("the pack is damaged: {0}")]
    Pack(String),
    #[error("{what} is larger than {limit}")]
    Limit { what: String, limit: u64 },
    #[error("{what} {id} is missing")]
    Missing { what: String, id: String },
    #[error("{id} is not a valid {what}: {why}")]
    Object { what: String, id: String, why: String },
    #[error("the tree {tree} has an entry no folder may have: {name:?}")]
    Name { tree: String, name: String },
    #[error("the bundle holds objects nobody asked for")]
    Unasked,
}

impl Error {
    fn io(what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        if matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded) {
            return Self::DiskFull;
        }
        Self::Failed(format!("{what}: {error}"))
    }

    /// libgit2 names a full disk only in the system's words.
    fn git(what: &str, error: &git2::Error) -> Self {
        if ["No space left", "quota exceeded"].iter().any(|words| error.message().contains(words)) {
            return Self::DiskFull;
        }
        Self::Failed(format!("{what}: {}", error.message()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let cause = match error {
            Error::Refused(_) | Error::TooSlow => Cause::Refused,
            Error::DiskFull => Cause::DiskFull,
            Error::Failed(_) => Cause::Failed,
        };
        Self::new(cause, format!("take the agent's commits in: {error}"))
    }
}

/// Keeps libgit2 to what is asked of it: no configuration of this machine's, objects that are what their names say, and
/// little of a pack in memory at once. For a process that does nothing else: called before any other use of libgit2.
pub fn isolate() {
    use git2::{ConfigLevel as Level, opts};
    opts::strict_hash_verification(true);
    opts::strict_object_creation(true);
    // What cannot be set is a courtesy less: there is no configuration in the jail.
    for level in [Level::System, Level::Global, Level::XDG, Level::ProgramData] {
        // SAFETY: called before any other use of libgit2 in this process.
        _ = unsafe { opts::set_search_path(level, "") };
    }
    // SAFETY: as above.
    _ = unsafe { opts::set_mwindow_mapped_limit(64 << 20).and_then(|()| opts::set_mwindow_size(16 << 20)) };
}

/// Takes the bundle in, whole or not at all. The caller sees to it that nobody else writes for this sandbox meanwhile;
/// what a killed worker left locked is freed.
///
/// # Errors
/// `Refused` for what the agent is to blame for, the others for what it is not; the vault is as before.
pub fn bring_in(bringing: &Bringing) -> Result<Brought, Error> {
    let under = &bringing.references;
    if !under.starts_with("refs/courier/") || !git2::Reference::is_valid_name(under) {
        return Err(Error::Failed(format!("{under:?} is no place for a checkpoint")));
    }
    let vault = Repository::open_bare(&bringing.vault).map_err(|error| Error::git("the vault", &error))?;
    let deadline = Instant::now() + bringing.limits.time;
    let known = Known::new(&vault, bringing)?;
    let mut tips = bundle::Tips { head: None, stash: None };
    let mut commits = 0;
    if let Some(path) = &bringing.bundle {
        let quarantine = Quarantine::new(&bringing.vault, &bringing.references)?;
        let bundle = bundle::Bundle::copy(path, &quarantine, &bringing.limits)?;
        bundle.check_prerequisites(&known)?;
        tips = bundle.tips.clone();
        let shape = pack::Shape::read(&bundle, &bringing.limits, deadline)?;
        quarantine.index(&bundle, &shape, &known, &bringing.limits, deadline)?;
        commits = walk::Walk::new(&quarantine, &known, &bringing.limits, deadline)?.all_from(&tips)?;
        quarantine.move_in()?;
    }
    let head = match tips.head {
        Some(head) => head,
        None => known_commit(&known, &bringing.head)?,
    };
    set(&vault, &bringing.references, "head", head)?;
    if let Some(stash) = tips.stash {
        set(&vault, &bringing.references, "stash", stash)?;
    }
    Ok(Brought { head: head.to_string(), stash: tips.stash.map(|stash| stash.to_string()), commits })
}

/// A commit the sandbox names without bringing it.
fn known_commit(known: &Known<'_>, head: &str) -> Result<Oid, Error> {
    let missing = || Refusal::Missing { what: "commit".to_owned(), id: head.chars().take(40).collect() };
    let id = objects::id(head.as_bytes()).ok_or_else(missing)?;
    if known.kind(id) == Some(ObjectType::Commit) { Ok(id) } else { Err(missing().into()) }
}

fn set(vault: &Repository, under: &str, name: &str, commit: Oid) -> Result<(), Error> {
    let reference = format!("{under}/{name}");
    match std::fs::remove_file(vault.path().join(format!("{reference}.lock"))) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("the vault", &error)),
        _ => {}
    }
    vault
        .reference(&reference, commit, true, "brought")
        .map_err(|error| Error::git("a reference of the vault", &error))?;
    Ok(())
}
