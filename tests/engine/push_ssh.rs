//! Pushing over SSH: a server nobody here wrote, the real `ssh-agent`, and a `known_hosts` for each case.
//!
//! libssh2 takes home and agent from its process, so each push is one of its own: this test program again, with the only
//! test in it that pushes.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use courier_engine::work::push::{Push, Reason};
use courier_test_support::{
    judges,
    repositories::{Repository, git},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const BRANCH: &str = "courier/work-1a2b";

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "programs of the tests")]
    Command::new(program)
}

/// A program that ends with its value.
struct Running {
    child: Child,
    /// Open as long as it runs: what it prints later must not end it.
    _output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it, and waits for its first line.
    fn start(command: &mut Command) -> (Self, String) {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (Self { child, _output: output }, line.trim().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill(); // It may have ended.
        _ = self.child.wait();
    }
}

struct Place {
    folder: TempDir,
    port: String,
    _server: Running,
    _agent: Running,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for key in ["host", "other", "user", "stranger"] {
            run(command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)));
        }
        let upstream = at("root/owner/name.git");
        std::fs::create_dir_all(&upstream).unwrap();
        git(&upstream, &["init", "--quiet", "--bare", "."]).unwrap();
        let work = Repository::ordinary().unwrap();
        work.git(&["clone", "--quiet", "--bare", ".", &at("vault.git").to_string_lossy()]).unwrap();
        git(&at("vault.git"), &["remote", "remove", "origin"]).unwrap();
        git(&at("vault.git"), &["branch", BRANCH, "main"]).unwrap();

        let server = judges::github("ssh-server.mjs").unwrap();
        let mut serving = command("node");
        serving.arg(server).args([at("host"), at("root"), at("user.pub")]);
        let (server, port) = Running::start(&mut serving);
        // It says where it listens, and goes on.
        let (agent, said) = Running::start(command("ssh-agent").arg("-D").arg("-a").arg(at("agent")));
        assert!(at("agent").exists(), "{said}");
        Self { folder, port, _server: server, _agent: agent }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The agent has exactly this key.
    fn hold(&self, key: Option<&str>) {
        run(command("ssh-add").args(["-q", "-D"]).env("SSH_AUTH_SOCK", self.at("agent")));
        if let Some(key) = key {
            run(command("ssh-add").arg("-q").arg(self.at(key)).env("SSH_AUTH_SOCK", self.at("agent")));
        }
    }

    /// A home whose `known_hosts` names this key for the server.
    fn home(&self, name: &str, known: Option<&str>) -> PathBuf {
        let ssh = self.at(name).join(".ssh");
        std::fs::create_dir_all(&ssh).unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o700)).unwrap();
        if let Some(key) = known {
            let key = std::fs::read_to_string(self.at(&format!("{key}.pub"))).unwrap();
            std::fs::write(ssh.join("known_hosts"), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
        }
        self.at(name)
    }

    /// What came of a push: a reason's code, or `taken`, and the words.
    fn push(&self, home: &Path, agent: Option<PathBuf>) -> (String, String) {
        let mut pushing = command(std::env::current_exe().unwrap());
        pushing
            .args(["--exact", "push_ssh::one_push_of_a_process_of_its_own", "--ignored", "--nocapture"])
            .env("HOME", home)
            .env("COURIER_PUSH_FROM", self.at("vault.git"))
            .env("COURIER_PUSH_TO", format!("ssh://git@127.0.0.1:{}/owner/name.git", self.port))
            .env_remove("SSH_AUTH_SOCK");
        if let Some(agent) = agent {
            pushing.env("SSH_AUTH_SOCK", agent);
        }
        let output = pushing.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find_map(|line| line.split_once("push: ")).map(|(_, line)| line.to_owned());
        let line = line.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
        let (code, words) = line.split_once(' ').unwrap();
        (code.to_owned(), words.to_owned())
    }
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn over_ssh_the_host_must_be_known_and_the_agent_must_have_the_key() {
    let place = Place::new();
    let agent = || Some(place.at("agent"));
    let (known, unknown) = (place.home("known", Some("host")), place.home("unknown", None));
    let changed = place.home("changed", Some("other"));
    let refused = |home: &Path, agent, reason: Reason| {
        let (code, words) = place.push(home, agent);
        assert_eq!(code, reason.code(), "{words}");
        assert!(words.contains("SSH to 127.0.0.1 as git"), "{words}");
        words
    };
    place.hold(Some("user"));
    let words = refused(&unknown, agent(), Reason::UnknownHost);
    let shown = command("ssh-keygen").arg("-lf").arg(place.at("host.pub")).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let fingerprint = shown.split(' ').nth(1).unwrap();
    assert!(words.contains(fingerprint), "a person can compare {fingerprint} with {words}");
    refused(&changed, agent(), Reason::ChangedHost);
    refused(&known, None, Reason::NoAgent);
    refused(&known, Some(place.at("no-agent")), Reason::NoAgent);
    place.hold(Some("stranger"));
    refused(&known, agent(), Reason::KeyRefused);
    place.hold(None);
    let words = refused(&known, agent(), Reason::KeyRefused);
    assert!(words.ends_with("the agent has no key"), "{words}");
    let upstream = place.at("root/owner/name.git");
    assert!(git(&upstream, &["rev-parse", "--verify", BRANCH]).is_err(), "nothing arrived yet");

    place.hold(Some("user"));
    let (code, words) = place.push(&known, agent());
    assert_eq!((code.as_str(), words.as_str()), ("taken", "Created"));
    assert_eq!(place.push(&known, agent()).1, "None");
    let ours = git(&place.at("vault.git"), &["rev-parse", BRANCH]).unwrap();
    assert_eq!(git(&upstream, &["rev-parse", BRANCH]).unwrap(), ours);
}

#[tokio::test]
#[ignore = "pushes as the environment says: for the test above"]
async fn one_push_of_a_process_of_its_own() {
    let set = |name: &str| std::env::var(name).unwrap();
    let known_hosts = Path::new(&set("HOME")).join(".ssh/known_hosts");
    let push = Push::new(set("COURIER_PUSH_FROM"), set("COURIER_PUSH_TO"), BRANCH).known_hosts(known_hosts);
    match push.run(&CancellationToken::new(), Duration::from_secs(60)).await {
        Ok(pushed) => println!("push: taken {:?}", pushed.change),
        Err(error) => println!("push: {} {}", error.reason.code(), error.to_string().replace('\n', "; ")),
    }
}
