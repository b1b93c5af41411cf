//! Short commands: turns nobody keeps.

use std::{path::PathBuf, time::Duration};

use courier_keeper::{protocol::Request, spool};

use super::{
    super::{Error, Follower, Offsets, Output, ProviderId, SpoolEvent},
    Local, blocking,
    follow::SpoolFollower,
};
use crate::{agent::Process, model::Stream};

/// How much of each stream is kept.
const MOST_OUTPUT: usize = 16 << 20;

/// Runs a command as a turn of its own, collects what it prints, and takes its spool away.
pub(super) async fn run(local: &Local, id: &ProviderId, process: &Process, limit: Duration) -> Result<Output, Error> {
    let turn = format!("run-{}", uuid::Uuid::new_v4());
    let directory = local.find(id)?;
    local.start(id, turn.clone(), process, Vec::new()).await?;
    let collected = match tokio::time::timeout(limit, collect(local, directory.clone(), turn.clone())).await {
        Ok(output) => output,
        Err(_) => {
            // Its end is not waited for: the sandbox sees to it.
            local.done(id, Request::EndTurn { turn: turn.clone(), grace_ms: 0 }).await?;
            Err(Error::Deadline { what: "the command", limit })
        }
    };
    let place = spool::turn_directory(&directory, &turn);
    blocking(move || {
        // What stays behind is small, and goes with the sandbox.
        _ = std::fs::remove_dir_all(place);
        Ok(())
    })
    .await?;
    collected
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
