//! `courier log`: the raw log, byte for byte.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use courier_engine::{engine::Engine, model::SandboxId};
use tokio::sync::broadcast::error::RecvError;

use crate::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    sandbox: SandboxId,
    /// Go on printing until the sandbox waits for a message or has ended.
    #[arg(long, short)]
    follow: bool,
}

pub(crate) async fn run(engine: &Engine, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let id = arguments.sandbox;
    let mut changes = engine.feed().changes();
    let mut transcript = engine.transcript_open(id).await?;
    let mut cursor = print_from(engine, id, 0).await?;
    if !arguments.follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let sandbox = engine.sandbox_get(id).await?;
        let is_at_rest = !sandbox.is_working && sandbox.queued == 0 && sandbox.step.is_none();
        if is_at_rest || !sandbox.lifecycle.status.is_live() {
            break;
        }
        tokio::select! {
            batch = transcript.batches.recv() => match batch {
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            // A change of status may be the end.
            _ = changes.recv() => {}
        }
        cursor = print_from(engine, id, cursor).await?;
    }
    print_from(engine, id, cursor).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what follows `cursor` and returns where that ends.
async fn print_from(engine: &Engine, id: SandboxId, mut cursor: i64) -> Result<i64, Failure> {
    loop {
        let page = engine.log_read(id, Some(cursor)).await?;
        if page.bytes.is_empty() {
            io::stdout().flush()?;
            return Ok(page.next);
        }
        io::stdout().write_all(&page.bytes)?;
        cursor = page.next;
    }
}
