//! What the worker is asked, and what it answers: one JSON value each, on standard input and output.

use serde::{Deserialize, Serialize};

use crate::{
    bring::{self, Bringing, Brought},
    take::{self, Seeding, Taken, Taking},
};

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {
    /// Learn what a fresh clone holds, so that the first checkpoint is cheap.
    Seed(Seeding),
    /// Take a checkpoint of a working tree.
    Take(Taking),
    /// Bring in the agent's own commits.
    Bring(Bringing),
}

impl Request {
    /// Does it.
    pub fn answer(&self) -> Answer {
        let answer = match self {
            Self::Seed(seeding) => take::seed(seeding).map(|()| Answer::Seeded),
            Self::Take(taking) => take::take(taking).map(Answer::Taken),
            Self::Bring(bringing) => bring::bring_in(bringing).map(Answer::Brought).map_err(Failure::from),
        };
        answer.unwrap_or_else(Answer::Failed)
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    Seeded,
    Taken(Taken),
    Brought(Brought),
    Failed(Failure),
}

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub cause: Cause,
    /// A fragment that reads well after "could not".
    pub message: String,
}

/// What a caller tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    DiskFull,
    /// A commit that was named is not in the vault.
    NoSuchCommit,
    /// More entries, or more bytes, than a checkpoint may have.
    TooLarge,
    /// A bundle that is not one to take, or takes too long to read: the agent is to blame.
    Refused,
    /// The request makes no sense.
    BadRequest,
    /// A defect: the worker panicked.
    Defect,
    /// Anything else, as the system or the repository says it.
    Failed,
}

impl Failure {
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }
}
