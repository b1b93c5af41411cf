//! The disk is full, and later it is not.

use std::{fs, path::Path};

use courier_engine::{
    engine::{Code, Engine, NewSandbox, SendHow},
    model::{AgentKind, Status},
};
use courier_test_support::small_disk::{Ballast, is_here};
use tempfile::TempDir;

use super::{counted, eventually, is, nothing_runs, refused, script};
use crate::world::{World, config, on_this_machine};

macro_rules! on_a_small_disk {
    ($test:ident, $megabytes:literal) => {
        if !is_here(concat!(module_path!(), "::", stringify!($test)), $megabytes) {
            return;
        }
    };
}

/// A name that a script can wait for.
fn allow(world: &World, id: courier_engine::model::SandboxId) {
    let workspace = world.home.path().join("sandboxes").join(id.to_string()).join("workspace");
    fs::write(workspace.join("go"), "").unwrap();
}

#[tokio::test]
async fn an_agent_waits_for_room_and_no_byte_is_lost() {
    on_a_small_disk!(an_agent_waits_for_room_and_no_byte_is_lost, 96);
    let world = World::on_this_machine().await;
    let id = script(&world, "echo ready; until [ -e go ]; do sleep 0.05; done; seq 1 300000", "ready").await;
    let ballast = Ballast::all_but(world.home.path(), 0);
    allow(&world, id);
    let says = |row: &courier_engine::store::SandboxRow| row.step.as_deref().is_some_and(|step| step.contains("full"));
    world.until(id, says).await;
    let list =
        world.engine.sandbox_list(courier_engine::store::Query { limit: 10, ..Default::default() }).await.unwrap();
    assert!(says(&list.rows[0]), "the list says it too");
    drop(ballast);
    let row = world.until(id, |row| !row.is_working).await;
    assert_eq!((row.lifecycle.status, row.step), (Status::Running, None), "it goes on by itself");
    let expected: String =
        std::iter::once("ready\n".to_owned()).chain((1..=300_000).map(|n| format!("{n}\n"))).collect();
    assert!(world.log(id).await == expected.into_bytes(), "the raw log is whole");
    world.engine.sandbox_send(id, "echo after", SendHow::Queue).await.unwrap();
    super::printed_by(&world, id, "after").await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn a_stop_on_a_full_disk_ends_the_agent_and_is_recorded_later() {
    on_a_small_disk!(a_stop_on_a_full_disk_ends_the_agent_and_is_recorded_later, 96);
    let world = World::on_this_machine().await;
    let id = script(&world, "echo ready; while :; do seq 1 1000; done", "ready").await;
    let ballast = Ballast::all_but(world.home.path(), 0);
    let error = eventually("a request that fails", async || world.engine.sandbox_extend(id, LONG).await.err()).await;
    refused::<()>(Err(error), Code::DiskFull);
    let stopped = refused(world.engine.sandbox_stop(id).await, Code::DiskFull);
    assert!(stopped.to_string().contains("was told to end"), "{stopped}");
    drop(ballast);
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
    counted(&world.engine, 0).await;
}

const LONG: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn what_the_database_could_not_take_is_read_again() {
    on_a_small_disk!(what_the_database_could_not_take_is_read_again, 96);
    let mut world = World::new().await;
    let (id, turn) = world.running("work").await;
    let ballast = Ballast::all_but(world.home.path(), 0);
    let mut expected = Vec::new();
    for number in 0..20_000 {
        let line = format!("line {number} is long enough to fill what room there is\n");
        world.provider.print(turn, line.as_bytes());
        expected.extend(line.into_bytes());
    }
    world.until(id, |row| row.step.as_deref().is_some_and(|step| step.contains("the disk is full"))).await;
    refused(world.engine.sandbox_send(id, &"more ".repeat(100_000), SendHow::Queue).await, Code::DiskFull);
    drop(ballast);
    eventually("the whole output", async || (world.log(id).await == expected).then_some(())).await;
    // And with a restart in between.
    let ballast = Ballast::all_but(world.home.path(), 0);
    for number in 0..20_000 {
        let line = format!("and line {number} is long enough to fill what room there is\n");
        world.provider.print(turn, line.as_bytes());
        expected.extend(line.into_bytes());
    }
    world.until(id, |row| row.step.as_deref().is_some_and(|step| step.contains("the disk is full"))).await;
    world.engine.shutdown().await;
    drop(ballast);
    world.restart().await;
    world.provider.end(turn, courier_engine::agent::Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    assert!(world.log(id).await == expected, "no byte is lost and none is doubled");
    counted(&world.engine, 1).await;
}

#[tokio::test]
async fn a_data_folder_without_room_is_named_and_opens_later() {
    on_a_small_disk!(a_data_folder_without_room_is_named_and_opens_later, 8);
    let home = TempDir::new().unwrap();
    let ballast = Ballast::all_but(home.path(), 0);
    let provider = std::sync::Arc::new(courier_test_support::provider::FakeProvider::default());
    refused(Engine::open(config(home.path(), provider.clone())).await, Code::DiskFull);
    drop(ballast);
    Engine::open(config(home.path(), provider)).await.unwrap();
}

/// A repository with a file of so many bytes that do not compress.
fn repository(place: &Path, bytes: usize) -> String {
    let path = place.join("big");
    let repository = git2::Repository::init(&path).unwrap();
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    fs::write(path.join("noise"), noise.take(bytes).collect::<Vec<u8>>()).unwrap();
    let mut index = repository.index().unwrap();
    index.add_path(Path::new("noise")).unwrap();
    let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
    let who = git2::Signature::now("T", "t@example.org").unwrap();
    repository.commit(Some("HEAD"), &who, &who, "first", &tree, &[]).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_mirror_or_a_clone_without_room_says_so_and_leaves_nothing() {
    on_a_small_disk!(a_mirror_or_a_clone_without_room_says_so_and_leaves_nothing, 64);
    let world = World::new().await;
    let source = repository(world.home.path(), 4 << 20);

    let ballast = Ballast::all_but(world.home.path(), 1 << 20);
    refused(world.engine.project_add(&source, None).await, Code::DiskFull);
    assert!(world.engine.project_list().await.unwrap().is_empty());
    drop(ballast);
    let project = world.engine.project_add(&source, None).await.expect("with room it works").id;

    let ballast = Ballast::all_but(world.home.path(), 2 << 20);
    let new = NewSandbox::of(project, AgentKind::Shell, "true");
    let id = world.engine.sandbox_create(new.clone()).await.unwrap().id;
    let row = world.until(id, is(Status::Error)).await;
    let error = row.error.unwrap();
    assert_eq!(error.kind, "disk_full", "{error:?}");
    assert!(error.message.contains("the disk is full") || error.message.contains("No space left"), "{error:?}");
    assert!(error.remedy.contains("Make room"), "{error:?}");
    let folder = world.home.path().join("sandboxes").join(id.to_string());
    assert!(!folder.join("workspace").exists() && !folder.join("workspace.unfinished").exists());
    drop(ballast);
    let again = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(again, is(Status::Running)).await;
    counted(&world.engine, 1).await;
}

#[tokio::test]
async fn a_keeper_that_does_not_fit_is_named_and_leaves_no_part_of_it() {
    on_a_small_disk!(a_keeper_that_does_not_fit_is_named_and_leaves_no_part_of_it, 64);
    let home = TempDir::new().unwrap();
    let engine = Engine::open(on_this_machine(home.path())).await.unwrap();
    let project = engine.project_sample().await.unwrap().id;
    let ballast = Ballast::all_but(home.path(), 2 << 20);
    let new = NewSandbox::of(project, AgentKind::Shell, "echo here");
    let id = engine.sandbox_create(new.clone()).await.unwrap().id;
    let row = crate::world::until(&engine, id, is(Status::Error)).await;
    assert_eq!(row.error.unwrap().kind, "disk_full");
    let parts: Vec<_> = walk(&home.path().join("keepers"));
    assert!(parts.is_empty(), "{parts:?}");
    drop(ballast);
    let again = engine.sandbox_create(new).await.unwrap().id;
    crate::world::until(&engine, again, is(Status::Running)).await;
    engine.sandbox_stop(again).await.unwrap();
    crate::world::until(&engine, again, is(Status::Killed)).await;
}

/// Every file below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
