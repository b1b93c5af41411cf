//! Starts keepers, and watches what becomes of them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use courier_keeper::{
    client,
    identity::Identity,
    protocol::{
        EndedRecord, Gateway, KeeperRecord, Network, OnTimeout, Readiness, Request, Response, StartSpec, StartTurn,
        Status, VERSION,
    },
    spool::{self, ExitRecord},
};
use tempfile::TempDir;

/// How long anything here may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Nobody's number on any machine.
const UNPRIVILEGED: u32 = 61_234;

/// A sandbox of its own, in a folder of its own.
pub struct Sandbox {
    pub directory: PathBuf,
    pub keeper: Child,
    pub record: KeeperRecord,

    turns: AtomicU32,
    spec: StartSpec,
    user: Option<u32>,
    place: TempDir,
}

/// How a turn ended and what it printed.
#[derive(Debug)]
pub struct Ended {
    pub exit: ExitRecord,
    pub out: String,
    pub err: String,
}

/// A sandbox's spec, to be changed before it starts.
pub struct Draft {
    pub spec: StartSpec,
    /// What the keeper itself finds in its environment.
    pub env: Vec<(&'static str, String)>,
    user: Option<u32>,
    place: TempDir,
}

impl Draft {
    pub fn new() -> Self {
        Self::of_user(None)
    }

    fn of_user(user: Option<u32>) -> Self {
        let place = tempfile::Builder::new().prefix("keeper-test-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = place.path().join("sandbox");
        let spec = StartSpec {
            version: VERSION,
            workspace: directory.join("workspace"),
            home: directory.join("home"),
            directory,
            read_only: Vec::new(),
            network: Network::None,
            allowed_hosts: Vec::new(),
            variables: Vec::new(),
            memory_mb: 1024,
            cpus: 2,
            lifetime_ms: 600_000,
            on_timeout: OnTimeout::Kill,
            bwrap: bubblewrap(),
            bwrap_version: (0, 8),
        };
        for folder in [&spec.directory, &spec.workspace] {
            fs::create_dir(folder).unwrap();
            chown(folder, user, user).unwrap();
        }
        Self { spec, env: Vec::new(), user, place }
    }

    /// Where the sandbox's folder lies; the sandbox itself must not see it.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Makes the keeper trust the authorities of this file and no others.
    pub fn trust(&mut self, authorities: PathBuf) {
        let none = self.place.path().join("no-authorities");
        fs::create_dir(&none).unwrap();
        self.env =
            vec![("SSL_CERT_FILE", authorities.display().to_string()), ("SSL_CERT_DIR", none.display().to_string())];
    }

    pub fn start(self) -> Sandbox {
        let (spec, user) = (self.spec.clone(), self.user);
        let (sandbox, readiness) = self.try_start();
        assert!(matches!(readiness, Readiness::Ready { .. }), "{readiness:?}; the log: {}", log(&sandbox.0));
        let (directory, keeper, place) = sandbox;
        let record = serde_json::from_slice(&fs::read(directory.join(spool::RECORD)).unwrap()).unwrap();
        Sandbox { directory, keeper, record, turns: AtomicU32::new(0), spec, user, place }
    }

    pub fn try_start(self) -> ((PathBuf, Child, TempDir), Readiness) {
        // Where everybody can run it, which a build's folder need not be.
        let program = self.place.path().join("courier-keeper");
        fs::copy(env!("CARGO_BIN_EXE_courier-keeper"), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let log = fs::File::create(self.place.path().join("log")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "these tests start the real keeper themselves")]
        let mut command = Command::new(&program);
        command.arg("keep").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).envs(self.env);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        // While another test forks, its child holds the copy open for writing, for a moment.
        let mut keeper = wait_for("the copy to be free", || match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
            other => Some(other.unwrap()),
        });
        keeper.stdin.take().unwrap().write_all(&serde_json::to_vec(&self.spec).unwrap()).unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let readiness = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the keeper said {line:?}"));
        ((self.spec.directory, keeper, self.place), readiness)
    }
}

/// Drafts as this user and, where this user is root, as one without privileges too.
pub fn as_both_users() -> Vec<Draft> {
    // SAFETY: a system call without arguments that cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut drafts = vec![Draft::new()];
    drafts.extend(is_root.then(|| Draft::of_user(Some(UNPRIVILEGED))));
    drafts
}

fn bubblewrap() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("bwrap")).find(|path| path.exists());
    found.expect("these tests need bubblewrap: run `cargo xtask test`, which installs it, or `apt install bubblewrap`")
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.with_file_name("log")).unwrap_or_default()
}

impl Sandbox {
    pub fn start() -> Self {
        Draft::new().start()
    }

    /// Its keeper dies, and another takes its place; its files stay as they are.
    pub fn killed_and_started_again(mut self) -> Self {
        self.record.keeper.signal(libc::SIGKILL).unwrap();
        self.wait_until_gone();
        let place = std::mem::replace(&mut self.place, tempfile::tempdir().unwrap());
        let mut again = Draft { spec: self.spec.clone(), env: Vec::new(), user: self.user, place }.start();
        again.turns = AtomicU32::new(self.turns.load(Ordering::Relaxed));
        again
    }

    pub fn ask(&self, request: &Request) -> Response {
        self.ask_with(request, b"")
    }

    pub fn ask_with(&self, request: &Request, body: &[u8]) -> Response {
        client::ask(&self.directory, request, body, DEADLINE)
            .unwrap_or_else(|error| panic!("{request:?}: {error}; the log: {}", self.log()))
    }

    pub fn done(&self, request: &Request) {
        let response = self.ask(request);
        assert!(matches!(response, Response::Done), "{request:?}: {response:?}");
    }

    pub fn status(&self) -> Status {
        match self.ask(&Request::Status) {
            Response::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn log(&self) -> String {
        log(&self.directory)
    }

    /// Starts a shell script as a turn, and returns its id.
    pub fn begin(&self, script: &str) -> String {
        self.begin_with(script, &[], &[])
    }

    pub fn begin_with(&self, script: &str, env: &[(&str, &str)], redact: &[&str]) -> String {
        self.begin_at_model(script, env, redact, None)
    }

    pub fn begin_at_model(
        &self,
        script: &str,
        env: &[(&str, &str)],
        redact: &[&str],
        gateway: Option<Gateway>,
    ) -> String {
        let turn = format!("turn-{}", self.turns.fetch_add(1, Ordering::Relaxed));
        let start = StartTurn {
            turn: turn.clone(),
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            env: env.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            redact: redact.iter().map(|&secret| secret.into()).collect(),
            gateway,
        };
        let response = self.ask(&Request::StartTurn(start));
        assert!(matches!(response, Response::Started { fresh: true }), "{response:?}");
        turn
    }

    /// Waits for a turn's `exit`.
    pub fn end(&self, turn: &str) -> Ended {
        let place = self.turn_directory(turn);
        let exit = wait_for(&format!("the exit of {turn}"), || spool::read_exit(&place).unwrap());
        let text = |name| String::from_utf8_lossy(&fs::read(place.join(name)).unwrap()).into_owned();
        Ended { exit, out: text(spool::OUT), err: text(spool::ERR) }
    }

    /// Runs a script to its end.
    pub fn run(&self, script: &str) -> Ended {
        self.end(&self.begin(script))
    }

    /// Waits until a turn has printed this.
    pub fn wait_for_output(&self, turn: &str, text: &str) {
        let out = self.turn_directory(turn).join(spool::OUT);
        wait_for(&format!("{text:?} in the output of {turn}"), || {
            fs::read_to_string(&out).is_ok_and(|output| output.contains(text)).then_some(())
        });
    }

    pub fn turn_directory(&self, turn: &str) -> PathBuf {
        spool::turn_directory(&self.directory, turn)
    }

    pub fn workspace(&self) -> PathBuf {
        self.directory.join("workspace")
    }

    /// Every living process with this word on its command line. The tests' own markers are unique.
    pub fn processes_with(word: &str) -> Vec<i32> {
        let is_it = |pid: &i32| {
            let is_alive = Identity::of(*pid).is_ok_and(|identity| identity.is_alive());
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            is_alive && String::from_utf8_lossy(&line).split('\0').any(|argument| argument == word)
        };
        let numbers =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        numbers.filter(is_it).collect()
    }

    /// Waits until keeper and init are gone, and so everything inside.
    pub fn wait_until_gone(&mut self) {
        wait_for("the keeper's end", || self.keeper.try_wait().unwrap());
        let init = self.record.init.clone().unwrap();
        wait_for("the end of pid 1", || (!init.is_alive()).then_some(()));
        assert!(!spool::is_locked(&self.directory).unwrap());
    }

    pub fn ended(&self) -> Option<EndedRecord> {
        Some(serde_json::from_slice(&fs::read(self.directory.join(spool::ENDED)).ok()?).unwrap())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the keeper's log:\n{}", self.log());
        }
        // Whatever the test left: it ends with the keeper.
        _ = self.keeper.kill();
        _ = self.keeper.wait();
    }
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
