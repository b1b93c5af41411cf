//! One machine: what it is, how it stands, and what can be done to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Mutex,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{bubblewrap::Process, clock, options::Options};
use crate::serving::held;

/// How a machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its processes run.
    Running,
    /// On its way to be paused.
    Pausing,
    /// Every process within is stopped.
    Paused,
}

impl State {
    /// As the service has it: it knows two.
    fn name(self) -> &'static str {
        match self {
            State::Running | State::Pausing => "running",
            State::Paused => "paused",
        }
    }
}

/// A living machine, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As the service names it.
    pub id: String,
    /// How it stands.
    pub state: State,
    /// The name of its template.
    pub template: String,
    /// What it was made with.
    pub metadata: BTreeMap<String, String>,
    /// Whether it is paused, not killed, when its time is over.
    pub auto_pause: bool,
    /// Its files: `home`, `root`, `tmp`, `var`, `opt`, `srv`, `run`, `usr-local`.
    pub folder: PathBuf,
}

/// What a machine was asked to be.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) template: String,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) auto_pause: bool,
    /// Whether mere traffic wakes it.
    pub(super) auto_resume: bool,
    pub(super) envs: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Vm {
    pub(super) id: String,
    pub(super) wish: Wish,
    pub(super) token: String,
    pub(super) folder: PathBuf,
    pub(super) process: Process,
    pub(super) standing: Mutex<Standing>,
    /// Held by who changes how it stands: one at a time.
    pub(super) transition: tokio::sync::Mutex<()>,
    /// Its time has changed, or it is gone.
    pub(super) rescheduled: Notify,
    /// When it was last measured: then, and with so many ticks.
    pub(super) measured: Mutex<(Instant, u64)>,
}

/// How it stands, in Unix milliseconds.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) state: State,
    pub(super) is_gone: bool,
    pub(super) started: u64,
    pub(super) ends: u64,
    /// Cancelled when the open connections are to be cut.
    open: CancellationToken,
    /// What was stopped before the machine was.
    stopped: BTreeSet<(u32, u64)>,
}

/// Why a machine cannot be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPaused {
    Already,
    Gone,
    /// Its processes would not stop: it runs.
    Failed,
}

impl Standing {
    pub(super) fn new(timeout: Duration) -> Self {
        let now = clock::now();
        Standing {
            state: State::Running,
            is_gone: false,
            started: now,
            ends: now.saturating_add(milliseconds(timeout)),
            open: CancellationToken::new(),
            stopped: BTreeSet::new(),
        }
    }

    fn cut(&mut self) {
        std::mem::take(&mut self.open).cancel();
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Vm {
    pub(super) fn state(&self) -> State {
        held(&self.standing).state
    }

    pub(super) fn is_gone(&self) -> bool {
        held(&self.standing).is_gone
    }

    /// Cancelled when the connections that are open now are to be cut.
    pub(super) fn open(&self) -> CancellationToken {
        held(&self.standing).open.clone()
    }

    /// When its time is over, while it runs.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let standing = held(&self.standing);
        let left = Duration::from_millis(standing.ends.saturating_sub(clock::now()));
        (standing.state == State::Running).then(|| Instant::now().checked_add(left)).flatten()
    }

    pub(super) fn is_over(&self) -> bool {
        let standing = held(&self.standing);
        standing.state == State::Running && standing.ends <= clock::now()
    }

    /// Moves the end. Beyond the plan's maximum it stays at that.
    pub(super) fn set_timeout(&self, timeout: Duration, maximum: Option<Duration>, only_later: bool) {
        let mut standing = held(&self.standing);
        let mut ends = clock::now().saturating_add(milliseconds(timeout));
        if let Some(maximum) = maximum {
            ends = ends.min(standing.started.saturating_add(milliseconds(maximum)));
        }
        standing.ends = if only_later { ends.max(standing.ends) } else { ends };
        drop(standing);
        self.rescheduled.notify_one();
    }

    /// Stops everything within and cuts every connection. The caller holds the transition.
    pub(super) async fn pause(&self) -> Result<(), NotPaused> {
        {
            let mut standing = held(&self.standing);
            match standing.state {
                _ if standing.is_gone => return Err(NotPaused::Gone),
                State::Running => {}
                State::Pausing | State::Paused => return Err(NotPaused::Already),
            }
            standing.state = State::Pausing;
            standing.cut();
        }
        let stopped = self.process.namespace.stop().await;
        let mut standing = held(&self.standing);
        let done = match stopped {
            Ok(stopped) => {
                (standing.state, standing.stopped, standing.ends) = (State::Paused, stopped, clock::now());
                Ok(())
            }
            Err(_) => {
                self.process.namespace.go_on(&BTreeSet::new());
                standing.state = State::Running;
                Err(NotPaused::Failed)
            }
        };
        drop(standing);
        self.rescheduled.notify_one();
        done
    }

    /// Lets everything within go on. The caller holds the transition.
    pub(super) fn resume(&self, timeout: Duration) {
        let mut standing = held(&self.standing);
        let now = clock::now();
        self.process.namespace.go_on(&std::mem::take(&mut standing.stopped));
        (standing.state, standing.started) = (State::Running, now);
        standing.ends = now.saturating_add(milliseconds(timeout));
        drop(standing);
        self.rescheduled.notify_one();
    }

    /// Kills everything within and cuts every connection.
    pub(super) fn kill(&self) {
        {
            let mut standing = held(&self.standing);
            standing.is_gone = true;
            standing.cut();
        }
        self.process.kill();
        self.rescheduled.notify_one();
    }

    pub(super) fn told(&self) -> Machine {
        Machine {
            id: self.id.clone(),
            state: self.state(),
            template: self.wish.template.clone(),
            metadata: self.wish.metadata.clone(),
            auto_pause: self.wish.auto_pause,
            folder: self.folder.clone(),
        }
    }

    /// As who makes it or connects to it is told.
    pub(super) fn sandbox(&self) -> Value {
        json!({
            "templateID": template_id(&self.wish.template),
            "sandboxID": self.id,
            "alias": self.wish.template,
            "clientID": CLIENT,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.token,
            "trafficAccessToken": null,
            "domain": null,
        })
    }

    /// As the list has it.
    pub(super) fn listed(&self, options: &Options) -> Value {
        let standing = held(&self.standing);
        let time = |time| clock::text(clock::skewed(time, options.clock_skew, options.is_clock_behind));
        json!({
            "templateID": template_id(&self.wish.template),
            "alias": self.wish.template,
            "sandboxID": self.id,
            "clientID": CLIENT,
            "startedAt": time(standing.started),
            "endAt": time(standing.ends),
            "cpuCount": options.cpu_count,
            "memoryMB": options.memory_megabytes,
            "diskSizeMB": options.disk_megabytes,
            "metadata": self.wish.metadata,
            "state": standing.state.name(),
            "envdVersion": ENVD_VERSION,
            "volumeMounts": [],
        })
    }

    /// As who asks for it alone is told.
    pub(super) fn detail(&self, options: &Options) -> Value {
        let mut value = self.listed(options);
        value["envdAccessToken"] = json!(self.token);
        value["allowInternetAccess"] = Value::Null;
        value["domain"] = Value::Null;
        let on_timeout = if self.wish.auto_pause { "pause" } else { "kill" };
        value["lifecycle"] = json!({ "autoResume": self.wish.auto_resume, "onTimeout": on_timeout });
        if value["state"] == "paused" {
            value["pauseMode"] = json!("full");
        }
        value
    }
}

/// Which node it is on: there is one.
const CLIENT: &str = "6532622b";
/// What the official clients look at to know what the daemon can do.
const ENVD_VERSION: &str = "0.6.13";

/// A template's id, beside its name: twenty letters, always the same.
pub(super) fn template_id(name: &str) -> String {
    uuid::Uuid::from_u64_pair(fnv(name, 0xcbf2_9ce4_8422_2325), fnv(name, 0x84222325)).simple().to_string()[..20]
        .to_owned()
}

fn fnv(text: &str, basis: u64) -> u64 {
    text.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
