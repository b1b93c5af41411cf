//! SQLite: one writer thread, a few read connections, and the feed of what was committed.
//!
//! `write` hands a closure to the writer thread. The thread runs every closure that is waiting in one transaction, each
//! in a savepoint of its own, so that one that fails takes nothing else with it, and answers after the commit. What a
//! closure asks to do `after_commit` happens on that thread, in commit order: that is how the feed's revision and the
//! database never disagree. What only reads is done between two transactions, never in one: what its neighbours write may
//! have to be taken back.

pub(crate) mod checkpoints;
pub(crate) mod deliveries;
mod feed;
mod health;
pub(crate) mod items;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod messages;
mod migrations;
pub(crate) mod projects;
pub(crate) mod sandboxes;
pub(crate) mod settings;
pub(crate) mod trash;
pub(crate) mod turns;

use std::{
    cell::RefCell,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Semaphore, oneshot};

pub use checkpoints::{CheckpointRow, Skipped};
pub use deliveries::{DeliveryWishes, PullRequest, Pushed, StepRow};
pub use feed::{Change, Changed, Feed, TranscriptBatch};
pub use items::{ItemRow, PAGE as ITEM_PAGE};
pub use log::{LogPage, PAGE_BYTES as LOG_PAGE_BYTES};
pub use messages::MessageRow;
pub use projects::{ProjectRow, ProjectSettings};
pub use sandboxes::{NewSandboxRow, Page, Query, SandboxError, SandboxRow, TransitionRow};
pub use turns::{TurnEnd, TurnRow};

/// How many closures one transaction takes at most.
const BATCH: usize = 256;
/// How many connections read at the same time.
const READERS: usize = 3;
/// How many pages the write-ahead log may hold before they are written back: a busy agent's rows once, not many times.
const CHECKPOINT: u32 = 4000;
/// How long a statement waits for another process that holds the file.
const BUSY: Duration = Duration::from_secs(5);

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another program holds the file.
    #[error("the database is held by another program")]
    Busy,
    /// A newer version of the app has written the file.
    #[error("the database was written by a newer version (schema {found}, this version knows {known})")]
    Newer { found: i64, known: i64 },
    /// The file is not a database, was cut short, or does not hold what it held. `path` is empty where it shows in use.
    #[error("the database{} is damaged: {cause}", at(path))]
    Damaged { path: PathBuf, cause: String },
    /// The file, or the folder it lies in, cannot be written.
    #[error("the database cannot be written")]
    ReadOnly,
    /// The file was deleted or replaced while it was open: what is written to it is seen by nobody.
    #[error("the database was deleted or replaced by another program")]
    Moved,
    /// The disk fails, or the file cannot be opened.
    #[error("the disk does not give or take the database: {0}")]
    Disk(rusqlite::Error),
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// The row is not there.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The engine is shutting down.
    #[error("the database is closed")]
    Closed,
    /// A migration could not be made; the file is as it was, and so is its copy.
    #[error("the database could not be brought up to date: {0}")]
    Migration(rusqlite::Error),
    /// The file system refused.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// Anything else SQLite says.
    #[error("database: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy,
            Some(Code::DiskFull) => Self::DiskFull,
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
                Self::Damaged { path: PathBuf::new(), cause: error.to_string() }
            }
            Some(Code::ReadOnly) => Self::ReadOnly,
            // The index of the write-ahead log could not grow.
            Some(Code::SystemIoFailure) if extended(&error) == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Self::DiskFull,
            Some(Code::SystemIoFailure | Code::CannotOpen) => Self::Disk(error),
            _ => Self::Sqlite(error),
        }
    }
}

fn extended(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

fn at(path: &Path) -> String {
    if path.as_os_str().is_empty() { String::new() } else { format!(" at {}", path.display()) }
}

type AfterCommit = Box<dyn FnOnce(&Feed) + Send>;
type Finish = Box<dyn FnOnce(Result<(), Error>, &Feed) + Send>;
type Run = Box<dyn FnOnce(&Connection) -> Finish + Send>;

/// What the writer thread does for one closure.
struct Job {
    run: Run,
    /// It writes nothing, and so can be done while nothing can be written.
    only_reads: bool,
}

/// A transaction in which one closure writes. Dereferences to the connection.
pub struct Tx<'c> {
    connection: &'c Connection,
    after: RefCell<Vec<AfterCommit>>,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tx")
    }
}

impl Deref for Tx<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Tx<'_> {
    /// Runs `action` on the writer thread once this transaction is committed, in commit order.
    pub fn after_commit(&self, action: impl FnOnce(&Feed) + Send + 'static) {
        self.after.borrow_mut().push(Box::new(action));
    }

    /// Tells the feed what changed, once it is committed.
    pub fn changed(&self, change: Change) {
        self.after_commit(move |feed| feed.publish(change));
    }
}

/// The database.
#[derive(Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    readers: Arc<Readers>,
    feed: Feed,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

#[derive(Debug)]
struct Readers {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Store {
    /// Opens the database, bringing an older file up to date after copying it beside itself.
    ///
    /// # Errors
    /// `Newer`, `Damaged`, `Busy`, `DiskFull`, `Migration` or `Io`; the file is left as it was found.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name_path = |error: Error| match error {
            Error::Damaged { cause, .. } => Error::Damaged { path: path.to_owned(), cause },
            other => other,
        };
        health::look_before(path)?;
        let mut writer = connect(path, OpenFlags::default()).map_err(name_path)?;
        // A connection that closes over a damaged file would write its log into it.
        let keep_as_it_is = |connection: &Connection, keep| {
            connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(|_| ())
        };
        keep_as_it_is(&writer, true)?;
        health::check(&writer, path).map_err(name_path)?;
        keep_as_it_is(&writer, false)?;
        migrations::run(&mut writer, path).map_err(name_path)?;
        let idle = (0..READERS)
            .map(|_| connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX))
            .collect::<Result<Vec<_>, _>>()
            .map_err(name_path)?;
        let feed = Feed::new();
        let (jobs, waiting) = mpsc::channel::<Job>();
        let writer_feed = feed.clone();
        let place = health::Place::of(path)?;
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || write_all(writer, &place, &waiting, &writer_feed))
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Ok(Self {
            jobs,
            readers: Arc::new(Readers { idle: Mutex::new(idle), permits: Arc::new(Semaphore::new(READERS)) }),
            feed,
        })
    }

    /// The feed of committed changes.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Runs `work` in a transaction and answers once it is committed.
    ///
    /// # Errors
    /// What `work` returned (nothing of it is kept), or what the commit failed with.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.ask_writer(work, false)?.await.map_err(|_| Error::Closed)?
    }

    /// Runs `work`, which writes nothing, between what is written: only there is the order of what is read and what is
    /// announced certain. It also works while nothing can be written.
    ///
    /// # Errors
    /// What `work` returned.
    pub async fn read_in_order<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.ask_writer(work, true)?.await.map_err(|_| Error::Closed)?
    }

    /// Like `write`, for whoever has something else to do until the commit: the answer comes by itself.
    ///
    /// # Errors
    /// `Closed`.
    pub fn write_ahead<T, E, F>(&self, work: F) -> Result<oneshot::Receiver<Result<T, E>>, Error>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.ask_writer(work, false)
    }

    fn ask_writer<T, E, F>(&self, work: F, only_reads: bool) -> Result<oneshot::Receiver<Result<T, E>>, Error>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let run: Run = Box::new(move |connection| {
            let (result, after) = in_savepoint(connection, work);
            Box::new(move |committed, feed| {
                let result = match (committed, result) {
                    (Ok(()), Ok(value)) => {
                        after.into_iter().for_each(|action| action(feed));
                        Ok(value)
                    }
                    // Why the whole transaction failed says more than what that did to one of its jobs.
                    (Err(error), _) => Err(error.into()),
                    (Ok(()), Err(error)) => Err(error),
                };
                // The asker may be gone; what it asked for is done all the same.
                _ = reply.send(result);
            })
        });
        self.jobs.send(Job { run, only_reads }).map_err(|_| Error::Closed)?;
        Ok(answer)
    }

    /// Whether the database takes writes: it is given one that changes nothing.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn probe(&self) -> Result<(), Error> {
        self.write(|tx| {
            let version: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
            Ok(tx.pragma_update(None, "user_version", version)?)
        })
        .await
    }

    /// Runs `work` on a read connection.
    ///
    /// # Errors
    /// What `work` returned.
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let permit = self.readers.permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let readers = self.readers.clone();
        // The permit goes with the connection: whoever asked may stop waiting while it is in use.
        let done = tokio::task::spawn_blocking(move || {
            let lent = Lent { connection: readers.take(), readers: &readers };
            let result = work(lent.connection.as_ref().expect("one connection per permit"));
            drop(lent);
            drop(permit);
            result
        });
        done.await.map_err(|_| Error::Closed)?
    }
}

/// A read connection that is given back, also by a reader that panics.
struct Lent<'r> {
    connection: Option<Connection>,
    readers: &'r Readers,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

impl Readers {
    fn take(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    if !flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY) {
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT)?;
    }
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Runs `work`; whatever it wrote is undone where it fails.
fn in_savepoint<T, E: From<Error>>(
    connection: &Connection,
    work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
) -> (Result<T, E>, Vec<AfterCommit>) {
    if let Err(error) = connection.execute_batch("SAVEPOINT job") {
        return (Err(Error::from(error).into()), Vec::new());
    }
    let tx = Tx { connection, after: RefCell::default() };
    let result = work(&tx);
    let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
    match (result, connection.execute_batch(end)) {
        (Ok(_), Err(error)) => (Err(Error::from(error).into()), Vec::new()),
        (result, _) => (result, tx.after.into_inner()),
    }
}

/// The writer thread: takes what waits, commits it, answers.
fn write_all(connection: Connection, place: &health::Place, waiting: &mpsc::Receiver<Job>, feed: &Feed) {
    while let Ok(first) = waiting.recv() {
        let jobs: Vec<Job> = std::iter::once(first).chain(waiting.try_iter().take(BATCH - 1)).collect();
        if place.is_same() {
            run_all(jobs, &connection, feed);
        } else {
            refuse(jobs, &connection, || Error::Moved, feed);
        }
    }
}

/// Runs jobs in their order: those that write together as far as they follow each other, those that only read by themselves.
fn run_all(mut jobs: Vec<Job>, connection: &Connection, feed: &Feed) {
    while let Some(first) = jobs.first() {
        let only_reads = first.only_reads;
        let others = jobs.iter().position(|job| job.only_reads != only_reads).unwrap_or(jobs.len());
        let rest = jobs.split_off(others);
        if only_reads {
            refuse(jobs, connection, || Error::ReadOnly, feed);
        } else {
            begin_and_run(jobs, connection, feed);
        }
        jobs = rest;
    }
}

fn begin_and_run(jobs: Vec<Job>, connection: &Connection, feed: &Feed) {
    match connection.execute_batch("BEGIN IMMEDIATE") {
        Ok(()) => run_in_one(jobs, connection, feed),
        // Without a transaction nothing may be written: dropping the jobs' answers would hide why.
        Err(error) => refuse(jobs, connection, || same(&error), feed),
    }
}

/// Runs jobs that write in the transaction that is open, commits it, and answers each of them.
fn run_in_one(jobs: Vec<Job>, connection: &Connection, feed: &Feed) {
    let mut jobs = jobs.into_iter();
    let mut finishes: Vec<Finish> = Vec::new();
    for job in jobs.by_ref() {
        finishes.push((job.run)(connection));
        if connection.is_autocommit() {
            // A full disk makes SQLite take the whole transaction back; going on would commit each job by itself.
            break;
        }
    }
    let is_taken_back = connection.is_autocommit();
    let committed = if is_taken_back { Ok(()) } else { connection.execute_batch("COMMIT") };
    if committed.is_err() {
        // A failed commit may leave the transaction open, and the next BEGIN would fail on it.
        _ = connection.execute_batch("ROLLBACK");
    }
    let last = finishes.len().saturating_sub(1);
    for (place, finish) in finishes.into_iter().enumerate() {
        match &committed {
            // The one that failed says why by itself.
            Ok(()) if is_taken_back && place != last => finish(Err(Error::DiskFull), feed),
            Ok(()) => finish(Ok(()), feed),
            Err(error) => finish(Err(same(error)), feed),
        }
    }
    // Nothing of the rest was written yet.
    let rest: Vec<Job> = jobs.collect();
    if !rest.is_empty() {
        begin_and_run(rest, connection, feed);
    }
}

/// Runs jobs on a connection that refuses every write: what only reads is done, and the others learn why they are not.
fn refuse(jobs: Vec<Job>, connection: &Connection, error: impl Fn() -> Error, feed: &Feed) {
    // A savepoint outside a transaction would begin one of its own; `query_only` keeps it from writing.
    _ = connection.pragma_update(None, "query_only", true);
    for job in jobs {
        let answer = if job.only_reads { Ok(()) } else { Err(error()) };
        (job.run)(connection)(answer, feed);
    }
    _ = connection.pragma_update(None, "query_only", false);
}

/// One failure of a transaction, told to each of its jobs.
fn same(error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()).into(),
        other => Error::Sqlite(rusqlite::Error::ToSqlConversionFailure(other.to_string().into())),
    }
}
