//! A sandbox's files are deleted under it.

use std::{fs, path::PathBuf};

use courier_engine::{
    engine::{NewSandbox, SendHow},
    model::{AgentKind, SandboxId, Status},
};

use super::{counted, is, nothing_runs, printed_by, script};
use crate::world::World;

fn folder(world: &World, id: SandboxId, name: &str) -> PathBuf {
    world.home.path().join("sandboxes").join(id.to_string()).join(name)
}

const BUSY: &str = "echo ready; while :; do sleep 0.05; done";

#[tokio::test]
async fn a_sandbox_whose_workspace_or_home_is_gone_ends_and_says_so() {
    let world = World::on_this_machine().await;
    for name in ["workspace", "home"] {
        let id = script(&world, BUSY, "ready").await;
        fs::remove_dir_all(folder(&world, id, name)).unwrap();
        let row = world.until(id, is(Status::Error)).await;
        let error = row.error.unwrap();
        assert_eq!(error.message, format!("its {name} folder was deleted from outside"));
        assert!(error.remedy.contains("Run it again"), "{error:?}");
        assert_eq!(world.log(id).await, b"ready\n", "what it printed is kept");
        nothing_runs(id).await;
    }
    counted(&world.engine, 0).await;
}

#[tokio::test]
async fn an_idle_sandbox_without_its_workspace_does_not_stay_running() {
    let world = World::on_this_machine().await;
    let id = script(&world, "echo ready", "ready").await;
    world.until(id, |row| !row.is_working).await;
    fs::remove_dir_all(folder(&world, id, "workspace")).unwrap();
    world.until(id, is(Status::Error)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn stop_works_whatever_was_deleted() {
    let world = World::on_this_machine().await;
    for name in ["workspace", "home", "turns", "keeper.sock", "keeper.json"] {
        let id = script(&world, BUSY, "ready").await;
        let path = folder(&world, id, name);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        world.engine.sandbox_stop(id).await.unwrap();
        world.until(id, is(Status::Killed)).await;
        nothing_runs(id).await;
    }
    counted(&world.engine, 0).await;
}

#[tokio::test]
async fn a_sandbox_whose_whole_folder_is_gone_leaves_nobody_behind() {
    let world = World::on_this_machine().await;
    let (stopped, left) = (script(&world, BUSY, "ready").await, script(&world, BUSY, "ready").await);
    for id in [stopped, left] {
        fs::remove_dir_all(folder(&world, id, "")).unwrap();
    }
    world.engine.sandbox_stop(stopped).await.unwrap();
    world.until(stopped, is(Status::Killed)).await;
    let row = world.until(left, |row| !row.lifecycle.status.is_live()).await;
    assert!(row.is_unsaved || row.error.is_some(), "it does not look as if all were well: {row:?}");
    nothing_runs(stopped).await;
    nothing_runs(left).await;
    counted(&world.engine, 0).await;
}

#[tokio::test]
async fn a_turn_goes_on_and_ends_although_its_spool_was_deleted() {
    let world = World::on_this_machine().await;
    let id = script(&world, "echo ready; until [ -e go ]; do sleep 0.05; done; echo done", "ready").await;
    fs::remove_dir_all(folder(&world, id, "turns")).unwrap();
    fs::write(folder(&world, id, "workspace").join("go"), "").unwrap();
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.log(id).await, b"ready\ndone\n", "what was printed later is read all the same");
    world.engine.sandbox_send(id, "echo next", SendHow::Queue).await.unwrap();
    printed_by(&world, id, "next").await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn a_mirror_that_was_deleted_is_made_again() {
    let world = World::on_this_machine().await;
    let id = script(&world, BUSY, "ready").await;
    fs::remove_dir_all(world.home.path().join("projects")).unwrap();
    let project = world.project().await;
    let new = NewSandbox::of(project, AgentKind::Shell, "git log --oneline | wc -l; echo there");
    let other = world.engine.sandbox_create(new).await.unwrap().id;
    printed_by(&world, other, "there").await;
    for id in [id, other] {
        world.engine.sandbox_stop(id).await.unwrap();
        world.until(id, is(Status::Killed)).await;
        nothing_runs(id).await;
    }
}

#[tokio::test]
async fn after_a_restart_a_sandbox_without_files_is_not_tried_for_ever() {
    let home = tempfile::TempDir::new().unwrap();
    let engine = courier_engine::engine::Engine::open(crate::world::on_this_machine(home.path())).await.unwrap();
    let project = engine.project_sample().await.unwrap().id;
    let id = engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "true")).await.unwrap().id;
    crate::world::until(&engine, id, |row| row.lifecycle.status == Status::Running && !row.is_working).await;
    engine.shutdown().await;
    drop(engine);
    fs::remove_dir_all(home.path().join("sandboxes").join(id.to_string())).unwrap();
    nothing_runs(id).await;
    let engine = courier_engine::engine::Engine::open(crate::world::on_this_machine(home.path())).await.unwrap();
    crate::world::until(&engine, id, is(Status::Error)).await;
    counted(&engine, 0).await;
}
