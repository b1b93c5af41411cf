//! Pid 1 of a sandbox: the only one inside who hears the keeper.
//!
//! It starts turns, each in a session of its own, reaps whatever ends, and stops, continues and kills. It does so from
//! inside since only there one call reaches every process at once: from outside, by the time a list of processes is
//! read, it is wrong. One thread, which waits for three things: an order, the end of a child, the end of a grace.
//!
//! It is not dumpable, so that the agent, which has the same user, can neither read its memory nor open its
//! descriptors. When the keeper goes, it goes, and the kernel takes everything inside with it.

pub(super) mod processes;
pub(super) mod turn;

use std::{
    fs::File,
    io::{self, Read},
    net::TcpListener,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use self::turn::{Stage, Turn};
use super::{
    control::{MESSAGE_LIMIT, Order, Program, Word},
    passing,
};
use crate::{
    keep::Leader,
    sys,
    tree::{self, Unsigned},
};

/// How long what was killed may take to be gone before it is looked for again.
pub(super) const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Serves until the keeper is gone. `control`: the descriptor of the socket, inherited through bubblewrap.
pub(crate) fn run(control: RawFd) -> io::Result<()> {
    // SAFETY: a call without pointers. From here on nobody inside can look into this process.
    if unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the keeper passed this number, and nothing else here owns it. `F_DUPFD_CLOEXEC` makes a new one.
    let control = unsafe { OwnedFd::from_raw_fd(libc::fcntl(control, libc::F_DUPFD_CLOEXEC, 3)) };
    keep_only(control.as_raw_fd());
    sys::block(&[libc::SIGCHLD])?;
    Init { control, children: child_signals()?, turns: Vec::new(), is_suspended: false }.serve()
}

struct Init {
    control: OwnedFd,
    /// Readable when a child has ended.
    children: File,
    /// Every turn since the sandbox began: what one left in the background is still its own.
    turns: Vec<Turn>,
    /// Everything is stopped, and stays so.
    is_suspended: bool,
}

impl Init {
    fn serve(mut self) -> io::Result<()> {
        self.say(&Word::Ready, &[])?;
        let mut room = vec![0; MESSAGE_LIMIT];
        loop {
            let mut entries = [
                sys::interest(self.control.as_raw_fd(), libc::POLLIN),
                sys::interest(self.children.as_raw_fd(), libc::POLLIN),
            ];
            let wait = self.turns.iter().filter_map(Turn::next_look).min();
            sys::poll(&mut entries, wait.map(|at| at.saturating_duration_since(Instant::now())))?;
            if entries[1].revents != 0 {
                self.reap();
            }
            self.sweep();
            self.report()?;
            if entries[0].revents != 0 {
                match passing::receive(self.control.as_fd(), &mut room)? {
                    Some((length, with)) => self.obey(serde_json::from_slice(&room[..length])?, with)?,
                    None => return Ok(()),
                }
            }
        }
    }

    fn obey(&mut self, order: Order, with: Vec<OwnedFd>) -> io::Result<()> {
        let done = match order {
            Order::Listen { ports } => {
                let listen = |port| TcpListener::bind(("127.0.0.1", port));
                match ports.into_iter().map(listen).collect::<io::Result<Vec<_>>>() {
                    Ok(sockets) => {
                        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                        return self.say(&Word::Done, &sockets);
                    }
                    Err(error) => Err(error),
                }
            }
            Order::Start { turn } => self.start(turn, with),
            Order::End { turn, grace_ms } => {
                self.end(&turn, Duration::from_millis(grace_ms));
                return Ok(());
            }
            Order::Suspend => signal_all(libc::SIGSTOP).inspect(|()| self.is_suspended = true),
            Order::Continue => signal_all(libc::SIGCONT).inspect(|()| self.is_suspended = false),
            Order::KillAll => self.kill_all(),
        };
        match done {
            Ok(()) => self.say(&Word::Done, &[]),
            Err(error) => self.say(&Word::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }, &[]),
        }
    }

    fn start(&mut self, id: String, with: Vec<OwnedFd>) -> io::Result<()> {
        let Ok([program, stdin, out, err]) = <[OwnedFd; 4]>::try_from(with) else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        let mut text = Vec::new();
        File::from(program).read_to_end(&mut text)?;
        let program: Program = serde_json::from_slice(&text)?;
        // Until it has become the program, the child is one of the agent's: whoever is left of earlier turns could stop it,
        // and us with it, since we wait for that.
        _ = signal_all(libc::SIGSTOP);
        let started = Turn::start(id, program, stdin, out, err);
        if !self.is_suspended {
            _ = signal_all(libc::SIGCONT);
        }
        self.turns.push(started?);
        Ok(())
    }

    fn end(&mut self, id: &str, grace: Duration) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == id) {
            turn.end(grace, &processes::table());
        }
    }

    /// Looks after the turns that are being ended. For the moment it takes everybody inside is stopped: what forks and
    /// leaves again faster than a table is read would be in none, and live on.
    fn sweep(&mut self) {
        let now = Instant::now();
        if !self.turns.iter().any(|turn| turn.next_look().is_some_and(|at| at <= now)) {
            return;
        }
        // Stopping and continuing whoever there is cannot fail; and if it could, looking is better than not looking.
        if !self.is_suspended {
            _ = signal_all(libc::SIGSTOP);
        }
        let table = processes::table();
        let known: Vec<_> = self.turns.iter().map(Turn::known).collect();
        for (index, turn) in self.turns.iter_mut().enumerate() {
            if turn.next_look().is_none_or(|at| at > now) {
                continue;
            }
            let members = tree::members(&table, &known, index, Unsigned::Newest);
            members.iter().for_each(|&pid| signal(pid, libc::SIGKILL));
            turn.stage = match turn.stage {
                _ if members.is_empty() => Stage::Over,
                Stage::Killing { since, .. } => Stage::Killing { look: now + SWEEP_PAUSE, since },
                _ => Stage::Killing { look: now + SWEEP_PAUSE, since: now },
            };
        }
        if !self.is_suspended {
            _ = signal_all(libc::SIGCONT);
        }
    }

    /// Takes in every child that has ended.
    fn reap(&mut self) {
        let mut information = [0; 128];
        while self.children.read(&mut information).is_ok() {}
        while let Some((pid, leader)) = reap_one(libc::WNOHANG) {
            let Some(turn) = self.turns.iter_mut().find(|turn| turn.leader == pid && !turn.has_exited) else {
                continue;
            };
            turn.exited(leader);
        }
    }

    /// Says which turns have ended.
    fn report(&mut self) -> io::Result<()> {
        let ended: Vec<_> =
            self.turns.iter_mut().filter_map(|turn| turn.take_exit().map(|leader| (turn.id.clone(), leader))).collect();
        ended.into_iter().try_for_each(|(turn, leader)| self.say(&Word::Exited { turn, leader }, &[]))
    }

    fn kill_all(&mut self) -> io::Result<()> {
        loop {
            match signal_all(libc::SIGKILL) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                other => other?,
            }
            // Orphans become our children: when there is no child left, nobody is left.
            let mut entries = [sys::interest(self.children.as_raw_fd(), libc::POLLIN)];
            sys::poll(&mut entries, Some(SWEEP_PAUSE))?;
            self.reap();
        }
        self.reap();
        self.turns.iter_mut().for_each(|turn| turn.stage = Stage::Over);
        self.report()
    }

    fn say(&self, word: &Word, with: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
        passing::send(self.control.as_fd(), &serde_json::to_vec(word)?, with)
    }
}

/// One signal to every process inside but this one, in one call that no fork slips through.
fn signal_all(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a system call without pointers. Pid 1 is exempt, and the pid namespace is the limit.
    if unsafe { libc::kill(-1, signal) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Nobody there is what a suspended or resumed empty sandbox is; killing wants to know.
    if error.raw_os_error() == Some(libc::ESRCH) && signal != libc::SIGKILL { Ok(()) } else { Err(error) }
}

/// A signal to one process inside. Gone is fine: that is what was wanted.
pub(super) fn signal(pid: i32, signal: libc::c_int) {
    // SAFETY: a system call without pointers. No number can be reused while we, its last parent, have not reaped it;
    // for others the moment between table and signal is as short as it can be made.
    unsafe { libc::kill(pid, signal) };
}

pub(super) fn reap_one(options: libc::c_int) -> Option<(i32, Leader)> {
    let mut status = 0;
    // SAFETY: the pointer is to an int.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
    let leader = if libc::WIFSIGNALED(status) {
        Leader::Signal(libc::WTERMSIG(status))
    } else {
        Leader::Code(libc::WEXITSTATUS(status))
    };
    (pid > 0).then_some((pid, leader))
}

fn child_signals() -> io::Result<File> {
    // SAFETY: the set is initialised before it is used, and the descriptor returned is new.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

/// Closes every inherited descriptor but standard input, output, error and this one.
fn keep_only(descriptor: RawFd) {
    let number = u32::try_from(descriptor).expect("an open descriptor");
    // SAFETY: system calls without pointers; nothing else was opened here yet.
    unsafe {
        if number > 3 {
            libc::syscall(libc::SYS_close_range, 3, number - 1, 0);
        }
    }
    sys::close_from(descriptor + 1);
}
