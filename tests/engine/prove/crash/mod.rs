//! The app is killed with -9 again and again while it leads real sandboxes through a scripted life, and is started anew
//! each time. Nothing it had accepted is lost or doubled, the raw log is what the agent printed, byte for byte, and in
//! the end nothing is left. In some lives a keeper is killed too, while the app lives or while it is dead.
//!
//! The app is this test program, told to be it: [`app`]. What it has asked for and what was answered it writes to a
//! journal beside its data folder. What a killed process wrote is the kernel's: the journal needs no fsync.

mod app;
mod folder;

use std::{
    collections::BTreeMap,
    io::Read,
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use courier_keeper::protocol::KeeperRecord;
use courier_test_support::repositories::Repository;

use self::folder::Folder;
use super::{Dice, figure, in_parallel, seed, size};

/// How many kills the long proof takes.
const KILLS: u64 = 1000;
/// How often the app is killed in one life at most; then it may live to the script's end.
const KILLS_A_LIFE: u64 = 9;
/// How many steps of its script an app takes at most before it is killed.
const STEPS: u64 = 14;
/// How long a script may take that nobody interrupts.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn an_app_killed_at_any_moment_loses_and_doubles_nothing_in_short() {
    prove(0x5EED_0004, 12);
}

#[test]
#[ignore = "long: cargo xtask prove crash"]
fn an_app_killed_at_any_moment_loses_and_doubles_nothing() {
    let (seed, kills) = (seed("crash"), size(KILLS));
    let seen = prove(seed, kills);
    figure("crash/points", seen.kills, "points");
    figure("crash/lives", seen.lives, "lives");
    figure("crash/keepers killed", seen.keepers, "keepers");
    figure("crash/turns", seen.turns, "turns");
    figure("crash/log", seen.bytes, "bytes");
    for (step, kills) in seen.during {
        figure(&format!("crash/points/{step}"), kills, "points");
    }
}

/// Whom else it hits in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    AppAlone,
    /// The keeper, while the app lives.
    Keeper,
    /// The keeper, while the app is dead.
    KeeperOfTheDead,
}

#[derive(Debug, Default)]
struct Seen {
    kills: u64,
    lives: u64,
    keepers: u64,
    turns: u64,
    bytes: u64,
    /// By what the journal said last.
    during: BTreeMap<String, u64>,
}

fn prove(seed: u64, kills: u64) -> Seen {
    let repository = Repository::ordinary().unwrap();
    let seen = Mutex::new(Seen::default());
    // Undisturbed, to know how long a life takes and how much is committed in it.
    let calm = Life::new(&repository, seed, u64::MAX).lead(&seen, None);
    in_parallel(|number| {
        Life::new(&repository, seed, number).lead(&seen, Some((calm, kills)));
        seen.lock().unwrap().kills < kills
    });
    seen.into_inner().unwrap()
}

/// How long a life takes, and how many changes it announces.
#[derive(Clone, Copy, Debug)]
struct Measure {
    time: Duration,
    changes: u64,
}

struct Life<'r> {
    dice: Dice,
    folder: Folder,
    repository: &'r Repository,
    victim: Victim,
    name: String,
}

impl<'r> Life<'r> {
    fn new(repository: &'r Repository, seed: u64, number: u64) -> Self {
        let mut dice = Dice::of(seed, number);
        let victim = match dice.below(6) {
            _ if number == u64::MAX => Victim::AppAlone,
            0 => Victim::Keeper,
            1 => Victim::KeeperOfTheDead,
            _ => Victim::AppAlone,
        };
        let plan = app::Plan { is_claude: dice.one_in(2), stops_in_mid_turn: number != u64::MAX && dice.one_in(3) };
        let name = format!("COURIER_SEED={seed} COURIER_CASE={number}, {plan:?}, {victim:?}");
        Self { dice, folder: Folder::new(plan, victim != Victim::AppAlone, name.clone()), repository, victim, name }
    }

    /// Starts the app until its script is done; kills it in between.
    fn lead(mut self, seen: &Mutex<Seen>, disturbed: Option<(Measure, u64)>) -> Measure {
        let began = Instant::now();
        let planned = if disturbed.is_some() { 1 + self.dice.below(KILLS_A_LIFE) } else { 0 };
        let (mut kills, mut changes) = (0, 0);
        loop {
            let mut app = self.start();
            let heard = listen(&mut app);
            let is_killed = match disturbed {
                Some((calm, wanted)) if kills < planned && seen.lock().unwrap().kills < wanted => {
                    self.disturb(&heard, calm, planned, seen)
                }
                _ => {
                    let is_stuck = until_silent(&heard).map(|more| changes += more).is_none();
                    if is_stuck {
                        _ = app.kill();
                        panic!("{}: it does not come to its end\n{}", self.name, self.folder.last_words());
                    }
                    false
                }
            };
            if is_killed {
                // It may have ended by itself a moment ago.
                _ = app.kill();
            }
            let status = app.wait().unwrap();
            assert!(is_killed || status.success(), "{}\n{}", self.name, self.folder.last_words());
            if status.success() {
                break;
            }
            kills += 1;
            let is_keeper_next = self.victim == Victim::KeeperOfTheDead && self.dice.one_in(2);
            let keepers = u64::from(is_keeper_next && self.kill_keeper());
            let mut seen = seen.lock().unwrap();
            seen.kills += 1;
            seen.keepers += keepers;
            *seen.during.entry(self.folder.last_step()).or_default() += 1;
            drop(seen);
            self.folder.judge();
        }
        let (turns, bytes) = self.folder.judge_the_end();
        let mut seen = seen.lock().unwrap();
        seen.lives += 1;
        seen.turns += turns;
        seen.bytes += bytes;
        Measure { time: began.elapsed(), changes }
    }

    #[expect(clippy::disallowed_methods, reason = "the app under test is a process of its own")]
    fn start(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", app::NAME, "--nocapture", "--test-threads=1"]);
        command.env(app::HOME, self.folder.path()).env(app::SOURCE, self.repository.source());
        command.env(app::PLAN, self.folder.plan.code()).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(self.folder.words()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Waits for the moment to kill the app at: some time after its start, some changes and a little more, or some steps
    /// of its script and a little more. False where it ended before.
    fn disturb(&mut self, heard: &Receiver<Heard>, calm: Measure, planned: u64, seen: &Mutex<Seen>) -> bool {
        let share = 2 * u64::try_from(calm.time.as_micros()).expect("it is short") / (planned + 1);
        let (mut after, mut wanted) = (PATIENCE, Heard { changes: u64::MAX, steps: u64::MAX });
        match self.dice.below(3) {
            0 => after = Duration::from_micros(self.dice.below(share)),
            1 => wanted.changes = 1 + self.dice.below(2 * calm.changes / (planned + 1)),
            _ => wanted.steps = 1 + self.dice.below(STEPS),
        }
        let little = Duration::from_micros(self.dice.below(12_000));
        let mut keeper_at = (self.victim == Victim::Keeper && self.dice.one_in(2))
            .then(|| Instant::now() + Duration::from_micros(self.dice.below(share)));
        let deadline = Instant::now() + after;
        let mut count = Heard::default();
        loop {
            let until = keeper_at.map_or(deadline, |at| at.min(deadline));
            match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => count.add(more),
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if keeper_at.is_some_and(|at| at <= Instant::now()) {
                keeper_at = None;
                let keepers = u64::from(self.kill_keeper());
                seen.lock().unwrap().keepers += keepers;
            }
            if count.changes >= wanted.changes || count.steps >= wanted.steps {
                // What that leads to is under way.
                std::thread::sleep(little);
                return true;
            }
            if Instant::now() >= deadline {
                return true;
            }
        }
    }

    /// Kills the keeper that lives, if one does.
    fn kill_keeper(&self) -> bool {
        self.folder.sandboxes().iter().any(|directory| {
            let record = std::fs::read(directory.join(courier_keeper::spool::RECORD)).ok();
            let record = record.and_then(|bytes| serde_json::from_slice::<KeeperRecord>(&bytes).ok());
            record.is_some_and(|record| record.keeper.is_alive() && record.keeper.signal(libc::SIGKILL).unwrap())
        })
    }
}

/// What the app announces: a byte for each change, another for each line of its journal.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    changes: u64,
    steps: u64,
}

impl Heard {
    fn of(bytes: &[u8]) -> Self {
        let count = |wanted| bytes.iter().filter(|byte| **byte == wanted).count() as u64;
        Self { changes: count(app::CHANGE), steps: count(app::STEP) }
    }

    fn add(&mut self, more: Self) {
        self.changes += more.changes;
        self.steps += more.steps;
    }
}

/// Hears what the app announces, until its standard error ends.
fn listen(app: &mut Child) -> Receiver<Heard> {
    let (sender, heard) = channel();
    let mut pipe = app.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            if sender.send(Heard::of(&bytes[..count])).is_err() {
                return;
            }
        }
    });
    heard
}

/// Hears it to its end, and says how many changes there were; `None` where it takes too long.
fn until_silent(heard: &Receiver<Heard>) -> Option<u64> {
    let deadline = Instant::now() + PATIENCE;
    let mut count = Heard::default();
    loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(more) => count.add(more),
            Err(RecvTimeoutError::Disconnected) => return Some(count.changes),
            Err(RecvTimeoutError::Timeout) => return None,
        }
    }
}
