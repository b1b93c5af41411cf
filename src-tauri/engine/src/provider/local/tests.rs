//! The provider with the real keeper and the real bubblewrap.

use std::time::Instant;

use super::*;
use crate::{agent::EnvValue, agent::Exit, model::Stream, provider::SpoolEvent, secrets::Secret};

const KEY: &str = "sk-canary-0123456789";

struct Place {
    folder: tempfile::TempDir,
    local: Local,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { local: Local::new(keeper(), bubblewrap(), folder.path().to_owned()), folder }
    }

    fn spec(&self) -> Provision {
        let sandbox = SandboxId::fresh();
        let directory = self.local.directory(sandbox);
        let workspace = directory.join("workspace");
        std::fs::create_dir_all(&workspace).unwrap();
        Provision {
            sandbox,
            directory,
            workspace,
            read_only: Vec::new(),
            network: NetworkMode::None,
            allowed_hosts: Vec::new(),
            variables: vec![("PROJECT".into(), "p".into())],
            memory_mb: 1024,
            cpus: 2,
            lifetime: Duration::from_secs(600),
            on_timeout: OnTimeout::Kill,
            template: None,
        }
    }

    async fn read(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> (String, String, Exit) {
        let mut follower = self.local.follow(id, turn, from).await.unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match follower.next().await.unwrap() {
                SpoolEvent::Bytes { stream: Stream::Out, bytes } => out.extend(bytes),
                SpoolEvent::Bytes { stream: Stream::Err, bytes } => err.extend(bytes),
                SpoolEvent::Ended(exit) => {
                    return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), exit);
                }
            }
        }
    }
}

/// Beside the tests' own folder, where a build of the workspace puts it.
fn keeper() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(Path::parent).unwrap().join("courier-keeper");
    assert!(program.exists(), "these tests need the keeper: `cargo build -p courier-keeper`, or `cargo xtask test`");
    program
}

fn bubblewrap() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("bwrap")).find(|path| path.exists());
    assert!(found.is_some(), "these tests need bubblewrap: `cargo xtask test` installs it");
    found
}

fn process(script: &str, env: Vec<(String, EnvValue)>, stdin: &[u8]) -> Process {
    Process { argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(), env, stdin: stdin.to_vec() }
}

fn turn(script: &str) -> TurnSpec {
    TurnSpec { turn: TurnId::fresh(), process: process(script, Vec::new(), b""), redact: Vec::new(), gateway: None }
}

async fn printed(follower: &mut Box<dyn Follower>, text: &str) {
    let mut out = String::new();
    while !out.contains(text) {
        match follower.next().await.unwrap() {
            SpoolEvent::Bytes { bytes, .. } => out += std::str::from_utf8(&bytes).unwrap(),
            SpoolEvent::Ended(exit) => panic!("ended with {exit:?} after {out:?}"),
        }
    }
}

#[tokio::test]
async fn a_sandbox_from_its_making_to_its_end_and_again() {
    let place = Place::new();
    let (local, spec) = (&place.local, place.spec());
    let id = local.provision(&spec).await.unwrap();
    assert_eq!(local.provision(&spec).await.unwrap(), id, "made once");
    assert_eq!(local.inspect(&id).await.unwrap(), Presence::Alive);

    let env = vec![("KEY".to_owned(), EnvValue::Secret(Secret::new(KEY)))];
    let first = TurnSpec {
        turn: TurnId::fresh(),
        process: process("cat; echo $PROJECT $KEY; echo oops >&2; exit 4", env, b"the prompt, "),
        redact: Vec::new(),
        gateway: None,
    };
    assert!(!local.is_started(&id, first.turn).await.unwrap());
    local.start_turn(&id, &first).await.unwrap();
    local.start_turn(&id, &first).await.unwrap();
    assert!(local.is_started(&id, first.turn).await.unwrap());
    let expected = ("the prompt, p [redacted]\n".to_owned(), "oops\n".to_owned(), Exit::Code(4));
    assert_eq!(place.read(&id, first.turn, Offsets::default()).await, expected);

    let second = turn("trap 'echo stopped; exit 0' TERM; echo working; while :; do sleep 0.01; done");
    local.start_turn(&id, &second).await.unwrap();
    let mut follower = local.follow(&id, second.turn, Offsets::default()).await.unwrap();
    printed(&mut follower, "working").await;
    local.pause(&id).await.unwrap();
    local.pause(&id).await.unwrap();
    assert_eq!(local.inspect(&id).await.unwrap(), Presence::Paused);
    local.resume(&id).await.unwrap();
    local.extend(&id, Duration::from_secs(60)).await.unwrap();
    local.signal(&id, second.turn, TurnSignal::Interrupt).await.unwrap();
    printed(&mut follower, "stopped").await;
    // The shell may have a word to say about its child, which was asked too.
    assert_eq!(place.read(&id, second.turn, Offsets::default()).await.2, Exit::Code(0));

    local.destroy(&id).await.unwrap();
    local.destroy(&id).await.unwrap();
    assert_eq!(local.inspect(&id).await.unwrap(), Presence::Gone { timed_out: false });
    assert!(matches!(local.pause(&id).await, Err(Error::Gone)));
    let from = Offsets { out: 4, err: 5 };
    assert_eq!(place.read(&id, first.turn, from).await.0, "prompt, p [redacted]\n", "its spools stay");

    local.provision(&spec).await.unwrap();
    let output =
        local.run(&id, "again", &process("echo again; pwd", Vec::new(), b""), Duration::from_secs(10)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("again\n{}\n", spec.workspace.display()));
    assert_eq!(output.exit, Exit::Code(0));
    let asked_again = local.run(&id, "again", &process("echo twice", Vec::new(), b""), Duration::from_secs(10)).await;
    assert_eq!(asked_again.unwrap().stdout, output.stdout, "the same run: nothing ran twice");
    local.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_command_has_an_end() {
    let place = Place::new();
    let id = place.local.provision(&place.spec()).await.unwrap();
    let ran = place.local.run(&id, "slow", &process("sleep 60", Vec::new(), b""), Duration::from_millis(100)).await;
    assert!(matches!(ran, Err(Error::Deadline { .. })), "{ran:?}");
    place.local.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_killed_keeper_is_seen_and_can_be_replaced() {
    let place = Place::new();
    let (local, spec) = (&place.local, place.spec());
    let id = local.provision(&spec).await.unwrap();
    let open = turn("echo some; sleep 60");
    local.start_turn(&id, &open).await.unwrap();
    let mut follower = local.follow(&id, open.turn, Offsets::default()).await.unwrap();
    printed(&mut follower, "some").await;
    let record = std::fs::read(spec.directory.join(spool::RECORD)).unwrap();
    let record: courier_keeper::protocol::KeeperRecord = serde_json::from_slice(&record).unwrap();
    assert!(record.keeper.signal(libc::SIGKILL).unwrap());
    assert!(matches!(follower.next().await.unwrap(), SpoolEvent::Ended(Exit::Unknown)));
    assert_eq!(local.inspect(&id).await.unwrap(), Presence::Gone { timed_out: false });
    local.provision(&spec).await.unwrap();
    assert_eq!(place.read(&id, open.turn, Offsets::default()).await, ("some\n".into(), String::new(), Exit::Unknown));
    local.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_whose_time_was_over_says_so() {
    let place = Place::new();
    let mut spec = place.spec();
    spec.lifetime = Duration::from_millis(10);
    let id = place.local.provision(&spec).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let gone = Presence::Gone { timed_out: true };
    while place.local.inspect(&id).await.unwrap() != gone {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_keeper_that_fails_says_why() {
    let place = Place::new();
    let mut spec = place.spec();
    spec.read_only = vec!["/".into()];
    match place.local.provision(&spec).await {
        Err(Error::Keeper(text)) => assert!(text.contains("cannot be bound"), "{text}"),
        other => panic!("{other:?}"),
    }
    let id = ProviderId(spec.sandbox.to_string());
    assert_eq!(place.local.inspect(&id).await.unwrap(), Presence::Gone { timed_out: false });
    place.local.destroy(&id).await.unwrap();
}

#[tokio::test]
async fn a_copy_of_the_keeper_runs_not_the_one_that_came() {
    let place = Place::new();
    let spec = place.spec();
    let id = place.local.provision(&spec).await.unwrap();
    let record = std::fs::read(spec.directory.join(spool::RECORD)).unwrap();
    let record: courier_keeper::protocol::KeeperRecord = serde_json::from_slice(&record).unwrap();
    let program = std::fs::read_link(format!("/proc/{}/exe", record.keeper.pid)).unwrap();
    assert!(program.starts_with(place.folder.path().join("keepers")), "{}", program.display());
    place.local.destroy(&id).await.unwrap();
}
