//! How long a conversation takes to open, when it is long and when it is short: the newest page, the page before one in
//! its middle, and the newest page of the raw log, through the engine as the window asks for them.
//!
//! - `open/…`: milliseconds with 100,000 items; `ratio` is by those with 1,000, required ≤ 1.5, less is better.
//! - `open/first_page_cold`: by an engine that was just opened over a file that is in no cache.

#[path = "figures/mod.rs"]
mod figures;

use std::{fs::File, os::fd::AsRawFd, path::Path, sync::Arc, time::Duration};

use courier_engine::{
    agent::Exit,
    engine::{Config, Engine, NewSandbox},
    host::{Host, Person},
    model::{AgentKind, Item, SandboxId, Status, SystemClock},
    secrets::SessionOnly,
};
use courier_test_support::provider::FakeProvider;
use rusqlite::{Connection, params};

/// How many items the two conversations have.
const SHORT: i64 = 1_000;
const LONG: i64 = 100_000;
/// How much of the raw log there is per item, in bytes, and how many items one chunk of it made.
const LOG: usize = 300;
const CHUNK: i64 = 100;
/// How often each is measured; the median counts.
const WARM: usize = 101;
const COLD: usize = 9;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let home = tempfile::tempdir().expect("a temporary folder");
        let provider = FakeProvider::default();
        let engine = open(home.path(), &provider).await;
        let [short, long] = [sandbox(&engine, &provider).await, sandbox(&engine, &provider).await];
        fill(home.path(), short, SHORT);
        fill(home.path(), long, LONG);

        let (mut first, mut before, mut log) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
        for _ in 0..WARM {
            for (side, (id, count)) in [(short, SHORT), (long, LONG)].into_iter().enumerate() {
                let (page, took) = figures::time(engine.transcript_open(id)).await;
                assert!(page.expect("a page").rows.len() == 200, "it is a whole page");
                first[side].push(took);
                let (page, took) = figures::time(engine.transcript_before(id, count / 2)).await;
                assert!(page.expect("a page").len() == 200, "it is a whole page");
                before[side].push(took);
                let (page, took) = figures::time(engine.log_read(id, None)).await;
                assert!(!page.expect("a page").bytes.is_empty(), "there is a log");
                log[side].push(took);
            }
        }
        report("open/first_page", first);
        report("open/page_before", before);
        report("open/log_page", log);

        engine.shutdown().await;
        drop(engine);
        let mut cold = [vec![], vec![]];
        for _ in 0..COLD {
            for (side, id) in [short, long].into_iter().enumerate() {
                forget(&home.path().join("courier.db"));
                let engine = open(home.path(), &provider).await;
                let (page, took) = figures::time(engine.transcript_open(id)).await;
                page.expect("a page");
                cold[side].push(took);
                engine.shutdown().await;
            }
        }
        report("open/first_page_cold", cold);
    });
}

async fn open(home: &Path, provider: &FakeProvider) -> Engine {
    let host = Host::new(home.to_owned(), Arc::new(SessionOnly::default()), Person::default());
    let config = Config { host, clock: Arc::new(SystemClock), providers: vec![Arc::new(provider.clone())] };
    Engine::open(config).await.expect("an engine")
}

/// A sandbox that has ended after one turn.
async fn sandbox(engine: &Engine, provider: &FakeProvider) -> SandboxId {
    let project = engine.project_sample().await.expect("a project").id;
    let mut changes = engine.feed().changes();
    let id = engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "echo")).await.expect("a sandbox").id;
    loop {
        let row = engine.sandbox_get(id).await.expect("a sandbox");
        match row.lifecycle.status {
            Status::Running if row.is_working => {
                provider.open_turns().into_iter().for_each(|turn| provider.end(turn, Exit::Code(0)));
            }
            Status::Running if row.started_at.is_some() => engine.sandbox_stop(id).await.expect("it can be stopped"),
            Status::Killed => return id,
            _ => {}
        }
        // A turn is looked for again also where nothing changed: it may have been recorded and not begun.
        _ = tokio::time::timeout(Duration::from_millis(20), changes.recv()).await;
    }
}

/// Writes a conversation of `count` items and its raw log.
fn fill(home: &Path, sandbox: SandboxId, count: i64) {
    let mut connection = Connection::open(home.join("courier.db")).expect("the database");
    connection.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    let tx = connection.transaction().expect("a transaction");
    let sandbox = sandbox.to_string();
    let turn: String = tx
        .query_row("SELECT id FROM turns WHERE sandbox = ?1", params![sandbox], |row| row.get(0))
        .expect("it had a turn");
    let body = |seq: i64| {
        let text = format!("Step {seq}: the parser keeps the first error it meets. ").repeat(8);
        serde_json::to_string(&Item::Text { text }).expect("items are plain data")
    };
    let mut item = tx
        .prepare(
            "INSERT OR REPLACE INTO transcript_items (sandbox, seq, turn, number, body, is_parsed, at)
             VALUES (?1, ?2, ?3, 1, ?4, 1, 0)",
        )
        .expect("a statement");
    let mut chunk = tx
        .prepare("INSERT INTO stream_log (sandbox, turn, stream, bytes, length) VALUES (?1, ?2, 'out', ?3, ?4)")
        .expect("a statement");
    for seq in 1..=count {
        item.execute(params![sandbox, seq, turn, body(seq)]).expect("a row");
        if seq % CHUNK == 0 {
            let bytes = vec![b'x'; LOG * CHUNK as usize];
            chunk.execute(params![sandbox, turn, bytes, bytes.len() as i64]).expect("a row");
        }
    }
    drop((item, chunk));
    tx.commit().expect("a commit");
}

/// Makes the system forget what it holds of a file.
fn forget(path: &Path) {
    let file = File::open(path).expect("the database");
    file.sync_all().expect("a disk");
    // SAFETY: the descriptor is open, and advice changes nothing but what is cached.
    let refused = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(refused, 0, "advice is taken");
}

/// The short one's times, then the long one's.
fn report(name: &str, mut times: [Vec<Duration>; 2]) {
    let [short, long] = times.each_mut().map(|times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1000.0
    });
    figures::print(name, long, "ms", Some(short));
}
