//! Sandboxes on E2B's micro-VMs, or on a self-hosted E2B's.
//!
//! The control plane ([`api`]) makes machines; each has a daemon ([`daemon`]) that starts processes and moves files. Turns
//! are started and spooled inside by the keeper's program ([`guest`]), which is brought in when the machine is made, and
//! followed over streams that may break ([`follow`]).
//!
//! No machine is ever orphaned: what is to be made is recorded before, the call carries an idempotency key, and each machine
//! bears our sandbox's id, by which it is found again. A machine's own time ends a little later than ours, and then it is
//! paused and never destroyed: an expiry while the app is closed loses nothing.

mod account;
mod api;
mod daemon;
mod error;
mod files;
mod follow;
mod frames;
mod guest;
mod machine;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use courier_keeper::{protocol::StartTurn, spool};
use tokio::sync::Semaphore;

pub use self::account::{Account, NoAddress};
use self::{
    api::{Api, AutoResume, INSTALLATION, Listed, Network, NewMachine, Reachable, SANDBOX, State, again},
    daemon::{Daemon, User},
    error::Failure,
    follow::StreamFollower,
    guest::{FOLDER, WORKSPACE},
    machine::{Machine, Machines},
};
use super::{
    Error, Follower, Limits, Offsets, Output, Owned, Presence, Progress, Provider, ProviderId, Provision, TurnSignal,
    TurnSpec, Used, exposed,
};
use crate::{
    agent::Process,
    model::{NetworkMode, ProviderKind, SandboxId, TurnId},
    net,
    secrets::Secret,
};

/// How much later than ours a machine's own time ends.
const MARGIN: Duration = Duration::from_secs(60);
/// How long a machine that was woken runs before its sandbox says how much time is left.
const WOKEN: Duration = Duration::from_secs(10 * 60);
/// How long a machine may take from its making to an answer of its daemon.
const UP: Duration = Duration::from_secs(60);
/// How long a state may take to be what was asked for.
const SETTLE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(300);
/// How old a list of all machines may be that tells how one is.
const FRESH: Duration = Duration::from_millis(900);
/// How many files are on their way into machines at once.
const UPLOADS: usize = 4;
/// How long an interrupted agent has between TERM and KILL.
const GRACE: Duration = Duration::from_secs(5);
/// Whose machine it is, as a file inside: what was paused must come back as it was.
const SENTINEL: &str = "sandbox";

/// Makes sandboxes on E2B. Cloning it gives another handle to the same one.
#[derive(Clone, Debug)]
pub struct E2b {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The keeper's program for a machine: Linux on x86-64.
    guest: PathBuf,
    guest_path: OnceLock<String>,
    signed_in: RwLock<Option<SignedIn>>,
    machines: Machines,
    /// Every machine of this installation, and when they were listed: one call for all sandboxes.
    listed: tokio::sync::Mutex<Option<(Instant, Vec<Listed>)>>,
    /// Files on their way into machines: their parts are in memory.
    uploads: Semaphore,
}

/// An account, and the way there.
#[derive(Clone, Debug)]
struct SignedIn {
    account: Account,
    client: reqwest::Client,
    api: Api,
}

impl E2b {
    /// `guest` is the keeper as it runs in a machine.
    pub fn new(guest: PathBuf) -> Self {
        let inner = Inner {
            guest,
            guest_path: OnceLock::new(),
            signed_in: RwLock::new(None),
            machines: Machines::default(),
            listed: tokio::sync::Mutex::new(None),
            uploads: Semaphore::new(UPLOADS),
        };
        Self { inner: Arc::new(inner) }
    }

    fn signed_in(&self) -> Result<SignedIn, Error> {
        let signed_in = self.inner.signed_in.read().unwrap_or_else(PoisonError::into_inner);
        signed_in.clone().ok_or_else(|| Error::Refused {
            kind: "missing_key",
            cause: "there is no E2B key".to_owned(),
            remedy: "Set it in Settings, under Keys.".to_owned(),
        })
    }

    /// Where the keeper's program lies in every machine.
    fn guest_path(&self) -> Result<String, Error> {
        if let Some(path) = self.inner.guest_path.get() {
            return Ok(path.clone());
        }
        let guest = &self.inner.guest;
        let bytes = std::fs::read(guest).map_err(|source| Error::Io { what: guest.display().to_string(), source })?;
        Ok(self.inner.guest_path.get_or_init(|| guest::path_of(&bytes)).clone())
    }

    /// What is known of a machine, asked for where nothing is.
    async fn machine(&self, id: &ProviderId) -> Result<Arc<Machine>, Error> {
        if let Some(known) = self.inner.machines.get(&id.0) {
            return Ok(known);
        }
        let signed_in = self.signed_in()?;
        let listed = signed_in.api.get(&id.0).await?;
        let reachable = Reachable { id: listed.id, envd_access_token: listed.envd_access_token, domain: listed.domain };
        let machine = self.reached(&signed_in, &reachable);
        if listed.state == State::Paused {
            machine.stand_still();
        }
        Ok(machine)
    }

    fn reached(&self, signed_in: &SignedIn, found: &Reachable) -> Arc<Machine> {
        self.inner.machines.reached(found, || Daemon {
            client: signed_in.client.clone(),
            machine: found.id.clone(),
            address: signed_in.account.daemon(&found.id, found.domain.as_deref()),
            token: found.envd_access_token.clone().map(Secret::new),
        })
    }

    /// How one machine is, asked for itself.
    async fn presence(&self, id: &ProviderId) -> Result<Presence, Error> {
        match self.signed_in()?.api.get(&id.0).await {
            Ok(listed) => Ok(presence_of(&listed)),
            Err(Failure::NotFound) => Ok(Presence::Gone { timed_out: false }),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Lists what was listed long ago; one at a time, whoever asks.
    async fn as_listed(&self, id: &ProviderId) -> Result<Option<Presence>, Error> {
        let signed_in = self.signed_in()?;
        let mut listed = self.inner.listed.lock().await;
        let is_fresh = listed.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !is_fresh {
            let found = signed_in.api.list(&[(INSTALLATION, &signed_in.account.installation)]).await?;
            *listed = Some((Instant::now(), found));
        }
        let machines = listed.iter().flat_map(|(_, machines)| machines);
        Ok(machines.into_iter().find(|machine| machine.id == id.0).map(presence_of))
    }

    /// Something was done to a machine: what was listed before says nothing any more.
    async fn has_changed(&self) {
        *self.inner.listed.lock().await = None;
    }

    /// Waits until a machine is as it was asked to be; an error where it becomes something else, or takes too long.
    async fn settled(&self, id: &ProviderId, wanted: Presence) -> Result<(), Error> {
        let deadline = Instant::now() + SETTLE;
        loop {
            match self.presence(id).await {
                Ok(found) if found == wanted => return Ok(()),
                Ok(Presence::Gone { .. }) => return Err(Error::Gone),
                Ok(_) | Err(_) if Instant::now() < deadline => tokio::time::sleep(LOOK).await,
                Ok(_) => return Err(Error::Deadline { what: "its change of state", limit: SETTLE }),
                Err(error) => return Err(error),
            }
        }
    }

    /// Wakes a machine, or finds it awake.
    async fn wake(&self, id: &ProviderId, time: Duration) -> Result<Arc<Machine>, Error> {
        let signed_in = self.signed_in()?;
        let deadline = Instant::now() + SETTLE;
        let found = loop {
            match signed_in.api.connect(&id.0, time.as_secs()).await {
                // On its way from one state to the other.
                Err(Failure::Conflict(_)) if Instant::now() < deadline => tokio::time::sleep(LOOK).await,
                other => break other?,
            }
        };
        self.has_changed().await;
        // An automatic pause may have come at the same moment.
        self.settled(id, Presence::Alive).await?;
        let machine = self.reached(&signed_in, &found);
        self.is_up(&machine.daemon).await?;
        machine.go_on();
        Ok(machine)
    }

    async fn is_up(&self, daemon: &Daemon) -> Result<(), Error> {
        let deadline = Instant::now() + UP;
        loop {
            match daemon.is_healthy().await {
                Ok(()) => return Ok(()),
                // Its name may take a moment to be known to whoever leads there.
                Err(_) if Instant::now() < deadline => tokio::time::sleep(LOOK).await,
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// The machines that bear this sandbox's id: one, and more only where something went very wrong.
    async fn made_for(&self, sandbox: SandboxId) -> Result<Vec<Listed>, Error> {
        Ok(self.signed_in()?.api.list(&[(SANDBOX, &sandbox.to_string())]).await?)
    }

    async fn make(&self, spec: &Provision) -> Result<Reachable, Error> {
        let signed_in = self.signed_in()?;
        let metadata = HashMap::from([
            (SANDBOX.to_owned(), spec.sandbox.to_string()),
            (INSTALLATION.to_owned(), signed_in.account.installation.clone()),
        ]);
        let new = NewMachine {
            template: spec.template.clone().unwrap_or_else(|| "base".to_owned()),
            timeout: (spec.lifetime + MARGIN).as_secs(),
            auto_pause: true,
            auto_resume: AutoResume { enabled: false },
            secure: true,
            allow_internet_access: spec.network != NetworkMode::None,
            network: (spec.network == NetworkMode::Listed).then(|| Network {
                allow_out: spec.allowed_hosts.iter().map(|host| without_port(host)).collect(),
                deny_out: vec!["0.0.0.0/0".to_owned()],
            }),
            metadata,
        };
        Ok(signed_in.api.create(&new, &spec.sandbox.to_string()).await?)
    }

    async fn run_turn(&self, id: &ProviderId, turn: String, process: &Process, redact: &[Secret]) -> Result<(), Error> {
        let (machine, program) = (self.machine(id).await?, self.guest_path()?);
        let (env, redact) = exposed(process, redact);
        let turn = StartTurn { turn, argv: process.argv.clone(), env, redact, gateway: None };
        guest::start(&machine.daemon, &program, turn, &process.stdin).await
    }
}

fn presence_of(listed: &Listed) -> Presence {
    match listed.state {
        State::Paused => Presence::Paused,
        State::Running | State::Other => Presence::Alive,
    }
}

/// A share as a whole number; what is none is nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 100 000")]
fn whole(percent: f64) -> u32 {
    percent.round().clamp(0.0, 100_000.0) as u32
}

/// The rules of E2B's network name hosts.
fn without_port(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name.to_owned(),
        _ => host.to_owned(),
    }
}

#[async_trait]
impl Provider for E2b {
    fn kind(&self) -> ProviderKind {
        ProviderKind::E2b
    }

    fn has_gateway(&self) -> bool {
        false
    }

    fn keeps_files(&self) -> bool {
        false
    }

    fn workspace(&self, _directory: &Path) -> PathBuf {
        PathBuf::from(WORKSPACE)
    }

    fn sign_in(&self, account: Option<Account>) -> Result<(), Error> {
        let signed_in = match account {
            None => None,
            Some(account) => {
                let client = net::streaming_client("CodeCourier", account.is_loopback());
                let client = client.map_err(|error| Error::Unreachable(error.to_string()))?;
                Some(SignedIn { api: Api::new(client.clone(), account.clone()), client, account })
            }
        };
        *self.inner.signed_in.write().unwrap_or_else(PoisonError::into_inner) = signed_in;
        // Its machines are reached by what the account says.
        self.inner.machines.forget_all();
        Ok(())
    }

    async fn gateway_address(&self, _id: &ProviderId) -> Result<String, Error> {
        Err(Error::Unsupported)
    }

    async fn provision(&self, spec: &Provision) -> Result<ProviderId, Error> {
        let found = self.made_for(spec.sandbox).await?;
        let id = match found.first() {
            Some(listed) => ProviderId(listed.id.clone()),
            None => {
                let made = self.make(spec).await?;
                self.has_changed().await;
                self.reached(&self.signed_in()?, &made);
                ProviderId(made.id)
            }
        };
        let machine = match found.first() {
            Some(_) => self.wake(&id, spec.lifetime + MARGIN).await?,
            None => {
                let machine = self.machine(&id).await?;
                self.is_up(&machine.daemon).await?;
                machine
            }
        };
        let sentinel = format!("{FOLDER}/{SENTINEL}");
        machine.daemon.write(User::Root, &sentinel, spec.sandbox.to_string().as_bytes()).await?;
        {
            let _one_of_few = self.inner.uploads.acquire().await;
            guest::install(&machine.daemon, &self.inner.guest).await?;
        }
        Ok(id)
    }

    async fn inspect(&self, id: &ProviderId) -> Result<Presence, Error> {
        match self.as_listed(id).await? {
            Some(found) => Ok(found),
            // A list may be late; what it does not name is asked for by name before it counts as gone.
            None => self.presence(id).await,
        }
    }

    async fn pause(&self, id: &ProviderId) -> Result<(), Error> {
        let machine = self.machine(id).await?;
        // Pausing cuts every connection: whoever follows closes it first, and begins anew after.
        machine.stand_still();
        let asked = self.signed_in()?.api.pause(&id.0).await;
        self.has_changed().await;
        let done = match asked {
            Ok(()) | Err(Failure::Conflict(_)) => self.settled(id, Presence::Paused).await,
            // It may have happened all the same, or worse: only looking tells.
            Err(failure) => match self.presence(id).await {
                Ok(Presence::Paused) => Ok(()),
                Ok(Presence::Gone { .. }) => Err(Error::Gone),
                Ok(Presence::Alive) | Err(_) => Err(failure.into()),
            },
        };
        if done.is_err() {
            machine.go_on();
        }
        done
    }

    async fn resume(&self, id: &ProviderId) -> Result<(), Error> {
        let machine = self.wake(id, WOKEN).await?;
        let sentinel = format!("{FOLDER}/{SENTINEL}");
        match machine.daemon.read_short(&sentinel).await {
            Ok(bytes) if !bytes.is_empty() => Ok(()),
            Ok(_) | Err(Failure::NotFound) => Err(Error::Keeper("it came back without its files".to_owned())),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn extend(&self, id: &ProviderId, remaining: Duration) -> Result<(), Error> {
        match self.signed_in()?.api.set_timeout(&id.0, (remaining + MARGIN).as_secs()).await {
            Ok(()) => Ok(()),
            // What stands still does not age.
            Err(Failure::NotFound) => match self.presence(id).await? {
                Presence::Paused => Ok(()),
                Presence::Alive | Presence::Gone { .. } => Err(Error::Gone),
            },
            Err(failure) => Err(failure.into()),
        }
    }

    async fn destroy(&self, id: &ProviderId) -> Result<(), Error> {
        let api = self.signed_in()?.api;
        // Where no answer ever named a machine, it bears its sandbox's id.
        let ids = match id.0.parse::<SandboxId>() {
            Ok(sandbox) => self.made_for(sandbox).await?.into_iter().map(|listed| listed.id).collect(),
            Err(_) => vec![id.0.clone()],
        };
        for id in ids {
            api.delete(&id).await?;
            self.inner.machines.forget(&id);
        }
        self.has_changed().await;
        Ok(())
    }

    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        self.run_turn(id, turn.turn.to_string(), &turn.process, &turn.redact).await
    }

    async fn is_started(&self, id: &ProviderId, turn: TurnId) -> Result<bool, Error> {
        let machine = self.machine(id).await?;
        let path = format!("{FOLDER}/{}/{turn}", spool::TURNS);
        match machine.daemon.stat(&path).await? {
            Some(_) => Ok(true),
            // A daemon that is not there finds nothing either.
            None => machine.daemon.is_healthy().await.map(|()| false).map_err(Error::from),
        }
    }

    async fn signal(&self, id: &ProviderId, turn: TurnId, signal: TurnSignal) -> Result<(), Error> {
        let (machine, program) = (self.machine(id).await?, self.guest_path()?);
        let grace = match signal {
            TurnSignal::Interrupt => GRACE,
            TurnSignal::Kill => Duration::ZERO,
        };
        guest::end(&machine.daemon, &program, &turn.to_string(), grace).await
    }

    async fn follow(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error> {
        // Whether there is such a turn is told at once; everything else is tried until it works.
        if !self.is_started(id, turn).await? {
            return Err(Error::NoSuchTurn);
        }
        Ok(Box::new(StreamFollower::new(self.clone(), id.clone(), turn.to_string(), from)))
    }

    async fn run(&self, id: &ProviderId, name: &str, process: &Process, limit: Duration) -> Result<Output, Error> {
        let turn = format!("run-{name}");
        let running = async {
            self.run_turn(id, turn.clone(), process, &[]).await?;
            let mut follower = StreamFollower::new(self.clone(), id.clone(), turn.clone(), Offsets::default());
            Output::of(&mut follower).await
        };
        match tokio::time::timeout(limit, running).await {
            Ok(output) => output,
            Err(_) => {
                if let (Ok(machine), Ok(program)) = (self.machine(id).await, self.guest_path()) {
                    // Its end is not waited for: the machine's end is the last resort.
                    _ = guest::end(&machine.daemon, &program, &turn, Duration::ZERO).await;
                }
                Err(Error::Deadline { what: "the command", limit })
            }
        }
    }

    async fn limits(&self, _id: &ProviderId) -> Limits {
        Limits::Enforced
    }

    async fn send_file(&self, id: &ProviderId, from: &Path, to: &str, sent: &Progress<'_>) -> Result<(), Error> {
        let machine = self.machine(id).await?;
        let _one_of_few = self.inner.uploads.acquire().await;
        files::send(&machine.daemon, from, to, sent).await
    }

    async fn fetch_file(&self, id: &ProviderId, from: &str, to: &Path, most: u64) -> Result<(), Error> {
        let machine = self.machine(id).await?;
        again(|| files::fetch(&machine.daemon, from, to, most)).await.map_err(Error::from)
    }

    async fn owned(&self) -> Result<Vec<Owned>, Error> {
        let signed_in = self.signed_in()?;
        let is_of_this = |listed: &Listed| listed.metadata.get(INSTALLATION) == Some(&signed_in.account.installation);
        // Held meanwhile: what is done to a machine while it is listed makes the list worthless.
        let mut kept = self.inner.listed.lock().await;
        let all = signed_in.api.list(&[]).await?;
        *kept = Some((Instant::now(), all.iter().filter(|listed| is_of_this(listed)).cloned().collect()));
        drop(kept);
        let owned = all.into_iter().filter_map(|listed| {
            // Nobody's business: it is not ours.
            let sandbox = listed.metadata.get(SANDBOX)?.parse().ok();
            let is_of_this = is_of_this(&listed);
            let is_paused = listed.state == State::Paused;
            let template = listed.alias.clone().unwrap_or_else(|| listed.template.clone());
            Some(Owned {
                id: ProviderId(listed.id),
                sandbox,
                is_of_this,
                is_paused,
                template,
                since: listed.started_at,
            })
        });
        Ok(owned.collect())
    }

    async fn used(&self, id: &ProviderId) -> Result<Option<Used>, Error> {
        let used = self.signed_in()?.api.used(&id.0).await?;
        Ok(used.map(|used| Used {
            cpus: used.cpu_count,
            cpu_percent: whole(used.cpu_used_pct),
            memory: (used.mem_used, used.mem_total),
            disk: (used.disk_used, used.disk_total),
        }))
    }
}
