//! Processes are killed from outside, as by a system without memory.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use courier_engine::{
    engine::{NewSandbox, SendHow},
    model::{AgentKind, ErrorKind, Item, SandboxId, Status},
    secrets::{CredentialKind, Secret},
    settings::Settings,
};
use courier_keeper::{identity::Identity, protocol::KeeperRecord, spool};
use courier_test_support::processes::{self, Process};

use super::{counted, eventually, is, nothing_runs, printed_by, script};
use crate::world::World;

const KILL: i32 = 9;

fn record(world: &World, id: SandboxId) -> KeeperRecord {
    let folder = world.home.path().join("sandboxes").join(id.to_string());
    serde_json::from_slice(&fs::read(folder.join(spool::RECORD)).unwrap()).unwrap()
}

/// What the sandbox's init has started.
fn inside(record: &KeeperRecord) -> Vec<Process> {
    processes::descendants(record.init.as_ref().unwrap().pid.unsigned_abs())
}

/// bubblewrap's own process, between keeper and init.
fn bubblewrap(record: &KeeperRecord) -> Vec<Process> {
    let all = processes::descendants(record.keeper.pid.unsigned_abs());
    all.into_iter().filter(|process| process.command.contains("bwrap")).collect()
}

const BUSY: &str = "echo ready; while :; do sleep 0.05; done";

#[tokio::test]
async fn an_agent_that_is_killed_has_crashed_and_the_sandbox_goes_on() {
    let world = World::on_this_machine().await;
    let id = script(&world, BUSY, "ready").await;
    inside(&record(&world, id)).iter().for_each(processes::kill);
    world.until(id, |row| !row.is_working).await;
    let items = world.items(id).await;
    assert!(items.iter().any(|item| matches!(item, Item::Error { error: ErrorKind::Crashed, .. })), "{items:?}");
    world.engine.sandbox_send(id, "echo still here", SendHow::Queue).await.unwrap();
    printed_by(&world, id, "still here").await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn whichever_of_its_own_processes_is_killed_a_sandbox_ends_whole() {
    let world = World::on_this_machine().await;
    let kill = |identity: &Identity| assert!(identity.signal(KILL).unwrap());
    for victim in ["init", "bubblewrap", "keeper", "all"] {
        let id = script(&world, BUSY, "ready").await;
        let record = record(&world, id);
        let init = record.init.as_ref().unwrap();
        match victim {
            "init" => kill(init),
            "bubblewrap" => {
                let found = bubblewrap(&record);
                // Where init is bubblewrap's own first process, there is no other.
                if found.is_empty() { kill(init) } else { found.iter().for_each(processes::kill) }
            }
            "keeper" => kill(&record.keeper),
            _ => {
                let all = processes::mentioning(&id.to_string());
                all.iter().chain(&inside(&record)).for_each(processes::kill);
            }
        }
        let row = world.until(id, |row| !row.lifecycle.status.is_live()).await;
        assert_eq!(row.lifecycle.status, Status::Killed, "{victim}: {row:?}");
        assert!(row.is_unsaved && !row.is_working, "{victim}: a turn was open, and is not any more");
        assert_eq!(world.log(id).await, b"ready\n", "{victim}: what was printed is kept");
        nothing_runs(id).await;
    }
    counted(&world.engine, 0).await;
}

/// Stands in for the agent's program, as it updates itself: each version a file, and a link to the newest.
fn install(place: &Path, version: u32, turn: &str) {
    let text =
        format!("#!/bin/bash\nif [ \"$1\" = --version ]; then echo \"2.1.332 (Claude Code)\"; exit; fi\n{turn}\n");
    fs::create_dir_all(place.join("versions")).unwrap();
    let file = place.join(format!("versions/2.1.{version}"));
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    _ = fs::remove_file(place.join("claude"));
    std::os::unix::fs::symlink(file, place.join("claude")).unwrap();
}

const ANSWER: &str = r#"echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}'"#;

async fn claude(world: &World, turn: &str) -> (std::path::PathBuf, SandboxId) {
    let programs = world.home.path().join("programs");
    install(&programs, 1, turn);
    let settings = Settings::default().with_path(AgentKind::Claude, programs.join("claude").display().to_string());
    world.engine.settings_set(settings).await.unwrap();
    let key = Secret::new("sk-ant-api03-not-a-key-0123456789");
    world.engine.credential_set(CredentialKind::AnthropicKey, key, true).await.unwrap();
    let project = world.project().await;
    let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Claude, "hello")).await.unwrap().id;
    (programs, id)
}

async fn errors(world: &World, id: SandboxId) -> Vec<(ErrorKind, String)> {
    let error = |item| match item {
        Item::Error { error, message, .. } => Some((error, message)),
        _ => None,
    };
    world.items(id).await.into_iter().filter_map(error).collect()
}

/// Waits until the program has answered so often, by the version the sandbox was made with.
async fn answered(world: &World, id: SandboxId, times: usize) {
    eventually("an answer", async || {
        let log = world.log(id).await;
        (String::from_utf8_lossy(&log).matches("first").count() == times).then_some(())
    })
    .await;
}

/// Sends a message, and returns why its turn failed.
async fn failure(world: &World, id: SandboxId, prompt: &str) -> (ErrorKind, String) {
    let before = errors(world, id).await.len();
    world.engine.sandbox_send(id, prompt, SendHow::Queue).await.unwrap();
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    errors(world, id).await.get(before).cloned().expect("the turn fails")
}

#[tokio::test]
async fn a_program_that_was_updated_or_removed_between_turns_is_named() {
    let world = World::on_this_machine().await;
    let turn = |words: &str| format!("echo {words} >&2\n{ANSWER}");
    let (programs, id) = claude(&world, &turn("first")).await;
    world.until(id, |row| row.lifecycle.status == Status::Running && !row.is_working && row.queued == 0).await;

    install(&programs, 2, &turn("second"));
    world.engine.sandbox_send(id, "after the update", SendHow::Queue).await.unwrap();
    answered(&world, id, 2).await;

    fs::remove_file(programs.join("versions/2.1.1")).unwrap();
    let (kind, words) = failure(&world, id, "after the old one was removed").await;
    assert_eq!(kind, ErrorKind::MissingCli);
    assert!(words.contains("if it was updated since, run the sandbox again"), "{words}");

    fs::remove_file(programs.join("claude")).unwrap();
    fs::remove_file(programs.join("versions/2.1.2")).unwrap();
    let (kind, words) = failure(&world, id, "after all was removed").await;
    assert_eq!(kind, ErrorKind::MissingCli);
    assert!(words.contains("was not found"), "{words}");
    let row = world.until(id, |row| !row.is_working).await;
    assert_eq!(row.lifecycle.status, Status::Running, "the sandbox goes on");

    install(&programs, 1, &turn("first"));
    world.engine.sandbox_send(id, "as it was", SendHow::Queue).await.unwrap();
    answered(&world, id, 3).await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn a_program_that_hangs_as_it_starts_can_be_interrupted_and_stopped() {
    let world = World::on_this_machine().await;
    let (_, id) = claude(&world, "trap '' TERM; while :; do sleep 0.05; done").await;
    world.until(id, |row| row.is_working).await;
    eventually("its process", async || {
        let folder = world.home.path().join("sandboxes").join(id.to_string()).join(spool::RECORD);
        let is_there = folder.exists() && !inside(&record(&world, id)).is_empty();
        is_there.then_some(())
    })
    .await;
    world.engine.sandbox_interrupt(id).await.unwrap();
    world.until(id, |row| !row.is_working).await;
    assert!(matches!(errors(&world, id).await.as_slice(), [(ErrorKind::Interrupted, _)]));
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}
