//! What must be true of the rows at every moment, read by a connection of its own in one snapshot.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use courier_engine::model::{Activity, Ending, Event, Lifecycle, Status};
use rusqlite::{Connection, OpenFlags, Row};

/// A sandbox's row.
#[derive(Clone, Debug)]
pub struct SandboxView {
    pub id: String,
    pub lifecycle: Lifecycle,
    /// What went wrong with it, as it is stored.
    pub error: Option<String>,
}

/// A message's row.
#[derive(Clone, Debug)]
pub struct MessageView {
    pub id: String,
    pub sandbox: String,
    pub role: String,
    pub content: String,
    pub delivery: Option<String>,
    pub status: String,
}

/// A turn's row, with its raw log.
#[derive(Clone, Debug)]
pub struct TurnView {
    pub id: String,
    pub sandbox: String,
    pub number: i64,
    pub message: String,
    pub reply: String,
    pub error_kind: Option<String>,
    pub end: Option<(i64, Option<i64>, Option<i64>)>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub sandboxes: Vec<SandboxView>,
    pub messages: Vec<MessageView>,
    pub turns: Vec<TurnView>,
}

impl Picture {
    pub fn sandbox(&self, id: &str) -> Option<&SandboxView> {
        self.sandboxes.iter().find(|sandbox| sandbox.id == id)
    }

    pub fn message(&self, id: &str) -> Option<&MessageView> {
        self.messages.iter().find(|message| message.id == id)
    }

    pub fn turn_of(&self, message: &str) -> Option<&TurnView> {
        self.turns.iter().find(|turn| turn.message == message)
    }
}

/// Looks again and again, and remembers what may never change.
#[derive(Debug)]
pub struct Audit {
    connection: Connection,
    legal: HashSet<Lifecycle>,
    moves: HashSet<(Status, Status)>,
    ended: HashMap<String, Lifecycle>,
    turn_ends: HashMap<String, (i64, Option<i64>, Option<i64>)>,
    problems: Vec<String>,
}

impl Audit {
    pub fn of(database: &Path) -> Self {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(database, flags).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        let (legal, moves) = reachable();
        let (ended, turn_ends) = (HashMap::new(), HashMap::new());
        Self { connection, legal, moves, ended, turn_ends, problems: Vec::new() }
    }

    /// Whether the file is a database that was made whole.
    #[cfg(target_os = "linux")]
    pub fn has_tables(database: &Path) -> bool {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let Ok(connection) = Connection::open_with_flags(database, flags) else { return false };
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).is_ok_and(|version| version > 0)
    }

    /// Lets go of the file, and remembers what it saw.
    #[cfg(target_os = "linux")]
    pub fn closed(self) -> Self {
        Self { connection: Connection::open_in_memory().unwrap(), ..self }
    }

    /// Looks at the file again.
    #[cfg(target_os = "linux")]
    pub fn again(self, database: &Path) -> Self {
        let (ended, turn_ends) = (self.ended, self.turn_ends);
        Self { ended, turn_ends, ..Self::of(database) }
    }

    fn found(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    /// Reads everything, and says what is wrong with it.
    pub fn look(&mut self) -> (Picture, Vec<String>) {
        self.connection.execute_batch("BEGIN").unwrap();
        let picture = Picture { sandboxes: self.sandboxes(), messages: self.messages(), turns: self.turns() };
        self.count();
        self.transitions(&picture);
        self.intervals();
        self.foreign_keys();
        self.connection.execute_batch("COMMIT").unwrap();
        self.replies(&picture);
        (picture, std::mem::take(&mut self.problems))
    }

    /// The jobs that are still owed.
    pub fn jobs_due(&self) -> Vec<String> {
        self.rows("SELECT kind, key, attempts, due_at, last_error FROM jobs WHERE state <> 'done'", |row| {
            let (kind, key): (String, String) = (row.get("kind")?, row.get("key")?);
            let (attempts, due_at): (u32, i64) = (row.get("attempts")?, row.get("due_at")?);
            let error: Option<String> = row.get("last_error")?;
            Ok(format!("a job is owed: {kind} {key}, attempted {attempts} times, due at {due_at}: {error:?}"))
        })
    }

    fn rows<T>(&self, sql: &str, each: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let mut statement = self.connection.prepare_cached(sql).unwrap();
        statement.query_map([], each).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn sandboxes(&mut self) -> Vec<SandboxView> {
        let rows = self.rows("SELECT * FROM sandboxes ORDER BY id", |row| {
            let (status, activity): (String, String) = (row.get("status")?, row.get("activity")?);
            let ending: Option<String> = row.get("ending")?;
            let lifecycle = Lifecycle {
                status: Status::from_code(&status).unwrap(),
                activity: Activity::from_code(&activity).unwrap(),
                ending: ending.map(|code| Ending::from_code(&code).expect("an ending")),
            };
            let view = SandboxView { id: row.get("id")?, lifecycle, error: row.get("error_message")? };
            let is_there =
                |column: &str| row.get::<_, rusqlite::types::Value>(column).map(|v| v != rusqlite::types::Value::Null);
            let there =
                [is_there("error_kind")?, is_there("ended_at")?, is_there("expires_at")?, is_there("remaining_ms")?];
            let remaining: Option<i64> = row.get("remaining_ms")?;
            Ok((view, there, remaining, row.get::<_, i64>("timeout_ms")?))
        });
        for (view, [has_error, has_ended, expires, remains], remaining, timeout) in &rows {
            let (id, is) = (&view.id, view.lifecycle);
            self.found(self.legal.contains(&is), || format!("sandbox {id} is {is:?}, which no event leads to"));
            self.found(*has_ended != is.status.is_live(), || format!("sandbox {id} is {is:?}; has ended: {has_ended}"));
            self.found(*expires == (is.status == Status::Running), || {
                format!("sandbox {id} is {is:?}; expires: {expires}")
            });
            self.found(*remains == (is.status == Status::Paused), || {
                format!("sandbox {id} is {is:?}; remains: {remains}")
            });
            self.found(is.status != Status::Error || *has_error, || format!("sandbox {id} is an error without words"));
            let is_within = remaining.is_none_or(|left| (0..=*timeout).contains(&left));
            self.found(is_within, || format!("sandbox {id} has {remaining:?} of {timeout} ms left"));
            if !is.status.is_live() {
                let before = *self.ended.entry(id.clone()).or_insert(is);
                self.found(before == is, || format!("sandbox {id} had ended as {before:?} and is {is:?}"));
            } else {
                self.found(!self.ended.contains_key(id), || format!("sandbox {id} had ended and is {is:?}"));
            }
        }
        rows.into_iter().map(|(view, ..)| view).collect()
    }

    fn messages(&self) -> Vec<MessageView> {
        self.rows("SELECT * FROM messages ORDER BY sandbox, seq", |row| {
            Ok(MessageView {
                id: row.get("id")?,
                sandbox: row.get("sandbox")?,
                role: row.get("role")?,
                content: row.get("content")?,
                delivery: row.get("delivery")?,
                status: row.get("status")?,
            })
        })
    }

    fn turns(&mut self) -> Vec<TurnView> {
        let mut logs: HashMap<String, (Vec<u8>, Vec<u8>)> = HashMap::new();
        let chunks =
            self.rows("SELECT turn, stream, bytes, is_compressed, length FROM stream_log ORDER BY id", |row| {
                let bytes: Vec<u8> = row.get(2)?;
                let bytes =
                    if row.get(3)? { zstd::decode_all(bytes.as_slice()).expect("it was compressed") } else { bytes };
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, bytes, row.get::<_, i64>(4)?))
            });
        for (turn, stream, bytes, length) in chunks {
            self.found(bytes.len() as i64 == length, || format!("a chunk of turn {turn} has another length"));
            let (out, err) = logs.entry(turn).or_default();
            if stream == "out" { out.extend(bytes) } else { err.extend(bytes) }
        }
        let rows = self.rows("SELECT * FROM turns ORDER BY sandbox, number", |row| {
            let id: String = row.get("id")?;
            let (out, err) = logs.remove(&id).unwrap_or_default();
            let (code, signal) = (row.get("exit_code")?, row.get("exit_signal")?);
            let view = TurnView {
                id,
                sandbox: row.get("sandbox")?,
                number: row.get("number")?,
                message: row.get("message")?,
                reply: row.get("reply")?,
                error_kind: row.get("error_kind")?,
                end: row.get::<_, Option<i64>>("ended_at")?.map(|at| (at, code, signal)),
                out,
                err,
            };
            Ok((view, row.get::<_, i64>("out_offset")?, row.get::<_, i64>("err_offset")?))
        });
        let mut open = HashSet::new();
        let mut of_message = HashSet::new();
        for (turn, out, err) in &rows {
            let id = &turn.id;
            let are_equal = (turn.out.len() as i64, turn.err.len() as i64) == (*out, *err);
            self.found(are_equal, || format!("turn {id} was read up to {out} and {err}, and its log is not"));
            self.found(of_message.insert(&turn.message), || format!("message {} has two turns", turn.message));
            match turn.end {
                None => {
                    self.found(open.insert(&turn.sandbox), || format!("sandbox {} has two open turns", turn.sandbox));
                    self.found(!self.turn_ends.contains_key(id), || format!("turn {id} had ended and is open"));
                }
                Some(end) => {
                    let before = *self.turn_ends.entry(id.clone()).or_insert(end);
                    self.found(before == end, || format!("turn {id} had ended with {before:?}, and has with {end:?}"));
                }
            }
        }
        rows.into_iter().map(|(turn, ..)| turn).collect()
    }

    fn count(&mut self) {
        let counts = self.rows(
            "SELECT id, active_sandboxes, (SELECT COUNT(*) FROM sandboxes
                WHERE project = projects.id AND status = 'running' AND deleted_at IS NULL) FROM projects",
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
        );
        for (project, stored, counted) in counts {
            self.found(stored == counted, || format!("project {project} says {stored} run, and {counted} do"));
        }
    }

    fn transitions(&mut self, picture: &Picture) {
        let rows = self.rows("SELECT sandbox, from_status, to_status FROM transitions ORDER BY sandbox, seq", |row| {
            let from: Option<String> = row.get(1)?;
            let status = |code: &str| Status::from_code(code).expect("a status");
            Ok((row.get::<_, String>(0)?, from.as_deref().map(status), status(&row.get::<_, String>(2)?)))
        });
        let mut last: HashMap<String, Status> = HashMap::new();
        for (sandbox, from, to) in rows {
            let before = last.insert(sandbox.clone(), to);
            self.found(from == before, || format!("sandbox {sandbox} went from {from:?}, and was {before:?}"));
            let is_legal = from.map_or(to == Status::Creating, |from| self.moves.contains(&(from, to)));
            self.found(is_legal, || format!("sandbox {sandbox} went from {from:?} to {to:?}"));
        }
        for sandbox in &picture.sandboxes {
            let (id, is) = (&sandbox.id, sandbox.lifecycle.status);
            let to = last.get(id).copied();
            self.found(to == Some(is), || format!("sandbox {id} is {is:?}, and went to {to:?}"));
        }
    }

    fn intervals(&mut self) {
        let rows = self.rows(
            "SELECT sandbox, started_at, ended_at, (SELECT status FROM sandboxes WHERE id = sandbox)
             FROM running_intervals ORDER BY sandbox, started_at",
            |row| {
                let times: (i64, Option<i64>) = (row.get(1)?, row.get(2)?);
                Ok((row.get::<_, String>(0)?, times, row.get::<_, String>(3)?))
            },
        );
        let mut last: HashMap<String, (i64, Option<i64>)> = HashMap::new();
        let mut open = HashMap::new();
        for (sandbox, (from, to), status) in rows {
            self.found(to.is_none_or(|to| from <= to), || format!("sandbox {sandbox} ran from {from} to {to:?}"));
            if let Some(before) = last.insert(sandbox.clone(), (from, to)) {
                let is_after = before.1.is_some_and(|end| end <= from);
                self.found(is_after, || format!("sandbox {sandbox} ran {before:?} and {:?}", (from, to)));
            }
            open.insert(sandbox, (to.is_none(), status));
        }
        for (sandbox, (is_open, status)) in open {
            let is_running = status == "running";
            self.found(is_running == is_open, || format!("sandbox {sandbox} is {status}; open interval: {is_open}"));
        }
    }

    fn foreign_keys(&mut self) {
        let broken = self.rows("PRAGMA foreign_key_check", |row| row.get::<_, String>(0));
        self.found(broken.is_empty(), || format!("rows of {broken:?} point nowhere"));
    }

    /// Each turn has one end, and its visible half says the same.
    fn replies(&mut self, picture: &Picture) {
        let messages: HashMap<&str, &MessageView> =
            picture.messages.iter().map(|message| (message.id.as_str(), message)).collect();
        for turn in &picture.turns {
            let reply = messages.get(turn.reply.as_str()).map(|reply| reply.status.as_str());
            let wanted = match (&turn.end, &turn.error_kind) {
                (None, _) => "streaming",
                (Some(_), None) => "completed",
                (Some(_), Some(_)) => "error",
            };
            self.found(reply == Some(wanted), || format!("turn {} is {wanted}, its reply {reply:?}", turn.id));
        }
        let given: HashSet<&str> = picture.turns.iter().map(|turn| turn.message.as_str()).collect();
        for message in picture.messages.iter().filter(|message| message.role == "user") {
            let is_delivered = message.delivery.as_deref() == Some("delivered");
            let has_turn = given.contains(message.id.as_str());
            self.found(is_delivered == has_turn, || format!("message {message:?}; has a turn: {has_turn}"));
        }
    }
}

/// Every state that events lead to, and every change of status on the way.
fn reachable() -> (HashSet<Lifecycle>, HashSet<(Status, Status)>) {
    let (mut states, mut moves) = (HashSet::from([Lifecycle::new()]), HashSet::new());
    let mut waiting = vec![Lifecycle::new()];
    while let Some(state) = waiting.pop() {
        for (to, _) in Event::ALL.iter().filter_map(|event| state.step(*event).ok()) {
            if state.status != to.status {
                moves.insert((state.status, to.status));
            }
            if states.insert(to) {
                waiting.push(to);
            }
        }
    }
    (states, moves)
}
