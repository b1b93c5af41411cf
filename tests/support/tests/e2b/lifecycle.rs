//! Machines come, stand still, go on and go; nothing of them stays.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use courier_test_support::{
    e2b::{E2bServer, Options, State},
    processes::{self, Process},
};
use serde_json::{Value, json};

use crate::client::{Client, End};

/// A tree that never stays the same: children that come and go, and write.
const FORKING: &str =
    "cd; for i in 1 2 3; do (while :; do (echo x >> log; exec true) & (exec true) & wait; done) & done; wait";

/// What runs in a machine, seen from outside: below bubblewrap, which names the machine's folder.
fn within(folder: &std::path::Path) -> Vec<Process> {
    let marker = folder.to_str().expect("its path is text");
    let is_monitor = |process: &&Process| process.command.starts_with("bwrap ") && process.command.contains(marker);
    let all = processes::all();
    let found = all.iter().filter(is_monitor);
    let below = found.flat_map(|monitor| processes::descendants(monitor.pid));
    below.filter(|process| !process.is_dead()).collect()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_pause_freezes_a_tree_that_forks_and_cuts_what_follows_it() {
    let server = E2bServer::start(Options::default()).unwrap();
    let client = Client::of(&server);
    let sandbox = client.create().await;
    let folder = server.machines()[0].folder.clone();
    let log = folder.join("home/user/log");
    let length = || std::fs::metadata(&log).map_or(0, |found| found.len());
    let pause = async {
        until("the tree writes", || length() > 100).await;
        client.control("POST", &format!("/sandboxes/{}/pause", sandbox.id), json!({})).await.unwrap().status
    };
    let line = format!("(while echo y; do sleep 0.05; done) & {FORKING}");
    let (following, paused) = tokio::join!(client.run(&sandbox, &line), pause);
    assert_eq!((paused, following.unwrap().end), (204, End::Broken));

    for _ in 0..3 {
        let (before, seen) = (length(), within(&folder));
        assert!(seen.len() > 5, "the tree is there: {seen:?}");
        assert_eq!(seen.iter().filter(|process| !process.is_stopped() && process.state != 'D').count(), 0, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(length(), before, "nothing is written");
    }
    let refused = client.run(&sandbox, "true").await.unwrap();
    assert_eq!(refused.json(), json!({ "sandboxId": sandbox.id, "message": "The sandbox was not found", "code": 502 }));

    let path = format!("/v2/sandboxes/{}/connect", sandbox.id);
    let started = server_started(&client, &sandbox.id).await;
    assert_eq!(client.control("POST", &path, json!({ "timeout": 60 })).await.unwrap().status, 201);
    assert_eq!(client.control("POST", &path, json!({ "timeout": 60 })).await.unwrap().status, 200, "it runs already");
    assert_ne!(server_started(&client, &sandbox.id).await, started, "it counts from its resumption");
    let before = length();
    until("the tree goes on", || length() > before).await;

    assert!(server.pause_outside(&sandbox.id));
    assert_eq!(server.machines()[0].state, State::Paused);
    let deleted = client.control("DELETE", &format!("/sandboxes/{}", sandbox.id), Value::Null).await.unwrap();
    assert_eq!((deleted.status, within(&folder)), (204, vec![]), "a paused one can be killed, and all of it is");
    assert!(log.is_file(), "its files are there to be searched");
    drop(server);
    assert!(!folder.exists(), "they go with the server");
}

async fn server_started(client: &Client, id: &str) -> Value {
    client.control("GET", &format!("/sandboxes/{id}"), Value::Null).await.expect("the server answers").json()["startedAt"].clone()
}

#[tokio::test]
async fn nothing_runs_after_the_server() {
    let server = E2bServer::start(Options::default()).unwrap();
    let client = Client::of(&server);
    let sandboxes = [client.create().await, client.create().await];
    let machines = server.machines();
    for sandbox in &sandboxes {
        client.run(sandbox, "setsid sleep 1000 & nohup sleep 1000 &").await.unwrap();
    }
    assert!(server.pause_outside(&sandboxes[1].id));
    assert!(machines.iter().all(|machine| within(&machine.folder).len() >= 4));
    let root = server.root().to_owned();
    drop(server);
    assert_eq!(processes::mentioning(root.to_str().unwrap()), vec![]);
}

#[tokio::test]
async fn nothing_runs_after_a_server_that_was_killed() {
    let root = tempfile::tempdir().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a program of the tests")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_e2b-server"));
    let command = command.arg("--root").arg(root.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let client = Client { address: text("url").trim_start_matches("http://").to_owned(), key: text("key") };
    let sandbox = client.create().await;
    client.run(&sandbox, "setsid sleep 1000 &").await.unwrap();
    let folder = root.path().join(&sandbox.id);
    let inner = within(&folder);
    assert!(inner.len() >= 3, "{inner:?}");
    program.kill().unwrap();
    program.wait().unwrap();
    let is_same = |process: &Process| processes::read(process.pid).is_some_and(|now| now.started == process.started);
    until("all of it is gone", || !inner.iter().any(is_same)).await;
}

#[tokio::test]
async fn the_plan_has_limits() {
    let options = Options { maximum_running: Some(1), maximum_hours: Some(1), ..Options::default() };
    let server = E2bServer::start(options).unwrap();
    let client = Client::of(&server);
    let long = json!({ "templateID": "base", "timeout": 3601 });
    let answer = client.control("POST", "/v2/sandboxes", long).await.unwrap();
    assert_eq!((answer.status, &answer.json()["message"]), (400, &json!("Timeout cannot be greater than 1 hours")));
    let unknown = client.control("POST", "/sandboxes", json!({ "templateID": "other" })).await.unwrap();
    assert_eq!((unknown.status, &unknown.json()["message"]), (404, &json!("template 'other' not found")));

    let first = client.create().await;
    let full = client.control("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.unwrap();
    assert_eq!((full.status, full.headers.get("retry-after")), (429, None));
    assert!(server.pause_outside(&first.id));
    let second = client.create().await;
    let resumed = client.control("POST", &format!("/v2/sandboxes/{}/connect", first.id), json!({})).await.unwrap();
    assert_eq!(resumed.status, 429, "what is resumed needs a place");

    let path = format!("/sandboxes/{}", second.id);
    let clamped = client.control("POST", &format!("{path}/timeout"), json!({ "timeout": 1_000_000 })).await.unwrap();
    let told = client.control("GET", &path, Value::Null).await.unwrap().json();
    let times = ["startedAt", "endAt"].map(|name| told[name].as_str().unwrap()[14..16].to_owned());
    assert_eq!(clamped.status, 204);
    assert_eq!(times[0], times[1], "the end is an hour after the start: {told}");
    server.lose(&second.id);
    assert_eq!(server.created(), 2);
}

#[tokio::test]
async fn a_clock_can_be_wrong() {
    let skew = Duration::from_secs(3600 * 24 * 365);
    let server = E2bServer::start(Options { clock_skew: skew, is_clock_behind: true, ..Options::default() }).unwrap();
    let client = Client::of(&server);
    let (right, wrong) = (E2bServer::start(Options::default()).unwrap(), client.create().await);
    let other = Client::of(&right);
    let sandbox = other.create().await;
    let year = async |client: &Client, id: &str| {
        server_started(client, id).await.as_str().unwrap()[..4].parse::<u32>().unwrap()
    };
    assert_eq!(year(&client, &wrong.id).await + 1, year(&other, &sandbox.id).await);
}
