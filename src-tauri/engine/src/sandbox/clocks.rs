//! The clock on the wall can be set, by a person or the network; running time must not change with it. Where the wall
//! clock stood beside the steady one is remembered, also in the database; once the two disagree, every time that is
//! counted from or to is moved along.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{
    model::Clock,
    store::{self, Store, sandboxes, settings},
};

const NAME: &str = "clock";
/// Less than this is no jump: two clocks cannot be read at the same moment. In milliseconds.
const JUMP: i64 = 2000;

/// Both clocks, read together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Anchor {
    boot: String,
    wall: i64,
    steady: i64,
}

impl Anchor {
    fn read(clock: &dyn Clock, boot: String) -> Self {
        Self { boot, wall: clock.now().millis(), steady: millis(clock.steady()) }
    }

    /// How far the wall clock was set since; nothing where the machine was started anew in between, as nobody knows.
    fn jump_to(&self, now: &Self) -> i64 {
        if self.boot.is_empty() || self.boot != now.boot {
            return 0;
        }
        let jump = (now.wall - self.wall) - (now.steady - self.steady);
        if jump.abs() < JUMP { 0 } else { jump }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Both clocks, as they were last known to agree.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    anchor: Anchor,
    /// All jumps of this life together, in milliseconds.
    moved: i64,
}

impl Clocks {
    /// Compares with how the clocks stood in an earlier life.
    pub(crate) async fn open(store: &Store, clock: Arc<dyn Clock>) -> Result<Self, store::Error> {
        let stored: Anchor = store.read(|connection| settings::get(connection, NAME)).await?;
        let now = Anchor::read(clock.as_ref(), clock.boot());
        let is_known = stored.boot == now.boot && !now.boot.is_empty();
        if !is_known {
            let first = now.clone();
            // What cannot be stored now is stored at the next start, or never missed.
            if let Err(error) = store.write(move |tx| settings::set(tx, NAME, &first)).await {
                tracing::warn!(%error, "how the clocks stand could not be stored");
            }
        }
        let anchor = if is_known { stored } else { now };
        Ok(Self { clock, state: Arc::new(Mutex::new(State { anchor, moved: 0 })) })
    }

    /// Moves every counted time along where the wall clock was set, and says how far it was set in this life.
    pub(super) async fn settle(&self, store: &Store) -> Result<i64, store::Error> {
        let mut state = self.state.lock().await;
        let now = Anchor::read(self.clock.as_ref(), state.anchor.boot.clone());
        let jump = state.anchor.jump_to(&now);
        if jump != 0 {
            tracing::warn!(jump, "the clock was set; running time is moved along");
            let anchor = now.clone();
            store
                .write(move |tx| {
                    sandboxes::move_times(tx, jump)?;
                    settings::set(tx, NAME, &anchor)
                })
                .await?;
            state.anchor = now;
            state.moved += jump;
        }
        Ok(state.moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: &str, wall: i64, steady: i64) -> Anchor {
        Anchor { boot: boot.to_owned(), wall, steady }
    }

    #[test]
    fn only_what_the_steady_clock_does_not_explain_is_a_jump() {
        let then = at("b", 1_000_000, 500_000);
        assert_eq!(then.jump_to(&at("b", 1_600_000, 1_100_000)), 0, "time has passed");
        assert_eq!(then.jump_to(&at("b", 1_000_900, 500_000)), 0, "the clocks were not read at the same moment");
        assert_eq!(then.jump_to(&at("b", 87_400_000, 500_000)), 86_400_000, "set a day forward");
        assert_eq!(then.jump_to(&at("b", 500_000, 1_000_000)), -1_000_000, "set back while time passed");
        assert_eq!(then.jump_to(&at("another", 9_000_000, 10)), 0, "after a reboot nobody knows");
    }
}
