//! What truly runs: the provider is asked, and believed; what a reboot took away gets a new place.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, Done},
    hindrances::Hindrance,
    provisioning,
    saving::{self, Occasion},
};
use crate::{
    model::{Activity, Event, OnTimeout, Status},
    provider::{self, Presence, Provider, ProviderId},
    settings::Settings,
    store::{self, SandboxError, checkpoints, sandboxes, turns},
};

/// How long to wait before a sandbox that could not be revived is tried again.
const REVIVE_AGAIN: Duration = Duration::from_secs(30);
/// How long to wait before a provider that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What the provider says of a sandbox of an earlier life.
#[derive(Debug)]
pub(super) struct Rejoined {
    fault: Option<String>,
    presence: Result<Presence, provider::Error>,
}

/// What a closer look at a sandbox that runs has found.
#[derive(Debug)]
pub(super) struct Examined {
    fault: Option<String>,
    hindrance: Option<String>,
    /// After how many minutes of silence an agent is quiet.
    quiet_after: u32,
}

impl Actor {
    /// A sandbox of an earlier life: asks the provider. A stop does not wait for its answer.
    pub(super) async fn rejoin(&mut self) -> Result<(), store::Error> {
        let Some(id) = self.provider_id() else { return self.happen(Event::FoundGone, None).await };
        let (provider, stopped) = (self.provider.clone(), self.begin_making());
        self.run_effect(async move {
            let asking = async { Rejoined { fault: provider.fault(&id).await, presence: provider.inspect(&id).await } };
            Done::Rejoined(stopped.run_until_cancelled(asking).await)
        });
        Ok(())
    }

    /// What the provider says of a sandbox of an earlier life; it is believed.
    pub(super) async fn rejoined(&mut self, found: Rejoined) -> Result<(), store::Error> {
        if let Some(fault) = found.fault {
            self.join_turn(false).await?;
            return self.has_fault(fault).await;
        }
        match found.presence {
            Ok(Presence::Gone { timed_out: true }) => {
                self.join_turn(false).await?;
                let event =
                    if self.row.lifecycle.status == Status::Paused { Event::StopRequested } else { Event::TimedOut };
                self.happen(event, None).await
            }
            Ok(Presence::Gone { timed_out: false }) if self.provider.keeps_files() => {
                self.revive();
                Ok(())
            }
            found => self.joined(found).await,
        }
    }

    /// What there is once a sandbox is looked after again. A pause or a resume that is recorded is owed still.
    pub(super) async fn joined(&mut self, found: Result<Presence, provider::Error>) -> Result<(), store::Error> {
        let pause = match (self.row.lifecycle.activity, &found) {
            (Activity::Pausing, Ok(Presence::Alive) | Err(_)) => true,
            (Activity::Resuming, Ok(Presence::Paused) | Err(_)) => false,
            // An error: nobody knows, and the next check asks again.
            _ => return self.found(found).await,
        };
        self.join_turn(true).await?;
        self.suspend(pause);
        Ok(())
    }

    /// The machine was rebooted, or somebody ended the keeper while the app was closed: the sandbox's files are there,
    /// so it gets a new keeper and keeps its status.
    pub(super) fn revive(&mut self) {
        let (around, agent, provider, row) = (self.around.clone(), self.agent, self.provider.clone(), self.row.clone());
        let stopped = self.begin_making();
        self.run_effect(async move {
            loop {
                match provisioning::revive(&around, agent, provider.as_ref(), &row, &stopped).await {
                    Ok(id) if row.lifecycle.status == Status::Paused => {
                        return Done::Revived(provider.pause(&id).await.map(|()| Presence::Paused));
                    }
                    Ok(_) => return Done::Revived(Ok(Presence::Alive)),
                    Err(_) if stopped.is_cancelled() => {
                        return Done::Revived(Ok(Presence::Gone { timed_out: false }));
                    }
                    Err(error) => {
                        tracing::warn!(sandbox = %row.id, message = %error.message, "not revived; trying again");
                        _ = stopped.run_until_cancelled(tokio::time::sleep(REVIVE_AGAIN)).await;
                    }
                }
            }
        });
    }

    pub(super) fn begin_making(&mut self) -> CancellationToken {
        let stopped = CancellationToken::new();
        self.making = Some(stopped.clone());
        stopped
    }

    /// Making has ended, one way or the other. Whether it is to be destroyed is for its ending to say.
    pub(super) fn making_ended(&mut self) {
        self.making = None;
        self.destroy_if_owed();
    }

    /// What the provider says of a sandbox whose row says otherwise, or the same.
    pub(super) async fn found(&mut self, found: Result<Presence, provider::Error>) -> Result<(), store::Error> {
        match found {
            Ok(Presence::Alive) => {
                self.was_cut_off = false;
                self.happen(Event::FoundAlive, None).await?;
                self.join_turn(self.row.lifecycle.activity == Activity::None).await?;
                self.save_missed().await?;
                self.begin_next_turn().await
            }
            Ok(Presence::Paused) => {
                let stood_still = self.row.lifecycle.status == Status::Paused;
                let event = if self.has_run_out().await? { Event::TimedOut } else { Event::FoundPaused };
                self.happen(event, None).await?;
                let is_saved_before = !self.provider.keeps_files();
                if !stood_still && !is_saved_before && self.row.lifecycle.status == Status::Paused {
                    self.save(Occasion::Paused, None);
                }
                self.join_turn(true).await
            }
            Ok(Presence::Gone { timed_out: true }) if self.row.lifecycle.status == Status::Running => {
                self.join_turn(false).await?;
                self.happen(Event::TimedOut, None).await
            }
            Ok(Presence::Gone { .. }) => {
                self.join_turn(false).await?;
                if self.turn.is_open() {
                    // What it printed is in the spool; its end asks again, but not while it is being paused or resumed.
                    if matches!(self.row.lifecycle.activity, Activity::Pausing | Activity::Resuming) {
                        self.ask_again();
                    }
                    let id = self.row.id;
                    return self.around.store.write(move |tx| sandboxes::set_unsaved(tx, id, true)).await;
                }
                if self.was_cut_off {
                    let id = self.row.id;
                    self.around.store.write(move |tx| sandboxes::set_unsaved(tx, id, true)).await?;
                }
                self.happen(Event::FoundGone, None).await
            }
            Err(error) => {
                // The next check asks again.
                tracing::warn!(sandbox = %self.row.id, %error, "the provider did not answer");
                Ok(())
            }
        }
    }

    /// An earlier life of the app ended between a turn's end and its checkpoint: it is taken now.
    async fn save_missed(&mut self) -> Result<(), store::Error> {
        if std::mem::replace(&mut self.has_saved_missed, true) || self.turn.is_open() {
            return Ok(());
        }
        let id = self.row.id;
        let missed = self.around.store.read(move |connection| {
            let last =
                turns::all(connection, id)?.into_iter().filter(|turn| turn.ended_at.is_some()).map(|turn| turn.number);
            let saved = checkpoints::all(connection, id)?.into_iter().filter_map(|checkpoint| checkpoint.turn).max();
            Ok::<_, store::Error>(last.max().filter(|last| Some(*last) > saved))
        });
        if let Some(number) = missed.await? {
            self.save(Occasion::Turn { number }, None);
        }
        Ok(())
    }

    /// Pauses or resumes; never two at once, since nobody knows which of them comes last.
    pub(super) fn suspend(&mut self, pause: bool) {
        let Some(id) = self.provider_id() else { return };
        if self.making.is_some() {
            return; // It is recorded, and so done once it is known what there is.
        }
        let provider = self.provider.clone();
        let (around, row) = (self.around.clone(), self.row.clone());
        self.run_effect(async move {
            if pause && !provider.keeps_files() {
                // Once it stands still its files cannot be read. A pause is no end: what could not be saved stays there.
                let saved = saving::save(&around, provider.clone(), &row, &Occasion::Paused).await;
                if let Err(error) = saved {
                    tracing::warn!(sandbox = %row.id, %error, "the work could not be saved before the pause");
                    let id = row.id;
                    let noted = around.store.write(move |tx| sandboxes::set_unsaved(tx, id, true)).await;
                    noted.unwrap_or_else(|error| tracing::warn!(%error, "and that could not be stored"));
                }
            }
            let asked = if pause { provider.pause(&id).await } else { provider.resume(&id).await };
            if let Err(error) = &asked {
                tracing::warn!(%error, pause, "a pause or resume failed; asking what is true");
            }
            Done::Found(Ok(truth(provider.as_ref(), &id).await))
        });
    }

    fn ask_again(&self) {
        let Some(id) = self.provider_id() else { return };
        let provider = self.provider.clone();
        self.run_effect(async move {
            tokio::time::sleep(ASK_AGAIN).await;
            Done::Found(Ok(truth(provider.as_ref(), &id).await))
        });
    }

    /// Compares with what truly runs, even if a check is under way: it may have been asked too early.
    pub(super) fn check_now(&mut self) {
        self.is_checking = false;
        self.check();
    }

    pub(super) fn check(&mut self) {
        let Some(id) = self.provider_id() else { return };
        // While something is being done to it, that something asks.
        let is_settled = self.row.lifecycle.activity == Activity::None && self.row.lifecycle.status != Status::Creating;
        if self.is_checking || !is_settled || self.making.is_some() {
            return;
        }
        self.is_checking = true;
        let (provider, asked) = (self.provider.clone(), self.row.lifecycle);
        self.run_effect(async move { Done::Checked(asked, provider.inspect(&id).await) });
    }

    /// Looks at what a sandbox can have although it is there.
    pub(super) fn examine(&mut self) {
        let Some(id) = self.provider_id() else { return };
        let is_settled = self.row.lifecycle.status == Status::Running && self.row.lifecycle.activity == Activity::None;
        if self.is_examining || !is_settled || self.making.is_some() {
            return;
        }
        self.is_examining = true;
        let (provider, turn, store) = (self.provider.clone(), self.turn.id(), self.around.store.clone());
        self.run_effect(async move {
            let fault = provider.fault(&id).await;
            let hindrance = match turn {
                Some(turn) => provider.hindrance(&id, turn).await,
                None => None,
            };
            let settings = Settings::load(&store).await.unwrap_or_default();
            Done::Examined(Examined { fault, hindrance, quiet_after: settings.quiet_after_minutes })
        });
    }

    pub(super) async fn examined(&mut self, found: Examined) -> Result<(), store::Error> {
        self.is_examining = false;
        let is_settled = self.row.lifecycle.status == Status::Running && self.row.lifecycle.activity == Activity::None;
        let silence = self.around.clock.steady().saturating_sub(self.heard_at);
        let is_read = is_settled && self.turn.ingest().is_some();
        let minutes = u32::try_from(silence.as_secs() / 60).unwrap_or(u32::MAX);
        let hindrance = Hindrance {
            words: found.hindrance.filter(|_| is_settled),
            quiet_minutes: Some(minutes).filter(|minutes| is_read && *minutes >= found.quiet_after),
        };
        self.around.hindrances.set(self.around.store.feed(), self.row.id, hindrance);
        match found.fault {
            Some(fault) if is_settled => self.has_fault(fault).await,
            _ => Ok(()),
        }
    }

    /// The sandbox is there and of no more use: it ends.
    async fn has_fault(&mut self, fault: String) -> Result<(), store::Error> {
        let error = SandboxError {
            kind: "files_gone".to_owned(),
            message: fault,
            remedy: "Everything it printed is kept. Run it again to go on.".to_owned(),
        };
        self.happen(Event::Failed, Some(error)).await
    }

    /// Whether a machine that nobody asked to pause stands still since its time is over: its own clock has paused it, and
    /// ours may have slept.
    async fn has_run_out(&mut self) -> Result<bool, store::Error> {
        let row = &self.row;
        let is_asked = row.lifecycle.activity != Activity::None || row.on_timeout == OnTimeout::Pause;
        if row.lifecycle.status != Status::Running || is_asked {
            return Ok(false);
        }
        self.take_in_clock().await?;
        Ok(self.time_left() == Some(Duration::ZERO))
    }

    /// Where the wall clock was set, the times of this sandbox were moved along: reads them anew. A machine that slept
    /// has slept through the timer as well.
    pub(super) async fn take_in_clock(&mut self) -> Result<(), store::Error> {
        let moved = self.around.clocks.settle(&self.around.store).await?;
        if moved != self.clock_moved {
            self.turn.move_start(moved - self.clock_moved);
            self.clock_moved = moved;
            let id = self.row.id;
            self.row = self.around.store.read(move |connection| sandboxes::get(connection, id)).await?;
        }
        self.rearm();
        Ok(())
    }
}

/// Asks until the provider answers.
async fn truth(provider: &dyn Provider, id: &ProviderId) -> Presence {
    loop {
        match provider.inspect(id).await {
            Ok(found) => return found,
            Err(error) => tracing::warn!(%error, "the provider did not answer; asking again"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
