//! The work: the project's mirror, and the clone a sandbox works in.
//!
//! The mirror is a bare repository with what upstream has and nothing else; only the app writes it. A workspace borrows
//! the mirror's objects through `objects/info/alternates` and a read-only bind, so it costs a checkout and no copy, and
//! nothing an agent does can reach the mirror. A workspace that an agent has touched is never opened as a repository
//! here: its configuration is the agent's.

mod forget;
mod mirror;
mod sample;
mod source;
mod workspace;

use std::path::PathBuf;

pub(crate) use forget::{OnlyHere, Saved, forget, only_here};
pub use mirror::{Branches, Mirror};
pub use sample::create as create_sample;
pub use source::Source;
pub(crate) use workspace::wait_for_clone;
pub use workspace::{Workspace, branch_name, check_branch};

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
    #[error("the disk is full")]
    DiskFull,
    #[error("git: {0}")]
    Git(#[from] git2::Error),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

impl Error {
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
