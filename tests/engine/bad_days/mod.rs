//! Bad days: what fails around the engine. Each leads to a clear error, the right status, nothing lost and nothing left
//! running.

mod clock;
mod database;
mod disk;
mod files;
mod killed;
mod output;
mod two;

use courier_engine::{
    engine::{Code, Engine, Error, NewSandbox},
    model::{Activity, AgentKind, Item, SandboxId, Status},
    store::SandboxRow,
};
use courier_test_support::processes;

use crate::world::{World, eventually};

/// Whether a sandbox has settled on a status.
fn is(status: Status) -> impl Fn(&SandboxRow) -> bool {
    move |row| row.lifecycle.status == status && row.lifecycle.activity == Activity::None
}

/// Starts a script in a real sandbox, and returns once it has printed this.
async fn script(world: &World, prompt: &str, printed: &str) -> SandboxId {
    let project = world.project().await;
    let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, prompt)).await.unwrap().id;
    printed_by(world, id, printed).await;
    id
}

async fn printed_by(world: &World, id: SandboxId, printed: &str) {
    eventually(&format!("{printed:?} in the log"), async || {
        let log = world.log(id).await;
        String::from_utf8_lossy(&log).contains(printed).then_some(())
    })
    .await;
}

/// The error of a request has this code, and says what to do.
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, code: Code) -> Error {
    let error = answer.expect_err("it cannot be done now");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.detail().is_some_and(|remedy| !remedy.is_empty()), "{error} has a remedy");
    error
}

/// Nothing of this sandbox runs any more.
async fn nothing_runs(id: SandboxId) {
    let marker = id.to_string();
    eventually("the end of every process", async || {
        let left = processes::mentioning(&marker);
        left.is_empty().then_some(())
    })
    .await;
}

/// The counter of active sandboxes is right.
async fn counted(engine: &Engine, active: u32) {
    assert_eq!(engine.project_list().await.unwrap()[0].active_sandboxes, active);
}

fn outputs(items: &[Item]) -> String {
    let text = |item: &Item| match item {
        Item::Output { text, .. } => Some(text.clone()),
        _ => None,
    };
    items.iter().filter_map(text).collect()
}
