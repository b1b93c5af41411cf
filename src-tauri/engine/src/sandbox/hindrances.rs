//! What hinders live sandboxes just now: told with their rows, and never stored, since the disk may be what is full.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    model::SandboxId,
    store::{self, Change, Feed, SandboxRow},
};

/// What hinders one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hindrance {
    /// What keeps its output from being stored, in one line.
    pub words: Option<String>,
    /// For how many minutes its working agent has printed nothing, where that is worth saying.
    pub quiet_minutes: Option<u32>,
}

/// Every hindered sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hindrances(Arc<Mutex<HashMap<SandboxId, Hindrance>>>);

impl Hindrances {
    /// Sets what hinders a sandbox, if anything does. Announced where that is new.
    pub(super) fn set(&self, feed: &Feed, id: SandboxId, hindrance: Hindrance) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match hindrance == Hindrance::default() {
            true => all.remove(&id),
            false => all.insert(id, hindrance.clone()),
        };
        let is_new = before.unwrap_or_default() != hindrance;
        drop(all);
        if is_new {
            feed.publish(Change::Sandbox(id));
        }
    }

    /// The row as a person should see it: what hinders it stands where the work in hand is told.
    pub(crate) fn shown(&self, mut row: SandboxRow) -> SandboxRow {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hindrance) = all.get(&row.id).filter(|_| row.lifecycle.status.is_live()) {
            row.step = hindrance.words.clone().or(row.step);
            row.quiet_minutes = hindrance.quiet_minutes.filter(|_| row.is_working);
        }
        row
    }
}

/// Words for a database that does not take what is to be stored.
pub(super) fn not_stored(error: &store::Error) -> String {
    format!("waits, since {error}; it goes on by itself")
}
