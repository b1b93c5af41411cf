//! The clock on the wall is set, forward and back; running time is not changed by it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use courier_engine::{
    agent::Exit,
    engine::{Config, Engine, NewSandbox, SendHow},
    model::{AgentKind, Clock, Item, SandboxId, Status, SystemClock, Timestamp},
};
use courier_test_support::provider::FakeProvider;
use tempfile::TempDir;

use super::{eventually, is};
use crate::world::{config, on_this_machine, until};

const DAY: i64 = 24 * 60 * 60 * 1000;

/// A wall clock that can be set; the steady one is the machine's.
#[derive(Debug, Default)]
struct Set(AtomicI64);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        SystemClock.now().moved_by(self.0.load(Ordering::Relaxed))
    }
}

struct Life {
    engine: Engine,
    provider: FakeProvider,
    clock: Arc<Set>,
    home: TempDir,
}

impl Life {
    async fn new() -> Self {
        let (home, provider, clock) = (TempDir::new().unwrap(), FakeProvider::default(), Arc::new(Set::default()));
        let engine = Self::open(&home, &provider, &clock).await;
        Self { engine, provider, clock, home }
    }

    async fn open(home: &TempDir, provider: &FakeProvider, clock: &Arc<Set>) -> Engine {
        let config = Config { clock: clock.clone(), ..config(home.path(), Arc::new(provider.clone())) };
        Engine::open(config).await.unwrap()
    }

    async fn running(&self) -> SandboxId {
        let project = self.engine.project_sample().await.unwrap().id;
        let id = self.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "work")).await.unwrap().id;
        until(&self.engine, id, |row| row.is_working).await;
        id
    }

    /// How much running time is left, as a person sees it.
    async fn left(&self, id: SandboxId) -> Duration {
        let row = self.engine.sandbox_get(id).await.unwrap();
        row.expires_at.unwrap().since(self.clock.now())
    }

    /// The clock is set, and everything has taken it in.
    async fn set(&self, by: i64, id: SandboxId) {
        let before = self.engine.sandbox_get(id).await.unwrap().expires_at;
        self.clock.0.fetch_add(by, Ordering::Relaxed);
        until(&self.engine, id, |row| row.expires_at != before).await;
    }
}

fn is_close(some: Duration, other: Duration) -> bool {
    some.abs_diff(other) < Duration::from_secs(30)
}

#[tokio::test]
async fn a_clock_that_is_set_changes_neither_running_time_nor_what_is_left() {
    let life = Life::new().await;
    let id = life.running().await;
    let timeout = life.engine.sandbox_get(id).await.unwrap().timeout;
    for by in [DAY, -2 * DAY, 60 * 60 * 1000] {
        life.set(by, id).await;
        assert!(is_close(life.left(id).await, timeout), "{by}: {:?} left", life.left(id).await);
        let details = life.engine.sandbox_details(id).await.unwrap();
        assert!(is_close(details.running, Duration::ZERO), "{by}: has run {:?}", details.running);
        assert!(is_close(details.paused, Duration::ZERO), "{by}: paused {:?}", details.paused);
        assert_eq!(details.sandbox.lifecycle.status, Status::Running, "nothing has expired");
    }
    let turn = life.provider.open_turns()[0];
    life.provider.end(turn, Exit::Code(0));
    until(&life.engine, id, |row| !row.is_working).await;
    let rows = life.engine.transcript_open(id).await.unwrap().rows;
    let Some(Item::Ended { duration_ms: Some(duration), .. }) = rows.last().map(|row| &row.item) else {
        panic!("{rows:?}")
    };
    assert!(*duration < 60_000, "the turn took {duration} ms");
}

#[tokio::test]
async fn a_clock_set_a_moment_ago_is_taken_in_before_anything_is_counted() {
    for by in [DAY, -DAY] {
        let life = Life::new().await;
        let id = life.running().await;
        let timeout = life.engine.sandbox_get(id).await.unwrap().timeout;
        life.clock.0.store(by, Ordering::Relaxed);
        life.engine.sandbox_pause(id).await.unwrap();
        let paused = until(&life.engine, id, is(Status::Paused)).await;
        assert!(is_close(paused.remaining.unwrap(), timeout), "{by}: {:?}", paused.remaining);
        life.clock.0.store(0, Ordering::Relaxed);
        life.engine.sandbox_resume(id).await.unwrap();
        until(&life.engine, id, is(Status::Running)).await;
        assert!(is_close(life.left(id).await, timeout), "{by}");
        life.clock.0.store(by, Ordering::Relaxed);
        life.engine.sandbox_extend(id, Duration::from_secs(600)).await.unwrap();
        assert!(is_close(life.left(id).await, timeout + Duration::from_secs(600)), "{by}");
        assert_eq!(life.engine.sandbox_get(id).await.unwrap().lifecycle.status, Status::Running);
    }
}

#[tokio::test]
async fn a_clock_set_while_the_app_was_closed_is_taken_in_at_the_start() {
    for by in [DAY, -DAY] {
        let mut life = Life::new().await;
        let id = life.running().await;
        let timeout = life.engine.sandbox_get(id).await.unwrap().timeout;
        life.engine.shutdown().await;
        life.clock.0.store(by, Ordering::Relaxed);
        let placeholder = Life::new().await.engine;
        drop(std::mem::replace(&mut life.engine, placeholder));
        life.engine = Life::open(&life.home, &life.provider, &life.clock).await;
        eventually("the clock to be taken in", async || is_close(life.left(id).await, timeout).then_some(())).await;
        let row = life.engine.sandbox_get(id).await.unwrap();
        assert_eq!((row.lifecycle.status, row.is_working), (Status::Running, true), "{by}");
    }
}

#[tokio::test]
async fn messages_keep_their_order_and_real_sandboxes_their_time() {
    let home = TempDir::new().unwrap();
    let clock = Arc::new(Set::default());
    let config = Config { clock: clock.clone(), ..on_this_machine(home.path()) };
    let engine = Engine::open(config).await.unwrap();
    let project = engine.project_sample().await.unwrap().id;
    let new = NewSandbox::of(project, AgentKind::Shell, "echo 0; until [ -e go ]; do sleep 0.05; done");
    let id = engine.sandbox_create(new).await.unwrap().id;
    until(&engine, id, |row| row.is_working).await;
    for (number, by) in [(1, DAY), (2, -DAY), (3, 0)] {
        clock.0.store(by, Ordering::Relaxed);
        engine.sandbox_send(id, &format!("echo {number}"), SendHow::Queue).await.unwrap();
    }
    std::fs::write(home.path().join("sandboxes").join(id.to_string()).join("workspace/go"), "").unwrap();
    until(&engine, id, |row| row.queued == 0 && !row.is_working).await;
    assert_eq!(engine.log_read(id, Some(0)).await.unwrap().bytes, b"0\n1\n2\n3\n");
    clock.0.store(DAY, Ordering::Relaxed);
    engine.sandbox_pause(id).await.unwrap();
    until(&engine, id, is(Status::Paused)).await;
    engine.sandbox_resume(id).await.unwrap();
    until(&engine, id, is(Status::Running)).await;
    engine.sandbox_stop(id).await.unwrap();
    until(&engine, id, is(Status::Killed)).await;
    super::nothing_runs(id).await;
}
