//! Going on later: a turn met a limit that is known to end, and a person wants the agent to go on then.
//!
//! It is a durable job, so it happens after a restart too. Whatever begins a turn before takes the wish back.

use super::{Engine, Error, requests::LONGEST_TIMEOUT};
use crate::{
    model::{Activity, SandboxId, Status, Timestamp},
    sandbox::{Request, Supervisor, Surroundings},
    store::{
        self, Change, SandboxRow,
        jobs::{self, Attempt, Kind},
        messages, sandboxes,
    },
};

/// What the agent is told then.
const MESSAGE: &str = "Continue where you stopped.";

impl Engine {
    /// Lets the agent go on at this moment, by a message of its own; `None` takes that back. A sandbox whose running time
    /// would be over before is paused until then.
    ///
    /// # Errors
    /// `Invalid` where that is more than 7 days away, `IllegalState` where the sandbox has ended or is ending,
    /// `WorkflowSandbox`, `NotFound`.
    pub async fn sandbox_continue_at(&self, id: SandboxId, at: Option<Timestamp>) -> Result<(), Error> {
        let now = self.around.clock.now();
        if at.is_some_and(|at| at > now + LONGEST_TIMEOUT) {
            return Err(Error::invalid("that is more than 7 days away".to_owned()));
        }
        let wished = move |tx: &store::Tx<'_>| {
            let row = sandboxes::get(tx, id)?;
            match at {
                Some(_) if row.origin == "run" => return Err(Error::workflow_sandbox()),
                Some(_) if !row.lifecycle.status.is_live() || row.lifecycle.activity == Activity::Stopping => {
                    return Err(Error::illegal_state(&row.lifecycle, "does not go on", "Run it again instead."));
                }
                Some(at) => jobs::set(tx, Kind::Continue, id, at)?,
                None => _ = jobs::cancel(tx, Kind::Continue, id)?,
            }
            tx.changed(Change::Sandbox(id));
            Ok(row)
        };
        let row = self.around.store.write(wished).await?;
        let ends_before = at.zip(row.expires_at).is_some_and(|(at, expires)| expires <= at);
        if ends_before && row.lifecycle.status == Status::Running {
            // It may just be pausing; what it was asked to do holds in any case.
            if let Err(error) = self.sandbox_pause(id).await {
                tracing::info!(sandbox = %id, %error, "a sandbox that waits for a limit's end was not paused");
            }
        }
        Ok(())
    }
}

/// The moment has come: wakes the sandbox and queues the message, once.
pub(super) async fn go_on(
    around: &Surroundings,
    supervisor: &Supervisor,
    row: &SandboxRow,
    attempts: u32,
) -> Result<Attempt, store::Error> {
    let (id, is) = (row.id, row.lifecycle);
    if !is.status.is_live() || is.activity == Activity::Stopping || row.deleted_at.is_some() {
        return Ok(Attempt::Done);
    }
    if is.status == Status::Paused {
        let again = |cause| Ok(Attempt::Again { cause, after: super::again(attempts) });
        match supervisor.ask(id, Request::Resume).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return again(error.to_string()),
            None => return again("nobody owns the sandbox just now".to_owned()),
        }
    }
    let now = around.clock.now();
    around
        .store
        .write(move |tx| {
            // With what it was owed for: a message is queued once, whatever happens in between.
            if jobs::cancel(tx, Kind::Continue, id)? {
                messages::enqueue(tx, id, MESSAGE, messages::Place::Last, now)?;
            }
            Ok::<_, store::Error>(())
        })
        .await?;
    supervisor.tell(id, Request::LookAtQueue).await;
    Ok(Attempt::Done)
}
