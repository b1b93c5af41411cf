//! What can go wrong with a provider: it thinks, refuses, or does what it was asked and is not heard.

use std::time::Duration;

/// What a provider can be asked. `Read` is a follower asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Provision,
    Inspect,
    Pause,
    Resume,
    Extend,
    Destroy,
    StartTurn,
    IsStarted,
    Signal,
    Follow,
    Read,
}

impl Call {
    pub const ALL: &[Self] = &[
        Self::Provision,
        Self::Inspect,
        Self::Pause,
        Self::Resume,
        Self::Extend,
        Self::Destroy,
        Self::StartTurn,
        Self::IsStarted,
        Self::Signal,
        Self::Follow,
        Self::Read,
    ];
}

/// What goes wrong with a call; by default nothing. A follower never waits: only `refuses` is about `Read`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// How long it thinks before it does anything.
    pub thinks: Duration,
    /// It does nothing, and says so.
    pub refuses: bool,
    /// How late its answer is, once all is done.
    pub is_late: Duration,
    /// All is done, and the answer is an error.
    pub is_misheard: bool,
}
