//! What the worker is asked, and what it answers: one JSON value each, on standard input and output.

use serde::{Deserialize, Serialize};

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Request {}
