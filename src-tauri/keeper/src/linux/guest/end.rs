//! Ends a turn from outside its guest.

use std::{io, path::Path};

use super::{ASK, KILL, record, refused};
use crate::{
    protocol::{Refusal, Response},
    spool,
};

/// Tells whoever stays with the turn. Where that one is gone, the turn's own session is killed here: nobody else will.
pub(super) fn end(folder: &Path, turn: &str, grace_ms: u64) -> io::Result<Response> {
    if !spool::is_turn_id(turn) || !spool::turn_directory(folder, turn).exists() {
        return Ok(refused(Refusal::NoSuchTurn, "the turn was never started"));
    }
    let Some(record) = record(folder, turn)? else { return Ok(Response::Done) };
    let signal = if grace_ms == 0 { KILL } else { ASK };
    if !record.guest.signal(signal)? && spool::read_exit(&spool::turn_directory(folder, turn))?.is_none() {
        let session = super::super::init::processes::table();
        let session = session.into_iter().filter(|process| process.session == record.leader);
        // SAFETY: a system call without pointers, to a process that was in the table a moment ago.
        session.for_each(|process| _ = unsafe { libc::kill(process.pid, libc::SIGKILL) });
    }
    Ok(Response::Done)
}
