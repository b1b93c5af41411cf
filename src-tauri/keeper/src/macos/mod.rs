//! The jail on macOS: Seatbelt. Each turn runs under `sandbox-exec` with a profile that denies by default.
//!
//! What is as good as on Linux: files and network. What is best effort, since there is no pid namespace: ending and
//! pausing find processes by session, descent and a marker in their environment (which the system hides for its own
//! programs), so that one that sheds all three lives on; between the list and the signal a fork can slip through, which
//! is why it is done until nothing new is found; and a killed keeper takes nothing with it: the next one for the same
//! sandbox ends what it left, as far as it is found.

mod processes;
mod profile;

use std::{
    collections::HashMap,
    io,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::{
    identity::Identity,
    keep::{Heard, Leader, Pipes, TurnProgram},
    protocol::{StartSpec, TURN_VARIABLE},
    spool, sys,
    tree::{Known, Unsigned, members},
};

/// How long processes may take to be gone once they are killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How often they are looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// Where the profile is.
const PROFILE: &str = "seatbelt.sb";

/// A living jail.
pub(crate) struct Jail {
    spec: StartSpec,
    inside: Arc<Inside>,
}

struct Inside {
    turns: Mutex<Vec<Turn>>,
    heard: Box<dyn Fn(Heard) + Send + Sync>,
}

struct Turn {
    known: Known,
    has_exited: bool,
}

impl Jail {
    /// Ends what an earlier keeper left.
    pub(crate) fn start(spec: &StartSpec, heard: impl Fn(Heard) + Send + Sync + 'static) -> io::Result<Self> {
        let earlier = std::fs::read_dir(spec.directory.join(spool::TURNS))?;
        let known = |id: String| Known { id, leader: 0, start: 0 };
        let earlier: Vec<Known> =
            earlier.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).map(known).collect();
        signal(&find(&earlier), libc::SIGKILL);
        let inside = Inside { turns: Mutex::default(), heard: Box::new(heard) };
        Ok(Self { spec: spec.clone(), inside: Arc::new(inside) })
    }

    /// There is no pid 1 of its own.
    #[expect(clippy::unused_self, reason = "the same on every system")]
    pub(crate) fn init(&self) -> Option<&Identity> {
        None
    }

    /// Nothing here holds by force.
    #[expect(clippy::unused_self, reason = "the same on every system")]
    pub(crate) fn is_enforced(&self) -> bool {
        false
    }

    /// Listens on the machine's loopback, which all sandboxes share: on any ports, which the profile then names.
    pub(crate) fn listen(&self, ports: &[u16]) -> io::Result<Vec<TcpListener>> {
        let listeners: Vec<_> = ports.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
        let ports =
            listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<Vec<_>>>()?;
        std::fs::create_dir_all(temporary(&self.spec.home))?;
        spool::write_whole(&self.spec.directory, PROFILE, profile::text(&self.spec, &ports)?.as_bytes())?;
        Ok(listeners)
    }

    /// Starts a turn's leader.
    pub(crate) fn start_turn(&self, turn: &str, program: TurnProgram, pipes: &Pipes) -> io::Result<()> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the keeper's only start of a program; the engine's rule is not ours"
        )]
        let mut command = Command::new("/usr/bin/sandbox-exec");
        command.arg("-f").arg(self.spec.directory.join(PROFILE)).args(&program.argv);
        command.env_clear().envs(program.env).env(TURN_VARIABLE, turn).current_dir(program.directory);
        command.stdin(Stdio::from(pipes.stdin.try_clone()?));
        command.stdout(Stdio::from(pipes.out.try_clone()?)).stderr(Stdio::from(pipes.err.try_clone()?));
        // SAFETY: only async-signal-safe calls.
        unsafe {
            command.pre_exec(|| {
                sys::unblock_all();
                sys::limit(libc::RLIMIT_CORE, sys::NO_CORE)?;
                if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        let mut child = command.spawn()?;
        let leader = i32::try_from(child.id()).expect("a pid fits its own type");
        let start = Identity::of(leader).map_or(0, |identity| identity.start);
        let known = Known { id: turn.to_owned(), leader, start };
        self.inside.turns().push(Turn { known, has_exited: false });
        let (inside, turn) = (Arc::clone(&self.inside), turn.to_owned());
        std::thread::Builder::new().name("leader".into()).spawn(move || {
            use std::os::unix::process::ExitStatusExt;
            let ended = match child.wait() {
                Ok(status) => status.signal().map_or_else(|| Leader::Code(status.code().unwrap_or(-1)), Leader::Signal),
                Err(_) => Leader::Signal(libc::SIGKILL),
            };
            inside.turns().iter_mut().filter(|one| one.known.id == turn).for_each(|one| one.has_exited = true);
            if matches!(ended, Leader::Signal(_)) {
                // It could leave nothing behind on purpose.
                inside.kill(|one| one.known.id == turn);
            }
            (inside.heard)(Heard::Exited { turn, leader: ended });
        })?;
        Ok(())
    }

    /// TERM to the turn, after the grace KILL to all that is found of it. Returns at once.
    pub(crate) fn end_turn(&self, turn: &str, grace: Duration) -> io::Result<()> {
        let (inside, turn) = (Arc::clone(&self.inside), turn.to_owned());
        std::thread::Builder::new().name("ending".into()).spawn(move || {
            let deadline = Instant::now() + grace;
            if !grace.is_zero() {
                signal(&inside.members(|one| one.known.id == turn), libc::SIGTERM);
            }
            while Instant::now() < deadline && inside.turns().iter().any(|one| one.known.id == turn && !one.has_exited)
            {
                std::thread::sleep(PAUSE);
            }
            inside.kill(|one| one.known.id == turn);
        })?;
        Ok(())
    }

    /// Suspends everything that is found, until nothing new is.
    pub(crate) fn suspend(&self) -> io::Result<()> {
        let mut before = Vec::new();
        loop {
            let mut found = self.inside.members(|_| true);
            found.sort_unstable();
            signal(&found, libc::SIGSTOP);
            if found == before {
                return Ok(());
            }
            before = found;
        }
    }

    /// Lets everything go on.
    pub(crate) fn resume(&self) -> io::Result<()> {
        signal(&self.inside.members(|_| true), libc::SIGCONT);
        Ok(())
    }

    /// KILLs everything that is found.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        self.inside.kill(|_| true);
        Ok(())
    }

    /// Everything is over.
    pub(crate) fn close(self) -> io::Result<()> {
        self.kill_all()
    }
}

impl Inside {
    fn turns(&self) -> MutexGuard<'_, Vec<Turn>> {
        self.turns.lock().expect("nobody panics while holding it")
    }

    /// The processes of these turns.
    fn members(&self, which: impl Fn(&Turn) -> bool) -> Vec<i32> {
        let turns = self.turns();
        let known: Vec<Known> = turns.iter().map(|turn| turn.known.clone()).collect();
        let table = processes::table();
        let wanted = turns.iter().enumerate().filter(|(_, turn)| which(turn));
        wanted.flat_map(|(index, _)| members(&table, &known, index, Unsigned::Nobody)).collect()
    }

    fn kill(&self, which: impl Fn(&Turn) -> bool + Copy) {
        let deadline = Instant::now() + KILL_LIMIT;
        loop {
            let found = self.members(which);
            if found.is_empty() || Instant::now() > deadline {
                return;
            }
            signal(&found, libc::SIGKILL);
            std::thread::sleep(PAUSE);
        }
    }
}

/// The variables a sandbox's processes need to find their way, before the project's own.
pub(crate) fn base_variables(home: &Path) -> HashMap<String, String> {
    let temporary = temporary(home).to_string_lossy().into_owned();
    let home = home.to_string_lossy().into_owned();
    let path = format!("{home}/.local/bin:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    [("PATH", path), ("HOME", home), ("TMPDIR", temporary)].map(|(name, value)| (name.to_owned(), value)).into()
}

/// `/tmp` is everybody's here.
fn temporary(home: &Path) -> PathBuf {
    home.join(".tmp")
}

fn find(turns: &[Known]) -> Vec<i32> {
    let table = processes::table();
    (0..turns.len()).flat_map(|index| members(&table, turns, index, Unsigned::Nobody)).collect()
}

fn signal(processes: &[i32], signal: libc::c_int) {
    for &pid in processes {
        // SAFETY: a system call without pointers.
        unsafe { libc::kill(pid, signal) };
    }
}
