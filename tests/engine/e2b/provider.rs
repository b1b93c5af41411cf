//! The provider by itself.

use std::time::Duration;

use courier_engine::{
    agent::{EnvValue, Exit, Process},
    model::{NetworkMode, OnTimeout, SandboxId, Stream, TurnId},
    provider::{
        Error, Offsets, Presence, Provider, ProviderId, Provision, SpoolEvent, TurnSignal, TurnSpec,
        e2b::{Account, E2b},
    },
    secrets::Secret,
};
use courier_test_support::{
    e2b::{E2bServer, Options},
    processes,
};

use crate::world::{self, eventually};

const LIMIT: Duration = Duration::from_secs(20);

pub struct Cloud {
    pub server: E2bServer,
    pub e2b: E2b,
    _home: tempfile::TempDir,
}

impl Cloud {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let server = E2bServer::start(options).unwrap();
        let e2b = E2b::new(world::keeper());
        e2b.sign_in(Some(account(&server, "this"))).unwrap();
        Self { server, e2b, _home: tempfile::tempdir().unwrap() }
    }

    pub fn spec(&self) -> Provision {
        let sandbox = SandboxId::fresh();
        Provision {
            sandbox,
            directory: self._home.path().join(sandbox.to_string()),
            workspace: "/home/user/workspace".into(),
            read_only: Vec::new(),
            network: NetworkMode::Open,
            allowed_hosts: Vec::new(),
            variables: Vec::new(),
            memory_mb: 1024,
            cpus: 2,
            lifetime: Duration::from_secs(600),
            on_timeout: OnTimeout::Kill,
            template: None,
        }
    }

    pub async fn provision(&self) -> ProviderId {
        self.e2b.provision(&self.spec()).await.unwrap()
    }

    /// A turn's whole output, and how it ended.
    pub async fn read(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> (String, String, Exit) {
        let mut follower = self.e2b.follow(id, turn, from).await.unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match tokio::time::timeout(LIMIT, follower.next()).await.expect("it goes on").unwrap() {
                SpoolEvent::Bytes { stream: Stream::Out, bytes } => out.extend(bytes),
                SpoolEvent::Bytes { stream: Stream::Err, bytes } => err.extend(bytes),
                SpoolEvent::Ended(exit) => {
                    return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), exit);
                }
            }
        }
    }
}

pub fn account(server: &E2bServer, installation: &str) -> Account {
    let (url, key) = (server.url(), Secret::new(server.key()));
    Account::new(key, None, Some(&url), Some(&url), installation.to_owned()).unwrap()
}

pub fn script(text: &str) -> Process {
    Process { argv: vec!["/bin/bash".into(), "-c".into(), text.into()], env: Vec::new(), stdin: Vec::new() }
}

pub fn turn(text: &str) -> TurnSpec {
    TurnSpec { turn: TurnId::fresh(), process: script(text), redact: Vec::new(), gateway: None }
}

#[tokio::test]
async fn a_command_runs_as_the_agent_once_and_its_output_is_whole() {
    let cloud = Cloud::new();
    let id = cloud.provision().await;
    let process =
        Process { stdin: b"read\n".to_vec(), ..script("id -un; pwd; echo $HOME; cat; echo bad >&2; exit 3; ") };
    for _ in 0..2 {
        let output = cloud.e2b.run(&id, "one", &process, LIMIT).await.unwrap();
        assert_eq!(output.exit, Exit::Code(3), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.ends_with("/home/user\n/home/user\nread\n"), "{printed}");
        assert_eq!(output.stderr, b"bad\n");
    }
    cloud.e2b.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_turn_is_followed_from_any_offset_and_keeps_its_secrets() {
    let cloud = Cloud::new();
    let id = cloud.provision().await;
    let secret = Secret::new("sk-canary-0123456789abcdef");
    let mut spec = turn("for i in 1 2 3; do echo line $i; sleep 0.2; done; echo $KEY; echo $KEY >&2");
    spec.process.env.push(("KEY".into(), EnvValue::Secret(secret.clone())));
    for _ in 0..2 {
        cloud.e2b.start_turn(&id, &spec).await.unwrap();
    }
    assert!(cloud.e2b.is_started(&id, spec.turn).await.unwrap());
    assert!(!cloud.e2b.is_started(&id, TurnId::fresh()).await.unwrap());
    let (out, err, exit) = cloud.read(&id, spec.turn, Offsets::default()).await;
    assert_eq!((out.as_str(), exit), ("line 1\nline 2\nline 3\n[redacted]\n", Exit::Code(0)));
    assert_eq!(err, "[redacted]\n");
    let (out, ..) = cloud.read(&id, spec.turn, Offsets { out: 7, err: 3 }).await;
    assert_eq!(out, "line 2\nline 3\n[redacted]\n");
    let missing = cloud.e2b.follow(&id, TurnId::fresh(), Offsets::default()).await;
    assert!(matches!(missing.err(), Some(Error::NoSuchTurn)));
    for word in [secret.expose(), cloud.server.key()] {
        let root = cloud.server.root().display().to_string();
        let found = processes::run("/usr/bin/grep".as_ref(), &["-rlF", word, &root]).unwrap();
        assert_eq!(String::from_utf8(found.stdout).unwrap(), "", "nothing of {word} is on a machine's disk");
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_whole_tree() {
    let cloud = Cloud::new();
    let id = cloud.provision().await;
    let spec =
        turn("setsid sleep 987 & (setsid sleep 987 &) ; trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done");
    cloud.e2b.start_turn(&id, &spec).await.unwrap();
    let sleeping = || processes::all().into_iter().filter(|process| process.command == "sleep 987").count();
    eventually("both sleeps", async || (sleeping() == 2).then_some(())).await;
    cloud.e2b.signal(&id, spec.turn, TurnSignal::Interrupt).await.unwrap();
    let (out, _, exit) = cloud.read(&id, spec.turn, Offsets::default()).await;
    assert_eq!((out.as_str(), exit), ("ready\n", Exit::Code(9)));
    eventually("the end of all", async || (sleeping() == 0).then_some(())).await;
    // Asked again it is over already.
    cloud.e2b.signal(&id, spec.turn, TurnSignal::Kill).await.unwrap();
    let missing = cloud.e2b.signal(&id, TurnId::fresh(), TurnSignal::Kill).await;
    assert!(matches!(missing, Err(Error::NoSuchTurn)), "{missing:?}");
}

#[tokio::test]
async fn a_pause_is_confirmed_and_the_stream_goes_on_after_it() {
    let cloud = Cloud::new();
    let id = cloud.provision().await;
    let spec = turn("for i in $(seq 1 30); do echo $i; sleep 0.1; done");
    cloud.e2b.start_turn(&id, &spec).await.unwrap();
    let reading = async { cloud.read(&id, spec.turn, Offsets::default()).await };
    let pausing = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        cloud.e2b.pause(&id).await.unwrap();
        assert_eq!(cloud.e2b.inspect(&id).await.unwrap(), Presence::Paused);
        cloud.e2b.pause(&id).await.unwrap();
        cloud.e2b.extend(&id, Duration::from_secs(60)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        cloud.e2b.resume(&id).await.unwrap();
        assert_eq!(cloud.e2b.inspect(&id).await.unwrap(), Presence::Alive);
    };
    let ((out, _, exit), ()) = tokio::join!(reading, pausing);
    let expected: String = (1..=30).map(|number| format!("{number}\n")).collect();
    assert_eq!((out, exit), (expected, Exit::Code(0)));
    cloud.e2b.destroy(&id).await.unwrap();
    assert_eq!(cloud.e2b.inspect(&id).await.unwrap(), Presence::Gone { timed_out: false });
    cloud.e2b.destroy(&id).await.unwrap();
    assert!(cloud.server.machines().is_empty());
}
