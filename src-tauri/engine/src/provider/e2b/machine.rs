//! What is known of a machine while the app runs: how to reach its daemon, and whether it stands still.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{api::Reachable, daemon::Daemon};

/// One machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub daemon: Daemon,
    /// Whether we paused it: whoever follows something there waits.
    stands_still: watch::Sender<bool>,
}

/// Every machine that was reached in this life of the app.
#[derive(Debug, Default)]
pub(super) struct Machines(Mutex<HashMap<String, Arc<Machine>>>);

impl Machines {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Arc<Machine>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Machine>> {
        self.held().get(id).cloned()
    }

    /// Takes in how a machine is reached now. Who waits for it to go on is told.
    pub(super) fn reached(&self, found: &Reachable, daemon: impl FnOnce() -> Daemon) -> Arc<Machine> {
        let mut machines = self.held();
        let machine = Arc::new(Machine {
            daemon: daemon(),
            stands_still: match machines.get(&found.id) {
                Some(known) => known.stands_still.clone(),
                None => watch::Sender::new(false),
            },
        });
        machines.insert(found.id.clone(), machine.clone());
        machine
    }

    pub(super) fn forget(&self, id: &str) {
        self.held().remove(id);
    }

    pub(super) fn forget_all(&self) {
        self.held().clear();
    }
}

impl Machine {
    /// Whoever follows something there closes its stream, and waits.
    pub(super) fn stand_still(&self) {
        self.stands_still.send_replace(true);
    }

    pub(super) fn go_on(&self) {
        self.stands_still.send_replace(false);
    }

    pub(super) fn changes(&self) -> watch::Receiver<bool> {
        self.stands_still.subscribe()
    }
}
