//! Numbered migrations, run in one transaction against `user_version`. Released ones never change.

use std::{fs, path::Path};

use rusqlite::{Connection, MAIN_DB};

use super::Error;

const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_first.sql"),
    include_str!("../../migrations/0002_key_inside.sql"),
    include_str!("../../migrations/0003_list_index.sql"),
    include_str!("../../migrations/0004_work.sql"),
    include_str!("../../migrations/0005_trash.sql"),
    include_str!("../../migrations/0006_agents.sql"),
];

pub(super) fn run(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    bring_up(connection, path, MIGRATIONS)
}

fn bring_up(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), Error> {
    let latest = i64::try_from(migrations.len()).expect("a handful of files");
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > latest {
        return Err(Error::Newer { found, known: latest });
    }
    if found == latest {
        return Ok(());
    }
    if found > 0 {
        copy_beside(connection, path, latest)?;
    }
    let tx = connection.transaction()?;
    for (number, sql) in (1..).zip(migrations) {
        if number > found {
            tx.execute_batch(sql).map_err(|error| match Error::from(error) {
                Error::Sqlite(error) => Error::Migration(error),
                // Full, busy or failing: that says more.
                other => other,
            })?;
        }
    }
    tx.pragma_update(None, "user_version", latest)?;
    tx.commit()?;
    // So that the file alone says what it is, also if its log is lost. Whatever hinders it now, a later one does it.
    _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    Ok(())
}

/// Whole or not at all: half a copy would look like one.
fn copy_beside(connection: &Connection, path: &Path, latest: i64) -> Result<(), Error> {
    let copy = path.with_extension(format!("db.before-{latest}"));
    let draft = path.with_extension("db.copying");
    let remove = || {
        for leftover in [&draft, &path.with_extension("db.copying-journal")] {
            // Mostly it is not there.
            _ = fs::remove_file(leftover);
        }
    };
    remove();
    let copied = connection.backup(MAIN_DB, &draft, None::<fn(rusqlite::backup::Progress)>);
    copied
        .map_err(Error::from)
        .and_then(|()| fs::rename(&draft, &copy).map_err(|source| Error::Io { path: copy, source }))
        .inspect_err(|_| remove())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: &[&str] = &["CREATE TABLE a (x TEXT)", "CREATE TABLE b (x TEXT); INSERT INTO b SELECT x FROM a"];

    fn first(folder: &Path) -> Connection {
        let path = folder.join("courier.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        bring_up(&mut connection, &path, &SECOND[..1]).unwrap();
        connection.execute("INSERT INTO a VALUES ('kept')", []).unwrap();
        connection
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        names.sort();
        names
    }

    #[test]
    fn a_copy_of_what_was_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = first(folder.path());
        bring_up(&mut connection, &folder.path().join("courier.db"), SECOND).unwrap();
        assert_eq!(names(folder.path()), ["courier.db", "courier.db.before-2"]);
        let copy = Connection::open(folder.path().join("courier.db.before-2")).unwrap();
        assert_eq!(copy.query_row("SELECT x FROM a", [], |row| row.get::<_, String>(0)).unwrap(), "kept");
        assert!(copy.prepare("SELECT x FROM b").is_err(), "it is of the version before");
    }

    #[test]
    fn a_migration_that_fails_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = first(folder.path());
        let path = folder.path().join("courier.db");
        let broken = [SECOND[0], "CREATE TABLE b (x TEXT); INSERT INTO nowhere VALUES (1)"];
        let error = bring_up(&mut connection, &path, &broken).unwrap_err();
        assert!(matches!(error, Error::Migration(_)), "{error}");
        bring_up(&mut connection, &path, &SECOND[..1]).expect("the version before still opens it");
        assert!(connection.prepare("SELECT x FROM b").is_err(), "nothing of it was kept");
    }

    #[test]
    fn a_copy_that_cannot_be_made_leaves_no_half_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = first(folder.path());
        // Where the copy belongs there is something that is not replaced.
        fs::create_dir_all(folder.path().join("courier.db.before-2/occupied")).unwrap();
        let error = bring_up(&mut connection, &folder.path().join("courier.db"), SECOND).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert_eq!(names(folder.path()), ["courier.db", "courier.db.before-2"]);
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 1, "without a copy nothing is changed");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn without_room_for_the_copy_nothing_is_changed_and_no_half_of_it_stays() {
        use courier_test_support::small_disk::{Ballast, is_here};
        let name = concat!(module_path!(), "::without_room_for_the_copy_nothing_is_changed_and_no_half_of_it_stays");
        if !is_here(name, 16) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("courier.db");
        let mut connection = first(folder.path());
        connection.execute("INSERT INTO a VALUES (hex(zeroblob(2000000)))", []).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let ballast = Ballast::all_but(folder.path(), 1 << 20);
        let error = bring_up(&mut connection, &path, SECOND).unwrap_err();
        assert!(matches!(error, Error::DiskFull), "{error}");
        assert_eq!(names(folder.path()), ["ballast", "courier.db"]);
        bring_up(&mut connection, &path, &SECOND[..1]).expect("it is as it was");
        drop(ballast);
        bring_up(&mut connection, &path, SECOND).expect("with room it is brought up to date");
        assert_eq!(names(folder.path()), ["courier.db", "courier.db.before-2"]);
    }
}
