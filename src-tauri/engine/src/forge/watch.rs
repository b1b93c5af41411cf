//! When to look at pull requests again, and what became of them. Pure: no clock, no requests.
//!
//! One request per repository and round, whatever the number of its pull requests, and one repository at a time. Where
//! nothing happens the rounds grow apart; after a failure more so; and a limit holds for every repository of its host,
//! since it is the token's.

use std::{collections::BTreeMap, time::Duration};

use super::{Error, Listed, PullRequest, Repository, State};
use crate::model::Timestamp;

/// Between two looks at a repository where something just happened.
const SOON: Duration = Duration::from_secs(60);

/// The longest between two looks.
const LATE: Duration = Duration::from_secs(15 * 60);

/// The longest after failures in a row.
const LATEST: Duration = Duration::from_secs(60 * 60);

/// Between two requests to one host: GitHub asks for a second at least.
const APART: Duration = Duration::from_secs(1);

/// A repository and its host's name.
pub type Place = (String, Repository);

/// All pull requests that are not merged yet, by repository.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    places: BTreeMap<Place, Round>,
    /// Until when a host is left alone.
    quiet: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug)]
struct Round {
    pulls: BTreeMap<u64, State>,
    due: Timestamp,
    pause: Duration,
    failures: u32,
    tag: Option<String>,
    /// The newest change that was seen.
    until: Option<String>,
    /// Asked, and not answered yet.
    is_asking: bool,
}

/// A look to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub place: Place,
    /// The last answer's: nothing is sent again that has not changed since.
    pub tag: Option<String>,
    /// The newest change that is known (an `updated_at`); `None` where none is.
    pub until: Option<String>,
    /// The pull requests that are watched.
    pub numbers: Vec<u64>,
}

/// What became of a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub number: u64,
    pub from: State,
    pub to: State,
}

impl Watch {
    /// Watches a pull request that is `state` as far as we know. A repository that is new here is looked at soon.
    pub fn begin(&mut self, place: Place, number: u64, state: State, now: Timestamp) {
        let round = self.places.entry(place).or_insert_with(|| Round {
            pulls: BTreeMap::new(),
            due: now,
            pause: SOON,
            failures: 0,
            tag: None,
            until: None,
            is_asking: false,
        });
        if round.pulls.insert(number, state).is_none() {
            // What the last answer said of it was not kept.
            (round.tag, round.until) = (None, None);
            (round.due, round.pause) = (round.due.min(now + SOON), SOON);
        }
    }

    /// Watches it no more.
    pub fn end(&mut self, place: &Place, number: u64) {
        if let Some(round) = self.places.get_mut(place) {
            round.pulls.remove(&number);
            if round.pulls.is_empty() {
                self.places.remove(place);
            }
        }
    }

    /// When there is something to do; `None` while nothing is watched, or everything is being asked.
    pub fn next(&self) -> Option<Timestamp> {
        self.waiting().map(|(_, due)| due).min()
    }

    /// The look that is due now. It is out until [`Watch::answered`] or [`Watch::failed`] hears of it.
    pub fn take(&mut self, now: Timestamp) -> Option<Look> {
        let (place, _) = self.waiting().filter(|(_, due)| *due <= now).min_by_key(|(_, due)| *due)?;
        let place = place.clone();
        let round = self.places.get_mut(&place)?;
        round.is_asking = true;
        let numbers = round.pulls.keys().copied().collect();
        let look = Look { tag: round.tag.clone(), until: round.until.clone(), place: place.clone(), numbers };
        self.hush(&place.0, now + APART);
        Some(look)
    }

    /// An answer came: what changed since the last one.
    pub fn answered(&mut self, place: &Place, answer: Listed, now: Timestamp) -> Vec<Change> {
        let Some(round) = self.places.get_mut(place) else { return Vec::new() };
        (round.is_asking, round.failures) = (false, 0);
        let changes = match answer {
            Listed::Unchanged => Vec::new(),
            Listed::Pulls { pulls, tag } => {
                round.tag = tag;
                let newest = pulls.iter().map(|pull| &pull.updated_at).max().cloned();
                round.until = newest.max(round.until.take());
                pulls.iter().filter_map(|pull| round.see(pull)).collect()
            }
        };
        round.pause = if changes.is_empty() { (round.pause * 3 / 2).min(LATE) } else { SOON };
        round.due = now + round.pause;
        // A merged one stays merged.
        round.pulls.retain(|_, state| *state != State::Merged);
        if round.pulls.is_empty() {
            self.places.remove(place);
        }
        changes
    }

    /// No answer, or a refusal.
    pub fn failed(&mut self, place: &Place, error: &Error, now: Timestamp) {
        let Some(round) = self.places.get_mut(place) else { return };
        round.is_asking = false;
        round.failures = round.failures.saturating_add(1);
        let doubled = SOON.saturating_mul(1 << round.failures.min(10));
        round.due = now + doubled.min(LATEST);
        if let Some(wait) = error.wait {
            let end = wait.end(now);
            round.due = end;
            self.hush(&place.0, end);
        }
    }

    fn hush(&mut self, host: &str, until: Timestamp) {
        let quiet = self.quiet.entry(host.to_owned()).or_insert(until);
        *quiet = until.max(*quiet);
    }

    fn waiting(&self) -> impl Iterator<Item = (&Place, Timestamp)> {
        self.places.iter().filter(|(_, round)| !round.is_asking).map(|(place, round)| {
            let quiet = self.quiet.get(&place.0).copied();
            (place, quiet.map_or(round.due, |quiet| quiet.max(round.due)))
        })
    }
}

impl Round {
    fn see(&mut self, pull: &PullRequest) -> Option<Change> {
        let known = self.pulls.get_mut(&pull.number)?;
        let from = std::mem::replace(known, pull.state);
        (from != pull.state).then_some(Change { number: pull.number, from, to: pull.state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forge::{Reason, Wait};

    fn place(name: &str) -> Place {
        ("github.com".to_owned(), Repository { owner: "o".into(), name: name.into() })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn pull(number: u64, state: State, updated_at: &str) -> PullRequest {
        PullRequest {
            number,
            url: String::new(),
            title: String::new(),
            state,
            is_draft: false,
            branch: String::new(),
            base: String::new(),
            head: String::new(),
            updated_at: updated_at.to_owned(),
        }
    }

    fn listed(pulls: &[PullRequest]) -> Listed {
        Listed::Pulls { pulls: pulls.to_vec(), tag: Some("tag".to_owned()) }
    }

    #[test]
    fn one_look_serves_all_of_a_repository() {
        let mut watch = Watch::default();
        assert_eq!(watch.next(), None);
        for number in 1..=50 {
            watch.begin(place("a"), number, State::Open, at(0));
        }
        let look = watch.take(at(0)).unwrap();
        assert_eq!((look.place, look.tag, look.numbers.len()), (place("a"), None, 50));
        assert_eq!((watch.take(at(9999)), watch.next()), (None, None), "it is being asked");
        let answer = listed(&[pull(3, State::Merged, "5"), pull(7, State::Closed, "4"), pull(99, State::Merged, "3")]);
        let changes = watch.answered(&place("a"), answer, at(1));
        assert_eq!(
            changes,
            [
                Change { number: 3, from: State::Open, to: State::Merged },
                Change { number: 7, from: State::Open, to: State::Closed },
            ]
        );
        let look = watch.take(at(61)).unwrap();
        assert_eq!((look.tag.as_deref(), look.until.as_deref()), (Some("tag"), Some("5")));
        let changes =
            watch.answered(&place("a"), listed(&[pull(7, State::Open, "6"), pull(3, State::Merged, "5")]), at(61));
        assert_eq!(
            changes,
            [Change { number: 7, from: State::Closed, to: State::Open }],
            "reopened; merged is told once"
        );
    }

    #[test]
    fn where_nothing_happens_rounds_grow_apart() {
        let mut watch = Watch::default();
        watch.begin(place("a"), 1, State::Open, at(0));
        let mut gaps = Vec::new();
        let mut before = at(0);
        for _ in 0..12 {
            let now = watch.next().unwrap();
            gaps.push(now.since(before).as_secs());
            before = now;
            watch.take(now).unwrap();
            watch.answered(&place("a"), Listed::Unchanged, now);
        }
        assert_eq!(gaps[..4], [0, 90, 135, 202]);
        assert!(gaps.is_sorted() && *gaps.last().unwrap() == LATE.as_secs(), "{gaps:?}");
        watch.begin(place("a"), 2, State::Open, before);
        assert!(watch.next().unwrap() <= before + SOON, "a new one is looked for soon");
    }

    #[test]
    fn failures_back_off_and_a_limit_holds_for_the_whole_host() {
        let mut watch = Watch::default();
        watch.begin(place("a"), 1, State::Open, at(0));
        watch.begin(place("b"), 2, State::Open, at(0));
        let mut elsewhere = place("c");
        elsewhere.0 = "git.example.org".to_owned();
        watch.begin(elsewhere.clone(), 3, State::Open, at(0));
        let error = |reason, wait| Error { reason, status: None, said: String::new(), wait, link: None };
        let first: Vec<Place> = std::iter::from_fn(|| watch.take(at(0))).map(|look| look.place).collect();
        assert_eq!(first, [elsewhere.clone(), place("a")], "one at a time of a host");
        watch.failed(&place("a"), &error(Reason::ServerFailed, None), at(0));
        assert_eq!(watch.next(), Some(at(1)));
        assert_eq!(watch.take(at(1)).unwrap().place, place("b"));
        watch.failed(&place("b"), &error(Reason::RateLimited, Some(Wait::For(Duration::from_secs(600)))), at(1));
        assert_eq!(watch.next(), Some(at(601)), "the token's limit holds for both");
        watch.answered(&elsewhere, Listed::Unchanged, at(1));
        assert_eq!(watch.next(), Some(at(91)), "another host is not meant");
        let mut due = Vec::new();
        for _ in 0..8 {
            watch.failed(&place("a"), &error(Reason::Unreachable, None), at(1000));
            due.push(watch.places[&place("a")].due.since(at(1000)).as_secs());
        }
        assert_eq!(due, [240, 480, 960, 1920, 3600, 3600, 3600, 3600]);
    }

    #[test]
    fn what_is_over_is_watched_no_more() {
        let mut watch = Watch::default();
        watch.begin(place("a"), 1, State::Open, at(0));
        watch.begin(place("a"), 2, State::Closed, at(0));
        watch.end(&place("a"), 2);
        watch.take(at(0)).unwrap();
        let changes = watch.answered(&place("a"), listed(&[pull(1, State::Merged, "1")]), at(0));
        assert_eq!((changes.len(), watch.next()), (1, None));
        assert!(watch.answered(&place("a"), Listed::Unchanged, at(1)).is_empty(), "a late answer is nobody's");
    }
}
