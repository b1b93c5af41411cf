//! Time comes from a `Clock`, so that a test can move it.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A moment, in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `millis` milliseconds after the beginning of 1970.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Unix milliseconds.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// This moment as a clock shows it that was moved by `millis`.
    #[must_use]
    pub fn moved_by(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// How long after `earlier` this is; zero where the clock went backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// What the time is.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The moment it is now. A person, or the network, may set it forward and back.
    fn now(&self) -> Timestamp;

    /// How long this boot of the machine has lasted, sleep included. Nobody can set it.
    fn steady(&self) -> Duration {
        courier_keeper::identity::since_boot()
    }

    /// Which boot that is; empty where nobody knows.
    fn boot(&self) -> String {
        courier_keeper::identity::boot()
    }
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the operating system")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
