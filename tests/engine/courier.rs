//! The command line over real sandboxes: what it prints, and its exit codes.

use std::path::Path;

use courier_test_support::processes::run;
use serde_json::Value;
use tempfile::TempDir;

use crate::world::World;

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn courier(home: &Path, arguments: &[&str]) -> Said {
    let home = home.display().to_string();
    let arguments: Vec<&str> = ["--home", &home].into_iter().chain(arguments.iter().copied()).collect();
    let output = run(Path::new(env!("CARGO_BIN_EXE_courier")), &arguments).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn json(said: &Said) -> Value {
    serde_json::from_str(said.out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {} {}", said.out, said.err))
}

#[test]
fn a_sandbox_from_the_first_message_to_its_end() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let project = json(&courier(home, &["--json", "project", "sample"]));
    let project = project["id"].as_str().unwrap().to_owned();
    let create = ["--json", "sandbox", "create", "--project", &project, "--agent", "shell", "--wait", "echo one; pwd"];
    let created = courier(home, &create);
    assert_eq!(created.code, Some(0), "{}", created.err);
    let id = json(&created)["id"].as_str().unwrap().to_owned();

    let sent = courier(home, &["sandbox", "send", &id, "--wait", "echo two; exit 7"]);
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    let log = courier(home, &["log", &id]);
    assert!(log.out.starts_with("one\n") && log.out.ends_with("two\n"), "byte for byte: {:?}", log.out);

    assert_eq!(json(&courier(home, &["--json", "sandbox", "pause", &id]))["status"], "paused");
    assert_eq!(json(&courier(home, &["--json", "sandbox", "resume", &id]))["status"], "running");
    let stopped = json(&courier(home, &["--json", "sandbox", "stop", &id]));
    assert_eq!((&stopped["status"], &stopped["reason"]), (&"killed".into(), &"stopped".into()));
    let late = courier(home, &["--json", "sandbox", "send", &id, "more"]);
    assert_eq!(late.code, Some(1));
    let error: Value = serde_json::from_str(&late.err).unwrap();
    assert_eq!(error["error"]["code"], "illegalState");
}

#[test]
fn the_trash_keeps_a_sandbox_until_somebody_is_sure() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let project = json(&courier(home, &["--json", "project", "sample"]))["id"].as_str().unwrap().to_owned();
    let create = ["--json", "sandbox", "create", "--project", &project, "--agent", "shell", "--wait", "echo > new"];
    let id = json(&courier(home, &create))["id"].as_str().unwrap().to_owned();
    let deleted = json(&courier(home, &["--json", "sandbox", "delete", &id]));
    assert_eq!(deleted["status"], "killed", "it ends before the command does");
    assert!(deleted["deleted_at"].is_number(), "{deleted}");
    assert_eq!(courier(home, &["sandbox", "list"]).out, "");
    assert_eq!(json(&courier(home, &["--json", "sandbox", "list", "--deleted"]))["id"], id.as_str());
    courier(home, &["sandbox", "restore", &id]);
    assert_eq!(json(&courier(home, &["--json", "sandbox", "list"]))["id"], id.as_str());
    let early = courier(home, &["sandbox", "purge", &id, "--yes"]);
    assert!(early.code == Some(1) && early.err.contains("not in the trash"), "{}", early.err);
    courier(home, &["sandbox", "delete", &id]);
    let asked = courier(home, &["sandbox", "purge", &id]);
    assert_eq!(asked.code, Some(1), "{}", asked.err);
    assert!(asked.out.contains("Gone for good:") && asked.out.contains("--yes"), "{}", asked.out);
    assert!(home.join("sandboxes").join(&id).is_dir());
    assert_eq!(courier(home, &["sandbox", "purge", &id, "--yes"]).code, Some(0));
    assert!(!home.join("sandboxes").join(&id).exists());
    assert_eq!(courier(home, &["sandbox", "show", &id]).code, Some(1));
}

#[tokio::test]
async fn while_the_app_holds_the_folder_it_says_so() {
    let world = World::new().await;
    let said = courier(world.home.path(), &["sandbox", "list"]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("another CodeCourier holds"), "{}", said.err);
}

#[test]
fn a_wrong_command_line_is_told_apart() {
    let home = TempDir::new().unwrap();
    assert_eq!(courier(home.path(), &["sandbox", "dance"]).code, Some(2));
    let none = "01a228e4-1331-736e-954f-9721b578b557";
    assert_eq!(courier(home.path(), &["sandbox", "show", none]).code, Some(1));
}
