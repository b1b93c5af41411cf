//! Starting a keeper, asking it, and making sure that it is gone.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use courier_keeper::{
    identity::Identity,
    protocol::{KeeperRecord, Readiness, Refusal, Request, Response, StartSpec},
    spool,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{super::Error, blocking, unreadable};
use crate::process;

/// How long a keeper may take to be ready. It takes hundredths of a second; a machine may be busy.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// How long it may take to answer. Destroying includes writing the last output.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How long a keeper that lives may take to be heard: it begins or ends.
const SOCKET_LIMIT: Duration = Duration::from_secs(5);

/// How long processes that were killed may take to be gone.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// How often something is looked at again that tells nobody when it changes.
const PAUSE: Duration = Duration::from_millis(3);

/// How much of a keeper's log is its last words.
const LAST_WORDS: usize = 2000;

/// Starts a keeper and waits until its sandbox is there. Another one that lives is as good.
pub(super) async fn start(program: &Path, spec: StartSpec) -> Result<(), Error> {
    let log = spec.directory.join(spool::LOG);
    let file = spool::private_file().create(true).truncate(true).write(true).open(&log);
    let file = file.map_err(|source| unreadable(&log, source))?;
    let mut command = process::outliving(program);
    command.arg("keep").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
    let mut keeper = spawn(&mut command).await.map_err(|source| unreadable(program, source))?;
    let (stdin, stdout) = (keeper.stdin.take(), keeper.stdout.take());
    let (mut stdin, stdout) = (stdin.expect("it is piped"), stdout.expect("it is piped"));
    let json = serde_json::to_vec(&spec).expect("a spec is plain data");
    let readiness = tokio::time::timeout(READY_LIMIT, async {
        // Whoever cannot read it says why below.
        _ = stdin.write_all(&json).await;
        drop(stdin);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await.map(|_| line)
    });
    let cause = match readiness.await {
        Ok(Ok(line)) => match serde_json::from_str(&line) {
            Ok(Readiness::Ready { .. } | Readiness::AlreadyKept) => return Ok(()),
            // A cause crosses as words; this one a person can do something about.
            Ok(Readiness::Failed { cause }) if cause.contains("No space left") => {
                let source = io::ErrorKind::StorageFull.into();
                return Err(Error::Io { what: "starting the keeper".to_owned(), source });
            }
            Ok(Readiness::Failed { cause }) => cause,
            Err(_) => "it ended before it was ready".to_owned(),
        },
        Ok(Err(source)) => return Err(Error::Io { what: "reading from the keeper".to_owned(), source }),
        Err(_) => {
            // It is killed, and the sandbox with it: nobody will ask for it.
            _ = keeper.start_kill();
            format!("it was not ready after {} seconds", READY_LIMIT.as_secs())
        }
    };
    let words = blocking(move || Ok(last_words(&log))).await?;
    Err(Error::Keeper(if words.is_empty() || words == cause { cause } else { format!("{cause}\n{words}") }))
}

/// Starts it. A copy made just now can still be open for writing in the child another thread is forking; that child
/// closes it as it begins its own program.
async fn spawn(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    let deadline = Instant::now() + SOCKET_LIMIT;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
}

fn last_words(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]).trim().to_owned()
}

/// Asks the keeper of this folder. [`Error::Gone`] is certain: no keeper holds the lock.
pub(super) async fn ask(directory: PathBuf, request: Request, body: Vec<u8>) -> Result<Response, Error> {
    blocking(move || ask_blocking(&directory, &request, &body)).await
}

#[cfg(unix)]
pub(super) fn ask_blocking(directory: &Path, request: &Request, body: &[u8]) -> Result<Response, Error> {
    let deadline = Instant::now() + SOCKET_LIMIT;
    loop {
        let error = match courier_keeper::client::ask(directory, request, body, ANSWER_LIMIT) {
            Ok(Response::Refused { refusal: Refusal::Ending, .. }) => return Err(Error::Gone),
            Ok(Response::Refused { refusal: Refusal::NoSuchTurn, .. }) => return Err(Error::NoSuchTurn),
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if !is_kept(directory)? {
            return Err(Error::Gone);
        }
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                return Err(Error::Deadline { what: "the keeper's answer", limit: ANSWER_LIMIT });
            }
            // It lives, but does not listen yet, or not any more.
            _ if Instant::now() < deadline => std::thread::sleep(PAUSE),
            _ => return Err(Error::Io { what: "asking the keeper".to_owned(), source: error }),
        }
    }
}

#[cfg(not(unix))]
pub(super) fn ask_blocking(_directory: &Path, _request: &Request, _body: &[u8]) -> Result<Response, Error> {
    Err(Error::Unsupported)
}

/// What a keeper should not have answered.
pub(super) fn unexpected(response: Response) -> Error {
    match response {
        Response::Refused { message, .. } => Error::Keeper(message),
        other => Error::Keeper(format!("it answered {other:?}")),
    }
}

/// Whether a keeper lives.
pub(super) fn is_kept(directory: &Path) -> Result<bool, Error> {
    spool::is_locked(directory).map_err(|source| unreadable(&directory.join(spool::LOCK), source))
}

/// Ends every process of the sandbox, and returns once they are gone: by asking, else by killing the keeper, which
/// takes the sandbox with it.
pub(super) async fn destroy(directory: PathBuf) -> Result<(), Error> {
    blocking(move || {
        if is_kept(&directory)? {
            match ask_blocking(&directory, &Request::Destroy, &[]) {
                Ok(_) | Err(Error::Gone) => {}
                Err(error) => tracing::warn!(%error, "the keeper did not destroy its sandbox, and is killed"),
            }
        }
        if is_gone_soon(&directory)? {
            return Ok(());
        }
        for process in processes(&directory) {
            let sent = process.signal(KILL);
            sent.map_err(|source| Error::Io { what: format!("killing process {}", process.pid), source })?;
        }
        if is_gone_soon(&directory)? {
            Ok(())
        } else {
            Err(Error::Deadline { what: "the sandbox's end", limit: GONE_LIMIT })
        }
    })
    .await
}

#[cfg(unix)]
const KILL: i32 = libc::SIGKILL;
#[cfg(not(unix))]
const KILL: i32 = 9;

/// Keeper and init of the sandbox's newest life. Once init is gone, the kernel has ended everything inside.
fn processes(directory: &Path) -> Vec<Identity> {
    let record = fs::read(directory.join(spool::RECORD)).ok();
    let record = record.and_then(|bytes| serde_json::from_slice::<KeeperRecord>(&bytes).ok());
    record.map_or_else(Vec::new, |record| [Some(record.keeper), record.init].into_iter().flatten().collect())
}

fn is_gone_soon(directory: &Path) -> Result<bool, Error> {
    let processes = processes(directory);
    let deadline = Instant::now() + GONE_LIMIT;
    loop {
        if !is_kept(directory)? && !processes.iter().any(Identity::is_alive) {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}
