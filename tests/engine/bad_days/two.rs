//! Two at once: engines on the same folder, at the very same time, and what a crash leaves of the one before.

use std::{path::Path, sync::Arc};

use courier_engine::engine::{Code, Engine};
use courier_test_support::{
    processes::{self, run},
    provider::FakeProvider,
};
use tempfile::TempDir;

use super::{eventually, refused};
use crate::world::{World, config};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_start_at_once_one_opens_and_the_others_say_so() {
    let place = TempDir::new().unwrap();
    let home = place.path().join("not/there/yet");
    for _ in 0..5 {
        let mut starting = tokio::task::JoinSet::new();
        for _ in 0..6 {
            starting.spawn(Engine::open(config(&home, Arc::new(FakeProvider::default()))));
        }
        let mut opened = Vec::new();
        while let Some(one) = starting.join_next().await {
            match one.unwrap() {
                Ok(engine) => opened.push(engine),
                Err(error) => drop(refused::<()>(Err(error), Code::AlreadyOpen)),
            }
        }
        assert_eq!(opened.len(), 1);
        opened.pop().unwrap().shutdown().await;
        // Next time over the same folder, or one where there is nothing.
        if home.join("courier.db").exists() {
            std::fs::remove_dir_all(&home).unwrap();
        }
    }
}

#[test]
fn of_many_programs_that_start_at_once_none_fails_in_another_way() {
    let place = TempDir::new().unwrap();
    let home = place.path().join("home").display().to_string();
    let said: Vec<_> = std::thread::scope(|scope| {
        let start = || run(Path::new(env!("CARGO_BIN_EXE_courier")), &["--home", &home, "project", "sample"]).unwrap();
        let running: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let codes: Vec<_> = said.iter().map(|output| output.status.code()).collect();
    assert!(codes.contains(&Some(0)), "{codes:?}");
    for output in said.iter().filter(|output| output.status.code() != Some(0)) {
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words}");
        assert!(words.contains("another CodeCourier holds"), "{words}");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "this program is to be killed")]
async fn a_program_killed_as_it_holds_the_folder_leaves_no_lock_though_its_agents_live() {
    let home = TempDir::new().unwrap();
    let folder = home.path().display().to_string();
    let program = Path::new(env!("CARGO_BIN_EXE_courier"));
    let sample = run(program, &["--home", &folder, "--json", "project", "sample"]).unwrap();
    let project: serde_json::Value = serde_json::from_slice(&sample.stdout).unwrap();
    let project = project["id"].as_str().unwrap().to_owned();
    let mut holder = std::process::Command::new(program)
        .args(["--home", &folder, "sandbox", "create", "--project", &project, "--agent", "shell", "--wait"])
        .arg("echo ready; while :; do sleep 0.05; done")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let keepers = || {
        let all = processes::descendants(1);
        let of_folder = |process: &processes::Process| process.command.contains(&folder);
        all.into_iter().filter(|process| of_folder(process) && process.command.contains("courier-keeper")).count()
    };
    eventually("the agent", async || {
        let sandboxes = std::fs::read_dir(home.path().join("sandboxes")).ok()?;
        let has_printed = |folder: &Path| {
            let turns = std::fs::read_dir(folder.join("turns")).into_iter().flatten().flatten();
            turns.into_iter().any(|turn| std::fs::read(turn.path().join("out")).is_ok_and(|out| out == b"ready\n"))
        };
        sandboxes.flatten().any(|entry| has_printed(&entry.path())).then_some(())
    })
    .await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(keepers() > 0, "the agent outlives it");
    let listed = run(program, &["--home", &folder, "--json", "sandbox", "list"]).unwrap();
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stderr));
    let row: serde_json::Value =
        serde_json::from_slice(listed.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let id = row["id"].as_str().unwrap();
    assert_eq!(row["status"], "running");
    let stopped = run(program, &["--home", &folder, "sandbox", "stop", id]).unwrap();
    assert_eq!(stopped.status.code(), Some(0), "{}", String::from_utf8_lossy(&stopped.stderr));
    eventually("the end of every process", async || processes::mentioning(id).is_empty().then_some(())).await;
}

#[tokio::test]
async fn what_an_earlier_life_left_lying_about_hinders_nobody() {
    let mut world = World::new().await;
    let home = world.close().await;
    // A lock that nobody holds, and halves of files.
    std::fs::write(home.path().join("lock"), "4711").unwrap();
    std::fs::write(home.path().join("courier.db.copying"), "half a copy").unwrap();
    Engine::open(config(home.path(), Arc::new(FakeProvider::default()))).await.unwrap();
}
