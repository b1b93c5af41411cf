//! What hinders live sandboxes just now: told with their rows, and never stored, since the disk may be what is full.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    model::SandboxId,
    store::{self, Change, Feed, SandboxRow},
};

/// How long a working agent may print nothing before that is said.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// One line per hindered sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hindrances(Arc<Mutex<HashMap<SandboxId, String>>>);

impl Hindrances {
    /// Sets what hinders a sandbox; `None`: nothing does. Announced where that is new.
    pub(super) fn set(&self, feed: &Feed, id: SandboxId, words: Option<String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = all.get(&id) != words.as_ref();
        match words {
            Some(words) => _ = all.insert(id, words),
            None => _ = all.remove(&id),
        }
        drop(all);
        if is_new {
            feed.publish(Change::Sandbox(id));
        }
    }

    /// The row as a person should see it: what hinders it stands where the work in hand is told.
    pub(crate) fn shown(&self, mut row: SandboxRow) -> SandboxRow {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = all.get(&row.id).filter(|_| row.lifecycle.status.is_live()) {
            row.step = Some(words.clone());
        }
        row
    }
}

/// Words for an agent that has printed nothing for so long, where that is worth saying.
pub(super) fn quiet(silence: Duration) -> Option<String> {
    let minutes = silence.as_secs() / 60;
    (silence >= QUIET).then(|| format!("no output for {minutes} minutes; interrupt or stop it if it hangs"))
}

/// Words for a database that does not take what is to be stored.
pub(super) fn not_stored(error: &store::Error) -> String {
    format!("waits, since {error}; it goes on by itself")
}
