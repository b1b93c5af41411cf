//! Making a sandbox, step by step. Every step is idempotent: after a crash the engine begins again at the first one.

use std::{future::Future, path::PathBuf, time::Duration};

use courier_keeper::upstream::Upstream;
use git2::Oid;
use tokio_util::sync::CancellationToken;

use super::{Surroundings, elsewhere, launch, prepare};
use crate::{
    agent::{Agent, Exit},
    model::NetworkMode,
    provider::{self, Limits, Provider, ProviderId, Provision},
    settings::Settings,
    store::{self, SandboxError, SandboxRow, checkpoints, sandboxes},
    work::{AUTHOR, Begin, Source, Taking, Workspace},
};

/// How long each step may take before it counts as failed.
const REPOSITORY: Duration = Duration::from_secs(15 * 60);
const SANDBOX: Duration = Duration::from_secs(60);
/// How long a machine may take to be there, our program in it included.
const MACHINE: Duration = Duration::from_secs(5 * 60);
/// How much longer than its sandbox a machine lives at first: its own time begins when it is ready.
const ELSEWHERE: Duration = Duration::from_secs(20 * 60);
/// The set-up runs once in a sandbox, whichever life of the app asks.
const SETUP_NAME: &str = "setup";
const SETUP: Duration = Duration::from_secs(10 * 60);
/// How much of a failed command's output an error shows, in bytes.
const LAST_WORDS: usize = 2000;

/// Makes the sandbox this row asks for and returns what became known of it. Once `stopped`, it ends between two steps or
/// in one that leaves nothing running.
pub(super) async fn provision(
    around: Surroundings,
    agent: &'static dyn Agent,
    provider: std::sync::Arc<dyn Provider>,
    row: SandboxRow,
    stopped: CancellationToken,
) -> Result<sandboxes::Provisioned, SandboxError> {
    if !provider.keeps_files() {
        return provision_elsewhere(&around, agent, provider.as_ref(), &row, &stopped).await;
    }
    let steps = if row.setup_script.is_some() { 4 } else { 3 };
    let step = |number: u32, what: &'static str| {
        let (store, id) = (around.store.clone(), row.id);
        async move {
            let text = format!("{what}, step {number} of {steps}");
            // It is only shown: a database that is busy for a moment must not fail the sandbox.
            if let Err(error) = store.write(move |tx| sandboxes::set_making(tx, id, &text)).await {
                tracing::warn!(sandbox = %id, %error, "a step could not be recorded");
            }
        }
    };

    step(1, "finding the agent").await;
    let preparation = unless(&stopped, prepare(&around, agent, row.model.as_deref(), provider.as_ref())).await?;

    step(2, "cloning repository").await;
    let directory = around.directory(row.id);
    let cloning = within(REPOSITORY, "cloning the repository", clone(&around, &row, directory));
    let base_commit = unless(&stopped, cloning).await?;

    step(3, "starting the sandbox").await;
    if stopped.is_cancelled() {
        return Err(was_stopped());
    }
    let is_key_inside = preparation.is_key_inside(agent, provider.as_ref());
    let needed =
        Needed { read_only: preparation.read_only, base_url: preparation.base_url, is_key_inside, template: None };
    // The sandbox's own time begins when it is ready.
    let lifetime = row.timeout + if row.setup_script.is_some() { SETUP } else { Duration::ZERO };
    let spec = spec(&around, agent, provider.as_ref(), &needed, &row, lifetime);
    let made = async { provider.provision(&spec).await.map_err(|error| provider_error(&error)) };
    // Nobody works in the clone before both are done.
    let (made, ()) = tokio::join!(within(SANDBOX, "starting the sandbox", made), learn(&around, &row, &base_commit));
    let id = made?;

    if let Some(script) = &row.setup_script {
        step(4, "running the set-up script").await;
        unless(&stopped, set_up(provider.as_ref(), &id, script)).await?;
    }
    Ok(sandboxes::Provisioned {
        limits_enforced: provider.limits(&id).await == Limits::Enforced,
        provider_id: id.0,
        agent_version: preparation.version,
        billed_to: preparation.billed_to,
        is_key_inside,
        base_commit,
    })
}

/// What a jail must show, and where the model is for an agent that asks it itself. The key is not needed to make one.
struct Needed {
    read_only: Vec<PathBuf>,
    base_url: Option<String>,
    is_key_inside: bool,
    template: Option<String>,
}

/// Makes a sandbox whose files are on another machine.
async fn provision_elsewhere(
    around: &Surroundings,
    agent: &'static dyn Agent,
    provider: &dyn Provider,
    row: &SandboxRow,
    stopped: &CancellationToken,
) -> Result<sandboxes::Provisioned, SandboxError> {
    let steps = if row.setup_script.is_some() { 5 } else { 4 };
    let show = |number: u32, what: String| {
        let (store, id) = (around.store.clone(), row.id);
        let text = format!("{what}, step {number} of {steps}");
        around.tasks.spawn(async move {
            // It is only shown.
            if let Err(error) = store.write(move |tx| sandboxes::set_making(tx, id, &text)).await {
                tracing::warn!(sandbox = %id, %error, "a step could not be recorded");
            }
        });
    };
    let settings = Settings::load(&around.store).await.map_err(|error| launch::internal(&error))?;
    let preparation = unless(stopped, prepare(around, agent, row.model.as_deref(), provider)).await?;

    show(1, "asking for a machine".to_owned());
    if stopped.is_cancelled() {
        return Err(was_stopped());
    }
    let needed = Needed {
        read_only: Vec::new(),
        base_url: preparation.base_url.clone(),
        is_key_inside: preparation.is_key_inside(agent, provider),
        template: settings.template_of(agent.kind()),
    };
    let spec = spec(around, agent, provider, &needed, row, row.timeout + ELSEWHERE);
    let making = async { provider.provision(&spec).await.map_err(|error| provider_error(&error)) };
    let id = within(MACHINE, "making the machine", making).await?;

    show(2, "preparing the repository".to_owned());
    let begun = within(REPOSITORY, "fetching the repository", begin_with(around, row));
    let (base, checkpoint) = unless(stopped, begun).await?;
    let sending = |far: String| show(2, format!("sending the repository, {far}"));
    let sent = elsewhere::send_repository(around, provider, &id, row, (base, checkpoint), &sending);
    unless(stopped, within(REPOSITORY, "sending the repository", sent)).await?;

    if let Some(script) = &row.setup_script {
        show(3, "running the set-up script".to_owned());
        unless(stopped, set_up(provider, &id, script)).await?;
    }
    show(steps - 1, format!("looking for {}", agent.name()));
    let installing = |what: String| show(steps - 1, what);
    let version = unless(stopped, elsewhere::find_agent(around, agent, provider, &id, &installing)).await?;
    show(steps, "starting the agent".to_owned());
    Ok(sandboxes::Provisioned {
        limits_enforced: provider.limits(&id).await == Limits::Enforced,
        provider_id: id.0,
        agent_version: version,
        billed_to: preparation.billed_to,
        is_key_inside: needed.is_key_inside,
        base_commit: base.to_string(),
    })
}

/// Gives a sandbox whose processes are gone, but whose files are there, a new place to run in.
pub(super) async fn revive(
    around: &Surroundings,
    agent: &'static dyn Agent,
    provider: &dyn Provider,
    row: &SandboxRow,
    stopped: &CancellationToken,
) -> Result<ProviderId, SandboxError> {
    let settings = Settings::load(&around.store).await.map_err(|error| launch::internal(&error))?;
    let cli = unless(stopped, around.host.find_cli(agent, &settings)).await?;
    let opened_by = agent.credentials_for(row.model.as_deref());
    let base_url = opened_by.iter().find_map(|kind| settings.base_url_of(*kind));
    let needed = Needed { read_only: cli.read_only, base_url, is_key_inside: row.is_key_inside, template: None };
    let left = match (row.expires_at, row.remaining) {
        (Some(at), _) => at.since(around.clock.now()),
        (None, Some(remaining)) => remaining,
        (None, None) => row.timeout,
    };
    let spec = spec(around, agent, provider, &needed, row, left);
    let made = async { provider.provision(&spec).await.map_err(|error| provider_error(&error)) };
    within(SANDBOX, "starting the sandbox", made).await
}

/// Waits for `work`, or for the sandbox to be stopped.
async fn unless<T>(
    stopped: &CancellationToken,
    work: impl Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    stopped.run_until_cancelled(work).await.unwrap_or_else(|| Err(was_stopped()))
}

fn was_stopped() -> SandboxError {
    SandboxError { kind: "stopped".to_owned(), message: "it was stopped".to_owned(), remedy: String::new() }
}

fn spec(
    around: &Surroundings,
    agent: &dyn Agent,
    provider: &dyn Provider,
    needed: &Needed,
    row: &SandboxRow,
    lifetime: Duration,
) -> Provision {
    let directory = around.directory(row.id);
    let mut read_only = needed.read_only.clone();
    read_only.push(around.host.mirror(row.project).objects());
    let mut allowed_hosts = row.allowed_hosts.clone();
    if needed.is_key_inside {
        allowed_hosts.extend(model_hosts(agent, needed.base_url.as_deref(), row.network));
    }
    Provision {
        sandbox: row.id,
        workspace: provider.workspace(&directory),
        directory,
        read_only,
        network: row.network,
        allowed_hosts,
        variables: row.variables.clone(),
        memory_mb: row.memory_mb,
        cpus: row.cpus,
        lifetime,
        on_timeout: row.on_timeout,
        template: needed.template.clone(),
    }
}

/// Where the model is of an agent that has its key itself: reachable wherever there is a network. (Others ask it through
/// the gateway, which is there without one.)
fn model_hosts(agent: &dyn Agent, base_url: Option<&str>, network: NetworkMode) -> Vec<String> {
    match (base_url.and_then(|url| url.parse().ok()), network) {
        (_, NetworkMode::None) => Vec::new(),
        (Some(Upstream { host, port, .. }), NetworkMode::Open | NetworkMode::Listed) => {
            vec![if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }]
        }
        (None, NetworkMode::Open | NetworkMode::Listed) => {
            agent.hosts().iter().map(|host| (*host).to_owned()).collect()
        }
    }
}

/// What a sandbox begins with: the commit its changes count from, and a checkpoint where it begins from one.
async fn begin_with(around: &Surroundings, row: &SandboxRow) -> Result<(Oid, Option<Oid>), SandboxError> {
    let begun = begin(around, row).await?;
    let settings = Settings::load(&around.store).await.map_err(|error| launch::internal(&error))?;
    // One that cannot be read is said to be missing by whoever asks for it.
    let token = around.host.token_for(&row.repository, &settings).await.ok().flatten();
    let (mirror, made) = (around.host.mirror(row.project), around.directory(row.id));
    let (begun_at, source_row) = (begun.clone(), row.clone());
    let base = working(move || {
        mirror.update(&Source::parse(&source_row.repository)?, token.as_ref())?;
        let commit = match begun_at {
            // What it changes is told from where that one began.
            Some(begun) => mirror.pin_commit(begun.base, source_row.id)?,
            None => mirror.pin(&source_row.base_branch, source_row.id)?,
        };
        crate::host::make_sandbox_directory(&made)
            .map_err(|source| crate::work::Error::Io { path: made.clone(), source })?;
        Ok(commit)
    })
    .await?;
    let checkpoint = match begun {
        Some(begun) => Some(begun.checkpoint),
        None if row.includes_uncommitted => Some(uncommitted(around, row, base).await?),
        None => None,
    };
    Ok((base, checkpoint))
}

/// Makes the workspace; returns the commit its changes count from.
async fn clone(around: &Surroundings, row: &SandboxRow, directory: PathBuf) -> Result<String, SandboxError> {
    let (base, checkpoint) = begin_with(around, row).await?;
    let mirror = around.host.mirror(row.project);
    let (vault, workspace) = (around.host.vault(row.project), directory.join("workspace"));
    let (path, cloned) = (workspace.clone(), row.clone());
    working(move || {
        Workspace {
            path: &path,
            mirror: &mirror,
            base: (&cloned.base_branch, base),
            branch: &cloned.branch,
            origin: &cloned.repository,
            begin: checkpoint.map(|checkpoint| Begin { vault: &vault, checkpoint }).as_ref(),
        }
        .create()
    })
    .await?;
    Ok(base.to_string())
}

/// Notes what the clone holds, which makes the first checkpoint cheap, and only that.
async fn learn(around: &Surroundings, row: &SandboxRow, base: &str) {
    let workspace = around.directory(row.id).join("workspace");
    let learning = async { around.checkpoints(row).await?.seed(row.id, &workspace, Oid::from_str(base)?).await };
    if let Err(error) = learning.await {
        tracing::warn!(sandbox = %row.id, %error, "what the clone holds could not be noted");
    }
}

/// Git's work, where waiting is allowed.
pub(super) async fn working<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::work::Error> + Send + 'static,
) -> Result<T, SandboxError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| not_cloned(&error)),
        Err(error) => Err(SandboxError {
            kind: "internal".to_owned(),
            message: format!("cloning failed: {error}"),
            remedy: "Run again; the log in the data folder says more.".to_owned(),
        }),
    }
}

/// The vault's work, where waiting is allowed.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::work::Error> + Send + 'static,
) -> Result<T, crate::work::Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(crate::work::WorkerError::missing().into()))
}

/// What the person has not committed in the project's folder, as a checkpoint of it. Their repository is only read, and not
/// as one: their index, their hooks and their filters count for nothing.
async fn uncommitted(around: &Surroundings, row: &SandboxRow, base: Oid) -> Result<Oid, SandboxError> {
    let folder = PathBuf::from(&row.repository);
    let (checked, wanted) = (folder.clone(), row.base_branch.clone());
    let branch = working(move || Ok(Source::Folder(checked).checked_out())).await?;
    if branch.as_deref() != Some(wanted.as_str()) {
        return Err(SandboxError {
            kind: "repository".to_owned(),
            message: format!(
                "the folder is on {}, so its changes do not belong to {wanted}",
                branch.as_deref().unwrap_or("no branch")
            ),
            remedy: "Begin from the branch that is checked out there, or without your changes.".to_owned(),
        });
    }
    let taking = Taking {
        sandbox: row.id,
        name: "begin",
        workspace: &folder,
        base,
        head: None,
        message: "What was not committed when the sandbox began\n",
        author: AUTHOR,
        at: row.created_at.millis().div_euclid(1000),
    };
    let take = async {
        let checkpoints = around.host.checkpoints(row.project, around.host.home().join("checkpoints/begin")).await?;
        let taken = checkpoints.take(&taking).await?;
        checkpoints.forget(row.id).await?;
        Ok(taken.commit)
    };
    take.await.map_err(|error| not_cloned(&error))
}

/// The checkpoint a sandbox begins from.
#[derive(Clone, Debug)]
struct Begun {
    checkpoint: Oid,
    base: Oid,
}

async fn begin(around: &Surroundings, row: &SandboxRow) -> Result<Option<Begun>, SandboxError> {
    let Some(id) = row.begin else { return Ok(None) };
    let found = around.store.read(move |connection| {
        let checkpoint = checkpoints::get(connection, id)?;
        let base = sandboxes::get(connection, checkpoint.sandbox)?.base_commit;
        Ok::<_, store::Error>((checkpoint.commit, base))
    });
    let (commit, base) = match found.await {
        Ok(found) => found,
        Err(store::Error::NotFound(_)) => {
            return Err(SandboxError {
                kind: "repository".to_owned(),
                message: "the checkpoint it was to begin from is gone".to_owned(),
                remedy: "Begin from another one, or from a branch.".to_owned(),
            });
        }
        Err(error) => return Err(launch::internal(&error)),
    };
    let oid = |text: &str| Oid::from_str(text).map_err(|error| not_cloned(&error.into()));
    Ok(Some(Begun { checkpoint: oid(&commit)?, base: oid(&base)? }))
}

pub(super) fn not_cloned(error: &crate::work::Error) -> SandboxError {
    if error.is_disk_full() {
        return disk_full(&format!("the repository could not be cloned: {error}"));
    }
    SandboxError {
        kind: "repository".to_owned(),
        message: format!("the repository could not be cloned: {error}"),
        remedy: "Check that it is where the project says, then run again.".to_owned(),
    }
}

async fn set_up(provider: &dyn Provider, id: &ProviderId, script: &str) -> Result<(), SandboxError> {
    let output =
        provider.run(id, SETUP_NAME, &launch::script(script), SETUP).await.map_err(|error| provider_error(&error))?;
    if output.exit == Exit::Code(0) {
        return Ok(());
    }
    let mut words = output.stderr;
    if words.is_empty() {
        words = output.stdout;
    }
    let tail = String::from_utf8_lossy(&words[words.len().saturating_sub(LAST_WORDS)..]).into_owned();
    let how = match output.exit {
        Exit::Code(code) => format!("ended with exit code {code}"),
        Exit::Signal(signal) => format!("died of signal {signal}"),
        Exit::Unknown => "vanished".to_owned(),
    };
    Err(SandboxError {
        kind: "setup_failed".to_owned(),
        message: format!("the set-up script {how}: {}", tail.trim()),
        remedy: "Mend the script, then run again.".to_owned(),
    })
}

async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(SandboxError {
            kind: "deadline".to_owned(),
            message: format!("{what} took longer than {} minutes", limit.as_secs().div_ceil(60)),
            remedy: "Run again; if it stays, the Doctor page says what is slow or missing.".to_owned(),
        })
    })
}

fn disk_full(message: &str) -> SandboxError {
    SandboxError {
        kind: "disk_full".to_owned(),
        message: message.to_owned(),
        remedy: "Make room on the disk, then run again.".to_owned(),
    }
}

/// A provider's error in the words of a sandbox's.
pub(super) fn provider_error(error: &provider::Error) -> SandboxError {
    let (kind, remedy) = match error {
        provider::Error::NoJail { remedy, .. } => ("no_jail", remedy.clone()),
        provider::Error::Refused { kind, remedy, .. } => (*kind, remedy.clone()),
        provider::Error::Unsupported => ("unsupported", "Use Docker or E2B on this system.".to_owned()),
        provider::Error::Io { source, .. }
            if matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) =>
        {
            return disk_full(&error.to_string());
        }
        _ => ("provider", "Run again; if it stays, the Doctor page says what is missing.".to_owned()),
    };
    SandboxError { kind: kind.to_owned(), message: error.to_string(), remedy }
}
