//! Going on once a limit has ended.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use courier_engine::{
    agent::Exit,
    engine::{Code, Config, Engine, SendHow},
    model::{AgentKind, Clock, SandboxId, Status, SystemClock},
};
use courier_test_support::provider::FakeProvider;
use tempfile::TempDir;

use crate::world::{Moved, World, config, eventually, until};

const MESSAGE: &str = "Continue where you stopped.";
const HOUR: Duration = Duration::from_secs(3600);

async fn open(home: &TempDir, provider: &FakeProvider, clock: &Arc<Moved>) -> Engine {
    let config = Config { clock: clock.clone(), ..config(home.path(), Arc::new(provider.clone())) };
    Engine::open(config).await.unwrap()
}

/// How often the agent was told to go on.
fn told(provider: &FakeProvider) -> usize {
    provider.started().iter().filter(|(_, prompt)| prompt == MESSAGE).count()
}

/// A sandbox whose first turn has ended.
async fn idle(engine: &Engine, provider: &FakeProvider) -> SandboxId {
    let project = engine.project_sample().await.unwrap().id;
    let new = courier_engine::engine::NewSandbox::of(project, AgentKind::Shell, "begin");
    let id = engine.sandbox_create(new).await.unwrap().id;
    until(engine, id, |row| row.is_working && row.step.is_none()).await;
    let turn = eventually("the turn", async || provider.open_turns().first().copied()).await;
    provider.end(turn, Exit::Code(0));
    until(engine, id, |row| !row.is_working).await;
    id
}

#[tokio::test]
async fn a_sandbox_waits_paused_for_a_limit_to_end_and_goes_on_once_also_after_a_restart() {
    let (home, provider, clock) = (TempDir::new().unwrap(), FakeProvider::default(), Arc::<Moved>::default());
    let engine = open(&home, &provider, &clock).await;
    let id = idle(&engine, &provider).await;
    let at = clock.now() + 2 * HOUR;
    engine.sandbox_continue_at(id, Some(at)).await.unwrap();
    let row = until(&engine, id, |row| row.lifecycle.status == Status::Paused).await;
    assert_eq!(row.continue_at, Some(at), "it would have run out of time");
    engine.shutdown().await;
    drop(engine);

    // Not yet.
    clock.0.store(3_600_000, Ordering::Relaxed);
    let engine = open(&home, &provider, &clock).await;
    until(&engine, id, |row| row.lifecycle.status == Status::Paused && row.continue_at == Some(at)).await;
    engine.shutdown().await;
    drop(engine);

    clock.0.store(7_210_000, Ordering::Relaxed);
    let engine = open(&home, &provider, &clock).await;
    eventually("the message", async || (told(&provider) == 1).then_some(())).await;
    until(&engine, id, |row| row.is_working && row.continue_at.is_none()).await;
    engine.shutdown().await;
    drop(engine);

    let engine = open(&home, &provider, &clock).await;
    let turn = eventually("the turn", async || provider.open_turns().first().copied()).await;
    provider.end(turn, Exit::Code(0));
    until(&engine, id, |row| !row.is_working && row.queued == 0).await;
    assert_eq!(told(&provider), 1, "it is told once");
    engine.shutdown().await;
}

#[tokio::test]
async fn whatever_the_agent_is_told_before_takes_its_place() {
    let world = World::new().await;
    let id = idle(&world.engine, &world.provider).await;
    let soon = SystemClock.now() + Duration::from_secs(300);
    world.engine.sandbox_continue_at(id, Some(soon)).await.unwrap();
    let row = world.engine.sandbox_get(id).await.unwrap();
    assert_eq!((row.lifecycle.status, row.continue_at), (Status::Running, Some(soon)), "its time is long enough");
    world.engine.sandbox_continue_at(id, None).await.unwrap();
    assert_eq!(world.engine.sandbox_get(id).await.unwrap().continue_at, None, "it can be taken back");
    world.engine.sandbox_continue_at(id, Some(soon)).await.unwrap();
    world.engine.sandbox_send(id, "now", SendHow::Queue).await.unwrap();
    let row = world.until(id, |row| row.is_working).await;
    assert_eq!(row.continue_at, None);
}

#[tokio::test]
async fn nothing_goes_on_that_has_ended_nor_in_a_far_future() {
    let world = World::new().await;
    let id = idle(&world.engine, &world.provider).await;
    let far = SystemClock.now() + 8 * 24 * HOUR;
    let error = world.engine.sandbox_continue_at(id, Some(far)).await.unwrap_err();
    assert_eq!(error.code(), Code::Invalid, "{error}");
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, |row| row.lifecycle.status == Status::Killed).await;
    let error = world.engine.sandbox_continue_at(id, Some(SystemClock.now())).await.unwrap_err();
    assert_eq!(error.code(), Code::IllegalState, "{error}");
}
