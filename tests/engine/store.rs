//! The database: what it refuses, and what it never loses.

use courier_engine::{
    model::{ProjectId, SandboxId, Status},
    store::{Error, Query, SandboxRow, Store},
};
use tempfile::TempDir;

use crate::world::World;

#[tokio::test]
async fn a_newer_database_is_left_alone() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("courier.db");
    drop(Store::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = Store::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused}");
}

#[tokio::test]
async fn the_first_schema_is_taken_further_and_copied_before() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("courier.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../../src-tauri/engine/migrations/0001_first.sql")).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    old.execute_batch(
        "INSERT INTO projects (id, name, source, default_branch, created_at) VALUES ('p', 'p', 'p', 'main', 1);
         INSERT INTO sandboxes (id, project, title, status, provider, agent, billed_to, timeout_ms, on_timeout, memory_mb,
            cpus, network, allowed_hosts, variables, repository, base_branch, base_commit, branch, created_at)
         VALUES ('paid', 'p', '', 'running', 'local', 'claude', 'a key', 1, 'kill', 1, 1, 'open', '[]', '[]', '', '', '', '', 1),
            ('free', 'p', '', 'running', 'local', 'shell', NULL, 1, 'kill', 1, 1, 'open', '[]', '[]', '', '', '', '', 1)",
    )
    .unwrap();
    drop(old);
    drop(Store::open(&path).unwrap());
    let new = rusqlite::Connection::open(&path).unwrap();
    let inside = |id: &str| -> bool {
        new.query_row("SELECT is_key_inside FROM sandboxes WHERE id = ?1", [id], |row| row.get(0)).unwrap()
    };
    assert!(inside("paid"), "before there was a gateway, every key was inside");
    assert!(!inside("free"));
    let active: u32 = new.query_row("SELECT active_sandboxes FROM projects", [], |row| row.get(0)).unwrap();
    assert_eq!(active, 2, "the counter did not move");
    let latest: u32 = new.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert!(home.path().join(format!("courier.db.before-{latest}")).is_file());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("courier.db");
    std::fs::write(&path, "this is a letter, not a database, and it is long enough to be looked at ".repeat(100))
        .unwrap();
    let refused = Store::open(&path).unwrap_err();
    assert!(matches!(&refused, Error::Damaged { path: named, .. } if *named == path), "{refused}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("this is a letter"), "it is left as it was");
}

#[tokio::test]
async fn a_read_does_not_fail_with_what_its_neighbours_write() {
    let home = TempDir::new().unwrap();
    let store = Store::open(&home.path().join("courier.db")).unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    // While the writer is busy the others gather, and are taken together.
    let busy = store.write(move |_| {
        _ = wait.recv();
        Ok::<_, Error>(())
    });
    let count =
        |tx: &rusqlite::Connection| tx.query_row("SELECT COUNT(*) FROM settings", [], |row| row.get::<_, u32>(0));
    let first = store.read_in_order(move |tx| Ok::<_, Error>(count(tx)?));
    let fails = store.write(|tx| {
        // That nobody has this sandbox shows when it is committed: nothing of the transaction is kept.
        tx.execute_batch(
            "INSERT INTO settings (name, value) VALUES ('taken back', '1');
             PRAGMA defer_foreign_keys = ON;
             INSERT INTO running_intervals (sandbox, started_at) VALUES ('nobody', 1)",
        )?;
        Ok::<_, Error>(())
    });
    let second = store.read_in_order(move |tx| Ok::<_, Error>(count(tx)?));
    let release = async { go.send(()).unwrap() };
    let (busy, first, fails, second, ()) = tokio::join!(busy, first, fails, second, release);
    busy.unwrap();
    assert!(fails.is_err());
    assert_eq!((first.unwrap(), second.unwrap()), (0, 0), "nor is what was taken back ever seen");
}

#[tokio::test]
async fn a_closure_that_fails_takes_nothing_else_with_it() {
    let home = TempDir::new().unwrap();
    let store = Store::open(&home.path().join("courier.db")).unwrap();
    let set = |name: &'static str, fails: bool| {
        let store = store.clone();
        async move {
            store
                .write(move |tx| {
                    tx.execute("INSERT INTO settings (name, value) VALUES (?1, '1')", [name])?;
                    if fails { Err(Error::NotFound("reason to go on")) } else { Ok(()) }
                })
                .await
        }
    };
    let (a, b, c) = tokio::join!(set("a", false), set("b", true), set("c", false));
    assert!(a.is_ok() && b.is_err() && c.is_ok());
    let names: Vec<String> = store
        .read(|connection| {
            let mut statement = connection.prepare("SELECT name FROM settings ORDER BY name")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok::<_, Error>(rows.collect::<Result<_, _>>()?)
        })
        .await
        .unwrap();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test]
async fn an_older_database_is_copied_and_brought_up_to_date() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("courier.db");
    let first = rusqlite::Connection::open(&path).unwrap();
    first.execute_batch(include_str!("../../src-tauri/engine/migrations/0001_first.sql")).unwrap();
    first.execute_batch("INSERT INTO settings (name, value) VALUES ('a', '1'); PRAGMA user_version = 1").unwrap();
    drop(first);
    drop(Store::open(&path).unwrap());
    let now = rusqlite::Connection::open(&path).unwrap();
    let version: i64 = now.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let kept: String = now.query_row("SELECT value FROM settings WHERE name = 'a'", [], |row| row.get(0)).unwrap();
    assert!(version >= 2 && kept == "1");
    let copy = rusqlite::Connection::open(home.path().join(format!("courier.db.before-{version}"))).unwrap();
    let before: i64 = copy.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(before, 1, "the copy is as the file was");
}

/// Sandboxes that have ended, so that nobody takes them up.
fn write_sandboxes(world: &World) -> Vec<ProjectId> {
    let mut connection = rusqlite::Connection::open(world.home.path().join("courier.db")).unwrap();
    let tx = connection.transaction().unwrap();
    let projects: Vec<ProjectId> = (0..2).map(|_| ProjectId::fresh()).collect();
    for project in &projects {
        let insert =
            "INSERT INTO projects (id, name, source, default_branch, created_at) VALUES (?1, 'p', '/p', 'main', 0)";
        tx.execute(insert, [project.to_string()]).unwrap();
    }
    for number in 0_usize..60 {
        let status = ["killed", "error", "killed"][number % 3];
        let deleted = if number % 7 == 0 { "1" } else { "NULL" };
        // Two of each moment: then the id decides.
        let insert = format!(
            "INSERT INTO sandboxes (id, project, title, status, provider, agent, timeout_ms, on_timeout, memory_mb, cpus,
                network, allowed_hosts, variables, repository, base_branch, base_commit, branch, created_at, deleted_at)
             VALUES ('{}', '{}', 'number {number}', '{status}', 'local', 'shell', 1, 'kill', 1, 1, 'open', '[]', '[]', '/p',
                'main', '', 'b', {}, {deleted})",
            SandboxId::fresh(),
            projects[number % 2],
            number / 2
        );
        tx.execute(&insert, []).unwrap();
    }
    tx.commit().unwrap();
    projects
}

#[tokio::test]
async fn pages_of_a_filtered_list_join_without_a_gap_and_are_counted() {
    let world = World::new().await;
    let projects = write_sandboxes(&world);
    let everything = Query { limit: 500, ..Query::default() };
    let all = world.engine.sandbox_list(everything).await.unwrap();
    assert_eq!((all.rows.len(), all.total), (51, 51), "deleted ones are not listed");
    let key = |row: &SandboxRow| (row.created_at, row.id.to_string());
    assert!(all.rows.is_sorted_by(|newer, older| key(newer) > key(older)), "newest first");
    let choices: [&[Status]; 5] = [
        &[],
        &[Status::Killed],
        &[Status::Killed, Status::Error],
        &[Status::Error, Status::Running, Status::Error],
        &[Status::Running],
    ];
    for statuses in choices {
        for project in [None, Some(projects[0])] {
            for search in [None, Some("NUMBER 1".to_owned())] {
                let is_asked = |row: &&SandboxRow| {
                    (statuses.is_empty() || statuses.contains(&row.lifecycle.status))
                        && project.is_none_or(|project| row.project == project)
                        && (search.is_none() || row.title.starts_with("number 1"))
                };
                let expected: Vec<_> = all.rows.iter().filter(is_asked).map(|row| row.id).collect();
                let (mut found, mut after) = (Vec::new(), None);
                loop {
                    let query = Query { project, statuses: statuses.to_vec(), search: search.clone(), after, limit: 4 };
                    let page = world.engine.sandbox_list(query).await.unwrap();
                    assert_eq!(page.total as usize, expected.len(), "{statuses:?}");
                    after = page.rows.last().map(|row| (row.created_at, row.id));
                    found.extend(page.rows.iter().map(|row| row.id));
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found, expected, "{statuses:?} of {project:?}");
            }
        }
    }
}
