//! The words of the product as types: no I/O, no clock, no SQL.

mod delivery;
mod error_kind;
mod ids;
pub mod lifecycle;
mod time;
mod transcript;

pub use delivery::{DeliverWhen, PullRequestStatus, StepKind, StepStatus};
pub use error_kind::ErrorKind;
pub use ids::{CheckpointId, JobId, MessageId, ProjectId, SandboxId, TransitionId, TurnId};
pub use lifecycle::{Activity, Effect, Ending, Event, Illegal, Lifecycle, Reason, Status};
pub use time::{Clock, SystemClock, Timestamp};
pub use transcript::{
    Delta, FileDiff, Item, NoticeLevel, ProgressEntry, ProgressState, Stream, ToolKind, ToolState, Usage,
};

macro_rules! word {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $(#[serde(rename = $code)] $variant),+ }

        impl $name {
            /// Every value, in the order of their declaration.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The code used in the database, on the command line and across IPC.
            pub fn code(self) -> &'static str {
                match self { $($name::$variant => $code),+ }
            }

            /// The value with this code.
            pub fn from_code(code: &str) -> Option<Self> {
                match code { $($code => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.code())
            }
        }
    };
}
pub(crate) use word;

word! {
    /// The command-line program at work in a sandbox.
    AgentKind { Shell = "shell", Claude = "claude", Codex = "codex", Opencode = "opencode", Pi = "pi" }
}

word! {
    /// What makes sandboxes.
    ProviderKind { Local = "local", Docker = "docker", E2b = "e2b" }
}

word! {
    /// What an agent may reach.
    NetworkMode { Open = "open", Listed = "listed", None = "none" }
}

word! {
    /// What happens when a sandbox's running time is over.
    OnTimeout { Kill = "kill", Pause = "pause" }
}

word! {
    /// Who wrote a message.
    Role { User = "user", Assistant = "assistant" }
}

word! {
    /// How far a message has come.
    MessageStatus { Streaming = "streaming", Completed = "completed", Error = "error" }
}

word! {
    /// Whether the agent has been given a person's message.
    MessageDelivery { Queued = "queued", Delivered = "delivered" }
}
