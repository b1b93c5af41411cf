//! The clock on the wall can be set, by a person or the network; running time must not change with it. Where the wall
//! clock stood beside the steady one is remembered, also in the database; once the two disagree, every time that is
//! counted from or to is moved along.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{
    model::Clock,
    store::{self, Store, jobs, sandboxes, settings},
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
    /// When moving the times along failed last, and of what every owner hears that waited meanwhile.
    failed: Option<(Instant, store::Error)>,
    #[cfg(test)]
    attempts: u32,
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
        Ok(Self {
            clock,
            state: Arc::new(Mutex::new(State {
                anchor,
                moved: 0,
                failed: None,
                #[cfg(test)]
                attempts: 0,
            })),
        })
    }

    /// Moves every counted time along where the wall clock was set, and says how far it was set in this life. Who waits
    /// while another one tries that gets the same answer: a database that is held costs one wait, not one for each owner.
    pub(crate) async fn settle(&self, store: &Store) -> Result<i64, store::Error> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some((at, error)) = &state.failed
            && *at >= asked
            && let Some(error) = again(error)
        {
            return Err(error);
        }
        let now = Anchor::read(self.clock.as_ref(), state.anchor.boot.clone());
        let jump = state.anchor.jump_to(&now);
        if jump != 0 {
            tracing::warn!(jump, "the clock was set; running time is moved along");
            let anchor = now.clone();
            #[cfg(test)]
            {
                state.attempts += 1;
            }
            let moved = store.write(move |tx| {
                sandboxes::move_times(tx, jump)?;
                jobs::move_times(tx, jump)?;
                settings::set(tx, NAME, &anchor)
            });
            if let Err(error) = moved.await {
                state.failed = again(&error).map(|error| (Instant::now(), error));
                return Err(error);
            }
            state.anchor = now;
            state.moved += jump;
        }
        Ok(state.moved)
    }
}

/// The same failure once more, where it is one that everybody meets.
fn again(error: &store::Error) -> Option<store::Error> {
    use store::Error as E;
    match error {
        E::Busy => Some(E::Busy),
        E::DiskFull => Some(E::DiskFull),
        E::ReadOnly => Some(E::ReadOnly),
        E::Moved => Some(E::Moved),
        E::Closed => Some(E::Closed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::model::Timestamp;

    /// A clock that is set by a test.
    #[derive(Debug, Default)]
    struct Set(AtomicI64);

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_000_000 + self.0.load(Ordering::Relaxed))
        }

        fn steady(&self) -> Duration {
            Duration::from_secs(1000)
        }

        fn boot(&self) -> String {
            "b".to_owned()
        }
    }

    #[tokio::test]
    async fn a_jump_that_cannot_be_stored_is_tried_once_and_not_by_each_owner() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("courier.db");
        let store = Store::open(&file).unwrap();
        let clock = Arc::new(Set::default());
        let clocks = Clocks::open(&store, clock.clone()).await.unwrap();
        clock.0.store(3_600_000, Ordering::Relaxed);
        let other = rusqlite::Connection::open(&file).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let answers = tokio::join!(clocks.settle(&store), clocks.settle(&store), clocks.settle(&store));
        for answer in [answers.0, answers.1, answers.2] {
            assert!(matches!(answer, Err(store::Error::Busy)), "{answer:?}");
        }
        assert_eq!(clocks.state.lock().await.attempts, 1);
        drop(other);
        assert_eq!(clocks.settle(&store).await.unwrap(), 3_600_000, "whoever asks later tries again");
        assert_eq!(clocks.settle(&store).await.unwrap(), 3_600_000);
        assert_eq!(clocks.state.lock().await.attempts, 2, "once per jump");
    }

    #[tokio::test]
    async fn what_is_owed_stays_due_when_the_clock_is_set_back() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(&home.path().join("courier.db")).unwrap();
        let clock = Arc::new(Set::default());
        let clocks = Clocks::open(&store, clock.clone()).await.unwrap();
        let (sandbox, now) = (crate::model::SandboxId::fresh(), clock.now());
        store.write(move |tx| jobs::insert(tx, jobs::Kind::Destroy, sandbox, now)).await.unwrap();
        clock.0.store(-90_000, Ordering::Relaxed);
        clocks.settle(&store).await.unwrap();
        let now = clock.now();
        let due = store.read(move |connection| jobs::due(connection, now)).await.unwrap();
        assert_eq!(due.iter().map(|job| job.sandbox).collect::<Vec<_>>(), [sandbox]);
    }

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
