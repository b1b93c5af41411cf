//! What crosses when something could not be done. The window branches on `code`, never on text.

use courier_engine::engine::{Code, Error};
use serde::Serialize;
use specta::Type;

/// An error as the window gets it.
#[derive(Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct IpcError {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it, where that is known.
    pub detail: Option<String>,
}

macro_rules! codes {
    ($($name:ident),+ $(,)?) => {
        /// Every code there is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Type)]
        #[serde(rename_all = "camelCase")]
        pub enum ErrorCode { $($name),+ }

        impl From<Code> for ErrorCode {
            fn from(code: Code) -> Self {
                match code { $(Code::$name => Self::$name),+ }
            }
        }
    };
}

codes!(
    NotFound,
    Invalid,
    NotARepository,
    EmptyRepository,
    BareRepository,
    PathMissing,
    PathIsFile,
    IllegalState,
    WorkflowSandbox,
    MissingCli,
    MissingKey,
    NoKeychain,
    NoJail,
    Unsupported,
    DatabaseBusy,
    DatabaseNewer,
    DatabaseDamaged,
    DiskFull,
    DataFolder,
    Provider,
    Network,
    AlreadyOpen,
    ShuttingDown,
    Internal,
);

impl From<Error> for IpcError {
    fn from(error: Error) -> Self {
        Self { code: error.code().into(), message: error.to_string(), detail: error.detail().map(str::to_owned) }
    }
}

impl IpcError {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::Invalid, message: message.into(), detail: None }
    }
}

/// An id as the window sends it.
pub(super) fn id<T: std::str::FromStr>(text: &str) -> Result<T, IpcError> {
    text.parse().map_err(|_| IpcError::invalid(format!("{text:?} is not an id")))
}
