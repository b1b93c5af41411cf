//! Short commands: turns that are nobody's message.

use std::{path::PathBuf, time::Duration};

use courier_keeper::protocol::Request;

use super::{
    super::{Error, Follower, Offsets, Output, ProviderId, SpoolEvent},
    Local, blocking,
    follow::SpoolFollower,
};
use crate::{agent::Process, model::Stream};

/// How much of each stream is kept.
const MOST_OUTPUT: usize = 16 << 20;

/// Runs a command as a turn of its own and collects what it prints. Its spool stays with the sandbox: it is the claim.
pub(super) async fn run(
    local: &Local,
    id: &ProviderId,
    name: &str,
    process: &Process,
    limit: Duration,
) -> Result<Output, Error> {
    let turn = format!("run-{name}");
    let directory = local.find(id)?;
    local.start(id, turn.clone(), process, Vec::new(), None).await?;
    match tokio::time::timeout(limit, collect(local, directory, turn.clone())).await {
        Ok(output) => output,
        Err(_) => {
            // Its end is not waited for: the sandbox sees to it.
            local.done(id, Request::EndTurn { turn, grace_ms: 0 }).await?;
            Err(Error::Deadline { what: "the command", limit })
        }
    }
}

async fn collect(local: &Local, directory: PathBuf, turn: String) -> Result<Output, Error> {
    let ticks = local.ticker.subscribe()?;
    let mut follower = blocking(move || SpoolFollower::new(directory, turn, Offsets::default(), ticks)).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match follower.next().await? {
            SpoolEvent::Ended(exit) => return Ok(Output { exit, stdout, stderr }),
            SpoolEvent::Bytes { stream, bytes } => {
                let kept: &mut Vec<u8> = match stream {
                    Stream::Out => &mut stdout,
                    Stream::Err => &mut stderr,
                };
                let room = MOST_OUTPUT.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..room]);
            }
        }
    }
}
