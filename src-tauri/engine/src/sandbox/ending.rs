//! The end of a sandbox: stop the agent, save the work, deliver it, destroy. It always ends: every wait has a limit, a
//! destroy that fails is tried again until it works or the person gives up, and a second stop waits for no saving.
//!
//! Each step is stored with how it went. After a crash the ending begins again at its first step, and each is done once
//! more without doing harm: what was saved or pushed is found to be there.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    actor::{Actor, Done},
    saving::{self, Occasion},
};
use crate::{
    delivery,
    model::{Activity, Event, Status, StepKind, StepStatus},
    provider::{self, ProviderId, TurnSignal},
    store::{self, CheckpointRow, checkpoints, deliveries, sandboxes},
};

/// How long the agent may take to end its turn (the provider's own grace and KILL included).
const AGENT: Duration = Duration::from_secs(15);
/// How long saving may take. Its files stay in the sandbox's folder in any case.
const SAVING: Duration = Duration::from_secs(5 * 60);
/// How long push and pull request may hold up the end; after that they go on by themselves.
const DELIVERING: Duration = Duration::from_secs(30);
/// How much running time an ending is given, so that the provider's own end of time does not cut it short.
const EXTRA: Duration = Duration::from_secs(10 * 60);
/// How long the last output may take to arrive once everything is gone.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// How long to wait before a save that failed is tried again, where the sandbox is all there is.
const SAVE_AGAIN: Duration = Duration::from_secs(15);
/// How long waking a sandbox may take whose work is to be brought out.
const WAKING: Duration = Duration::from_secs(60);
/// How long to wait before a failed destroy is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Where an ending stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// A sandbox whose files are elsewhere is woken, since its work can only be brought out awake.
    Waking { until: Instant },
    /// The agent was asked to end its turn.
    StoppingAgent { until: Instant },
    /// Its work is being saved.
    Saving { until: Instant },
    /// Saving failed, and the sandbox is all there is: it is tried again, and nothing is destroyed.
    SavingAgain { until: Instant },
    /// What was saved is being delivered.
    Delivering { until: Instant },
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
            Self::Waking { until }
            | Self::StoppingAgent { until }
            | Self::Saving { until }
            | Self::SavingAgain { until }
            | Self::Delivering { until }
            | Self::ReadingOut { until }
            | Self::Waiting { until } => Some(*until),
            Self::Destroying => None,
        }
    }
}

impl Actor {
    /// Begins an ending, or goes on with one of an earlier life.
    pub(super) async fn begin_ending(&mut self) -> Result<(), store::Error> {
        let stands_still = self.row.lifecycle.status == Status::Paused;
        if !self.provider.keeps_files() {
            return self.begin_ending_elsewhere(stands_still).await;
        }
        if stands_still {
            // Nobody to ask: the agent could not answer.
            return self.save_work(true).await;
        }
        self.stop_agent().await
    }

    /// Its files can only be read while it is awake. One that stands still, and whose work is saved, is left asleep.
    async fn begin_ending_elsewhere(&mut self, stands_still: bool) -> Result<(), store::Error> {
        if stands_still && !self.turn.is_open() && !self.row.is_unsaved {
            let id = self.row.id;
            if let Some(last) = self.around.store.read(move |connection| checkpoints::last(connection, id)).await? {
                return self.work_is_saved(Ok(last)).await;
            }
        }
        let Some(id) = self.provider_id() else { return self.stop_agent().await };
        self.ending = Some(Ending::Waking { until: Instant::now() + WAKING });
        let provider = self.provider.clone();
        self.run_effect(async move { Done::Woken(provider.resume(&id).await) });
        Ok(())
    }

    /// It is awake, or could not be woken: then saving says why.
    pub(super) async fn woken(&mut self, result: Result<(), provider::Error>) -> Result<(), store::Error> {
        if let Err(error) = result {
            tracing::warn!(sandbox = %self.row.id, %error, "it could not be woken to save its work");
        }
        if matches!(self.ending, Some(Ending::Waking { .. })) { self.stop_agent().await } else { Ok(()) }
    }

    async fn stop_agent(&mut self) -> Result<(), store::Error> {
        self.give_time(EXTRA);
        if !self.turn.is_open() {
            // Nobody to ask: the agent is idle.
            return self.save_work(true).await;
        }
        self.ending = Some(Ending::StoppingAgent { until: Instant::now() + AGENT });
        self.set_step(StepKind::StopAgent, StepStatus::Running, ("", "")).await?;
        self.interrupt(None).await
    }

    /// The agent's turn has ended, and an ending waited for it.
    pub(super) async fn turn_ended_while_ending(&mut self) -> Result<(), store::Error> {
        match self.ending {
            Some(Ending::StoppingAgent { .. }) => {
                self.set_step(StepKind::StopAgent, StepStatus::Done, ("", "")).await?;
                self.save_work(true).await
            }
            Some(Ending::ReadingOut { .. }) => {
                self.report_destroyed();
                Ok(())
            }
            Some(
                Ending::Waking { .. }
                | Ending::Saving { .. }
                | Ending::SavingAgain { .. }
                | Ending::Delivering { .. }
                | Ending::Destroying
                | Ending::Waiting { .. },
            )
            | None => Ok(()),
        }
    }

    /// The agent could not be told to end its turn: everything of it is ended later, with the sandbox.
    pub(super) async fn could_not_stop_agent(&mut self) -> Result<(), store::Error> {
        if !matches!(self.ending, Some(Ending::StoppingAgent { .. })) {
            return Ok(());
        }
        self.set_step(StepKind::StopAgent, StepStatus::Failed, ("it did not answer", "It ends with the sandbox."))
            .await?;
        self.save_work(false).await
    }

    /// A wait of the ending is over.
    pub(super) async fn ending_is_due(&mut self) -> Result<(), store::Error> {
        match self.ending {
            Some(Ending::StoppingAgent { .. }) => {
                self.signal(TurnSignal::Kill);
                self.could_not_stop_agent().await
            }
            Some(Ending::Waking { .. }) => self.stop_agent().await,
            Some(Ending::SavingAgain { .. }) => {
                self.give_time(EXTRA);
                self.save_work(true).await
            }
            Some(Ending::Saving { .. }) if !self.provider.keeps_files() => {
                self.not_saved_yet(("it took too long", "It is tried again; stopping a second time gives it up.")).await
            }
            Some(Ending::Saving { .. }) => {
                let late =
                    ("it took too long", "Its files are still in its folder. Save again, or copy them from there.");
                self.set_step(StepKind::Checkpoint, StepStatus::Failed, late).await?;
                self.set_unsaved(true).await?;
                self.destroy().await
            }
            // It goes on by itself.
            Some(Ending::Delivering { .. }) | Some(Ending::Waiting { .. }) => self.destroy().await,
            Some(Ending::ReadingOut { .. }) => {
                // The output that is missing is in the spool; the row must not wait for it any longer.
                tracing::warn!(sandbox = %self.row.id, "the end of the last turn's output did not arrive");
                self.report_destroyed();
                Ok(())
            }
            Some(Ending::Destroying) | None => Ok(()),
        }
    }

    /// Saves the work, also that of a sandbox that stands still or is gone: its files are there.
    async fn save_work(&mut self, is_answering: bool) -> Result<(), store::Error> {
        self.ending = Some(Ending::Saving { until: Instant::now() + SAVING });
        self.set_step(StepKind::Checkpoint, StepStatus::Running, ("", "")).await?;
        self.save(Occasion::Ending { is_answering }, None);
        Ok(())
    }

    /// Saves the work in a task of its own; one at a time, in the order they were asked for.
    pub(super) fn save(&mut self, occasion: Occasion, reply: Option<super::actor::Reply>) {
        self.saves += 1;
        let (around, provider, row) = (self.around.clone(), self.provider.clone(), self.row.clone());
        self.run_effect(async move {
            let result = saving::save(&around, provider, &row, &occasion).await;
            if let Some(reply) = reply {
                // The asker may be gone.
                _ = reply.send(result.as_ref().map(drop).map_err(crate::engine::Error::not_saved));
            }
            Done::Saved(occasion, result)
        });
    }

    /// What came of saving.
    pub(super) async fn saved(
        &mut self,
        occasion: Occasion,
        result: Result<CheckpointRow, saving::Error>,
    ) -> Result<(), store::Error> {
        self.saves = self.saves.saturating_sub(1);
        if let Err(error) = &result {
            tracing::warn!(sandbox = %self.row.id, ?occasion, %error, "the work could not be saved");
            self.set_unsaved(true).await?;
        }
        match (self.ending, &occasion) {
            (Some(Ending::Saving { .. }), Occasion::Ending { .. }) => self.work_is_saved(result).await,
            (Some(_), _) => Ok(()),
            (None, Occasion::Turn { .. }) if result.is_ok() => {
                delivery::after_turn(&self.around, self.row.id).await?;
                self.begin_next_turn().await
            }
            (None, _) => self.begin_next_turn().await,
        }
    }

    /// The ending goes on: what is saved is delivered, where the project or the person says so.
    async fn work_is_saved(&mut self, result: Result<CheckpointRow, saving::Error>) -> Result<(), store::Error> {
        match result {
            Ok(checkpoint) => {
                let words = checkpoint_words(&checkpoint);
                self.set_step(StepKind::Checkpoint, StepStatus::Done, (&words, "")).await?;
            }
            Err(error) => {
                let words = (error.to_string(), error.remedy());
                if !self.provider.keeps_files() && !error.is_gone() {
                    return self.not_saved_yet((&words.0, words.1)).await;
                }
                self.set_step(StepKind::Checkpoint, StepStatus::Failed, (&words.0, words.1)).await?;
                return self.destroy().await;
            }
        }
        if !delivery::begin_at_end(&self.around, self.row.id).await? {
            return self.destroy().await;
        }
        self.ending = Some(Ending::Delivering { until: Instant::now() + DELIVERING });
        let (around, id) = (self.around.clone(), self.row.id);
        self.run_effect(async move {
            around.deliverer.run(&around, id).await;
            Done::Delivered
        });
        Ok(())
    }

    /// The sandbox is all there is, and so it stays until its work is out, or the person gives it up.
    async fn not_saved_yet(&mut self, words: (&str, &str)) -> Result<(), store::Error> {
        self.set_step(StepKind::Checkpoint, StepStatus::Failed, words).await?;
        self.set_unsaved(true).await?;
        self.ending = Some(Ending::SavingAgain { until: Instant::now() + SAVE_AGAIN });
        Ok(())
    }

    pub(super) async fn delivered(&mut self) -> Result<(), store::Error> {
        if matches!(self.ending, Some(Ending::Delivering { .. })) { self.destroy().await } else { Ok(()) }
    }

    /// The person does not want to wait for what is being done.
    pub(super) async fn skip_saving(&mut self) -> Result<(), store::Error> {
        if let Some(
            Ending::Waking { .. } | Ending::StoppingAgent { .. } | Ending::Saving { .. } | Ending::SavingAgain { .. },
        ) = self.ending
        {
            let stays = if self.provider.keeps_files() { "Its files are still in its folder." } else { "" };
            let words = ("skipped when it was stopped a second time", stays);
            self.set_step(StepKind::Checkpoint, StepStatus::Skipped, words).await?;
            self.set_unsaved(true).await?;
        }
        self.destroy().await
    }

    async fn set_unsaved(&mut self, is_unsaved: bool) -> Result<(), store::Error> {
        let id = self.row.id;
        self.around.store.write(move |tx| sandboxes::set_unsaved(tx, id, is_unsaved)).await
    }

    /// Destroys the sandbox; asking again while it is being destroyed does no harm.
    pub(super) async fn destroy(&mut self) -> Result<(), store::Error> {
        if matches!(self.ending, Some(Ending::Destroying | Ending::ReadingOut { .. })) {
            return Ok(());
        }
        self.ending = Some(Ending::Destroying);
        match &self.making {
            // What is being made is destroyed once it is known what that is.
            Some(making) => making.cancel(),
            None => self.ask_to_destroy(),
        }
        if self.has_steps() { self.set_step(StepKind::Destroy, StepStatus::Running, ("", "")).await } else { Ok(()) }
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
                let words = (error.to_string(), "It is tried again. \u{201c}Give up\u{201d} ends the waiting.");
                self.set_step(StepKind::Destroy, StepStatus::Failed, (&words.0, words.1)).await?;
                self.ending = Some(Ending::Waiting { until: Instant::now() + AGAIN });
                Ok(())
            }
        }
    }

    async fn all_is_over(&mut self) -> Result<(), store::Error> {
        self.ending = None;
        self.lose_turn().await?;
        if self.has_steps() {
            self.set_step(StepKind::Destroy, StepStatus::Done, ("", "")).await?;
        }
        self.happen(Event::Destroyed, None).await
    }

    /// Whether what is done now is the ending of a sandbox that had work: not the release of one that never ran, or that is
    /// gone already.
    fn has_steps(&self) -> bool {
        self.row.lifecycle.activity == Activity::Stopping && self.row.lifecycle.status != Status::Creating
    }

    /// Stores how far a step is, and says what is being done.
    async fn set_step(
        &mut self,
        kind: StepKind,
        status: StepStatus,
        (detail, remedy): (&str, &str),
    ) -> Result<(), store::Error> {
        let (id, now) = (self.row.id, self.around.clock.now());
        let (detail, remedy) = (detail.to_owned(), remedy.to_owned());
        self.around
            .store
            .write(move |tx| {
                deliveries::set_step(tx, id, kind, status, (&detail, &remedy), now)?;
                sandboxes::set_step(tx, id, Some(words(kind, status)))
            })
            .await
    }
}

/// What a step does, for the line beside a sandbox's status.
fn words(kind: StepKind, status: StepStatus) -> &'static str {
    match (kind, status) {
        (StepKind::StopAgent, _) => "ending the agent",
        (StepKind::Checkpoint, _) => "saving the work",
        (StepKind::Commit | StepKind::Push, _) => "pushing the branch",
        (StepKind::PullRequest, _) => "opening the pull request",
        (StepKind::Destroy, StepStatus::Failed) => "waiting for the provider",
        (StepKind::Destroy, _) => "ending the sandbox",
    }
}

fn checkpoint_words(checkpoint: &CheckpointRow) -> String {
    match checkpoint.skipped.len() {
        0 => String::new(),
        1 => format!("without {}: {}", checkpoint.skipped[0].path, checkpoint.skipped[0].why),
        count => format!("without {count} paths that could not be taken"),
    }
}
