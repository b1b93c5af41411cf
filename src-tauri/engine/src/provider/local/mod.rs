//! Sandboxes on this machine: bubblewrap on Linux, Seatbelt on macOS.
//!
//! A sandbox is its folder (`<app data>/sandboxes/<sandbox id>`) and one keeper, a small program that outlives the
//! app: it makes the jail, starts turns in it, copies what they print to their spools and counts the running time.
//! Everything here either asks the keeper over its socket or reads what it wrote. Whether it lives is told by its file
//! lock; a signal goes only where pid, start and boot agree.
//!
//! A keeper ends with a logout or a reboot; its folder does not. `provision` for the same sandbox then starts a new
//! one, with the running time its spec names.

mod follow;
mod jail;
mod keeper;
mod run;
mod ticker;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use courier_keeper::{
    protocol::{
        EndReason, EndedRecord, Gateway as KeeperGateway, KeyHeader as KeeperKeyHeader, Network,
        OnTimeout as KeeperOnTimeout, Request, Response, StartSpec, StartTurn, VERSION,
    },
    spool,
};
use tokio::sync::OnceCell;

pub use self::jail::{Jail, probe};
use super::{
    Error, Follower, Gateway, Limits, Offsets, Output, Presence, Provider, ProviderId, Provision, TurnSignal, TurnSpec,
    exposed,
};
use crate::{
    agent::{KeyHeader, Process},
    model::{NetworkMode, OnTimeout, ProviderKind, SandboxId, Timestamp, TurnId},
    process::install,
    secrets::Secret,
};

/// How long an interrupted agent has between TERM and KILL.
const INTERRUPT_GRACE: Duration = Duration::from_secs(5);

/// Makes sandboxes on this machine.
pub struct Local {
    /// The keeper as it comes with the app; a copy of it is run.
    program: PathBuf,
    bubblewrap: Option<PathBuf>,
    /// The app's data folder.
    data: PathBuf,
    prepared: OnceCell<Prepared>,
    ticker: ticker::Ticker,
}

/// What was found out and made once.
#[derive(Clone, Debug)]
struct Prepared {
    keeper: PathBuf,
    jail: Jail,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Local {
    /// `program` is the keeper that comes with the app, `bubblewrap` where that was found, `data` the app's data
    /// folder.
    pub fn new(program: PathBuf, bubblewrap: Option<PathBuf>, data: PathBuf) -> Self {
        Self { program, bubblewrap, data, prepared: OnceCell::new(), ticker: ticker::Ticker::new() }
    }

    /// The folder of a sandbox; its [`Provision::directory`] must be this.
    pub fn directory(&self, sandbox: SandboxId) -> PathBuf {
        self.data.join("sandboxes").join(sandbox.to_string())
    }

    /// The folder of what was provisioned under this id.
    fn find(&self, id: &ProviderId) -> Result<PathBuf, Error> {
        id.0.parse().map(|sandbox| self.directory(sandbox)).map_err(|_| Error::Gone)
    }

    /// The copied keeper and the jail's tool. Tried again after a failure: a person may install what was missing.
    async fn prepared(&self) -> Result<&Prepared, Error> {
        let prepare = async || {
            let jail = probe(self.bubblewrap.as_deref()).await?;
            let (program, keepers) = (self.program.clone(), self.data.join("keepers"));
            let install = move || install(&program, &keepers).map_err(|(path, source)| unreadable(&path, source));
            let keeper = blocking(install).await?;
            Ok(Prepared { keeper, jail })
        };
        self.prepared.get_or_try_init(prepare).await
    }

    async fn ask(&self, id: &ProviderId, request: Request) -> Result<Response, Error> {
        keeper::ask(self.find(id)?, request, Vec::new()).await
    }

    async fn done(&self, id: &ProviderId, request: Request) -> Result<(), Error> {
        match self.ask(id, request).await? {
            Response::Done => Ok(()),
            other => Err(keeper::unexpected(other)),
        }
    }
}

#[async_trait]
impl Provider for Local {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Local
    }

    fn has_gateway(&self) -> bool {
        true
    }

    async fn gateway_address(&self, id: &ProviderId) -> Result<String, Error> {
        match self.ask(id, Request::Status).await? {
            Response::Status(status) => Ok(format!("http://127.0.0.1:{}", status.gateway_port)),
            other => Err(keeper::unexpected(other)),
        }
    }

    async fn provision(&self, spec: &Provision) -> Result<ProviderId, Error> {
        let directory = self.directory(spec.sandbox);
        if spec.directory != directory {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "a local sandbox lives elsewhere");
            return Err(Error::Io { what: format!("{}", spec.directory.display()), source });
        }
        let id = ProviderId(spec.sandbox.to_string());
        if self.inspect(&id).await.is_ok_and(|presence| !matches!(presence, Presence::Gone { .. })) {
            return Ok(id);
        }
        let prepared = self.prepared().await?;
        match keeper::start(&prepared.keeper, start_spec(spec, &prepared.jail)).await {
            Ok(()) => Ok(id),
            // The jail may have been forbidden since it was last tried; then that is what to say.
            Err(error) => Err(probe(self.bubblewrap.as_deref()).await.err().unwrap_or(error)),
        }
    }

    async fn inspect(&self, id: &ProviderId) -> Result<Presence, Error> {
        let directory = self.find(id)?;
        match keeper::ask(directory.clone(), Request::Status, Vec::new()).await {
            Ok(Response::Status(status)) if status.paused => Ok(Presence::Paused),
            Ok(Response::Status(_)) => Ok(Presence::Alive),
            Ok(other) => Err(keeper::unexpected(other)),
            Err(Error::Gone) => blocking(move || Ok(Presence::Gone { timed_out: has_timed_out(&directory) })).await,
            Err(error) => Err(error),
        }
    }

    async fn fault(&self, id: &ProviderId) -> Option<String> {
        let directory = self.find(id).ok()?;
        let look = move || Ok(["workspace", "home"].into_iter().find(|name| is_gone(&directory.join(name))));
        blocking(look).await.ok()?.map(|folder| format!("its {folder} folder was deleted from outside"))
    }

    async fn hindrance(&self, id: &ProviderId, turn: TurnId) -> Option<String> {
        // Whether it answers at all is asked elsewhere.
        let Ok(Response::Status(status)) = self.ask(id, Request::Status).await else { return None };
        let turn = turn.to_string();
        let blocked = status.turns.into_iter().find(|open| open.turn == turn)?.blocked?;
        Some(if blocked.contains("No space left") {
            "the disk is full; the agent waits until there is room".to_owned()
        } else {
            format!("what it prints cannot be written, and it waits: {blocked}")
        })
    }

    async fn limited_until(&self, id: &ProviderId, turn: TurnId) -> Option<Timestamp> {
        let place = spool::turn_directory(&self.find(id).ok()?, &turn.to_string());
        let record = tokio::task::spawn_blocking(move || spool::read_exit(&place)).await.ok()?.ok()??;
        record.limited_until.map(Timestamp::from_millis)
    }

    async fn pause(&self, id: &ProviderId) -> Result<(), Error> {
        self.done(id, Request::Pause).await
    }

    async fn resume(&self, id: &ProviderId) -> Result<(), Error> {
        self.done(id, Request::Resume).await
    }

    async fn extend(&self, id: &ProviderId, remaining: Duration) -> Result<(), Error> {
        self.done(id, Request::Extend { remaining_ms: millis(remaining) }).await
    }

    async fn destroy(&self, id: &ProviderId) -> Result<(), Error> {
        keeper::destroy(self.find(id)?).await
    }

    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        if self.is_started(id, turn.turn).await? {
            return Ok(());
        }
        self.start(id, turn.turn.to_string(), &turn.process, &turn.redact, turn.gateway.as_ref()).await
    }

    async fn is_started(&self, id: &ProviderId, turn: TurnId) -> Result<bool, Error> {
        let place = spool::turn_directory(&self.find(id)?, &turn.to_string());
        blocking(move || place.try_exists().map_err(|source| unreadable(&place, source))).await
    }

    async fn signal(&self, id: &ProviderId, turn: TurnId, signal: TurnSignal) -> Result<(), Error> {
        let grace = match signal {
            TurnSignal::Interrupt => INTERRUPT_GRACE,
            TurnSignal::Kill => Duration::ZERO,
        };
        self.done(id, Request::EndTurn { turn: turn.to_string(), grace_ms: millis(grace) }).await
    }

    async fn follow(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error> {
        let (directory, ticks) = (self.find(id)?, self.ticker.subscribe()?);
        let turn = turn.to_string();
        let follower = blocking(move || follow::SpoolFollower::new(directory, turn, from, ticks)).await?;
        Ok(Box::new(follower))
    }

    async fn run(&self, id: &ProviderId, name: &str, process: &Process, limit: Duration) -> Result<Output, Error> {
        run::run(self, id, name, process, limit).await
    }

    async fn limits(&self, id: &ProviderId) -> Limits {
        match self.ask(id, Request::Status).await {
            Ok(Response::Status(status)) if status.limits_enforced => Limits::Enforced,
            // Not known to hold is not holding.
            Ok(_) | Err(_) => Limits::Advisory,
        }
    }
}

impl Local {
    async fn start(
        &self,
        id: &ProviderId,
        turn: String,
        process: &Process,
        secrets: &[Secret],
        gateway: Option<&Gateway>,
    ) -> Result<(), Error> {
        let (env, redact) = exposed(process, secrets);
        let gateway = gateway.map(|gateway| KeeperGateway {
            upstream: gateway.upstream.clone(),
            header: match gateway.header {
                KeyHeader::XApiKey => KeeperKeyHeader::XApiKey,
                KeyHeader::Bearer => KeeperKeyHeader::Bearer,
            },
            key: gateway.key.expose().to_owned(),
            token: gateway.token.clone(),
        });
        let request = Request::StartTurn(StartTurn { turn, argv: process.argv.clone(), env, redact, gateway });
        match keeper::ask(self.find(id)?, request, process.stdin.clone()).await? {
            Response::Started { .. } => Ok(()),
            other => Err(keeper::unexpected(other)),
        }
    }
}

fn start_spec(spec: &Provision, jail: &Jail) -> StartSpec {
    StartSpec {
        version: VERSION,
        directory: spec.directory.clone(),
        workspace: spec.workspace.clone(),
        home: spec.directory.join("home"),
        read_only: spec.read_only.clone(),
        network: match spec.network {
            NetworkMode::Open => Network::Open,
            NetworkMode::Listed => Network::Listed,
            NetworkMode::None => Network::None,
        },
        allowed_hosts: spec.allowed_hosts.clone(),
        variables: spec.variables.clone(),
        memory_mb: spec.memory_mb,
        cpus: spec.cpus,
        lifetime_ms: millis(spec.lifetime),
        on_timeout: match spec.on_timeout {
            OnTimeout::Kill => KeeperOnTimeout::Kill,
            OnTimeout::Pause => KeeperOnTimeout::Pause,
        },
        bwrap: jail.program.clone(),
        bwrap_version: jail.version,
    }
}

/// Certainly: what cannot be looked at may be there.
fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn has_timed_out(directory: &Path) -> bool {
    let ended = std::fs::read(directory.join(spool::ENDED)).ok();
    let record = ended.and_then(|bytes| serde_json::from_slice::<EndedRecord>(&bytes).ok());
    record.is_some_and(|record| record.reason == EndReason::TimedOut)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unreadable(path: &Path, source: std::io::Error) -> Error {
    Error::Io { what: path.display().to_string(), source }
}

/// Does what may block where blocking is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    joined(tokio::task::spawn_blocking(work).await)
}

/// What such work answered.
fn joined<T>(done: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    match done {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going down, and with it whoever asked.
        Err(_) => Err(Error::Gone),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
