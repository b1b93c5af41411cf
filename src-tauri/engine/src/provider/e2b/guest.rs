//! The keeper's program inside a machine: it starts turns, spools what they print, and ends them (see `courier-keeper`,
//! `linux/guest`).

use std::{path::Path, time::Duration};

use courier_keeper::protocol::{Refusal, Request, Response, StartTurn, write_frame};
use tokio::time::timeout;

use super::{
    api::again,
    daemon::{Daemon, Happened, User},
    error::{Failure, Refusal as No},
};
use crate::provider::Error;

/// Where everything of ours is inside; only the machine's root may enter.
pub(super) const FOLDER: &str = "/var/lib/courier";
/// Where the agent works.
pub(super) const WORKSPACE: &str = "/home/user/workspace";
/// How long starting a turn may take, a large prompt on its way included.
const START: Duration = Duration::from_secs(90);
/// How long a short word to the guest may take.
const WORD: Duration = Duration::from_secs(30);
/// How much of the program travels at once.
const PART: usize = 8 << 20;

/// Brings the program in, where it is not there yet; its name tells its contents.
pub(super) async fn install(daemon: &Daemon, program: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::Io { what: program.display().to_string(), source };
    let bytes = tokio::fs::read(program).await.map_err(unreadable)?;
    let path = path_of(&bytes);
    if daemon.stat(&path).await? == Some(bytes.len() as u64) {
        return Ok(());
    }
    let mut parts = String::new();
    for (number, part) in bytes.chunks(PART).enumerate() {
        let name = format!("{path}.{number:03}");
        daemon.write(User::Root, &name, part).await?;
        parts += &format!(" {name}");
    }
    let script = format!(
        "[ -x {path} ] || {{ chmod 700 {FOLDER} && cat{parts} >{path}.new && chmod 755 {path}.new && mv {path}.new {path} && rm -f{parts}; }}"
    );
    let done = daemon.run_again(User::Root, &["/bin/sh", "-c", &script], WORD).await?;
    if done.ended.exit_code == 0 && done.ended.exited {
        return Ok(());
    }
    Err(Error::Keeper(format!("it could not be brought in: {}", String::from_utf8_lossy(&done.err).trim())))
}

/// The name of the program inside.
pub(super) fn path_of(program: &[u8]) -> String {
    // FNV-1a, as for the copies on this machine: it tells builds apart, and need not withstand anybody.
    let digest = program
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{FOLDER}/courier-keeper-{digest:016x}")
}

/// Starts a turn, once: one that was claimed before goes on as it is.
pub(super) async fn start(daemon: &Daemon, program: &str, turn: StartTurn, input: &[u8]) -> Result<(), Error> {
    let mut frame = Vec::new();
    write_frame(&mut frame, &Request::StartTurn(turn), input)
        .map_err(|source| Error::Io { what: "a turn".into(), source })?;
    let argv = [program, "guest", "start", FOLDER, WORKSPACE, User::Agent.name()];
    let starting = || async {
        let mut events = daemon.start(User::Root, &argv, true).await?;
        let (mut said, mut trouble) = (Vec::new(), Vec::new());
        loop {
            match events.next().await? {
                Some(Happened::Started { pid }) => match daemon.feed(User::Root, pid, &frame).await {
                    // It has heard enough, and is gone: what it says tells.
                    Ok(()) | Err(Failure::NotFound) => {}
                    Err(failure) => return Err(failure),
                },
                Some(Happened::Out(bytes)) => {
                    said.extend(bytes);
                    if said.ends_with(b"\n") {
                        // It stays with the turn; we need not.
                        return Ok(said);
                    }
                }
                Some(Happened::Err(bytes)) => trouble.extend(bytes),
                Some(Happened::Ended(_)) | None if said.is_empty() => {
                    let words = crate::net::plain(&String::from_utf8_lossy(&trouble), None, 300);
                    return Err(Failure::Refused(No {
                        kind: "provider",
                        cause: format!("the turn could not be started: {words}"),
                        remedy: "Run again; if it stays, the template may lack what the agent needs.",
                    }));
                }
                Some(Happened::Ended(_)) | None => return Ok(said),
            }
        }
    };
    let said = timeout(START, again(starting))
        .await
        .map_err(|_| Error::Deadline { what: "starting the turn", limit: START })??;
    match serde_json::from_slice(&said) {
        Ok(Response::Started { .. }) => Ok(()),
        _ => Err(told(&said)),
    }
}

/// Ends a turn: TERM and after a grace KILL, or at once.
pub(super) async fn end(daemon: &Daemon, program: &str, turn: &str, grace: Duration) -> Result<(), Error> {
    let grace = grace.as_millis().to_string();
    let done = daemon.run_again(User::Root, &[program, "guest", "end", FOLDER, turn, &grace], WORD).await?;
    match serde_json::from_slice(&done.out) {
        Ok(Response::Done) => Ok(()),
        Ok(Response::Refused { refusal: Refusal::NoSuchTurn, .. }) => Err(Error::NoSuchTurn),
        _ => Err(told(&done.out)),
    }
}

fn told(said: &[u8]) -> Error {
    let words = crate::net::plain(&String::from_utf8_lossy(said), None, 300);
    Error::Keeper(words)
}
