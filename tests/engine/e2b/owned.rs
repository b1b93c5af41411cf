//! Machines outlive the app, and none is paid for unseen: what is ours is joined or ended, what is not is never touched.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use courier_engine::{
    engine::CheckState,
    model::{Clock, Status, SystemClock},
    secrets::{CredentialKind, Secret},
};
use courier_test_support::e2b::{E2bServer, Options};

use super::{Sky, engine, provider::Cloud};
use crate::world::{self, World, eventually};

/// How many sandboxes run while the app is away.
const SANDBOXES: usize = 5;
const SCRIPT: &str = "for i in $(seq 1 120); do echo line $i; sleep 0.1; done";

fn printed() -> String {
    (1..=120).map(|i| format!("line {i}\n")).collect()
}

const NAME: &str = "e2b::owned::the_app_that_goes_away";
const HOME: &str = "COURIER_E2B_HOME";
const URL: &str = "COURIER_E2B_URL";
const KEY: &str = "COURIER_E2B_KEY";

/// An app of its own over the folder, with its sandboxes running.
#[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
fn app(sky: &Sky) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", NAME, "--nocapture", "--test-threads=1"])
        .env(HOME, sky.home.path())
        .env(URL, sky.server.url())
        .env(KEY, sky.server.key())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "running"), "its sandboxes run");
    // It may say more until it ends.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[tokio::test]
#[ignore = "it is started by another test, and goes away"]
async fn the_app_that_goes_away() {
    let given = |name| std::env::var(name).expect("it is started by another test");
    let engine = engine(given(HOME).as_ref(), &given(URL), &given(KEY)).await;
    let project = engine.project_sample().await.unwrap().id;
    for _ in 0..SANDBOXES {
        let new = courier_engine::engine::NewSandbox {
            provider: courier_engine::model::ProviderKind::E2b,
            ..courier_engine::engine::NewSandbox::of(project, courier_engine::model::AgentKind::Shell, SCRIPT)
        };
        let id = engine.sandbox_create(new).await.unwrap().id;
        world::until(&engine, id, |row| row.is_working && row.lifecycle.status == Status::Running).await;
    }
    println!("\nrunning");
    std::io::stdout().flush().unwrap();
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
    engine.shutdown().await;
}

/// How long the app is away: so many seconds, or as many as the size of a proof says.
fn away(seconds: u64) -> Duration {
    let size = std::env::var("COURIER_PROOF_SIZE").ok().and_then(|size| size.parse().ok());
    Duration::from_secs(size.unwrap_or(seconds))
}

/// The engine opened again: every sandbox is there, and nothing it printed is missing.
async fn all_is_there(mut sky: Sky) {
    sky.engine = engine(sky.home.path(), &sky.server.url(), sky.server.key()).await;
    let rows = sky.engine.sandbox_list(courier_engine::store::Query { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(rows.rows.len(), SANDBOXES);
    for row in rows.rows {
        let row = sky.idle(row.id).await;
        assert_eq!(row.lifecycle.status, Status::Running, "{row:?}");
        assert!(sky.log(row.id).await == printed(), "{:?}", sky.log(row.id).await);
        sky.engine.sandbox_stop(row.id).await.unwrap();
        sky.ended(row.id).await;
    }
    assert_eq!((sky.server.created(), sky.server.machines().len()), (SANDBOXES, 0));
}

async fn closed(sky: &mut Sky) {
    sky.engine.shutdown().await;
    sky.engine = World::placeholder().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_is_killed_finds_every_machine_again() {
    let mut sky = Sky::new().await;
    closed(&mut sky).await;
    let mut app = app(&sky);
    app.kill().unwrap();
    app.wait().unwrap();
    // They print on while nobody listens.
    tokio::time::sleep(away(4)).await;
    all_is_there(sky).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_sleeps_goes_on_where_it_stopped() {
    let mut sky = Sky::new().await;
    closed(&mut sky).await;
    let mut app = app(&sky);
    let pid = i32::try_from(app.id()).unwrap();
    // SAFETY: a system call without pointers, to a child of ours.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    tokio::time::sleep(away(6)).await;
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    tokio::time::sleep(Duration::from_secs(2)).await;
    app.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(app.wait().unwrap().success());
    all_is_there(sky).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_time_is_over_while_the_app_is_closed_is_paused_saved_and_then_ended() {
    let mut sky = Sky::new().await;
    let id = sky.begin("echo work > made.txt; echo begun; sleep 600").await;
    sky.until(id, "its turn", |row| row.is_working && row.lifecycle.status == Status::Running).await;
    eventually("its output", async || sky.log(id).await.contains("begun").then_some(())).await;
    closed(&mut sky).await;
    let machine = sky.server.machines().remove(0);
    assert!(machine.auto_pause, "it is never destroyed by its own clock");
    assert!(sky.server.pause_outside(&machine.id));
    sky.engine = engine(sky.home.path(), &sky.server.url(), sky.server.key()).await;
    sky.until(id, "what is true", |row| row.lifecycle.status == Status::Paused).await;
    sky.engine.sandbox_stop(id).await.unwrap();
    let row = sky.ended(id).await;
    assert_eq!(row.lifecycle.status, Status::Killed);
    assert!(!row.is_unsaved, "{row:?}");
    let patch = sky.engine.changes_patch(id, None, None).await.unwrap();
    let patch = String::from_utf8_lossy(&patch.text).into_owned();
    assert!(patch.contains("+work"), "{patch}");
    assert!(sky.server.machines().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_sandbox_owns_is_shown_and_ended_only_when_asked() {
    let cloud = Cloud::with(Options::default());
    let orphan = cloud.provision().await;
    // Somebody else's: not ours to see, or to touch.
    let foreign = made_by_hand(&cloud.server);
    let Cloud { server, .. } = cloud;
    let sky = Sky::over(server).await;
    let own = sky.begin("sleep 600").await;
    sky.until(own, "its turn", |row| row.is_working && row.lifecycle.status == Status::Running).await;
    let listed = sky.engine.machine_list().await.unwrap();
    let ids: Vec<_> = listed.iter().map(|machine| machine.id.as_str()).collect();
    assert_eq!(ids, [orphan.0.as_str()]);
    assert!(listed[0].is_of_another, "another installation made it");
    assert!(sky.engine.machine_destroy(&foreign).await.is_err());
    sky.engine.machine_destroy(&orphan.0).await.unwrap();
    assert!(sky.engine.machine_list().await.unwrap().is_empty());
    let left: Vec<_> = sky.server.machines().into_iter().map(|machine| machine.id).collect();
    assert!(left.contains(&foreign) && left.len() == 2, "{left:?}");
    let used = sky.engine.sandbox_used(own).await.unwrap().expect("it is measured");
    assert!(used.cpus > 0 && used.memory.1 > 0, "{used:?}");
    sky.engine.sandbox_stop(own).await.unwrap();
    sky.ended(own).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_given_up_while_nobody_answers_is_ended_later() {
    let sky = Sky::new().await;
    let id = sky.begin("echo work > made.txt").await;
    sky.idle(id).await;
    let every = |what| courier_test_support::e2b::Fault::every(courier_test_support::e2b::Call::Delete, what);
    sky.server.inject(every(courier_test_support::e2b::What::Status(503)));
    sky.engine.sandbox_stop(id).await.unwrap();
    sky.until(id, "a destroy that fails", |row| row.step.as_deref().is_some_and(|step| step.contains("provider")))
        .await;
    sky.engine.sandbox_give_up(id).await.unwrap();
    sky.ended(id).await;
    assert_eq!(sky.server.machines().len(), 1);
    sky.server.clear_faults();
    // What is owed is done at the next start.
    let mut sky = sky;
    closed(&mut sky).await;
    sky.engine = engine(sky.home.path(), &sky.server.url(), sky.server.key()).await;
    // At once, or where it was tried before in vain, at its next time.
    let begun = std::time::Instant::now();
    while !sky.server.machines().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(150), "the machine is left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_says_whether_the_account_can_be_used() {
    let sky = Sky::new().await;
    let account = async || {
        let checks = sky.engine.doctor().await.unwrap().checks;
        checks.into_iter().find(|check| check.id == "e2b").unwrap()
    };
    let found = account().await;
    assert_eq!((found.state, found.found.as_str()), (CheckState::Ok, "it answers; machines of this app: 0"));
    let kind = CredentialKind::E2bKey;
    sky.engine.credential_set(kind, Secret::new("e2b_0000000000000000000000000000000000000000"), true).await.unwrap();
    let found = account().await;
    assert_eq!(found.state, CheckState::Failed, "{found:?}");
    assert!(found.remedy.is_some_and(|remedy| remedy.contains("key")), "{}", found.found);
    sky.engine.credential_remove(kind).await.unwrap();
    assert_eq!(account().await.state, CheckState::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_end_at_the_same_moment_are_all_saved() {
    let sky = Sky::new().await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(sky.begin("true").await);
    }
    for id in &ids {
        sky.idle(*id).await;
    }
    let moment = SystemClock.now().millis() / 1000 + 6;
    for id in &ids {
        sky.tell(*id, &format!("while [ $(date +%s) -lt {moment} ]; do sleep 0.05; done; echo made > made.txt")).await;
    }
    for id in &ids {
        sky.idle(*id).await;
        eventually("a checkpoint of the second turn", async || {
            let checkpoints = sky.engine.sandbox_checkpoints(*id).await.unwrap();
            checkpoints.iter().any(|checkpoint| checkpoint.turn == Some(2)).then_some(())
        })
        .await;
    }
}

/// A machine without our mark.
fn made_by_hand(server: &E2bServer) -> String {
    let body = r#"{"templateID":"base","timeout":300}"#;
    let address = server.url().replace("http://", "");
    let request = format!(
        "POST /sandboxes HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        server.key(),
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, rest) = answer.split_once("\"sandboxID\":\"").unwrap_or_else(|| panic!("{answer}"));
    rest.split('"').next().unwrap().to_owned()
}
