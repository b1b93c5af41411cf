//! One error for everything the engine is asked, with a code that says what a person could do about it.

use std::path::Path;

use crate::{
    model::{Illegal, Lifecycle, ProviderKind, word},
    provider, sandbox, secrets, store, work,
};

word! {
    /// A code exists only where a person or the window would act differently.
    Code {
        NotFound = "notFound",
        Invalid = "invalid",
        NotARepository = "notARepository",
        EmptyRepository = "emptyRepository",
        BareRepository = "bareRepository",
        PathMissing = "pathMissing",
        PathIsFile = "pathIsFile",
        IllegalState = "illegalState",
        WorkflowSandbox = "workflowSandbox",
        MissingCli = "missingCli",
        MissingKey = "missingKey",
        NoKeychain = "noKeychain",
        NoJail = "noJail",
        Provider = "provider",
        Unsupported = "unsupported",
        DatabaseBusy = "databaseBusy",
        DatabaseNewer = "databaseNewer",
        DatabaseDamaged = "databaseDamaged",
        DiskFull = "diskFull",
        DataFolder = "dataFolder",
        Network = "network",
        AlreadyOpen = "alreadyOpen",
        ShuttingDown = "shuttingDown",
        Internal = "internal",
    }
}

/// What the engine could not do, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: Code,
    message: String,
    /// What to do about it, where that is known.
    detail: Option<String>,
}

impl Error {
    pub(super) fn new(code: Code, message: impl Into<String>, detail: &str) -> Self {
        Self { code, message: message.into(), detail: (!detail.is_empty()).then(|| detail.to_owned()) }
    }

    /// What kind of error it is.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What to do about it, where that is known.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Something was decided and could not be stored.
    pub(crate) fn not_stored(error: &store::Error) -> Self {
        let (code, remedy) = stored_remedy(error);
        Self::new(code, error.to_string(), remedy)
    }

    /// A stop was asked for and cannot be recorded: the agent was told to end, and the stop is owed.
    pub(crate) fn stop_is_owed(error: &store::Error) -> Self {
        let (code, remedy) = stored_remedy(error);
        let message = format!("the agent was told to end, but the stop cannot be recorded: {error}");
        Self::new(code, message, &format!("{remedy} While CodeCourier is open, the stop then goes on by itself."))
    }

    /// The work could not be saved.
    pub(crate) fn not_saved(error: &sandbox::NotSaved) -> Self {
        let code = if error.is_disk_full() { Code::DiskFull } else { Code::Internal };
        Self::new(code, format!("the work could not be saved: {error}"), error.remedy())
    }

    pub(crate) fn no_machine(id: &str) -> Self {
        Self::new(Code::NotFound, format!("no sandbox-less machine is called {id:?}"), "Look at the list once more.")
    }

    pub(crate) fn not_restored(cause: &str) -> Self {
        let remedy = "Everything is saved. Look at the changes, then try again, or begin a new sandbox from there.";
        Self::new(Code::Internal, format!("the files could not be restored: {cause}"), remedy)
    }

    pub(crate) fn nothing_saved() -> Self {
        Self::new(Code::NotFound, "there is no work yet", "Wait until the sandbox runs.")
    }

    pub(crate) fn invalid(message: String) -> Self {
        Self::new(Code::Invalid, message, "")
    }

    pub(crate) fn illegal_state(lifecycle: &Lifecycle, what: &str, remedy: &str) -> Self {
        Self::new(Code::IllegalState, format!("a sandbox that is {} {what}", lifecycle.words()), remedy)
    }

    pub(crate) fn delivered() -> Self {
        Self::new(Code::IllegalState, "the agent has this message already", "Send another one instead.")
    }

    pub(crate) fn workflow_sandbox() -> Self {
        Self::new(
            Code::WorkflowSandbox,
            "this sandbox belongs to a workflow and takes no messages",
            "Open its run to steer it.",
        )
    }

    pub(crate) fn unsupported(provider: ProviderKind) -> Self {
        let remedy = match provider {
            ProviderKind::Local => "Use Docker or E2B on this system.",
            ProviderKind::Docker | ProviderKind::E2b => "Use a local sandbox.",
        };
        Self::new(Code::Unsupported, format!("there are no {provider} sandboxes here"), remedy)
    }

    pub(crate) fn already_open(home: &Path) -> Self {
        Self::new(
            Code::AlreadyOpen,
            format!("another CodeCourier holds {}", home.display()),
            "Use the window that is open, or close it first.",
        )
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(Code::ShuttingDown, "the engine is shutting down", "")
    }
}

impl From<Illegal> for Error {
    fn from(illegal: Illegal) -> Self {
        Self::new(Code::IllegalState, illegal.to_string(), "")
    }
}

/// What kind of trouble with the database this is, and what to do about it.
pub(crate) fn stored_remedy(error: &store::Error) -> (Code, &'static str) {
    use std::io::ErrorKind as Io;
    use store::Error as E;
    const ROOM: &str = "Make room on the disk, then try again; nothing that was stored is lost.";
    const FOLDER: &str = "See that the data folder is there and that you may write in it, then start again.";
    match error {
        E::Busy => (Code::DatabaseBusy, "Close what holds it, or wait a moment and try again."),
        E::Newer { .. } => {
            (Code::DatabaseNewer, "Install the newer version of CodeCourier; this one leaves the file alone.")
        }
        E::Damaged { .. } => (
            Code::DatabaseDamaged,
            "Nothing was changed. Put a copy of the file back (those made before an update lie beside it), or move the \
             whole data folder aside to begin anew.",
        ),
        E::DiskFull => (Code::DiskFull, ROOM),
        E::Io { source, .. } if matches!(source.kind(), Io::StorageFull | Io::QuotaExceeded) => (Code::DiskFull, ROOM),
        E::Io { .. } | E::ReadOnly | E::Moved | E::Disk(_) => (Code::DataFolder, FOLDER),
        E::NotFound(_) => (Code::NotFound, ""),
        E::Closed => (Code::ShuttingDown, ""),
        E::Migration(_) => (Code::Internal, "The file is as it was; the version before still opens it."),
        E::Sqlite(_) => (Code::Internal, "Try again; if it stays, the log in the data folder says more."),
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::not_stored(&error)
    }
}

impl From<work::Error> for Error {
    fn from(error: work::Error) -> Self {
        use work::Error as E;
        let (code, detail) = match &error {
            E::Missing(_) => (Code::PathMissing, "Check the path; it may have been moved or renamed."),
            E::IsFile(_) => (Code::PathIsFile, "Choose the folder of the repository."),
            E::NotARepository(_) => {
                (Code::NotARepository, "Choose the repository's top folder, or run `git init` in it and commit.")
            }
            E::Empty(_) => (Code::EmptyRepository, "Make a first commit in it, then add it again."),
            E::Bare(_) => (Code::BareRepository, "Choose a working copy, or give its address as file:// and its path."),
            E::PasswordInAddress => (Code::Invalid, "Leave it out; what is typed here is stored and shown."),
            E::NotAnAddress(_) => {
                (Code::Invalid, "Give a folder's whole path, or an address such as https://… or git@host:path.")
            }
            E::NoSuchBranch { .. } => (Code::Invalid, "Choose one of the project's branches."),
            E::BadBranchName(_) => (Code::Invalid, "Use letters, digits, dashes and slashes."),
            E::BranchTaken(_) => (Code::Invalid, "Choose another name for the branch."),
            E::NoSuchFile(_) => (Code::Invalid, "It may have changed since; look again."),
            E::TooLarge { .. } => (Code::Invalid, "Open it outside the app."),
            E::Remote { .. } => (Code::Network, "Check the address and the connection, and that you may read it."),
            full if full.is_disk_full() => (Code::DiskFull, "Make room on the disk, then try again."),
            E::DiskFull | E::BadName(_) | E::NoSuchCommit(_) | E::Git(_) | E::Io { .. } | E::Worker(_) => {
                (Code::Internal, "")
            }
        };
        Self::new(code, error.to_string(), detail)
    }
}

impl From<secrets::Error> for Error {
    fn from(error: secrets::Error) -> Self {
        let (code, detail) = match &error {
            secrets::Error::NoKeychain { remedy, .. } => (Code::NoKeychain, *remedy),
            secrets::Error::Locked { .. } => {
                (Code::NoKeychain, "Unlock the keychain, or keep the key for this session only.")
            }
            secrets::Error::NotFound(_) => (Code::NotFound, ""),
            secrets::Error::Failed(_) => (Code::NoKeychain, "Keep the key for this session only, or try again."),
        };
        Self::new(code, error.to_string(), detail)
    }
}

impl From<secrets::Malformed> for Error {
    fn from(error: secrets::Malformed) -> Self {
        Self::new(Code::Invalid, error.to_string(), "Copy the whole key again and paste it here.")
    }
}

impl From<provider::Error> for Error {
    fn from(error: provider::Error) -> Self {
        let (code, detail) = match &error {
            provider::Error::NoJail { remedy, .. } => (Code::NoJail, remedy.clone()),
            provider::Error::Unsupported => (Code::Unsupported, "Use Docker or E2B on this system.".to_owned()),
            provider::Error::Refused { kind: "missing_key", remedy, .. } => (Code::MissingKey, remedy.clone()),
            provider::Error::Refused { remedy, .. } => (Code::Provider, remedy.clone()),
            provider::Error::Unreachable(_) => {
                (Code::Provider, "Check the network and the addresses in Settings, then try again.".to_owned())
            }
            _ => (Code::Internal, String::new()),
        };
        Self::new(code, error.to_string(), &detail)
    }
}
