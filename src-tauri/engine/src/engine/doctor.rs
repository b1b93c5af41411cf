//! The Doctor: what the app needs of this machine, what was looked for, what was found, and the fix.

use super::Engine;
use crate::model::Timestamp;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    Ok,
    Warning,
    Failed,
    /// Something optional is absent.
    NotFound,
}

/// One thing the app needs, or can use.
#[derive(Clone, Debug)]
pub struct Check {
    pub id: &'static str,
    pub name: String,
    pub state: CheckState,
    pub found: String,
    pub looked_for: Vec<String>,
    pub remedy: Option<String>,
}

/// Every check.
#[derive(Clone, Debug)]
pub struct Report {
    pub checks: Vec<Check>,
    pub ran_at: Timestamp,
}

impl Engine {
    /// Looks at everything the app needs.
    pub async fn doctor(&self) -> Report {
        Report { checks: Vec::new(), ran_at: self.around.clock.now() }
    }
}
