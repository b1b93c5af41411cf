//! How long a page of the list of sandboxes takes, with many sandboxes and with few, through the engine as the window
//! asks for it.
//!
//! - `list/…`: milliseconds with 10,000 sandboxes; `ratio` is by those with 100, required ≤ 2, less is better. Every page
//!   compared holds as many rows on both sides. `list/search` looks at every title and has no such limit.

#[path = "figures/mod.rs"]
mod figures;

use std::{path::Path, sync::Arc, time::Duration};

use courier_engine::{
    engine::{Config, Engine},
    host::{Host, Person},
    model::{ProjectId, SandboxId, Status, SystemClock},
    secrets::SessionOnly,
    store::Query,
};
use courier_test_support::provider::FakeProvider;
use rusqlite::{Connection, params};
use tempfile::TempDir;

/// How many sandboxes there are.
const FEW: u32 = 100;
const MANY: u32 = 10_000;
/// How many projects they belong to.
const PROJECTS: u32 = 3;
/// How many of them have failed. All others were stopped: nobody takes them up.
const FAILED: u32 = 12;
/// How many rows a page holds.
const PAGE: u32 = 20;
/// How often each is measured; the median counts.
const TIMES: usize = 101;

struct World {
    engine: Engine,
    project: ProjectId,
    middle: (courier_engine::model::Timestamp, SandboxId),
    _home: TempDir,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let worlds = [world(FEW).await, world(MANY).await];
        let ended = [Status::Killed, Status::Error].as_slice();
        let page = |statuses: &[Status]| Query { statuses: statuses.to_vec(), limit: PAGE, ..Query::default() };
        compare("list/all", &worlds, |_| page(&[])).await;
        compare("list/project_and_status", &worlds, |world| Query {
            project: Some(world.project),
            ..page(&[Status::Killed])
        })
        .await;
        compare("list/project_and_statuses", &worlds, |world| Query { project: Some(world.project), ..page(ended) })
            .await;
        compare("list/rare_status", &worlds, |_| page(&[Status::Error])).await;
        compare("list/middle", &worlds, |world| Query { after: Some(world.middle), ..page(ended) }).await;
        compare("list/search", &worlds, |_| Query { search: Some("number 7".to_owned()), limit: 5, ..page(&[]) }).await;
        for world in &worlds {
            world.engine.shutdown().await;
        }
    });
}

/// The same question to both worlds, in turns.
async fn compare(name: &str, worlds: &[World; 2], query: impl Fn(&World) -> Query) {
    let mut times = [vec![], vec![]];
    let mut counts = [0, 0];
    for _ in 0..TIMES {
        for (side, world) in worlds.iter().enumerate() {
            let (page, took) = figures::time(world.engine.sandbox_list(query(world))).await;
            counts[side] = page.expect("a page").rows.len();
            times[side].push(took);
        }
    }
    assert!(counts[0] == counts[1] && counts[0] > 0, "{name} compares pages of one size: {counts:?}");
    let [few, many] = times.each_mut().map(|times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1000.0
    });
    figures::print(name, many, "ms", Some(few));
}

async fn world(count: u32) -> World {
    let home = TempDir::new().expect("a temporary folder");
    let host = Host::new(home.path().to_owned(), Arc::new(SessionOnly::default()), Person::default());
    let config = Config { host, clock: Arc::new(SystemClock), providers: vec![Arc::new(FakeProvider::default())] };
    let engine = Engine::open(config).await.expect("an engine");
    let project = fill(home.path(), count);
    let all = Query { limit: count / 2, ..Query::default() };
    let page = engine.sandbox_list(all).await.expect("a page");
    let middle = page.rows.last().map(|row| (row.created_at, row.id)).expect("there are some");
    World { engine, project, middle, _home: home }
}

fn fill(home: &Path, count: u32) -> ProjectId {
    let mut connection = Connection::open(home.join("courier.db")).expect("the database");
    connection.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    let tx = connection.transaction().expect("a transaction");
    let projects: Vec<ProjectId> = (0..PROJECTS).map(|_| ProjectId::fresh()).collect();
    for project in &projects {
        let insert =
            "INSERT INTO projects (id, name, source, default_branch, created_at) VALUES (?1, 'p', '/p', 'main', 0)";
        tx.execute(insert, params![project.to_string()]).expect("a row");
    }
    let mut sandbox = tx
        .prepare(
            "INSERT INTO sandboxes (id, project, title, status, provider, agent, timeout_ms, on_timeout, memory_mb, cpus,
                network, allowed_hosts, variables, repository, base_branch, base_commit, branch, created_at)
             VALUES (?1, ?2, ?3, ?4, 'local', 'claude', 1, 'kill', 1, 1, 'open', '[]', '[]', '/p', 'main', '', 'b', ?5)",
        )
        .expect("a statement");
    let mut message = tx
        .prepare(
            "INSERT INTO messages (id, sandbox, seq, role, content, status, delivery, created_at)
             VALUES (?1, ?1, 1, 'user', 'Do it.', 'completed', 'delivered', 0)",
        )
        .expect("a statement");
    for number in 0..count {
        let id = SandboxId::fresh().to_string();
        let status = match number {
            // The oldest: whoever looks for them by time has far to go.
            _ if number < FAILED => "error",
            _ => "killed",
        };
        let (project, title) = (projects[(number % PROJECTS) as usize].to_string(), format!("Task number {number}"));
        sandbox.execute(params![id, project, title, status, number]).expect("a row");
        message.execute(params![id]).expect("a row");
    }
    drop((sandbox, message));
    tx.commit().expect("a commit");
    projects[0]
}
