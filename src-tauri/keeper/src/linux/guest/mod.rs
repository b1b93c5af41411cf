//! The third life, inside a machine that is a sandbox by itself (a cloud VM): there is no keeper outside, and none is
//! needed. Each word is a short program the app starts in the machine, as its root:
//!
//! - `guest start FOLDER WORKSPACE USER`: reads a frame with a [`Request::StartTurn`] on standard input and, after it, what
//!   the agent is to read; claims the turn, says a [`Response`] as a line of JSON on standard output, and stays with the turn
//!   until nobody holds its pipes any more. It is to the turn what keeper and init are to a local one: it copies, redacted,
//!   to the spool, writes `exit`, and ends the whole tree when it is told to.
//! - `guest follow FOLDER TURN OUT ERR`: copies the spool from these offsets on to its own standard output and error, as it
//!   grows, and ends when the turn has ended and everything was copied.
//! - `guest end FOLDER TURN GRACE_MS`: TERM to the turn and after a grace KILL to its tree; without a grace KILL at once.
//!
//! Nothing of a turn is on a command line or in a file but its spool: secrets and prompts come over standard input.

mod end;
mod follow;
mod start;

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    identity::Identity,
    protocol::{Refusal, Request, Response},
    spool,
};

/// `guest.json` in a turn's folder: who stays with it.
const RECORD: &str = "guest.json";
/// `follow` returns this where there is no such turn.
const NO_SUCH_TURN: i32 = 4;
/// `follower` in a turn's folder: who follows it. A new one takes the old one's place, whose reader is gone.
const FOLLOWER: &str = "follower";
/// How far the follower has read, where that is further than the spool may grow by itself.
const READ: &str = "read";
/// TERM with a grace.
const ASK: libc::c_int = libc::SIGTERM;
/// KILL at once.
const KILL: libc::c_int = libc::SIGUSR1;
/// The spool may grow: see [`READ`].
const GROW: libc::c_int = libc::SIGUSR2;

/// Who stays with a turn, and the turn's first process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    guest: Identity,
    leader: i32,
}

/// The words after `guest`.
pub(crate) fn live(words: &[&str]) -> io::Result<()> {
    match words {
        ["start", folder, workspace, user] => start::start(Path::new(folder), workspace, user),
        ["follow", folder, turn, out, err] => {
            let followed = follow::follow(Path::new(folder), turn, [number(out)?, number(err)?]);
            // No words: what is printed here is the turn's own output.
            std::process::exit(match followed.map_err(|error| error.kind()) {
                Ok(()) => 0,
                Err(io::ErrorKind::NotFound) => NO_SUCH_TURN,
                Err(_) => 1,
            })
        }
        ["end", folder, turn, grace] => {
            let response = end::end(Path::new(folder), turn, number(grace)?);
            say(&response.unwrap_or_else(|error| refused(Refusal::Failed, &error.to_string())))
        }
        _ => Err(io::Error::other("a guest starts, follows or ends a turn")),
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| io::Error::other(format!("{text:?} is not a number")))
}

fn refused(refusal: Refusal, message: &str) -> Response {
    Response::Refused { refusal, message: message.to_owned() }
}

/// One line for whoever started us, who may be gone.
fn say(response: &Response) -> io::Result<()> {
    use io::Write;
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn record(folder: &Path, turn: &str) -> io::Result<Option<Record>> {
    match std::fs::read(spool::turn_directory(folder, turn).join(RECORD)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is asked of `start`.
fn asked() -> io::Result<(crate::protocol::StartTurn, Vec<u8>)> {
    match crate::protocol::read_frame::<Request>(&mut io::stdin().lock())? {
        Some((Request::StartTurn(turn), body)) => Ok((turn, body)),
        Some((other, _)) => Err(io::Error::other(format!("a turn was expected, not {other:?}"))),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
