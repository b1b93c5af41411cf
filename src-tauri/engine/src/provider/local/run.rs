//! Short commands: turns that are nobody's message.

use std::{path::PathBuf, time::Duration};

use courier_keeper::protocol::Request;

use super::{
    super::{Error, Offsets, Output, ProviderId},
    Local, blocking,
    follow::SpoolFollower,
};
use crate::agent::Process;

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
    local.start(id, turn.clone(), process, &[], None).await?;
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
    Output::of(&mut follower).await
}
