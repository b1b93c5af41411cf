//! A sandbox whose files are on another machine: its repository is sent there, its agent found there, and its work brought
//! out. Everything that is run is run as the agent, and what it says is as hostile as the agent.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use git2::Oid;

use super::{
    Surroundings, launch,
    provisioning::{self, provider_error},
    saving::{Error, Occasion},
};
use crate::{
    agent::{Agent, Exit, Process, discovery},
    provider::{Output, Presence, Provider, ProviderId},
    store::{CheckpointRow, SandboxError, SandboxRow},
    work::{
        self, Taken,
        bundle::{self, Told},
        checkpoint::{SNAPSHOT, Whose},
        elsewhere::{self, Recording, Shipment},
    },
};

/// Where the pack is put; it is removed when the clone is made.
const PACK: &str = "/home/user/.courier-in.pack";
/// How long making the clone there may take.
const CLONING: Duration = Duration::from_secs(10 * 60);
/// How long making a bundle of the work may take there.
const BUNDLE: Duration = Duration::from_secs(4 * 60);
/// The largest bundle.
const MOST: u64 = 2 << 30;
/// How long looking for the agent, and installing it, may take.
const LOOKING: Duration = Duration::from_secs(60);
const INSTALLING: Duration = Duration::from_secs(10 * 60);
/// How often a step that takes long says how far it is.
const SAYING: Duration = Duration::from_millis(500);

/// Sends the repository in and makes the clone. `say` is told how far it is.
pub(super) async fn send_repository(
    around: &Surroundings,
    provider: &dyn Provider,
    id: &ProviderId,
    row: &SandboxRow,
    (base, checkpoint): (Oid, Option<Oid>),
    say: &(dyn Fn(String) + Send + Sync),
) -> Result<(), SandboxError> {
    let folder = parcels(around, row).await.map_err(|error| provisioning::not_cloned(&error))?;
    let (vault, sandbox, within) = (around.host.vault(row.project), row.id, folder.clone());
    let shipment = provisioning::working(move || Shipment::pack(&vault, sandbox, base, checkpoint, &within)).await?;
    let arrived = AtomicU64::new(0);
    let sent = |bytes| arrived.store(bytes, Ordering::Relaxed);
    let sending = provider.send_file(id, &shipment.pack, PACK, &sent);
    tokio::pin!(sending);
    let mut ticker = tokio::time::interval(SAYING);
    let done = loop {
        tokio::select! {
            done = &mut sending => break done,
            _ = ticker.tick() => {
                say(format!("{} of {} MB", arrived.load(Ordering::Relaxed) >> 20, (shipment.size >> 20).max(1)));
            }
        }
    };
    // It was only a way there.
    _ = tokio::fs::remove_dir_all(&folder).await;
    done.map_err(|error| provider_error(&error))?;
    let workspace = provider.workspace(&around.directory(row.id)).display().to_string();
    let clone = elsewhere::Clone {
        workspace: &workspace,
        pack: PACK,
        base: (&row.base_branch, base),
        branch: &row.branch,
        origin: &row.repository,
        shipment: &shipment,
    };
    let name = format!("clone-{}", around.clock.now().millis());
    let output = provider.run(id, &name, &launch::script(&clone.script()), CLONING).await;
    elsewhere::is_whole(&output.map_err(|error| provider_error(&error))?.stdout).map_err(|why| SandboxError {
        kind: "repository".to_owned(),
        message: format!("the repository could not be cloned in the sandbox: {why}"),
        remedy: "Run again; if it stays, use a template that has git and more room.".to_owned(),
    })
}

/// Finds the agent there, and installs it where it is missing. Its version, where there is something to install.
pub(super) async fn find_agent(
    around: &Surroundings,
    agent: &'static dyn Agent,
    provider: &dyn Provider,
    id: &ProviderId,
    say: &(dyn Fn(String) + Send + Sync),
) -> Result<Option<String>, SandboxError> {
    let Some(cli) = agent.cli() else { return Ok(None) };
    let look = format!("command -v {0} >/dev/null && {0} {1}", cli.program, cli.version_argument);
    let run = async |what: &str, script: String, limit| {
        let name = format!("{what}-{}", around.clock.now().millis());
        provider.run(id, &name, &shell(&script), limit).await.map_err(|error| provider_error(&error))
    };
    let version = |output: &Output| {
        let printed = String::from_utf8_lossy(&output.stdout);
        (output.exit == Exit::Code(0)).then(|| discovery::parse_version(&printed)).flatten()
    };
    let mut found = version(&run("agent", look.clone(), LOOKING).await?);
    if found.is_none_or(|found| found < cli.minimum_version) {
        say(format!("installing {}", agent.name()));
        let install = format!("{} --prefix \"$HOME/.npm-global\" --no-fund --no-audit", cli.install);
        let output = run("install", install, INSTALLING).await?;
        found = version(&run("installed", look, LOOKING).await?);
        if found.is_none() {
            let words = String::from_utf8_lossy(&output.stderr);
            let tail: Vec<&str> = words.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            return Err(SandboxError {
                kind: "missing_cli".to_owned(),
                message: format!(
                    "{} is not in the sandbox, and could not be installed: {}",
                    agent.name(),
                    tail.join(" ")
                ),
                remedy: "Use a template that has it, or one with npm and the network.".to_owned(),
            });
        }
    }
    match found {
        Some(found) if found < cli.minimum_version => Err(SandboxError {
            kind: "missing_cli".to_owned(),
            message: format!("{} {} is too old", agent.name(), dotted(found)),
            remedy: format!("Use a template with version {} or newer.", dotted(cli.minimum_version)),
        }),
        found => Ok(found.map(dotted)),
    }
}

fn dotted((major, minor, patch): (u32, u32, u32)) -> String {
    format!("{major}.{minor}.{patch}")
}

fn shell(text: &str) -> Process {
    launch::script(text)
}

/// A place for files on their way, that no sandbox sees.
async fn parcels(around: &Surroundings, row: &SandboxRow) -> Result<PathBuf, work::Error> {
    let folder = around.directory(row.id).join("parcels");
    let made = folder.clone();
    let making = tokio::task::spawn_blocking(move || crate::host::make_private_directory(&made));
    match making.await {
        Ok(Ok(())) => Ok(folder),
        Ok(Err(source)) => Err(work::Error::Io { path: folder, source }),
        Err(_) => Err(work::Error::Missing(folder)),
    }
}

/// What a checkpoint of a sandbox elsewhere is taken with.
pub(super) struct Bringing<'a> {
    pub around: &'a Surroundings,
    pub provider: &'a Arc<dyn Provider>,
    pub row: &'a SandboxRow,
    pub occasion: &'a Occasion,
    /// What the checkpoint is called.
    pub name: &'a str,
    pub last: Option<&'a CheckpointRow>,
    pub message: &'a str,
    pub author: (&'a str, &'a str),
}

impl Bringing<'_> {
    /// Brings the agent's commits and its whole working tree out, wakes it for that where it stands still, and makes the
    /// checkpoint. The agent's newest commit, and what was taken.
    pub(super) async fn take(&self) -> Result<(String, Taken), Error> {
        let id = self.row.provider_id.clone().map(ProviderId).ok_or(crate::provider::Error::Gone)?;
        let stood_still = match self.provider.inspect(&id).await? {
            Presence::Gone { .. } => return Err(crate::provider::Error::Gone.into()),
            Presence::Alive => false,
            Presence::Paused => true,
        };
        if stood_still {
            self.provider.resume(&id).await?;
        }
        let taken = self.take_awake(&id).await;
        if stood_still && !matches!(self.occasion, Occasion::Ending { .. }) {
            self.provider.pause(&id).await?;
        }
        taken
    }

    async fn take_awake(&self, id: &ProviderId) -> Result<(String, Taken), Error> {
        let Self { around, row, .. } = self;
        let folder = parcels(around, row).await?;
        let workspace = self.provider.workspace(&around.directory(row.id)).display().to_string();
        let oid = |text: &str| Oid::from_str(text).map_err(work::Error::from);
        let base = oid(&row.base_commit)?;
        let known = oid(self.last.map_or(&row.base_commit, |last| &last.head))?;
        let at = around.clock.now();
        // Each attempt is one of its own: what the first left unfinished says nothing.
        let there = format!("/home/user/.courier-{}-{}.bundle", self.name, at.millis());

        let script = bundle::script(&workspace, &[base, known], &there);
        let commits = self.run(id, "commits", at.millis(), &script).await?;
        let head = match Told::parse(&commits) {
            Told::Head { commit, has_bundle, .. } if commit != known => {
                let brought =
                    self.bring(id, Whose::Agents, has_bundle.then_some(&there), commit, vec![base, known], &folder);
                brought.await.unwrap_or_else(|error| {
                    tracing::warn!(sandbox = %row.id, %error, "the agent's commits could not be brought in");
                    known
                })
            }
            Told::Head { .. } => known,
            Told::Nothing { why } => {
                tracing::warn!(sandbox = %row.id, why, "the agent's commits could not be brought in");
                known
            }
        };

        let (vault, sandbox) = (around.host.vault(row.project), row.id);
        let before = provisioning::blocking(move || vault.commit_of(sandbox, &format!("{SNAPSHOT}/head"))).await?;
        let verified: Vec<Oid> = [base].into_iter().chain(before).collect();
        let printed = self.run(id, "tree", at.millis(), &elsewhere::snapshot(&workspace, &verified, &there)).await?;
        let snapshot = match Told::parse(&printed) {
            Told::Head { commit, has_bundle, .. } => {
                self.bring(id, Whose::Snapshot, has_bundle.then_some(&there), commit, verified, &folder).await?
            }
            Told::Nothing { why } => return Err(Error::Untold(why)),
        };
        // They were only a way out.
        _ = tokio::fs::remove_dir_all(&folder).await;

        let (vault, last) = (around.host.vault(row.project), self.last.map(|last| oid(&last.commit)).transpose()?);
        let (name, message) = (self.name.to_owned(), self.message.to_owned());
        let author = (self.author.0.to_owned(), self.author.1.to_owned());
        let left_out = elsewhere::left_out(&printed);
        let taken = provisioning::blocking(move || {
            let recording = Recording {
                sandbox,
                name: &name,
                snapshot,
                base,
                head,
                last,
                message: &message,
                author: (&author.0, &author.1),
                at,
                left_out,
            };
            elsewhere::record(&vault, &recording)
        });
        Ok((head.to_string(), taken.await?))
    }

    async fn run(&self, id: &ProviderId, what: &str, at: i64, script: &str) -> Result<Vec<u8>, Error> {
        let name = format!("{what}-{at}");
        Ok(self.provider.run(id, &name, &launch::script(script), BUNDLE).await?.stdout)
    }

    /// Fetches a bundle, where there is one, and takes it in.
    async fn bring(
        &self,
        id: &ProviderId,
        whose: Whose,
        bundle: Option<&String>,
        commit: Oid,
        verified: Vec<Oid>,
        folder: &Path,
    ) -> Result<Oid, Error> {
        let here = folder.join("bundle");
        if let Some(there) = bundle {
            self.provider.fetch_file(id, there, &here, MOST).await?;
        }
        let checkpoints = self.around.checkpoints(self.row).await?;
        let verified = verified.iter().map(Oid::to_string).collect();
        let brought =
            checkpoints.bring_in((self.row.id, whose), (bundle.map(|_| here), folder), commit, verified).await?;
        Ok(Oid::from_str(&brought.head).map_err(work::Error::from)?)
    }
}

/// Makes the working tree there what it was at a checkpoint.
pub(super) async fn restore(
    around: &Surroundings,
    provider: &dyn Provider,
    id: &ProviderId,
    row: &SandboxRow,
    checkpoint: Oid,
) -> Result<Vec<u8>, crate::engine::Error> {
    let folder = parcels(around, row).await?;
    let (vault, sandbox, within) = (around.host.vault(row.project), row.id, folder.clone());
    // The whole tree travels: what is there of the history is the agent's, and may be gone.
    let shipment = provisioning::blocking(move || Shipment::tree_of(&vault, sandbox, checkpoint, &within)).await?;
    provider.send_file(id, &shipment.pack, PACK, &|_| {}).await?;
    _ = tokio::fs::remove_dir_all(&folder).await;
    let workspace = provider.workspace(&around.directory(row.id)).display().to_string();
    let script = work::restore::script(&workspace, shipment.tree, "/nowhere", Some(PACK));
    let name = format!("restore-{}", around.clock.now().millis());
    Ok(provider.run(id, &name, &launch::script(&format!("{script}\nrm -f -- {PACK}\n")), BUNDLE).await?.stdout)
}
