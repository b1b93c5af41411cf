//! All the processes of a machine, stopped and continued: from outside, by their namespace.

use std::{collections::BTreeSet, fs, io, path::PathBuf, time::Duration};

use super::pidfd::PidFd;

/// How long it may take to stop all of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The namespace of a machine's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    /// Its first process, which every other descends from, by the number we see.
    first: u32,
    link: PathBuf,
}

/// A process that was stopped before the machine was: it stays so. Its number and its start.
type Stopped = (u32, u64);

/// One process, as the kernel tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) pid: u32,
    state: char,
    started: u64,
    /// Clock ticks that it has had a processor, itself and the children it has waited for.
    pub(super) ticks: u64,
    /// Pages in memory.
    pub(super) pages: u64,
}

impl Namespace {
    /// The namespace this process is the first of.
    pub(super) fn of(first: u32) -> io::Result<Self> {
        Ok(Namespace { first, link: namespace(first)? })
    }

    fn has(&self, pid: u32) -> bool {
        namespace(pid).is_ok_and(|found| found == self.link)
    }

    /// Every process in it that has not ended. Who loses its parent while we look may be overlooked.
    pub(super) fn members(&self) -> Vec<Member> {
        let (mut found, mut next) = (Vec::new(), vec![self.first]);
        while let Some(pid) = next.pop() {
            next.extend(children(pid));
            if self.has(pid) {
                found.extend(member(pid));
            }
        }
        found
    }

    /// Stops every process, those too that are born meanwhile. Says which were stopped before.
    pub(super) async fn stop(&self) -> io::Result<BTreeSet<Stopped>> {
        let before: BTreeSet<_> =
            self.members().iter().filter(|one| one.is_stopped()).map(|one| (one.pid, one.started)).collect();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut is_sure = false;
        loop {
            let moving: Vec<_> = self.members().into_iter().filter(|member| !member.is_stopped()).collect();
            // Whom the first look overlooked has a parent that stays by the second.
            if moving.is_empty() && is_sure {
                return Ok(before);
            }
            is_sure = moving.is_empty();
            for member in &moving {
                self.signal(member.pid, libc::SIGSTOP);
            }
            if tokio::time::Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "not every process could be stopped"));
            }
            // A signal is taken when the process next leaves the kernel.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets all go on but those that were stopped before.
    pub(super) fn go_on(&self, but: &BTreeSet<Stopped>) {
        for member in self.members() {
            if !but.contains(&(member.pid, member.started)) {
                self.signal(member.pid, libc::SIGCONT);
            }
        }
    }

    fn signal(&self, pid: u32, signal: i32) {
        // The number may have become a stranger's: it is asked again once the handle holds it.
        if let Ok(process) = PidFd::open(pid)
            && self.has(pid)
        {
            process.signal(signal);
        }
    }
}

impl Member {
    fn is_stopped(&self) -> bool {
        // One that waits in the kernel for a child to become another program cannot move, and shows it otherwise.
        matches!(self.state, 'T' | 't' | 'Z' | 'X') || self.state == 'D' && is_about_to_stop(self.pid)
    }
}

fn namespace(pid: u32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid"))
}

fn member(pid: u32) -> Option<Member> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    Some(Member {
        pid,
        state: fields.first()?.chars().next()?,
        started: number(19)?,
        ticks: (11..15).filter_map(number).sum(),
        pages: number(21)?,
    })
}

fn is_about_to_stop(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending =
        |name: &str| status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok());
    let bit = 1 << (libc::SIGSTOP - 1);
    ["ShdPnd:", "SigPnd:"].into_iter().filter_map(pending).any(|signals| signals & bit != 0)
}

/// The children of a process, those of each of its threads.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The first process of the namespace that this one, bubblewrap, has made.
pub(super) fn only_child(pid: u32) -> io::Result<u32> {
    let child = children(pid).into_iter().next();
    child.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "bubblewrap has no child"))
}
