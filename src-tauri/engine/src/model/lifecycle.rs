//! What may happen to a sandbox: one pure table.
//!
//! `status` is what the sandbox is, `activity` is the work in hand, and `ending` says where an ending leads. Status stays
//! what it was until the work is done, so that the counter and the screen never lie. The store commits the new state
//! together with the owed effect; the actor then runs the effect, which is idempotent, and reports back with an event.

use super::word;

word! {
    /// What a sandbox is.
    Status { Creating = "creating", Running = "running", Paused = "paused", Killed = "killed", Error = "error" }
}

word! {
    /// What is being done to a sandbox.
    Activity { None = "none", Pausing = "pausing", Resuming = "resuming", Stopping = "stopping" }
}

word! {
    /// Why a sandbox was killed.
    Reason {
        Stopped = "stopped", TimedOut = "timed_out", StepFinished = "step_finished",
        Interrupted = "interrupted", Lost = "lost", Abandoned = "abandoned",
    }
}

/// Where an ending leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// To `killed`, for this reason.
    Killed(Reason),
    /// To `error`; the row's error columns say what happened.
    Failed,
}

impl Ending {
    /// The code stored in the row: a reason's, or `failed`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Killed(reason) => reason.code(),
            Self::Failed => "failed",
        }
    }

    /// The ending with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        match code {
            "failed" => Some(Self::Failed),
            other => Reason::from_code(other).map(Self::Killed),
        }
    }
}

word! {
    /// What can happen to a sandbox.
    Event {
        Provisioned = "provisioned",
        ProvisioningFailed = "provisioning_failed",
        PauseRequested = "pause_requested",
        ResumeRequested = "resume_requested",
        FoundAlive = "found_alive",
        FoundPaused = "found_paused",
        FoundGone = "found_gone",
        StopRequested = "stop_requested",
        TimedOut = "timed_out",
        StepFinished = "step_finished",
        Failed = "failed",
        Destroyed = "destroyed",
        GivenUp = "given_up",
    }
}

/// What the engine owes after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Give the agent the first message.
    BeginFirstTurn,
    /// Suspend every process of the sandbox.
    Suspend,
    /// Let them go on.
    Wake,
    /// Stop the agent, save the work, destroy the sandbox, report `Destroyed`.
    SaveThenDestroy,
    /// The person does not want to wait for the saving: destroy now.
    DestroyNow,
    /// Destroy whatever the provider may have made; nothing is worth saving.
    Release,
    /// Something may still run where nobody can reach it: keep trying in the background.
    DestroyLater,
}

/// What a sandbox is (`status`), what is being done to it (`activity`) and, while stopping, where that leads (`ending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    pub status: Status,
    pub activity: Activity,
    pub ending: Option<Ending>,
}

/// The event has no meaning in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox that is {} cannot take the event {event}", .state.words())]
pub struct Illegal {
    pub state: Lifecycle,
    pub event: Event,
}

fn at(status: Status) -> Lifecycle {
    Lifecycle { status, activity: Activity::None, ending: None }
}

fn killed(reason: Reason) -> Lifecycle {
    Lifecycle { ending: Some(Ending::Killed(reason)), ..at(Status::Killed) }
}

impl Status {
    fn with(self, activity: Activity) -> Lifecycle {
        Lifecycle { activity, ..at(self) }
    }

    fn stopping(self, ending: Ending) -> Lifecycle {
        Lifecycle { status: self, activity: Activity::Stopping, ending: Some(ending) }
    }

    /// Whether something may still run behind it.
    pub fn is_live(self) -> bool {
        match self {
            Self::Creating | Self::Running | Self::Paused => true,
            Self::Killed | Self::Error => false,
        }
    }
}

impl Lifecycle {
    /// Where every sandbox begins.
    pub fn new() -> Self {
        at(Status::Creating)
    }

    /// "running", or "running and stopping".
    pub fn words(&self) -> String {
        match self.activity {
            Activity::None => self.status.code().to_owned(),
            activity => format!("{} and {}", self.status, activity),
        }
    }

    /// Where a finished ending leads: its target, or `killed` (stopped) where none was recorded.
    fn ended(self) -> Lifecycle {
        match self.ending {
            Some(Ending::Failed) => at(Status::Error),
            Some(Ending::Killed(reason)) => killed(reason),
            None => killed(Reason::Stopped),
        }
    }

    /// What `event` does to a sandbox. Pure: no clock, no I/O. After `killed`, `ending` holds the reason.
    ///
    /// # Errors
    /// `Illegal` where the event has no meaning in this state; asking twice for what already holds is fine.
    pub fn step(self, event: Event) -> Result<(Lifecycle, Effect), Illegal> {
        use {Activity as A, Effect as Fx, Event as E, Status as S};
        Ok(match (self.status, self.activity, event) {
            // Creating: the provider has not answered yet.
            (S::Creating, A::None, E::Provisioned) => (at(S::Running), Fx::BeginFirstTurn),
            (S::Creating, A::None, E::ProvisioningFailed | E::Failed) => (at(S::Error), Fx::Release),
            (S::Creating, A::None, E::FoundGone) => (self, Fx::None),
            (S::Creating, A::None, E::StopRequested) => {
                (S::Creating.stopping(Ending::Killed(Reason::Stopped)), Fx::Release)
            }
            // An id that arrives late is destroyed.
            (S::Creating, A::Stopping, E::Provisioned | E::ProvisioningFailed | E::Failed) => (self, Fx::Release),
            (S::Creating, A::Stopping, E::StopRequested | E::FoundGone | E::TimedOut) => (self, Fx::None),

            // Running: the agent works or waits for a message.
            (S::Running, A::None, E::PauseRequested) => (S::Running.with(A::Pausing), Fx::Suspend),
            (S::Running, A::None, E::ResumeRequested | E::FoundAlive) => (self, Fx::None),
            (S::Running, A::Pausing, E::PauseRequested) => (self, Fx::None),
            (S::Running, A::Pausing, E::FoundAlive) => (at(S::Running), Fx::None),
            (S::Running, A::None | A::Pausing, E::FoundPaused) => (at(S::Paused), Fx::None),

            // Paused: nothing executes.
            (S::Paused, A::None, E::ResumeRequested) => (S::Paused.with(A::Resuming), Fx::Wake),
            (S::Paused, A::None, E::PauseRequested | E::FoundPaused) => (self, Fx::None),
            (S::Paused, A::Resuming, E::ResumeRequested) => (self, Fx::None),
            (S::Paused, A::Resuming, E::FoundPaused) => (at(S::Paused), Fx::None),
            (S::Paused, A::None | A::Resuming, E::FoundAlive) => (at(S::Running), Fx::None),

            // Endings begin alike wherever something lives.
            (live @ (S::Running | S::Paused), A::None | A::Pausing | A::Resuming, E::StopRequested) => {
                (live.stopping(Ending::Killed(Reason::Stopped)), Fx::SaveThenDestroy)
            }
            (live @ (S::Running | S::Paused), A::None | A::Pausing | A::Resuming, E::StepFinished) => {
                (live.stopping(Ending::Killed(Reason::StepFinished)), Fx::SaveThenDestroy)
            }
            (live @ (S::Running | S::Paused), A::None | A::Pausing | A::Resuming, E::Failed) => {
                (live.stopping(Ending::Failed), Fx::SaveThenDestroy)
            }
            (S::Running, A::None | A::Pausing, E::TimedOut) => {
                (S::Running.stopping(Ending::Killed(Reason::TimedOut)), Fx::SaveThenDestroy)
            }
            (S::Paused, A::Resuming, E::TimedOut) => {
                (S::Paused.stopping(Ending::Killed(Reason::TimedOut)), Fx::SaveThenDestroy)
            }
            // Reality outranks the row.
            (S::Running | S::Paused, A::None | A::Pausing | A::Resuming, E::FoundGone) => {
                (killed(Reason::Lost), Fx::Release)
            }

            // Stopping: it always ends.
            (S::Running | S::Paused, A::Stopping, E::StopRequested) => (self, Fx::DestroyNow),
            (S::Creating | S::Running | S::Paused, A::Stopping, E::Destroyed) => (self.ended(), Fx::None),
            (S::Running | S::Paused, A::Stopping, E::FoundGone) => (self.ended(), Fx::Release),
            (S::Creating | S::Running | S::Paused, A::Stopping, E::GivenUp) => {
                (killed(Reason::Abandoned), Fx::DestroyLater)
            }
            (
                S::Running | S::Paused,
                A::Stopping,
                E::TimedOut | E::StepFinished | E::Failed | E::FoundAlive | E::FoundPaused,
            ) => (self, Fx::None),

            // Ended: what arrives late is cleaned up.
            (S::Killed | S::Error, A::None, E::StopRequested | E::Destroyed | E::FoundGone) => (self, Fx::None),
            (S::Killed | S::Error, A::None, E::Provisioned | E::FoundAlive | E::FoundPaused) => (self, Fx::Release),

            // Everything else has no meaning, by name, so that a new event does not compile until someone decides.
            (
                S::Creating,
                A::None,
                E::PauseRequested
                | E::ResumeRequested
                | E::FoundAlive
                | E::FoundPaused
                | E::TimedOut
                | E::StepFinished
                | E::Destroyed
                | E::GivenUp,
            )
            | (
                S::Creating,
                A::Stopping,
                E::PauseRequested | E::ResumeRequested | E::FoundAlive | E::FoundPaused | E::StepFinished,
            )
            | (
                S::Running,
                A::None,
                E::Provisioned | E::ProvisioningFailed | E::Destroyed | E::GivenUp,
            )
            | (
                S::Running,
                A::Pausing,
                E::Provisioned | E::ProvisioningFailed | E::ResumeRequested | E::Destroyed | E::GivenUp,
            )
            | (
                S::Paused,
                A::None,
                E::Provisioned | E::ProvisioningFailed | E::TimedOut | E::Destroyed | E::GivenUp,
            )
            | (
                S::Paused,
                A::Resuming,
                E::Provisioned | E::ProvisioningFailed | E::PauseRequested | E::Destroyed | E::GivenUp,
            )
            | (
                S::Running | S::Paused,
                A::Stopping,
                E::Provisioned | E::ProvisioningFailed | E::PauseRequested | E::ResumeRequested,
            )
            | (
                S::Killed | S::Error,
                A::None,
                E::ProvisioningFailed
                | E::PauseRequested
                | E::ResumeRequested
                | E::TimedOut
                | E::StepFinished
                | E::Failed
                | E::GivenUp,
            )
            // Pairs no event leads to.
            | (S::Creating | S::Killed | S::Error, A::Pausing | A::Resuming, _)
            | (S::Running, A::Resuming, _)
            | (S::Paused, A::Pausing, _)
            | (S::Killed | S::Error, A::Stopping, _) => return Err(Illegal { state: self, event }),
        })
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> Vec<Lifecycle> {
        let stopped = Ending::Killed(Reason::Stopped);
        vec![
            at(Status::Creating),
            Status::Creating.stopping(stopped),
            at(Status::Running),
            Status::Running.with(Activity::Pausing),
            Status::Running.stopping(stopped),
            Status::Running.stopping(Ending::Failed),
            at(Status::Paused),
            Status::Paused.with(Activity::Resuming),
            Status::Paused.stopping(Ending::Killed(Reason::TimedOut)),
            killed(Reason::Stopped),
            at(Status::Error),
        ]
    }

    /// A new event or state shows up in review as a changed table.
    #[test]
    fn every_state_and_every_event() {
        let mut table = String::new();
        for state in states() {
            let ending = state.ending.map_or(String::new(), |ending| format!(" → {}", ending.code()));
            table += &format!("{}{ending}\n", state.words());
            for event in Event::ALL {
                let answer = match state.step(*event) {
                    Ok((to, effect)) => {
                        let ending = to.ending.map_or(String::new(), |ending| format!(" → {}", ending.code()));
                        format!("{}{ending}, {effect:?}", to.words())
                    }
                    Err(_) => "illegal".to_owned(),
                };
                table += &format!("    {:<20} {answer}\n", event.code());
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn a_stop_is_never_illegal() {
        for state in states() {
            assert!(state.step(Event::StopRequested).is_ok(), "stop must be possible while {}", state.words());
        }
    }

    #[test]
    fn no_event_leads_out_of_an_ended_sandbox() {
        for state in states().into_iter().filter(|state| !state.status.is_live()) {
            for event in Event::ALL {
                if let Ok((to, _)) = state.step(*event) {
                    assert_eq!(to, state, "{event} moved an ended sandbox");
                }
            }
        }
    }
}
