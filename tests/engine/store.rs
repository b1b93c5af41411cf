//! The database: what it refuses, and what it never loses.

use courier_engine::store::{Error, Store};
use tempfile::TempDir;

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
