//! Where sandboxes live: the trait, and what passes through it.
//!
//! Every effect is idempotent: the engine may ask twice for what already holds (it does so after a crash).

pub mod e2b;
pub mod local;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    agent::{EnvValue, Exit, KeyHeader, Process},
    model::{NetworkMode, OnTimeout, ProviderKind, SandboxId, Stream, Timestamp, TurnId},
    secrets::Secret,
};

/// What a provider calls a sandbox. For `local` it is the sandbox's own id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderId(pub String);

/// What a provider needs to make a sandbox.
#[derive(Clone, Debug)]
pub struct Provision {
    pub sandbox: SandboxId,
    /// The sandbox's own folder under app data (`workspace/`, `home/`, `turns/` and the keeper's files are in it).
    pub directory: PathBuf,
    /// The clone the agent works in; already there. Visible inside at this same path.
    pub workspace: PathBuf,
    /// Folders the sandbox may read at their real paths: the mirror's objects, the CLI's own folder, toolchains.
    pub read_only: Vec<PathBuf>,
    pub network: NetworkMode,
    /// Hosts reachable in mode `listed`, and private or loopback `host:port`s allowed in any mode but `none`.
    pub allowed_hosts: Vec<String>,
    /// The project's plain variables, for every turn.
    pub variables: Vec<(String, String)>,
    pub memory_mb: u32,
    pub cpus: u32,
    /// How much running time it has; enforced by the provider even while the app is closed.
    pub lifetime: Duration,
    pub on_timeout: OnTimeout,
    /// What the machine is made from, where the provider makes machines from something; `None`: its own default.
    pub template: Option<String>,
}

/// A turn to start.
#[derive(Debug)]
pub struct TurnSpec {
    pub turn: TurnId,
    pub process: Process,
    /// Everything that must never reach the spool.
    pub redact: Vec<Secret>,
    /// The way to the model from now on, for an agent whose key stays outside; `None`: there is none. Only where the
    /// provider [has one](Provider::has_gateway).
    pub gateway: Option<Gateway>,
}

/// Who holds the key in the agent's place, and for whom.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Where the model is: an http(s) address.
    pub upstream: String,
    pub header: KeyHeader,
    /// The real key. It never enters the sandbox.
    pub key: Secret,
    /// What the agent shows instead. It is worth nothing anywhere else, and so no secret.
    pub token: String,
}

/// Whether a sandbox is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Alive,
    Paused,
    /// It is gone; `timed_out` where the provider ended it because its lifetime was over.
    Gone {
        timed_out: bool,
    },
}

/// How an agent is asked to end its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnSignal {
    /// End this turn: TERM to the agent, a grace, then KILL to everything the turn started that is still there.
    Interrupt,
    /// KILL at once to everything the turn started.
    Kill,
}

/// How far each stream of a spool has been read, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub out: u64,
    pub err: u64,
}

/// What comes out of a spool.
#[derive(Debug)]
pub enum SpoolEvent {
    /// The next bytes of one stream; they begin at the stream's offset.
    Bytes { stream: Stream, bytes: Vec<u8> },
    /// The process has ended and every byte before this event was delivered.
    Ended(Exit),
}

/// Follows one turn's spool. `next` is cancel-safe.
#[async_trait]
pub trait Follower: Send {
    /// Waits for more. After `Ended` it must not be called again.
    async fn next(&mut self) -> Result<SpoolEvent, Error>;
}

/// What a short command printed, for provisioning and set-up.
#[derive(Debug)]
pub struct Output {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// How much of each stream of a short command is kept.
const MOST_OUTPUT: usize = 16 << 20;

impl Output {
    /// All that a short command printed, once it has ended.
    async fn of(follower: &mut dyn Follower) -> Result<Self, Error> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match follower.next().await? {
                SpoolEvent::Ended(exit) => return Ok(Self { exit, stdout, stderr }),
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
}

/// A process's variables as they are given to it, and every secret among them beside those that are known already: what
/// must never reach its spool.
fn exposed(process: &Process, secrets: &[Secret]) -> (Vec<(String, String)>, Vec<String>) {
    let mut redact: Vec<String> = secrets.iter().map(|secret| secret.expose().to_owned()).collect();
    let variable = |(name, value): &(String, EnvValue)| match value {
        EnvValue::Plain(value) => (name.clone(), value.clone()),
        EnvValue::Secret(secret) => {
            redact.push(secret.expose().to_owned());
            (name.clone(), secret.expose().to_owned())
        }
    };
    let variables = process.env.iter().map(variable).collect();
    (variables, redact)
}

/// Whether the limits hold by force or by good will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    Enforced,
    Advisory,
}

/// A machine of the account that bears the mark of this app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub id: ProviderId,
    /// The sandbox it was made for, where its mark can be read.
    pub sandbox: Option<SandboxId>,
    /// Whether this installation made it, and not another one with the same account.
    pub is_of_this: bool,
    pub is_paused: bool,
    /// What it was made from.
    pub template: String,
    /// Since when it runs, as the provider writes times.
    pub since: String,
}

/// What a sandbox uses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub cpus: u32,
    /// Of all its processors together, rounded.
    pub cpu_percent: u32,
    /// Bytes used, and bytes there are.
    pub memory: (u64, u64),
    pub disk: (u64, u64),
}

/// Told how many bytes of a file have arrived.
pub type Progress<'a> = dyn Fn(u64) + Send + Sync + 'a;

/// Why a provider could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The jail cannot be built on this machine; the text says why and what to do.
    #[error("{cause}")]
    NoJail { cause: String, remedy: String },
    /// This system has no local provider.
    #[error("sandboxes on this machine need Linux or macOS; use Docker or E2B here")]
    Unsupported,
    /// Its service said no; the kind is a sandbox's.
    #[error("{cause}")]
    Refused { kind: &'static str, cause: String, remedy: String },
    /// Its service did not answer, or not so that it could be understood: nobody knows how things are.
    #[error("{0}")]
    Unreachable(String),
    /// The sandbox is not there.
    #[error("the sandbox is gone")]
    Gone,
    /// The turn was never started.
    #[error("the turn was never started")]
    NoSuchTurn,
    /// The provider did not answer in time.
    #[error("{what} took longer than {limit:?}")]
    Deadline { what: &'static str, limit: Duration },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The keeper said something unexpected; the text holds its last words.
    #[error("the sandbox's keeper failed: {0}")]
    Keeper(String),
}

/// What makes sandboxes.
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug + 'static {
    fn kind(&self) -> ProviderKind;

    /// Whether its sandboxes have a gateway: a door of their own, open in every network mode, at which an agent that shows
    /// a turn's token reaches its model, while the key stays with who made the sandbox. Where they have none an agent gets
    /// its key itself, and the window says so ("key inside").
    fn has_gateway(&self) -> bool;

    /// Whether the sandbox's files and spools are on this machine, and stay when it is destroyed. Where not, its work is
    /// brought out before it stands still or ends, and one that is gone cannot be revived.
    fn keeps_files(&self) -> bool {
        true
    }

    /// Where inside the agent works, for a sandbox with this folder on this machine.
    fn workspace(&self, directory: &Path) -> PathBuf {
        directory.join("workspace")
    }

    /// Whose account sandboxes are made on, for a provider that has accounts; `None`: nobody's any more.
    fn sign_in(&self, _account: Option<e2b::Account>) -> Result<(), Error> {
        Ok(())
    }

    /// Where inside this sandbox its gateway answers, as `http://host:port`. Asked only where there is one.
    async fn gateway_address(&self, id: &ProviderId) -> Result<String, Error>;

    /// Makes the sandbox, or finds the one made earlier from the same spec.
    async fn provision(&self, spec: &Provision) -> Result<ProviderId, Error>;

    /// Whether the sandbox is there. An error means nobody knows.
    async fn inspect(&self, id: &ProviderId) -> Result<Presence, Error>;

    /// What makes a sandbox that is there unusable for good, in words: its files are gone.
    async fn fault(&self, _id: &ProviderId) -> Option<String> {
        None
    }

    /// What keeps a turn's output from being stored now, in words.
    async fn hindrance(&self, _id: &ProviderId, _turn: TurnId) -> Option<String> {
        None
    }

    /// Until when the model's maker takes no more, where it said so last in a turn that has ended.
    async fn limited_until(&self, _id: &ProviderId, _turn: TurnId) -> Option<Timestamp> {
        None
    }

    async fn pause(&self, id: &ProviderId) -> Result<(), Error>;

    async fn resume(&self, id: &ProviderId) -> Result<(), Error>;

    /// Sets how much running time is left from now on.
    async fn extend(&self, id: &ProviderId, remaining: Duration) -> Result<(), Error>;

    /// Ends every process of the sandbox and returns once they are gone. Its files stay.
    async fn destroy(&self, id: &ProviderId) -> Result<(), Error>;

    /// Starts a turn, once: a second call for the same turn finds it claimed and changes nothing.
    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error>;

    /// Whether the turn was ever claimed: the answer after a crash between the record and the start.
    async fn is_started(&self, id: &ProviderId, turn: TurnId) -> Result<bool, Error>;

    async fn signal(&self, id: &ProviderId, turn: TurnId, signal: TurnSignal) -> Result<(), Error>;

    /// Reads a turn's spool from `from` on, also long after the sandbox ended.
    async fn follow(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error>;

    /// Runs a short command inside, as the agent would. `name` names it in this sandbox: asked for again, the same run is
    /// waited for or its output returned, and nothing runs twice.
    async fn run(&self, id: &ProviderId, name: &str, process: &Process, limit: Duration) -> Result<Output, Error>;

    /// Whether memory and CPU limits hold by force for this sandbox.
    async fn limits(&self, id: &ProviderId) -> Limits;

    /// Brings a file of this machine into the sandbox, as the agent's own. Only where files are not kept here.
    async fn send_file(&self, _id: &ProviderId, _from: &Path, _to: &str, _sent: &Progress<'_>) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// Brings a file out of the sandbox; one that is larger than `most` bytes is refused.
    async fn fetch_file(&self, _id: &ProviderId, _from: &str, _to: &Path, _most: u64) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// Every machine of the account that bears the mark of this app, whichever installation made it.
    async fn owned(&self) -> Result<Vec<Owned>, Error> {
        Ok(Vec::new())
    }

    /// What a sandbox uses now, where that is told.
    async fn used(&self, _id: &ProviderId) -> Result<Option<Used>, Error> {
        Ok(None)
    }
}
