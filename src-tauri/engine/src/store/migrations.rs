//! Numbered migrations, run in one transaction against `user_version`. Released ones never change.

use std::path::Path;

use rusqlite::{Connection, MAIN_DB};

use super::Error;

const MIGRATIONS: &[&str] =
    &[include_str!("../../migrations/0001_first.sql"), include_str!("../../migrations/0002_list_index.sql")];

/// The schema this version writes.
#[expect(clippy::cast_possible_wrap, reason = "a handful of files")]
pub(super) const LATEST: i64 = MIGRATIONS.len() as i64;

pub(super) fn run(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > LATEST {
        return Err(Error::Newer { found, known: LATEST });
    }
    if found == LATEST {
        return Ok(());
    }
    if found > 0 {
        let copy = path.with_extension(format!("db.before-{LATEST}"));
        connection.backup(MAIN_DB, &copy, None::<fn(rusqlite::backup::Progress)>)?;
    }
    let tx = connection.transaction()?;
    for (number, sql) in (1..).zip(MIGRATIONS) {
        if number > found {
            tx.execute_batch(sql).map_err(Error::Migration)?;
        }
    }
    tx.pragma_update(None, "user_version", LATEST)?;
    tx.commit()?;
    Ok(())
}
