//! From a stop to a pull request: a sandbox of this machine, git over HTTP with a token, and a server that speaks GitHub's
//! API. And the same with the app killed after each step of the ending.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use courier_engine::{
    engine::{Config, DeliverOptions, DeliveryState, Engine, NewSandbox},
    host::{Host, Person},
    model::{Activity, AgentKind, PullRequestStatus, SandboxId, Status, StepKind, StepStatus, SystemClock},
    secrets::{CredentialKind, Secret, Secrets, SessionOnly},
    settings::Settings,
    store::{Query, SandboxRow},
};
use courier_test_support::{github::GithubServer, processes};
use tempfile::TempDir;

use crate::world;

const TOKEN: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
/// What the agent does: a commit of its own, and things it leaves uncommitted.
const WORK: &str = "echo committed > committed.txt && git add -A && git commit -qm 'My own commit'
echo changed >> README.md; mkdir -p new && echo untracked > new/untracked.txt; echo done";

/// An engine over real sandboxes that knows the server's host and token.
async fn open(home: &Path, server: &GithubServer) -> Engine {
    let engine = Engine::open(config(home)).await.unwrap();
    prepare(&engine, &server.host()).await;
    engine
}

fn config(home: &Path) -> Config {
    let keychain = SessionOnly::default();
    keychain.set(CredentialKind::GithubEnterpriseToken, &Secret::new(TOKEN)).unwrap();
    let host = Host::new(home.to_owned(), Arc::new(keychain), Person::default());
    Config { host: world::with_checkpoints(host), clock: Arc::new(SystemClock), ..world::on_this_machine(home) }
}

async fn prepare(engine: &Engine, host: &str) {
    let settings = Settings { github_enterprise_host: Some(host.to_owned()), ..Settings::default() };
    engine.settings_set(settings).await.unwrap();
}

/// A sandbox whose script has run.
async fn worked(engine: &Engine, url: &str) -> SandboxId {
    let project = engine.project_add(url, None).await.unwrap().id;
    let id = engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, WORK)).await.unwrap().id;
    world::until(engine, id, |row| row.queued == 0 && !row.is_working && row.lifecycle.status == Status::Running).await;
    id
}

async fn stopped(engine: &Engine, id: SandboxId) -> SandboxRow {
    engine.sandbox_stop(id).await.unwrap();
    world::until(engine, id, |row| row.lifecycle.status == Status::Killed).await
}

fn step(state: &DeliveryState, kind: StepKind) -> (StepStatus, &str) {
    state.steps.iter().find(|step| step.kind == kind).map(|step| (step.status, step.detail.as_str())).unwrap()
}

/// The branch on the remote holds all that the agent made, committed or not.
fn holds_all(server: &GithubServer, branch: &str) {
    let git = |arguments: &[&str]| server.git().git(arguments).unwrap();
    assert_eq!(git(&["show", &format!("{branch}:committed.txt")]), "committed");
    assert_eq!(git(&["show", &format!("{branch}:new/untracked.txt")]), "untracked");
    assert!(git(&["show", &format!("{branch}:README.md")]).ends_with("changed"));
    let subjects = git(&["log", "--format=%s", &format!("main..{branch}")]);
    assert_eq!(subjects.lines().filter(|line| *line == "My own commit").count(), 1, "{subjects}");
    assert_eq!(subjects.lines().count(), 2, "{subjects}");
    git(&["fsck", "--strict", "--no-dangling"]);
}

#[tokio::test]
async fn a_stop_ends_in_one_pull_request_and_its_merge_is_seen() {
    let (home, server) = (TempDir::new().unwrap(), GithubServer::start(TOKEN).unwrap());
    let engine = open(home.path(), &server).await;
    let id = worked(&engine, &server.url()).await;
    let row = stopped(&engine, id).await;
    let request = row.pull_request.clone().expect("there is one");
    assert_eq!((request.status, request.number, request.is_closed), (PullRequestStatus::Created, Some(1), false));
    assert!(request.url.unwrap().ends_with("/pull/1"));
    holds_all(&server, &row.branch);
    let pulls = server.pulls();
    assert_eq!((pulls.len(), pulls[0].head.as_str(), pulls[0].base.as_str()), (1, row.branch.as_str(), "main"));
    assert!(pulls[0].body.contains("committed.txt") && !pulls[0].body.contains(&home.path().display().to_string()));

    // Once more: the same one.
    engine.sandbox_deliver(id, DeliverOptions::default()).await.unwrap();
    engine.delivered(id).await.unwrap();
    assert_eq!(server.pulls().len(), 1);

    server.merge(1).unwrap();
    let is_merged =
        |row: &SandboxRow| row.pull_request.as_ref().is_some_and(|request| request.status == PullRequestStatus::Merged);
    // The next start looks at once.
    engine.shutdown().await;
    drop(engine);
    let engine = open(home.path(), &server).await;
    world::until(&engine, id, is_merged).await;
}

#[tokio::test]
async fn a_remote_that_is_away_ends_with_the_work_kept_and_a_retry_brings_it() {
    let (home, server) = (TempDir::new().unwrap(), GithubServer::start(TOKEN).unwrap());
    let engine = open(home.path(), &server).await;
    let id = worked(&engine, &server.url()).await;
    server.git().accept(Some("another"));
    let row = stopped(&engine, id).await;
    assert!(!row.is_unsaved && row.pushed.is_none());
    let state = engine.delivery(id).await.unwrap();
    assert_eq!(step(&state, StepKind::Checkpoint).0, StepStatus::Done);
    let (status, detail) = step(&state, StepKind::Push);
    assert_eq!(status, StepStatus::Failed, "{detail}");
    assert!(!detail.contains(TOKEN), "{detail}");
    assert!(server.pulls().is_empty());

    server.git().accept(Some(TOKEN));
    engine.sandbox_deliver(id, DeliverOptions::default()).await.unwrap();
    let state = engine.delivered(id).await.unwrap();
    assert_eq!(step(&state, StepKind::PullRequest).0, StepStatus::Done);
    holds_all(&server, &row.branch);
    assert_eq!(server.pulls().len(), 1);
}

#[tokio::test]
async fn the_persons_own_words_are_used_and_a_draft_is_one() {
    let (home, server) = (TempDir::new().unwrap(), GithubServer::start(TOKEN).unwrap());
    let engine = open(home.path(), &server).await;
    let id = worked(&engine, &server.url()).await;
    let draft = engine.delivery_draft(id).await.unwrap();
    assert_eq!(draft.skip, None);
    assert!(draft.body.contains("committed.txt"), "{}", draft.body);
    let options = DeliverOptions {
        title: Some("Mine".into()),
        body: Some("Words".into()),
        is_draft: Some(true),
        ..DeliverOptions::default()
    };
    engine.sandbox_deliver(id, options).await.unwrap();
    engine.delivered(id).await.unwrap();
    let pulls = server.pulls();
    assert_eq!((pulls[0].title.as_str(), pulls[0].body.as_str(), pulls[0].is_draft), ("Mine", "Words", true));
    assert_eq!(engine.sandbox_get(id).await.unwrap().lifecycle.status, Status::Running, "it goes on");
}

/// Everything an agent can look at: its environment and those it sees, its files, its configuration.
const LOOK: &str =
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat .git/config; git config -l
grep -rI ghp_ / --include='*' -s --exclude-dir=proc --exclude-dir=sys -l | head; echo looked";

#[tokio::test]
async fn the_token_is_in_no_sandbox_and_in_no_file() {
    let (home, server) = (TempDir::new().unwrap(), GithubServer::start(TOKEN).unwrap());
    let engine = open(home.path(), &server).await;
    let project = engine.project_add(&server.url(), None).await.unwrap().id;
    let id = engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, LOOK)).await.unwrap().id;
    let is_idle = |row: &SandboxRow| row.queued == 0 && !row.is_working && row.lifecycle.status == Status::Running;
    world::until(&engine, id, is_idle).await;
    engine.sandbox_send(id, WORK, courier_engine::engine::SendHow::Queue).await.unwrap();
    world::until(&engine, id, is_idle).await;
    stopped(&engine, id).await;
    assert_eq!(server.pulls().len(), 1);
    engine.shutdown().await;
    let log: Vec<_> = engine.log_read(id, Some(0)).await.unwrap().bytes;
    assert!(String::from_utf8_lossy(&log).contains("looked"));
    let mut folders = vec![home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                let is_there = bytes.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
                assert!(!is_there, "the token is in {}", entry.path().display());
            }
        }
    }
}

// ── killed after each step ──

/// How this program is told to be the app.
const NAME: &str = "pull_request::the_app_that_is_killed";
const HOME: &str = "COURIER_ENDING_HOME";
const HOST: &str = "COURIER_ENDING_HOST";
const URL: &str = "COURIER_ENDING_URL";
/// After which step it is killed: `push done`.
const DIE_AT: &str = "COURIER_ENDING_DIE_AT";

#[test]
#[ignore = "a part of the test below, which starts it as a process of its own"]
fn the_app_that_is_killed() {
    // By itself it has nothing to do.
    let Some(home) = std::env::var_os(HOME) else { return };
    let (host, url) = (std::env::var(HOST).unwrap(), std::env::var(URL).unwrap());
    let die_at = std::env::var(DIE_AT).ok().map(|text| {
        let (kind, status) = text.split_once(' ').unwrap();
        (StepKind::from_code(kind).unwrap(), StepStatus::from_code(status).unwrap())
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(config(home.as_ref())).await.unwrap();
        prepare(&engine, &host).await;
        let known = engine.sandbox_list(Query { limit: 2, ..Query::default() }).await.unwrap().rows.pop();
        let id = match known {
            Some(row) => row.id,
            None => worked(&engine, &url).await,
        };
        if let Some((kind, status)) = die_at {
            let watched = engine.clone();
            let mut changes = engine.feed().changes();
            let watching = async move {
                loop {
                    let state = watched.delivery(id).await.unwrap();
                    if state.steps.iter().any(|step| (step.kind, step.status) == (kind, status)) {
                        // SAFETY: a system call without pointers.
                        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                    }
                    _ = changes.recv().await;
                }
            };
            #[expect(clippy::disallowed_methods, reason = "it ends with the whole process")]
            tokio::spawn(watching);
        }
        let lifecycle = engine.sandbox_get(id).await.unwrap().lifecycle;
        // A second stop would not wait for the saving.
        if lifecycle.status.is_live() && lifecycle.activity != Activity::Stopping {
            engine.sandbox_stop(id).await.unwrap();
        }
        world::until(&engine, id, |row| row.lifecycle.status == Status::Killed).await;
        let mut changes = engine.feed().changes();
        let settled = async {
            while engine.sandbox_get(id).await.unwrap().pull_request.is_none_or(|request| request.number.is_none()) {
                _ = changes.recv().await;
            }
            engine.delivered(id).await.unwrap();
        };
        if tokio::time::timeout(Duration::from_secs(60), settled).await.is_err() {
            panic!("it is not delivered: {:#?}", engine.delivery(id).await);
        }
        engine.shutdown().await;
    });
}

fn app(home: &Path, server: &GithubServer, die_at: Option<&str>) -> std::process::ExitStatus {
    #[expect(clippy::disallowed_methods, reason = "this test program, told to be the app")]
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([NAME, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.env(HOME, home).env(HOST, server.host()).env(URL, server.url());
    if let Some(die_at) = die_at {
        command.env(DIE_AT, die_at);
    }
    command.status().unwrap()
}

#[test]
fn an_app_killed_after_any_step_of_the_ending_finishes_it_and_does_nothing_twice() {
    use std::os::unix::process::ExitStatusExt;
    let points = [
        "checkpoint running",
        "checkpoint done",
        "commit running",
        "commit done",
        "push running",
        "push done",
        "pull_request running",
        "pull_request done",
        "destroy running",
        "destroy done",
    ];
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(point) = points.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
            // A step that passes between two looks is not met: the life is then lived anew.
            let (home, server) = (0..5)
                .find_map(|_| {
                    let (home, server) = (TempDir::new().unwrap(), GithubServer::start(TOKEN).unwrap());
                    let died = app(home.path(), &server, Some(point));
                    assert!(died.success() || died.signal() == Some(libc::SIGKILL), "at {point}: {died}");
                    (!died.success()).then_some((home, server))
                })
                .unwrap_or_else(|| panic!("{point} is never seen"));
            assert!(app(home.path(), &server, None).success(), "after {point}");
            let pulls = server.pulls();
            assert_eq!(pulls.len(), 1, "after {point}: {pulls:?}");
            assert_eq!(server.git().git(&["branch", "--list", "courier/*"]).unwrap().lines().count(), 1, "{point}");
            holds_all(&server, &pulls[0].head);
            let left = processes::mentioning(&home.path().display().to_string());
            assert!(left.is_empty(), "after {point}: {left:#?}");
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(work)));
}
