//! Starts a turn, and stays with it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    os::fd::{AsRawFd, FromRawFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    super::{
        control::Program,
        init::{
            self, processes,
            turn::{Stage, Turn as Tree},
        },
        limits::PerProcess,
    },
    ASK, GROW, KILL, READ, RECORD, Record, asked, say,
};
use crate::{
    identity::Identity,
    keep::{
        self,
        turn::{Opening, Turn},
    },
    protocol::{Response, SPOOL_CAP, StartTurn},
    proxy::gateway::Gateway,
    spool, sys, tree,
};

/// What an interrupted agent has between TERM and KILL.
const GRACE: Duration = Duration::from_secs(5);
/// How long it may take to hear what to start, in seconds; a large prompt takes its time.
const ASKING: u32 = 120;
/// How often it is looked whether the output is over, once the leader is.
const DRAINING: Duration = Duration::from_millis(50);

/// Whom the agent runs as.
struct User {
    ids: Option<(u32, u32)>,
    name: String,
    home: String,
}

pub(super) fn start(folder: &Path, workspace: &str, user: &str) -> io::Result<()> {
    sys::close_from(3);
    // SAFETY: system calls without pointers. Orphans of the turn become our children, so that none is lost sight of.
    unsafe {
        libc::setsid();
        libc::umask(0o077);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        // Keys pass through this memory.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    sys::limit(libc::RLIMIT_CORE, sys::NO_CORE)?;
    let signals = signals()?;
    // Whoever is to say what to start may be cut off while it does.
    // SAFETY: a system call without pointers.
    unsafe { libc::alarm(ASKING) };
    let (turn, body) = asked()?;
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
    let user = User::of(user)?;
    spool::prepare(folder)?;
    if !spool::is_turn_id(&turn.turn) {
        return say(&super::refused(crate::protocol::Refusal::Malformed, "this cannot name a turn"));
    }
    if !spool::claim(folder, &turn.turn)? {
        return say(&Response::Started { fresh: false });
    }
    let guest = Guest::begin(folder, workspace, &user, turn, body, signals)?;
    // Whoever asked may be gone; the turn has begun all the same.
    _ = say(&Response::Started { fresh: true });
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: all are open.
    (0..3).for_each(|descriptor| _ = unsafe { libc::dup2(nowhere.as_raw_fd(), descriptor) });
    guest.stay()
}

struct Guest {
    place: std::path::PathBuf,
    /// What copies the output; it ends by itself.
    copying: Turn,
    is_copied: Arc<AtomicBool>,
    tree: Option<Tree>,
    signals: File,
}

impl Guest {
    fn begin(
        folder: &Path,
        workspace: &str,
        user: &User,
        turn: StartTurn,
        body: Vec<u8>,
        signals: File,
    ) -> io::Result<Self> {
        let StartTurn { turn: id, argv, env, redact, .. } = turn;
        let place = spool::turn_directory(folder, &id);
        let (mut opening, pipes) =
            Opening::new(folder, &id, &redact, Arc::new(Gateway::default())).inspect_err(|_| {
                // Nothing was started: the claim is given back, so that it can be tried again.
                _ = fs::remove_dir_all(&place);
            })?;
        let name = argv.first().cloned().unwrap_or_default();
        let program = Program {
            argv,
            env: user.variables(env).into_iter().collect(),
            // Before the clone is made there is only the home.
            directory: if Path::new(workspace).is_dir() { workspace } else { &user.home }.to_owned(),
            limits: PerProcess { data: None },
            user: user.ids,
        };
        let tree = match Tree::start(id, program, pipes.stdin, pipes.out, pipes.err) {
            Ok(tree) => Some(tree),
            Err(error) => {
                opening.could_not_start(&name, &error);
                None
            }
        };
        let leader = tree.as_ref().map_or(-1, |tree| tree.leader);
        let record = Record { guest: Identity::own()?, leader };
        spool::write_at_once(&place, RECORD, &serde_json::to_vec(&record)?)?;
        let is_copied = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_copied);
        let copying = opening.run(body, move || over.store(true, Ordering::Release))?;
        Ok(Self { place, copying, is_copied, tree, signals })
    }

    /// Until the turn is over, and nobody is left who holds its pipes.
    fn stay(mut self) -> io::Result<()> {
        loop {
            let is_over = self.is_copied.load(Ordering::Acquire);
            let is_quiet = self.tree.as_ref().is_none_or(|tree| tree.has_exited && tree.next_look().is_none());
            if is_over && is_quiet && !has_children() {
                return Ok(());
            }
            let look = self.tree.as_ref().and_then(Tree::next_look);
            let draining = (is_quiet && !is_over).then(|| Instant::now() + DRAINING);
            let wait = look.into_iter().chain(draining).min();
            let mut entries = [sys::interest(self.signals.as_raw_fd(), libc::POLLIN)];
            sys::poll(&mut entries, wait.map(|at| at.saturating_duration_since(Instant::now())))?;
            if entries[0].revents != 0 {
                self.hear()?;
            }
            self.reap();
            self.sweep();
            if let Some(leader) = self.tree.as_mut().and_then(Tree::take_exit) {
                self.copying.exited(leader);
            }
        }
    }

    fn hear(&mut self) -> io::Result<()> {
        // SAFETY: plain numbers.
        let mut heard: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the slice is the value's own memory, and any bytes are a value of it.
            let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut heard).cast::<u8>(), size) };
            match self.signals.read(bytes) {
                Ok(count) if count == size => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            match libc::c_int::try_from(heard.ssi_signo).unwrap_or(0) {
                ASK => self.end(GRACE),
                KILL => self.end(Duration::ZERO),
                GROW => {
                    let read = fs::read_to_string(self.place.join(READ)).ok().and_then(|text| text.parse::<u64>().ok());
                    self.copying.allow(read.unwrap_or(0).saturating_add(SPOOL_CAP));
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, grace: Duration) {
        if let Some(tree) = &mut self.tree {
            tree.end(grace, &processes::table());
        }
    }

    fn reap(&mut self) {
        while let Some((pid, leader)) = init::reap_one(libc::WNOHANG) {
            if let Some(tree) = self.tree.as_mut().filter(|tree| tree.leader == pid && !tree.has_exited) {
                tree.exited(leader);
            }
        }
    }

    /// Kills what the turn left, while it is being ended: everybody who descends from us is stopped first, so that nobody
    /// forks and leaves faster than the table is read.
    fn sweep(&mut self) {
        let now = Instant::now();
        let Some(tree) = self.tree.as_mut().filter(|tree| tree.next_look().is_some_and(|at| at <= now)) else { return };
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let (mut members, mut known) = (tree::descendants(&processes::table(), own), 0);
        while members.len() != known {
            known = members.len();
            members.iter().for_each(|&pid| init::signal(pid, libc::SIGSTOP));
            members = tree::descendants(&processes::table(), own);
        }
        members.iter().for_each(|&pid| init::signal(pid, libc::SIGKILL));
        tree.stage = match tree.stage {
            _ if members.is_empty() => Stage::Over,
            Stage::Killing { since, .. } => Stage::Killing { look: now + init::SWEEP_PAUSE, since },
            _ => Stage::Killing { look: now + init::SWEEP_PAUSE, since: now },
        };
    }
}

/// Whether somebody the turn left behind is there still: then we stay, since nobody else would drain its pipes.
fn has_children() -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    !tree::descendants(&processes::table(), own).is_empty()
}

/// Readable when one of them arrives.
fn signals() -> io::Result<File> {
    let wanted = [libc::SIGCHLD, ASK, KILL, GROW, libc::SIGHUP, libc::SIGINT, libc::SIGPIPE];
    sys::block(&wanted)?;
    // SAFETY: the set is initialised before it is used, and the descriptor returned is new.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        wanted.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

impl User {
    /// From the machine's own list. Whoever is not root runs the agent as itself.
    fn of(name: &str) -> io::Result<Self> {
        let list = fs::read_to_string("/etc/passwd")?;
        let found =
            list.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&name));
        let fields = found.filter(|fields| fields.len() >= 6);
        let fields = fields.ok_or_else(|| io::Error::other(format!("this machine has no user {name}")))?;
        let id = |text: &str| text.parse::<u32>().map_err(|_| io::Error::other("a user without a number"));
        let ids = (id(fields[2])?, id(fields[3])?);
        // SAFETY: a system call that cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        Ok(Self { ids: is_root.then_some(ids), name: name.to_owned(), home: fields[5].to_owned() })
    }

    /// What every turn finds in its environment, and what this one has on top.
    fn variables(&self, of_turn: Vec<(String, String)>) -> HashMap<String, String> {
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        let path = path.unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        let own = format!("{0}/.local/bin:{0}/.npm-global/bin:{path}", self.home);
        let mut variables = HashMap::new();
        for (name, value) in [
            ("HOME", self.home.as_str()),
            ("USER", &self.name),
            ("LOGNAME", &self.name),
            ("SHELL", keep::shell()),
            ("PATH", &own),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
        ] {
            variables.insert(name.to_owned(), value.to_owned());
        }
        variables.extend(of_turn);
        variables
    }
}
