//! Starts bubblewrap, and commands init inside it.

use std::{
    cell::Cell,
    collections::HashMap,
    fs,
    io::{self, Read},
    net::TcpListener,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    control::{Control, Order, Program},
    jail,
    limits::{self, PerProcess},
    passing,
};
use crate::{
    identity::Identity,
    keep::{Heard, Pipes, TurnProgram},
    protocol::StartSpec,
    sys,
};

/// How long bubblewrap may take to go once everything in it is gone.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Who is told what happens inside.
type Listener = Box<dyn Fn(Heard) + Send>;

/// A living jail. The thread that makes it must live as long as it: the kernel ends bubblewrap with that thread.
pub(crate) struct Jail {
    bubblewrap: Child,
    control: Control,
    /// Until somebody listens for it.
    heard: Cell<Option<Listener>>,
    init: Identity,
    per_process: PerProcess,
    is_enforced: bool,
}

impl Jail {
    /// Makes the sandbox. `heard` is called from another thread for what happens inside, once the doors are there.
    pub(crate) fn start(spec: &StartSpec, heard: impl Fn(Heard) + Clone + Send + 'static) -> io::Result<Self> {
        if let Some(scope) = limits::scope(spec.memory_mb, spec.cpus) {
            // What systemd makes of it shows only when it is tried. A jail without a cgroup is better than none.
            match Self::start_under(spec, &scope, heard.clone()) {
                Ok(jail) => return Ok(jail),
                Err(error) => eprintln!("no cgroup, so limits are advisory: {error}"),
            }
        }
        Self::start_under(spec, &[], heard)
    }

    fn start_under(spec: &StartSpec, scope: &[String], heard: impl Fn(Heard) + Send + 'static) -> io::Result<Self> {
        let (ours, inits) = passing::pair()?;
        let (mut info, info_writer) = io::pipe()?;
        let own_program = fs::read_link("/proc/self/exe")?;
        let arguments = jail::arguments(spec, &own_program, info_writer.as_raw_fd())?;
        let packed = passing::memory_file(&arguments.packed())?;
        let inherited: Vec<RawFd> = (arguments.files.iter().map(AsRawFd::as_raw_fd))
            .chain([packed.as_raw_fd(), inits.as_raw_fd(), info_writer.as_raw_fd()])
            .collect();
        let mut command = command(spec, scope);
        command.arg("--args").arg(packed.as_raw_fd().to_string()).arg("--");
        command.args([jail::INIT, "init", &inits.as_raw_fd().to_string()]);
        let mut bubblewrap = spawn(command, inherited, limits::processors(spec.cpus))?;
        drop((inits, info_writer, arguments, packed));

        let control = Control::new(ours);
        let ready = control.wait_until_ready().and_then(|()| {
            // Written before init began: whatever hangs, hung above, where there is a limit.
            let mut text = String::new();
            info.read_to_string(&mut text)?;
            let pid = child_pid(&text).ok_or_else(|| io::Error::other("bubblewrap does not say who pid 1 is"))?;
            Identity::of(pid)
        });
        match ready {
            Ok(init) => {
                let heard = Cell::new(Some(Box::new(heard) as Listener));
                let is_enforced = !scope.is_empty();
                let per_process = PerProcess::new(spec.memory_mb, is_enforced);
                Ok(Self { bubblewrap, control, heard, init, per_process, is_enforced })
            }
            Err(error) => {
                // It may be gone already, which is what was to be reached.
                _ = bubblewrap.kill();
                let status = bubblewrap.wait()?;
                Err(io::Error::other(format!("bubblewrap made no sandbox ({status}; {error})")))
            }
        }
    }

    /// Pid 1 as seen from outside.
    pub(crate) fn init(&self) -> Option<&Identity> {
        Some(&self.init)
    }

    /// Whether limits hold by force.
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Listens on these ports of the sandbox's own loopback.
    pub(crate) fn listen(&self, ports: &[u16]) -> io::Result<Vec<TcpListener>> {
        let sockets = self.control.ask(&Order::Listen { ports: ports.to_vec() }, &[])?;
        if sockets.len() != ports.len() {
            return Err(io::Error::other(format!("init made {} sockets of {}", sockets.len(), ports.len())));
        }
        if let Some(heard) = self.heard.take() {
            self.control.hear(heard)?;
        }
        Ok(sockets.into_iter().map(TcpListener::from).collect())
    }

    /// Starts a turn's leader.
    pub(crate) fn start_turn(&self, turn: &str, program: TurnProgram, pipes: &Pipes) -> io::Result<()> {
        let TurnProgram { argv, env, directory } = program;
        let program = Program { argv, env, directory, limits: self.per_process, user: None };
        let file = passing::memory_file(&serde_json::to_vec(&program)?)?;
        let with = [file.as_fd(), pipes.stdin.as_fd(), pipes.out.as_fd(), pipes.err.as_fd()];
        self.control.ask(&Order::Start { turn: turn.to_owned() }, &with).map(|_| ())
    }

    /// TERM to the turn, after the grace KILL to all of it. Returns at once.
    pub(crate) fn end_turn(&self, turn: &str, grace: Duration) -> io::Result<()> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.control.tell(&Order::End { turn: turn.to_owned(), grace_ms }, &[])
    }

    /// Suspends everything inside.
    pub(crate) fn suspend(&self) -> io::Result<()> {
        self.control.ask(&Order::Suspend, &[]).map(|_| ())
    }

    /// Lets everything go on.
    pub(crate) fn resume(&self) -> io::Result<()> {
        self.control.ask(&Order::Continue, &[]).map(|_| ())
    }

    /// KILLs everything; when it returns, nothing but init is left.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        self.control.ask(&Order::KillAll, &[]).map(|_| ())
    }

    /// Takes the jail down and returns once init, and so everything inside, is gone.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.init.signal(libc::SIGKILL)?;
        let deadline = Instant::now() + LEAVE_LIMIT;
        while self.bubblewrap.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.bubblewrap.kill()?;
                self.bubblewrap.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The variables a sandbox's processes need to find their way, before the project's own.
pub(crate) fn base_variables(home: &Path) -> HashMap<String, String> {
    let home = home.to_string_lossy().into_owned();
    let path = format!("{home}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    [("PATH", path), ("HOME", home), ("TMPDIR", "/tmp".to_owned())].map(|(name, value)| (name.to_owned(), value)).into()
}

fn command(spec: &StartSpec, scope: &[String]) -> Command {
    let words = scope.iter().map(String::as_str);
    #[expect(
        clippy::disallowed_methods,
        reason = "the keeper's only start of a program; the engine's rule is not ours"
    )]
    let mut command = match scope.first() {
        None => Command::new(&spec.bwrap),
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words.skip(1)).arg(&spec.bwrap);
            command
        }
    };
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
    if !scope.is_empty() {
        for name in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            std::env::var_os(name).map(|value| command.env(name, value));
        }
    }
    command
}

fn spawn(mut command: Command, inherited: Vec<RawFd>, on: Option<libc::cpu_set_t>) -> io::Result<Child> {
    // SAFETY: only async-signal-safe calls, and no memory is taken or given back.
    unsafe {
        command.pre_exec(move || {
            sys::unblock_all();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            sys::limit(libc::RLIMIT_CORE, sys::NO_CORE)?;
            limits::go_first();
            if let Some(on) = &on {
                // A wish: what a processor set forbids is no reason to fail.
                libc::sched_setaffinity(0, std::mem::size_of_val(on), on);
            }
            for &descriptor in &inherited {
                if libc::fcntl(descriptor, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}

fn child_pid(info: &str) -> Option<i32> {
    let value: serde_json::Value = serde_json::from_str(info).ok()?;
    i32::try_from(value.get("child-pid")?.as_i64()?).ok()
}
