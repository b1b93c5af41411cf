//! Delivery: what was saved becomes a commit on the sandbox's branch, is pushed, and gets a pull request.
//!
//! Three steps, each stored with how it went. A round of them begins when a sandbox ends, after a turn, or when somebody
//! asks, as the project says; a durable job stands behind each round, so that one that is broken off goes on at the step
//! where it was. Each step finds what an earlier attempt did: the same commit, the branch that is there, the open pull
//! request.

mod commit;
mod pull_request;
mod push;
mod watch;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use git2::Oid;
use tokio::sync::Notify;

pub(crate) use push::unconfirmed;
pub(crate) use watch::start as watch;

use crate::{
    engine::{self, PullRequestDraft},
    forge::text,
    model::{DeliverWhen, SandboxId, StepKind, StepStatus},
    sandbox::Surroundings,
    store::{
        self, CheckpointRow, DeliveryWishes, ProjectRow, ProjectSettings, SandboxRow, StepRow, checkpoints, deliveries,
        jobs::{self, Attempt, Kind},
        projects, sandboxes,
    },
    work::changes::Between,
};

/// How many changed files the words of a pull request are made from.
const LISTED: usize = 1_000;

/// The steps of a round, in their order.
pub(crate) const STEPS: [StepKind; 3] = [StepKind::Commit, StepKind::Push, StepKind::PullRequest];

/// How a step went, in words.
#[derive(Clone, Debug)]
enum Outcome {
    Made(String),
    /// There was nothing to do, and so nothing for the steps that follow.
    Skipped(String),
    /// It waits for the person.
    Held {
        detail: String,
        remedy: String,
    },
    Failed {
        detail: String,
        remedy: String,
        is_worth_retrying: bool,
    },
}

impl Outcome {
    fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Failed { detail: detail.into(), remedy: remedy.into(), is_worth_retrying: false }
    }
}

/// Everything a step needs to know.
#[derive(Debug)]
struct Work {
    row: SandboxRow,
    project: ProjectRow,
    settings: ProjectSettings,
    wishes: DeliveryWishes,
    checkpoint: Option<CheckpointRow>,
    steps: Vec<StepRow>,
    /// The commit on the sandbox's branch, once there is one.
    head: Option<String>,
}

impl Work {
    async fn load(around: &Surroundings, id: SandboxId) -> Result<Self, store::Error> {
        around
            .store
            .read(move |connection| {
                let row = sandboxes::get(connection, id)?;
                Ok(Self {
                    project: projects::get(connection, row.project)?,
                    settings: projects::settings(connection, row.project)?,
                    wishes: deliveries::wishes(connection, id)?,
                    checkpoint: checkpoints::last(connection, id)?,
                    steps: deliveries::steps(connection, id)?,
                    head: deliveries::head(connection, id)?,
                    row,
                })
            })
            .await
    }

    /// The branch it is pushed as: the one that took it before.
    fn branch(&self) -> &str {
        self.row.pushed.as_ref().map_or(&self.row.branch, |pushed| &pushed.branch)
    }

    fn status(&self, kind: StepKind) -> StepStatus {
        self.steps.iter().find(|step| step.kind == kind).map_or(StepStatus::Pending, |step| step.status)
    }
}

/// Begins a round where a sandbox's end calls for one; says whether it does.
pub(crate) async fn begin_at_end(around: &Surroundings, id: SandboxId) -> Result<bool, store::Error> {
    let work = Work::load(around, id).await?;
    match work.settings.deliver {
        _ if work.wishes.is_asked => {}
        DeliverWhen::OnTurn | DeliverWhen::OnEnd => {}
        DeliverWhen::Ask => {
            let now = around.clock.now();
            let words = ("the project asks first", "Save and open the pull request when it is ready.");
            around
                .store
                .write(move |tx| deliveries::set_step(tx, id, StepKind::Push, StepStatus::Held, words, now))
                .await?;
            return Ok(false);
        }
        DeliverWhen::Never => return Ok(false),
    }
    begin(around, id).await?;
    Ok(true)
}

/// A turn's work was saved: delivers it where the project says so.
pub(crate) async fn after_turn(around: &Surroundings, id: SandboxId) -> Result<(), store::Error> {
    let deliver = around
        .store
        .read(move |connection| {
            let row = sandboxes::get(connection, id)?;
            Ok::<_, store::Error>(projects::settings(connection, row.project)?.deliver)
        })
        .await?;
    if deliver == DeliverWhen::OnTurn {
        begin(around, id).await?;
        let around = around.clone();
        around.tasks.clone().spawn(async move { around.deliverer.run(&around, id).await });
    }
    Ok(())
}

/// Begins a round: its steps are to be done, and a job stands behind it.
pub(crate) async fn begin(around: &Surroundings, id: SandboxId) -> Result<(), store::Error> {
    let now = around.clock.now();
    around
        .store
        .write(move |tx| {
            deliveries::reset_steps(tx, id, &STEPS, now)?;
            jobs::insert(tx, Kind::Deliver, id, now)
        })
        .await
}

/// Who delivers: one round at a time for each sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliverer {
    rounds: Arc<Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>>,
    more_to_watch: Arc<Notify>,
}

impl Deliverer {
    /// Whether something is being delivered now.
    pub(crate) fn is_running(&self, id: SandboxId) -> bool {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.get(&id).is_some_and(|round| round.try_lock().is_err())
    }

    /// Goes on with a sandbox's round to where it ends, waits for the person or for another time. It goes on also if nobody
    /// waits for it any more.
    pub(crate) async fn run(&self, around: &Surroundings, id: SandboxId) {
        let (around, round) = (around.clone(), self.round(id));
        let running = around.tasks.clone().spawn(async move {
            let _one_at_a_time = round.lock().await;
            let shutdown = around.shutdown.clone();
            // What is broken off is still due at the next start.
            if let Some(Err(error)) = shutdown.run_until_cancelled(deliver(&around, id)).await {
                tracing::warn!(sandbox = %id, %error, "a delivery could not be recorded; it is gone on with later");
            }
        });
        // A panic is logged where it happens; the job is still due.
        _ = running.await;
    }

    /// Tries again what failed.
    pub(crate) async fn retry(&self, around: &Surroundings, id: SandboxId) {
        let now = around.clock.now();
        let reset = around.store.write(move |tx| {
            let failed = deliveries::steps(tx, id)?.into_iter().filter(|step| step.status == StepStatus::Failed);
            let failed: Vec<_> = failed.map(|step| step.kind).filter(|kind| STEPS.contains(kind)).collect();
            deliveries::reset_steps(tx, id, &failed, now)
        });
        match reset.await {
            Ok(()) => self.run(around, id).await,
            Err(error) => tracing::warn!(sandbox = %id, %error, "a delivery could not be tried again"),
        }
    }

    /// A pull request was made: it is watched from now on.
    fn watch_more(&self) {
        self.more_to_watch.notify_one();
    }

    async fn more_to_watch(&self) {
        self.more_to_watch.notified().await;
    }

    fn round(&self, id: SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for those that only this map holds.
        rounds.retain(|_, round| Arc::strong_count(round) > 1);
        rounds.entry(id).or_default().clone()
    }
}

async fn deliver(around: &Surroundings, id: SandboxId) -> Result<(), store::Error> {
    let mut attempt = Attempt::Done;
    for kind in STEPS {
        let work = Work::load(around, id).await?;
        match work.status(kind) {
            StepStatus::Done | StepStatus::Skipped => continue,
            StepStatus::Held | StepStatus::Failed => break,
            StepStatus::Pending | StepStatus::Running => {}
        }
        set_step(around, id, kind, StepStatus::Running, String::new(), String::new()).await?;
        let done = match kind {
            StepKind::Commit => commit::commit(around, &work).await?,
            StepKind::Push => push::push(around, &work).await?,
            _ => pull_request::open(around, &work).await?,
        };
        match done {
            Outcome::Made(detail) => set_step(around, id, kind, StepStatus::Done, detail, String::new()).await?,
            Outcome::Skipped(detail) => {
                set_step(around, id, kind, StepStatus::Skipped, detail.clone(), String::new()).await?;
                for later in STEPS.into_iter().filter(|later| *later > kind) {
                    set_step(around, id, later, StepStatus::Skipped, detail.clone(), String::new()).await?;
                }
                if kind != StepKind::PullRequest {
                    pull_request::skip(around, id, detail).await?;
                }
                break;
            }
            Outcome::Held { detail, remedy } => {
                set_step(around, id, kind, StepStatus::Held, detail, remedy).await?;
                break;
            }
            Outcome::Failed { detail, remedy, is_worth_retrying } => {
                tracing::warn!(sandbox = %id, step = %kind, detail, "a delivery failed");
                if is_worth_retrying {
                    let attempts = work.steps.iter().find(|step| step.kind == kind).map_or(0, |step| step.attempts);
                    attempt = Attempt::Again { cause: detail.clone(), after: engine::again(attempts) };
                }
                set_step(around, id, kind, StepStatus::Failed, detail, remedy).await?;
                break;
            }
        }
    }
    let now = around.clock.now();
    around.store.write(move |tx| jobs::record(tx, Kind::Deliver, id, &attempt, now)).await
}

/// What a sandbox's pull request would say now.
pub(crate) async fn draft(around: &Surroundings, id: SandboxId) -> Result<PullRequestDraft, store::Error> {
    let work = Work::load(around, id).await?;
    let text = pull_request::words(around, &work).await?;
    let skip = pull_request::reason_to_skip(around, &work).await?;
    Ok(PullRequestDraft {
        title: work.wishes.title.clone().unwrap_or(text.title),
        body: work.wishes.body.clone().unwrap_or(text.body),
        base: work.row.base_branch.clone(),
        branch: work.branch().to_owned(),
        is_draft: work.wishes.is_draft.unwrap_or(work.settings.is_draft),
        skip,
    })
}

/// What changed since the sandbox began, for the words of its pull request; nothing where that cannot be read.
async fn changed_files(around: &Surroundings, row: &SandboxRow, commit: &str) -> Vec<text::ChangedFile> {
    let vault = around.host.vault(row.project);
    let (Ok(from), Ok(to)) = (Oid::from_str(&row.base_commit), Oid::from_str(commit)) else { return Vec::new() };
    let between = Between { from: Some(from), to: Some(to) };
    let reading = tokio::task::spawn_blocking(move || vault.changed_files(between, LISTED));
    match reading.await {
        Ok(Ok(changed)) => changed
            .files
            .into_iter()
            .map(|file| text::ChangedFile {
                path: file.path,
                added: file.additions.unwrap_or(0),
                removed: file.deletions.unwrap_or(0),
            })
            .collect(),
        other => {
            tracing::warn!(sandbox = %row.id, ?other, "the changes could not be listed");
            Vec::new()
        }
    }
}

async fn set_step(
    around: &Surroundings,
    id: SandboxId,
    kind: StepKind,
    status: StepStatus,
    detail: String,
    remedy: String,
) -> Result<(), store::Error> {
    let now = around.clock.now();
    around.store.write(move |tx| deliveries::set_step(tx, id, kind, status, (&detail, &remedy), now)).await
}
