//! The work: the project's mirror and vault, the clone a sandbox works in, and the ways between them.
//!
//! The mirror is a bare repository with what upstream has and nothing else; only the app writes it. A workspace borrows
//! the mirror's objects through `objects/info/alternates` and a read-only bind, so it costs a checkout and no copy, and
//! nothing an agent does can reach the mirror. A workspace that an agent has touched is never opened as a repository
//! here: its configuration is the agent's.
//!
//! Out of a sandbox come checkpoints and, by a [`bundle`] made inside it, the agent's own commits; both end in the
//! [`Vault`]. From there the work is compared ([`changes`]), opened ([`Checkouts`]), [restored](restore), pushed, or
//! brought into the person's own repository ([`Delivery`]).

#[cfg(test)]
mod bench;
mod branch;
pub mod bundle;
pub mod changes;
mod checkout;
pub mod checkpoint;
mod deliver;
pub mod elsewhere;
mod mirror;
mod only_here;
mod parcel;
pub mod push;
pub mod restore;
mod sample;
mod source;
mod uncommitted;
mod vault;
mod worker;
mod workspace;
mod writer;

use std::path::{Path, PathBuf};

pub use branch::{AUTHOR, MESSAGE, Saved, Saving, message};
pub use checkout::{Checkout, Checkouts};
pub use checkpoint::{Brought, Checkpoints, Skipped, Taken, Taking, Why};
pub use deliver::{Delivered, Delivery};
pub use mirror::{Branches, Mirror};
pub(crate) use only_here::{KnownWork, OnlyHere, only_here};
pub use sample::create as create_sample;
pub use source::Source;
pub use uncommitted::Uncommitted;
pub use vault::{SandboxRef, Vault};
pub use worker::{Worker, WorkerError};
pub(crate) use workspace::wait_for_clone;
pub use workspace::{Begin, Workspace, branch_name, check_branch};
pub use writer::Writing;

/// Why git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is nothing at {0}")]
    Missing(PathBuf),
    #[error("{0} is a file, not a folder")]
    IsFile(PathBuf),
    #[error("{0} is not a git repository")]
    NotARepository(PathBuf),
    #[error("{0} has no commit yet")]
    Empty(String),
    #[error("{0} is a bare repository")]
    Bare(PathBuf),
    #[error("the address holds a password or token")]
    PasswordInAddress,
    #[error("{0:?} is neither a folder nor an address git understands")]
    NotAnAddress(String),
    #[error("there is no branch {branch:?}")]
    NoSuchBranch { branch: String },
    #[error("{0:?} is not a valid branch name")]
    BadBranchName(String),
    /// The other side refused, or could not be reached.
    #[error("{address}: {message}")]
    Remote { address: String, message: String },
    /// Another branch's name is in the way: `a` of `a/b`.
    #[error("another branch is in the way of {0:?}")]
    BranchTaken(String),
    #[error("there is no commit {0}")]
    NoSuchCommit(git2::Oid),
    /// More than is shown, written or copied.
    #[error("{what} is more than {limit}")]
    TooLarge { what: &'static str, limit: u64 },
    /// A name that no file may have.
    #[error("{0:?} is a name that leads out of its folder, or into a repository")]
    BadName(String),
    #[error("there is no {0:?} in it")]
    NoSuchFile(String),
    #[error("the disk is full")]
    DiskFull,
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("git: {0}")]
    Git(#[from] git2::Error),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

impl Error {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// A commit that was looked for: missing is told from unreadable.
    fn no_commit(id: git2::Oid, error: git2::Error) -> Self {
        if error.code() == git2::ErrorCode::NotFound { Self::NoSuchCommit(id) } else { Self::Git(error) }
    }

    /// Whether there was no room. libgit2 says so only in the system's words.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::DiskFull => true,
            Self::Git(error) => is_no_space(error),
            Self::Io { source, .. } => {
                matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

fn is_no_space(error: &git2::Error) -> bool {
    ["No space left", "quota exceeded"].iter().any(|words| error.message().contains(words))
}

/// Makes git2 ignore this machine's and this person's configuration: an `insteadOf` or an ignore file of theirs must
/// not change what the app does. Called once, before the first repository is opened.
pub fn isolate_git() {
    /// How long a server may take to be there, and then say nothing, in milliseconds: whoever else needs the same mirror
    /// waits for it.
    const CONNECT_LIMIT: i32 = 30_000;
    const SILENCE_LIMIT: i32 = 120_000;
    /// How much of a pack is mapped into memory, in bytes: all of it would be shown as ours.
    const MAPPED: usize = 64 << 20;
    const MAPPED_AT_ONCE: usize = 16 << 20;
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use git2::ConfigLevel as Level;
        for level in [Level::System, Level::Global, Level::XDG, Level::ProgramData] {
            // SAFETY: called once, before any other use of libgit2 in this process.
            let set = unsafe { git2::opts::set_search_path(level, "") };
            if let Err(error) = set {
                tracing::warn!(%error, "git's configuration could not be isolated");
            }
        }
        // An object is what its name says, whoever could write it, and names only what is there.
        git2::opts::strict_hash_verification(true);
        git2::opts::strict_object_creation(true);
        // SAFETY: as above.
        let set = unsafe {
            git2::opts::set_mwindow_mapped_limit(MAPPED).and_then(|()| git2::opts::set_mwindow_size(MAPPED_AT_ONCE))
        };
        if let Err(error) = set {
            tracing::warn!(%error, "packs are mapped as libgit2 likes");
        }
        // SAFETY: as above.
        let set = unsafe {
            git2::opts::set_server_connect_timeout_in_milliseconds(CONNECT_LIMIT)
                .and_then(|()| git2::opts::set_server_timeout_in_milliseconds(SILENCE_LIMIT))
        };
        if let Err(error) = set {
            tracing::warn!(%error, "a server that does not answer is waited for as long as the system says");
        }
    });
}
