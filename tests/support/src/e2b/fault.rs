//! What can go wrong with a request, and when.

use std::{sync::Mutex, time::Duration};

use axum::http::Method;

use crate::serving::held;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A sandbox is made.
    Create,
    /// One sandbox is asked for.
    Get,
    /// One page of the list.
    List,
    /// A sandbox is killed.
    Delete,
    /// A sandbox is paused.
    Pause,
    /// Connected to, or resumed.
    Connect,
    /// A sandbox's end is moved.
    SetTimeout,
    /// What a sandbox uses is asked for.
    Metrics,
    /// The health of a machine's daemon.
    Health,
    /// A process is started and followed.
    Start,
    /// A process is followed that was started before.
    ConnectProcess,
    /// The processes are listed.
    ListProcesses,
    /// Something is written to a process.
    SendInput,
    /// A process's input ends.
    CloseStdin,
    /// A process is signalled.
    Signal,
    /// A terminal's size is changed.
    Update,
    /// A file or folder is looked at.
    Stat,
    /// A folder is made.
    MakeDir,
    /// A file or folder is moved.
    Move,
    /// A folder is listed.
    ListDir,
    /// A file or folder is removed.
    Remove,
    /// A folder is watched.
    WatchDir,
    /// A file is read.
    FilesGet,
    /// Files are written.
    FilesPost,
    /// Anything else.
    Other,
}

impl Call {
    /// What is asked of a machine.
    pub(super) fn of_machine(method: &Method, path: &str) -> Call {
        match path.rsplit_once('/').unwrap_or_default() {
            ("", "health") => Call::Health,
            ("", "files") if method == Method::POST => Call::FilesPost,
            ("", "files") => Call::FilesGet,
            ("/process.Process", name) => match name {
                "List" => Call::ListProcesses,
                "Start" => Call::Start,
                "Connect" => Call::ConnectProcess,
                "SendInput" => Call::SendInput,
                "CloseStdin" => Call::CloseStdin,
                "SendSignal" => Call::Signal,
                "Update" => Call::Update,
                _ => Call::Other,
            },
            ("/filesystem.Filesystem", name) => match name {
                "Stat" => Call::Stat,
                "MakeDir" => Call::MakeDir,
                "Move" => Call::Move,
                "ListDir" => Call::ListDir,
                "Remove" => Call::Remove,
                "WatchDir" => Call::WatchDir,
                _ => Call::Other,
            },
            _ => Call::Other,
        }
    }

    /// Whether its answer comes in frames.
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Call::Start | Call::ConnectProcess | Call::WatchDir)
    }
}

/// Which of the requests of its kind a fault befalls, counted from when it was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// The first is 1.
    Nth(usize),
    /// All of them.
    Every,
}

/// What a pause that fails has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseFailure {
    /// Nothing.
    StillRunning,
    /// All of it.
    Paused,
    /// It has killed the machine.
    Lost,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It takes so long before anything is done.
    Latency(Duration),
    /// Nothing is done; 429, with when to ask again.
    RateLimited { seconds: u64 },
    /// Nothing is done; 429, as when the plan's limit is reached.
    Capacity,
    /// Nothing is done; this status, with JSON.
    Status(u16),
    /// Nothing is done; 503 with a page for people.
    Page,
    /// The connection is reset before anything is done.
    Reset,
    /// All is done, and then the connection is reset.
    AnswerLost,
    /// The connection is reset after so many bytes of the answer's body.
    ResetAfter(usize),
    /// After so many frames half of the next one comes, and the stream ends as if it were whole.
    TruncatedAfter(usize),
    /// After so many frames the stream ends as if it were whole, without its last frame.
    EndsAfter(usize),
    /// All comes but the last frame, which says that it was all.
    NoEndFrame,
    /// Nothing more comes after so many frames of a stream, or bytes of a file. Of other requests all is done and nothing
    /// is said. The connection stays open.
    StallAfter(usize),
    /// A pause that fails with 500.
    PauseFails(PauseFailure),
    /// The machine is killed without a word before the request reaches it.
    MachineLost,
}

/// What goes wrong with which request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of request it befalls.
    pub on: Call,
    /// Which of them.
    pub nth: Occurrence,
    /// What happens to it.
    pub what: What,
}

impl Fault {
    /// It befalls the next request of this kind.
    pub fn next(on: Call, what: What) -> Self {
        Fault::nth(on, 1, what)
    }

    /// It befalls the `nth` request of this kind from now on; the first is 1.
    pub fn nth(on: Call, nth: usize, what: What) -> Self {
        Fault { on, nth: Occurrence::Nth(nth), what }
    }

    /// It befalls every request of this kind.
    pub fn every(on: Call, what: What) -> Self {
        Fault { on, nth: Occurrence::Every, what }
    }
}

/// The faults in force, each with how many requests of its kind there have been.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<(Fault, usize)>>);

/// What befalls one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Misfortune {
    pub(super) latency: Duration,
    pub(super) what: Option<What>,
}

impl Faults {
    pub(super) fn add(&self, fault: Fault) {
        held(&self.0).push((fault, 0));
    }

    pub(super) fn clear(&self) {
        held(&self.0).clear();
    }

    /// What befalls this request. Delays add up; of the rest the fault injected first wins.
    pub(super) fn befall(&self, call: Call) -> Misfortune {
        let mut misfortune = Misfortune::default();
        for (fault, seen) in held(&self.0).iter_mut().filter(|(fault, _)| fault.on == call) {
            *seen += 1;
            if fault.nth != Occurrence::Every && fault.nth != Occurrence::Nth(*seen) {
                continue;
            }
            match &fault.what {
                What::Latency(latency) => misfortune.latency += *latency,
                what => _ = misfortune.what.get_or_insert_with(|| what.clone()),
            }
        }
        misfortune
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_are_counted_from_the_injection() {
        let faults = Faults::default();
        faults.befall(Call::Get);
        faults.add(Fault::nth(Call::Get, 2, What::Reset));
        faults.add(Fault::every(Call::Get, What::Latency(Duration::from_secs(1))));
        let what = |call| faults.befall(call).what;
        assert_eq!((what(Call::Get), what(Call::List)), (None, None));
        let second = faults.befall(Call::Get);
        assert_eq!((second.what, second.latency), (Some(What::Reset), Duration::from_secs(1)));
        assert_eq!(what(Call::Get), None);
    }
}
