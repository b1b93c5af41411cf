//! How much running time a sandbox has left. Pure: the time is given.

use std::time::Duration;

/// Counts down while the sandbox runs. Times are readings of one steady clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// What was left when it last began to count, or stopped.
    left: Duration,
    /// Since when it counts; `None`: paused.
    since: Option<Duration>,
}

impl Lifetime {
    /// Begins to count at `now`.
    pub(super) fn new(left: Duration, now: Duration) -> Self {
        Self { left, since: Some(now) }
    }

    /// What is left at `now`.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.left.saturating_sub(self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since)))
    }

    /// For how long it has been over; `None`: it is not, or it does not count.
    pub(super) fn over_for(&self, now: Duration) -> Option<Duration> {
        now.saturating_sub(self.since?).checked_sub(self.left)
    }

    /// Sets what is left.
    pub(super) fn extend(&mut self, left: Duration, now: Duration) {
        self.left = left;
        self.since = self.since.map(|_| now);
    }

    /// Stops counting.
    pub(super) fn pause(&mut self, now: Duration) {
        self.left = self.left(now);
        self.since = None;
    }

    /// Counts again.
    pub(super) fn resume(&mut self, now: Duration) {
        self.left = self.left(now);
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_pause_does_not_count() {
        let mut lifetime = Lifetime::new(at(10), at(100));
        assert_eq!(lifetime.left(at(104)), at(6));
        lifetime.pause(at(104));
        assert_eq!(lifetime.left(at(1000)), at(6));
        assert_eq!(lifetime.over_for(at(1000)), None);
        lifetime.resume(at(1000));
        assert_eq!(lifetime.left(at(1005)), at(1));
        assert_eq!(lifetime.over_for(at(1005)), None);
        assert_eq!(lifetime.over_for(at(1009)), Some(at(3)));
    }

    #[test]
    fn pausing_or_resuming_twice_changes_nothing() {
        let mut lifetime = Lifetime::new(at(10), at(0));
        lifetime.pause(at(4));
        lifetime.pause(at(6));
        lifetime.resume(at(8));
        lifetime.resume(at(9));
        assert_eq!(lifetime.left(at(10)), at(4));
    }

    #[test]
    fn an_extension_counts_from_now_and_only_while_it_runs() {
        let mut lifetime = Lifetime::new(at(10), at(0));
        lifetime.extend(at(60), at(9));
        assert_eq!(lifetime.left(at(10)), at(59));
        lifetime.pause(at(10));
        lifetime.extend(at(5), at(20));
        assert_eq!(lifetime.left(at(30)), at(5));
    }
}
