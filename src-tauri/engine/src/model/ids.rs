//! Ids: time-ordered UUIDs, parsed at the edge and never passed as strings.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, later than every one made before it on this machine.
            pub fn fresh() -> Self {
                Self(Uuid::now_v7())
            }

            /// Eight characters for names a person reads: the random end, since the beginning is the time.
            pub fn short(self) -> String {
                let text = self.0.simple().to_string();
                text[text.len() - 8..].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text).map(Self)
            }
        }
    )+};
}

id! {
    /// A repository and its defaults.
    ProjectId,
    /// The isolated place one agent works in, and its record.
    SandboxId,
    /// One entry of a sandbox's conversation.
    MessageId,
    /// The agent's work on one message; one process per attempt.
    TurnId,
    /// One change of a sandbox's status.
    TransitionId,
    /// One piece of durable background work.
    JobId,
    /// One commit of a sandbox's whole working tree.
    CheckpointId,
}
