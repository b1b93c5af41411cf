//! The floor: every line of the file parsed to a tree of values and stored as it came.

use std::{
    fs::File,
    hint::black_box,
    io::{BufRead, BufReader, Write, stdout},
    path::Path,
    time::Instant,
};

use rusqlite::{Connection, params};

use crate::{peak_memory, recording};

/// How many lines one transaction takes.
const BATCH: usize = 1000;

pub fn run(folder: &Path) {
    let home = tempfile::tempdir_in(folder).expect("a temporary folder");
    let mut connection = Connection::open(home.path().join("floor.db")).expect("a database");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a journal");
    connection.pragma_update(None, "synchronous", "NORMAL").expect("the app's own setting");
    connection
        .execute_batch("CREATE TABLE lines (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT")
        .expect("a table");
    let begin = Instant::now();
    let file = File::open(folder.join(recording::NAME)).expect("the recording");
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let (mut line, mut is_over) = (Vec::new(), false);
    while !is_over {
        let tx = connection.transaction().expect("a transaction");
        let mut insert = tx.prepare_cached("INSERT INTO lines (bytes) VALUES (?1)").expect("a statement");
        for _ in 0..BATCH {
            line.clear();
            if reader.read_until(b'\n', &mut line).expect("the recording can be read") == 0 {
                is_over = true;
                break;
            }
            black_box(serde_json::from_slice::<serde_json::Value>(&line).expect("the recording is JSON"));
            insert.execute(params![line]).expect("a row");
        }
        drop(insert);
        tx.commit().expect("a commit");
    }
    let seconds = begin.elapsed().as_secs_f64();
    writeln!(stdout(), "seconds {seconds}\nmemory {}", peak_memory()).expect("somebody reads the figures");
}
