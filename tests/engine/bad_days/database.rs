//! The database is held by another program, damaged, newer, out of reach.

use std::{fs, path::Path, sync::Arc};

use courier_engine::{
    agent::Exit,
    engine::{Code, Engine, NewSandbox, SendHow},
    model::{AgentKind, Ending, Reason, SandboxId, Status},
    store::Query,
};
use courier_test_support::{processes::run, provider::FakeProvider};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{counted, eventually, is, refused};
use crate::world::{World, config};

/// Another program, in the middle of writing.
fn hold(home: &Path) -> Connection {
    let other = Connection::open(home.join("courier.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test]
async fn while_another_program_holds_it_a_stop_reaches_the_agent() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    let other = hold(world.home.path());
    world.provider.print(turn, b"printed while it was held\n");
    refused(world.engine.sandbox_send(id, "more", SendHow::Queue).await, Code::DatabaseBusy);
    let error = refused(world.engine.sandbox_stop(id).await, Code::DatabaseBusy);
    assert!(error.to_string().contains("was told to end"), "{error}");
    eventually("the agent's end", async || world.provider.open_turns().is_empty().then_some(())).await;
    let row = world.engine.sandbox_get(id).await.unwrap();
    assert!(row.step.is_some_and(|step| step.contains("held by another program")), "the page says why");
    drop(other);
    let row = world.until(id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle.ending, Some(Ending::Killed(Reason::Stopped)), "the stop was owed");
    assert_eq!(world.log(id).await, b"printed while it was held\n");
    assert_eq!((world.provider.alive(), row.step), (0, None));
    counted(&world.engine, 0).await;
}

#[tokio::test]
async fn after_it_was_held_everything_goes_on() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    let other = hold(world.home.path());
    world.provider.print(turn, b"while\n");
    world.until(id, |row| row.step.as_deref().is_some_and(|step| step.contains("held by another"))).await;
    // What is stored can be read all the same.
    world.engine.sandbox_list(Query { limit: 10, ..Query::default() }).await.unwrap();
    assert_eq!(world.items(id).await.len(), 1, "the conversation opens");
    drop(other);
    world.until(id, |row| row.step.is_none()).await;
    world.provider.print(turn, b"after\n");
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.log(id).await, b"while\nafter\n");
    world.engine.sandbox_send(id, "next", SendHow::Queue).await.unwrap();
    let next = world.turn_with("next").await;
    world.provider.end(next, Exit::Code(0));
    world.until(id, |row| !row.is_working && row.queued == 0).await;
}

/// A sandbox that is being made, and whose owner is replaced meanwhile.
async fn replaced(world: &World, ask: impl AsyncFn(SandboxId)) -> SandboxId {
    world.provider.think(true);
    let project = world.project().await;
    let new = NewSandbox::of(project, AgentKind::Shell, "work");
    let id = world.engine.sandbox_create(new).await.unwrap().id;
    eventually("a sandbox to be asked for", async || world.provider.is_asked().then_some(())).await;
    let other = hold(world.home.path());
    ask(id).await;
    drop(other);
    world.until(id, |row| row.step.as_deref().is_some_and(|step| step.contains("what was begun"))).await;
    assert_eq!(world.provider.asked(), 1, "it is not made twice at the same time");
    world.provider.think(false);
    id
}

#[tokio::test]
async fn who_owns_it_next_waits_for_what_was_being_made() {
    let world = World::new().await;
    let id = replaced(&world, async |id| {
        refused(world.engine.sandbox_extend(id, std::time::Duration::from_secs(60)).await, Code::DatabaseBusy);
    })
    .await;
    let row = world.until(id, |row| row.lifecycle.status == Status::Running).await;
    assert_eq!((row.step, world.provider.alive()), (None, 1));
    world.turn_with("work").await;
    assert_eq!(world.provider.misdeeds(), Vec::<String>::new());
}

#[tokio::test]
async fn what_comes_late_does_not_stay_behind_a_sandbox_that_has_ended() {
    let world = World::new().await;
    let id = replaced(&world, async |id| {
        refused(world.engine.sandbox_stop(id).await, Code::DatabaseBusy);
    })
    .await;
    world.until(id, is(Status::Killed)).await;
    assert_eq!(world.provider.alive(), 0);
}

#[tokio::test]
async fn a_folder_whose_database_is_held_opens() {
    let mut world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.engine.shutdown().await;
    let other = hold(world.home.path());
    world.restart().await;
    assert_eq!(world.engine.sandbox_get(id).await.unwrap().lifecycle.status, Status::Running);
    drop(other);
    world.provider.print(turn, b"all of it");
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.log(id).await, b"all of it");
}

/// A data folder that was used, and closed.
async fn used() -> TempDir {
    let mut world = World::new().await;
    let (id, turn) = world.running("work").await;
    for number in 0..5000 {
        world.provider.print(turn, format!("line {number}\n").as_bytes());
    }
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    let home = world.close().await;
    let own = Connection::open(home.path().join("courier.db")).unwrap();
    own.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    home
}

async fn open(home: &Path) -> Result<Engine, courier_engine::engine::Error> {
    Engine::open(config(home, Arc::new(FakeProvider::default()))).await
}

#[tokio::test]
async fn damage_is_named_and_the_file_left_alone() {
    type Harm = (&'static str, fn(&Path));
    let harms: [Harm; 6] = [
        ("emptied", |file| fs::write(file, b"").unwrap()),
        ("missing", |file| fs::remove_file(file).unwrap()),
        ("cut in the middle", |file| {
            let length = fs::metadata(file).unwrap().len();
            fs::File::options().write(true).open(file).unwrap().set_len(length / 2).unwrap();
        }),
        ("a page of garbage", |file| {
            let mut bytes = fs::read(file).unwrap();
            // Every table's first page lies near the beginning.
            bytes[4096 * 2..4096 * 6].fill(0xa5);
            fs::write(file, bytes).unwrap();
        }),
        ("its first page alone", |file| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..4096]).unwrap();
        }),
        ("another file in its place", |file| fs::write(file, "not a database ".repeat(1000)).unwrap()),
    ];
    for (name, harm) in harms {
        let home = used().await;
        let file = home.path().join("courier.db");
        harm(&file);
        let before = fs::read(&file).ok();
        let error = refused(open(home.path()).await, Code::DatabaseDamaged);
        assert!(error.to_string().contains(&file.display().to_string()), "{name}: {error} says where");
        assert!(fs::read(&file).ok() == before, "{name}: it is left as it was");
        let listed = courier(home.path(), &["sandbox", "list"]);
        assert!(listed.contains("damaged") && listed.contains("Nothing was changed"), "{name}: {listed}");
        assert!(fs::read(&file).ok() == before, "{name}: also by the command line");
    }
}

/// What the command line has to say.
fn courier(home: &Path, words: &[&str]) -> String {
    let home = home.display().to_string();
    let words: Vec<&str> = ["--home", &home].into_iter().chain(words.iter().copied()).collect();
    let output = run(Path::new(env!("CARGO_BIN_EXE_courier")), &words).unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_database_whose_log_was_lost_opens_with_what_the_file_holds() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.print(turn, b"once");
    eventually("the output", async || (world.log(id).await == b"once").then_some(())).await;
    // As a crash leaves it: the file and its log, copied while they are in use.
    let home = TempDir::new().unwrap();
    fs::copy(world.home.path().join("courier.db"), home.path().join("courier.db")).unwrap();
    let engine = open(home.path()).await.expect("the file alone is a whole database");
    engine.sandbox_list(Query { limit: 10, ..Query::default() }).await.unwrap();
}

#[tokio::test]
async fn damage_that_shows_in_use_is_named_and_the_sandbox_waits() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    let checkpoint = Connection::open(world.home.path().join("courier.db")).unwrap();
    checkpoint.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(checkpoint);
    let file = world.home.path().join("courier.db");
    let mut bytes = fs::read(&file).unwrap();
    bytes[4096..].fill(0x5a);
    // In place: the file that is open is the one that is damaged.
    std::io::Write::write_all(&mut fs::File::options().write(true).open(&file).unwrap(), &bytes).unwrap();
    world.provider.print(turn, b"more");
    let error =
        eventually("an error", async || world.engine.sandbox_send(id, "again", SendHow::Queue).await.err()).await;
    refused::<()>(Err(error), Code::DatabaseDamaged);
}

#[tokio::test]
async fn a_newer_database_is_refused_in_words() {
    let home = used().await;
    let file = home.path().join("courier.db");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&file).unwrap();
    let error = refused(open(home.path()).await, Code::DatabaseNewer);
    assert!(error.to_string().contains("99"), "{error}");
    assert!(fs::read(&file).unwrap() == before, "it is left alone");
}

#[tokio::test]
async fn a_data_folder_that_vanishes_is_named() {
    let world = World::new().await;
    let (id, _turn) = world.running("work").await;
    fs::remove_dir_all(world.home.path()).unwrap();
    let error =
        eventually("an error", async || world.engine.sandbox_send(id, "more", SendHow::Queue).await.err()).await;
    refused::<()>(Err(error), Code::DataFolder);
    refused(world.engine.sandbox_stop(id).await, Code::DataFolder);
    eventually("the agent's end", async || world.provider.open_turns().is_empty().then_some(())).await;
    let new =
        courier_engine::engine::NewSandbox::of(courier_engine::model::ProjectId::fresh(), AgentKind::Shell, "true");
    assert!(world.engine.sandbox_create(new).await.is_err());
    world.engine.shutdown().await;
}

#[tokio::test]
async fn a_data_folder_that_cannot_be_made_or_is_a_file_is_named() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    refused(open(&place.path().join("file")).await, Code::DataFolder);
    refused(open(&place.path().join("file/below")).await, Code::DataFolder);
}

#[tokio::test]
async fn a_data_folder_that_is_read_only_is_named() {
    let home = used().await;
    let folder = home.path().display().to_string();
    let program = env!("CARGO_BIN_EXE_courier");
    // Permissions do not hold for root; a disk that is mounted read-only does.
    let words = ["--dev-bind", "/", "/", "--ro-bind", &folder, &folder, "--", program];
    let words: Vec<&str> = words.into_iter().chain(["--home", &folder, "sandbox", "list"]).collect();
    let output = run(Path::new("bwrap"), &words).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Read-only") && said.contains("that you may write in it"), "{said}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_takes_no_other_with_it() {
    let mut world = World::new().await;
    let (bad, _) = world.running("bad").await;
    let (good, turn) = world.running("good").await;
    world.engine.shutdown().await;
    let other = Connection::open(world.home.path().join("courier.db")).unwrap();
    other.execute("UPDATE sandboxes SET allowed_hosts = '[broken' WHERE id = ?1", [bad.to_string()]).unwrap();
    drop(other);
    world.restart().await;
    let page = world.engine.sandbox_list(Query { limit: 10, ..Query::default() }).await.unwrap();
    assert_eq!(page.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [good]);
    world.provider.end(turn, Exit::Code(0));
    world.until(good, |row| !row.is_working).await;
}
