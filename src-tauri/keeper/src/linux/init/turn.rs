//! One turn as init sees it.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{super::control::Program, processes, signal};
use crate::{
    keep::Leader,
    protocol::TURN_VARIABLE,
    sys,
    tree::{Known, Process},
};

/// How long the end of a turn may wait for what cannot be killed at once (it waits for a disk that does not answer).
const SAID_AFTER: Duration = Duration::from_secs(5);

/// A turn, from its start to the end of the sandbox.
pub(in crate::platform) struct Turn {
    pub id: String,
    /// The process that was started; its number is also its session's.
    pub leader: i32,
    /// When that was, as the kernel counts.
    pub start: u64,
    pub has_exited: bool,
    pub stage: Stage,
    /// How its leader ended, while that is not said yet.
    unsaid: Option<Leader>,
}

/// How far the ending of a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::platform) enum Stage {
    /// Nobody ended it.
    Running,
    /// It was asked; at this moment it is killed.
    Asked { kill_at: Instant },
    /// Whatever of it is found at this moment is killed, until nothing is.
    Killing { look: Instant, since: Instant },
    /// Nothing of it was left.
    Over,
}

impl Stage {
    fn killing(now: Instant) -> Self {
        Self::Killing { look: now, since: now }
    }
}

impl Turn {
    /// Starts its leader.
    pub(in crate::platform) fn start(
        id: String,
        program: Program,
        stdin: OwnedFd,
        out: OwnedFd,
        err: OwnedFd,
    ) -> io::Result<Self> {
        let [name, arguments @ ..] = program.argv.as_slice() else {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        };
        #[expect(clippy::disallowed_methods, reason = "init's only start of a program; the engine's rule is not ours")]
        let mut command = Command::new(name);
        command.args(arguments).env_clear().envs(program.env).env(TURN_VARIABLE, &id).current_dir(program.directory);
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(out)).stderr(Stdio::from(err));
        let (limits, user) = (program.limits, program.user);
        // SAFETY: only async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                sys::unblock_all();
                limits.apply()?;
                user.map_or(Ok(()), become_user)?;
                if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        // Not waited for here: init reaps everybody.
        let leader = i32::try_from(command.spawn()?.id()).expect("a pid fits its own type");
        let start = processes::start_of(leader).unwrap_or(0);
        Ok(Self { id, leader, start, has_exited: false, stage: Stage::Running, unsaid: None })
    }

    /// Asks it to end; without a grace, or where its leader is gone, it is killed.
    pub(in crate::platform) fn end(&mut self, grace: Duration, table: &[Process]) {
        let now = Instant::now();
        if grace.is_zero() || self.has_exited {
            self.stage = Stage::killing(now);
            return;
        }
        let kill_at = now + grace;
        match self.stage {
            Stage::Running | Stage::Over => self.stage = Stage::Asked { kill_at },
            // Asked again: the earlier end counts, and it is told once.
            Stage::Asked { kill_at: before } => {
                self.stage = Stage::Asked { kill_at: before.min(kill_at) };
                return;
            }
            Stage::Killing { .. } => return,
        }
        let session = table.iter().filter(|process| process.session == self.leader);
        session.for_each(|process| signal(process.pid, libc::SIGTERM));
    }

    /// Its leader has ended. If it was asked to, or died of a signal and could leave nothing on purpose, what it left behind
    /// goes at once.
    pub(in crate::platform) fn exited(&mut self, leader: Leader) {
        self.has_exited = true;
        self.unsaid = Some(leader);
        match (self.stage, leader) {
            (Stage::Asked { .. }, _) | (Stage::Running, Leader::Signal(_)) => {
                self.stage = Stage::killing(Instant::now());
            }
            _ => {}
        }
    }

    /// How its leader ended, once, when it may be known. That of a turn that is being ended waits until nothing of it is
    /// left: with the answer the next turn may begin, and what forks on until then would pass for that one's.
    pub(in crate::platform) fn take_exit(&mut self) -> Option<Leader> {
        match self.stage {
            Stage::Killing { since, .. } if since.elapsed() < SAID_AFTER => None,
            _ => self.unsaid.take(),
        }
    }

    /// When something has to be done about it.
    pub(in crate::platform) fn next_look(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running | Stage::Over => None,
            Stage::Asked { kill_at: at } | Stage::Killing { look: at, .. } => Some(at),
        }
    }

    /// What tells its processes from others'.
    pub(super) fn known(&self) -> Known {
        Known { id: self.id.clone(), leader: self.leader, start: self.start }
    }
}

/// Gives up everything that is not this user's; for a child, between fork and exec.
fn become_user((user, group): (u32, u32)) -> io::Result<()> {
    // SAFETY: async-signal-safe system calls; the list of groups is empty.
    let is_done =
        unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(group) == 0 && libc::setuid(user) == 0 };
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
