//! The end of a sandbox: stop the agent, then destroy. It always ends: every wait has a limit, and a destroy that fails
//! is tried again until it works or the person gives up.

use std::time::Duration;

use tokio::time::Instant;

use super::actor::{Actor, Done};
use crate::{
    model::{Event, Status},
    provider::{self, ProviderId, TurnSignal},
    store,
};

/// How long the agent may take to end its turn (the provider's own grace and KILL included).
const AGENT: Duration = Duration::from_secs(15);
/// How much running time an ending is given, so that the provider's own end of time does not cut it short.
const EXTRA: Duration = Duration::from_secs(10 * 60);
/// How long the last output may take to arrive once everything is gone.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// How long to wait before a failed destroy is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Where an ending stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The agent was asked to end its turn.
    StoppingAgent { until: Instant },
    /// The provider was asked to destroy the sandbox.
    Destroying,
    /// Everything is gone; the rest of the open turn's output is still being read.
    ReadingOut { until: Instant },
    /// A destroy failed.
    Waiting { until: Instant },
}

impl Ending {
    /// More of the last output has arrived: it is waited for anew.
    pub(super) fn has_heard(&mut self) {
        if let Self::ReadingOut { until } = self {
            *until = Instant::now() + LAST_OUTPUT;
        }
    }

    /// When it goes on by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::StoppingAgent { until } | Self::ReadingOut { until } | Self::Waiting { until } => Some(*until),
            Self::Destroying => None,
        }
    }
}

impl Actor {
    /// Begins an ending, or goes on with one of an earlier life.
    pub(super) async fn begin_ending(&mut self) -> Result<(), store::Error> {
        if !self.turn.is_open() || self.row.lifecycle.status == Status::Paused {
            // Nobody to ask: the agent is idle, or stands still and could not answer.
            self.destroy();
            return Ok(());
        }
        self.give_time(EXTRA);
        self.ending = Some(Ending::StoppingAgent { until: Instant::now() + AGENT });
        self.set_step("ending the agent").await?;
        self.interrupt(None).await
    }

    /// The agent's turn has ended, and an ending waited for it.
    pub(super) fn turn_ended_while_ending(&mut self) {
        match self.ending {
            Some(Ending::StoppingAgent { .. }) => self.destroy(),
            Some(Ending::ReadingOut { .. }) => self.report_destroyed(),
            Some(Ending::Destroying | Ending::Waiting { .. }) | None => {}
        }
    }

    /// A wait of the ending is over.
    pub(super) fn ending_is_due(&mut self) {
        match self.ending {
            Some(Ending::StoppingAgent { .. }) => {
                self.signal(TurnSignal::Kill);
                self.destroy();
            }
            Some(Ending::Waiting { .. }) => self.destroy(),
            Some(Ending::ReadingOut { .. }) => {
                // The output that is missing is in the spool; the row must not wait for it any longer.
                tracing::warn!(sandbox = %self.row.id, "the end of the last turn's output did not arrive");
                self.report_destroyed();
            }
            Some(Ending::Destroying) | None => {}
        }
    }

    /// Destroys the sandbox; asking again while it is being destroyed does no harm.
    pub(super) fn destroy(&mut self) {
        if matches!(self.ending, Some(Ending::Destroying | Ending::ReadingOut { .. })) {
            return;
        }
        self.ending = Some(Ending::Destroying);
        match &self.making {
            // What is being made is destroyed once it is known what that is.
            Some(making) => making.cancel(),
            None => self.ask_to_destroy(),
        }
    }

    /// Making has ended, and a destroy waited for it.
    pub(super) fn destroy_if_owed(&self) {
        if matches!(self.ending, Some(Ending::Destroying)) {
            self.ask_to_destroy();
        }
    }

    fn ask_to_destroy(&self) {
        // A sandbox that was never answered for may exist all the same, under the name its provider would give it.
        let id = self.provider_id().unwrap_or_else(|| ProviderId(self.row.id.to_string()));
        let provider = self.provider.clone();
        self.run_effect(async move { Done::Destroyed(provider.destroy(&id).await) });
    }

    /// Nothing is left to wait for.
    fn report_destroyed(&mut self) {
        self.ending = Some(Ending::Destroying);
        self.run_effect(async { Done::Destroyed(Ok(())) });
    }

    pub(super) async fn destroyed(&mut self, result: Result<(), provider::Error>) -> Result<(), store::Error> {
        if !matches!(self.ending, Some(Ending::Destroying)) {
            return Ok(());
        }
        match result {
            Ok(()) | Err(provider::Error::Gone) if !self.has_read_out => {
                self.has_read_out = true;
                self.follow_what_is_left().await?;
                if !self.turn.is_open() {
                    return self.all_is_over().await;
                }
                self.ending = Some(Ending::ReadingOut { until: Instant::now() + LAST_OUTPUT });
                Ok(())
            }
            Ok(()) | Err(provider::Error::Gone) => self.all_is_over().await,
            Err(error) => {
                tracing::warn!(sandbox = %self.row.id, %error, "the sandbox could not be destroyed; trying again");
                self.set_step("waiting for the provider").await?;
                self.ending = Some(Ending::Waiting { until: Instant::now() + AGAIN });
                Ok(())
            }
        }
    }

    async fn all_is_over(&mut self) -> Result<(), store::Error> {
        self.ending = None;
        self.lose_turn().await?;
        self.happen(Event::Destroyed, None).await
    }

    async fn set_step(&mut self, step: &'static str) -> Result<(), store::Error> {
        let id = self.row.id;
        self.around.store.write(move |tx| store::sandboxes::set_step(tx, id, Some(step))).await
    }
}
