//! A sandbox's work: its checkpoints, what they change, and its delivery.

use std::path::PathBuf;

use git2::Oid;

use super::{Engine, Error, blocking};
use crate::{
    delivery,
    forge::Forge,
    model::{Activity, CheckpointId, ProjectId, SandboxId, Status, StepKind, StepStatus},
    sandbox::{Occasion, Request, save},
    settings::Settings,
    store::{CheckpointRow, ProjectSettings, SandboxRow, StepRow, checkpoints, deliveries, projects, sandboxes},
    work::{
        Vault,
        changes::{Asked, Between, Changes, FileDiff, Patch, Texts},
    },
};

/// How far a delivery is, and where it goes.
#[derive(Clone, Debug)]
pub struct DeliveryState {
    pub sandbox: SandboxRow,
    pub steps: Vec<StepRow>,
    pub is_running: bool,
    /// What holds the push: workflows, and files of Git LFS.
    pub held: Option<(Vec<String>, Vec<String>)>,
    /// In words: "github.com/owner/name", or the person's folder.
    pub target: String,
    /// Where a person can open a pull request themselves.
    pub compare_url: Option<String>,
}

/// What a pull request would say.
#[derive(Clone, Debug)]
pub struct PullRequestDraft {
    pub title: String,
    pub body: String,
    pub base: String,
    pub branch: String,
    pub is_draft: bool,
    /// Why there will be none.
    pub skip: Option<String>,
}

/// How the person wants it.
#[derive(Clone, Debug, Default)]
pub struct DeliverOptions {
    pub title: Option<String>,
    pub body: Option<String>,
    pub is_draft: Option<bool>,
    /// What holds the push was seen, and is pushed all the same.
    pub is_confirmed: bool,
}

/// The longest title and text of a pull request, in bytes.
const LONGEST_TITLE: usize = 1_000;
const LONGEST_BODY: usize = 60_000;
/// How many changed files are listed.
const LISTED: usize = 5_000;
/// How many lines are shown around a change.
const CONTEXT: u32 = 3;

impl Engine {
    /// A sandbox's checkpoints, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sandbox_checkpoints(&self, id: SandboxId) -> Result<Vec<CheckpointRow>, Error> {
        Ok(self.around.store.read(move |c| checkpoints::all(c, id)).await?)
    }

    /// Which files differ between two checkpoints. Without `from`: from where the sandbox began; without `to`: to the
    /// newest.
    ///
    /// # Errors
    /// `NotFound` where there is no such checkpoint.
    pub async fn changes(
        &self,
        id: SandboxId,
        from: Option<CheckpointId>,
        to: Option<CheckpointId>,
    ) -> Result<Changes, Error> {
        let (vault, between) = self.range(id, from, to).await?;
        blocking(move || vault.changed_files(between, LISTED)).await
    }

    /// What is different in one file, and both its texts. `is_forced`: also where it is very large.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn changes_file(
        &self,
        id: SandboxId,
        (from, to): (Option<CheckpointId>, Option<CheckpointId>),
        (path, old_path): (String, Option<String>),
        is_forced: bool,
    ) -> Result<(FileDiff, Texts), Error> {
        let (vault, between) = self.range(id, from, to).await?;
        blocking(move || {
            let asked =
                Asked { path: &path, old_path: old_path.as_deref(), context: CONTEXT, although_large: is_forced };
            Ok((vault.file_diff(between, &asked)?, vault.file_texts(between, &asked)?))
        })
        .await
    }

    /// All of it as a patch that `git apply` takes.
    ///
    /// # Errors
    /// `NotFound`; where it is too large.
    pub async fn changes_patch(
        &self,
        id: SandboxId,
        from: Option<CheckpointId>,
        to: Option<CheckpointId>,
    ) -> Result<Patch, Error> {
        let (vault, between) = self.range(id, from, to).await?;
        blocking(move || vault.patch(between)).await
    }

    async fn range(
        &self,
        id: SandboxId,
        from: Option<CheckpointId>,
        to: Option<CheckpointId>,
    ) -> Result<(Vault, Between), Error> {
        let (row, from, to) = self
            .around
            .store
            .read(move |c| {
                let row = sandboxes::get(c, id)?;
                let commit = |checkpoint| checkpoints::get(c, checkpoint).map(|found| found.commit);
                let from = from.map(commit).transpose()?;
                let to = match to {
                    Some(to) => Some(commit(to)?),
                    None => checkpoints::last(c, id)?.map(|found| found.commit),
                };
                Ok::<_, crate::store::Error>((row, from, to))
            })
            .await?;
        let base = row.base_commit.clone();
        let oid = |text: &str| Oid::from_str(text).map_err(|error| Error::from(crate::work::Error::from(error)));
        let (from, to) = (from.unwrap_or_else(|| base.clone()), to.unwrap_or(base));
        if from.is_empty() || to.is_empty() {
            return Err(Error::nothing_saved());
        }
        let vault = self.around.host.vault(row.project);
        let made = vault.clone();
        // The base is looked at through it also where nothing was saved yet.
        blocking(move || made.begin_writing().map(drop)).await?;
        Ok((vault, Between { from: Some(oid(&from)?), to: Some(oid(&to)?) }))
    }

    /// A clean copy of a checkpoint's files, to be looked at outside.
    ///
    /// # Errors
    /// `NotFound`; where there is no room.
    pub async fn checkpoint_open(&self, id: SandboxId, checkpoint: CheckpointId) -> Result<PathBuf, Error> {
        let (row, found) = self
            .around
            .store
            .read(move |c| Ok::<_, crate::store::Error>((sandboxes::get(c, id)?, checkpoints::get(c, checkpoint)?)))
            .await?;
        let checkouts = self.around.host.checkouts();
        let vault = self.around.host.vault(row.project);
        blocking(move || checkouts.open(&vault, Oid::from_str(&found.commit)?)).await
    }

    /// Makes a running sandbox's working tree what it was at a checkpoint. The agent must be idle; what is there now is
    /// saved first.
    ///
    /// # Errors
    /// `IllegalState` where it does not run or works; what Git says inside.
    pub async fn checkpoint_restore(&self, id: SandboxId, checkpoint: CheckpointId) -> Result<(), Error> {
        self.ask(id, |reply| Request::Restore(checkpoint, reply)).await
    }

    /// How far a sandbox's delivery is.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delivery(&self, id: SandboxId) -> Result<DeliveryState, Error> {
        let settings = Settings::load(&self.around.store).await?;
        let (sandbox, project, steps, wishes, last) = self
            .around
            .store
            .read(move |c| {
                let row = sandboxes::get(c, id)?;
                let project = projects::get(c, row.project)?;
                let last = checkpoints::last(c, id)?;
                Ok::<_, crate::store::Error>((
                    row,
                    project,
                    deliveries::steps(c, id)?,
                    deliveries::wishes(c, id)?,
                    last,
                ))
            })
            .await?;
        let is_held = |step: &StepRow| step.kind == StepKind::Push && step.status == StepStatus::Held;
        let held = last.filter(|_| steps.iter().any(is_held)).map(|last| {
            let open = |paths: &[String]| {
                delivery::unconfirmed(paths, &wishes.confirmed).into_iter().map(str::to_owned).collect::<Vec<_>>()
            };
            (open(&last.workflows), open(&last.lfs))
        });
        let forge = Forge::of(project.remote_url.as_deref().unwrap_or_default(), settings.github_enterprise().as_ref());
        let pushed = sandbox.pushed.as_ref();
        let compare_url = pushed.and_then(|pushed| forge.compare_url(&sandbox.base_branch, &pushed.branch));
        let target = match &project.remote_url {
            Some(url) => bare(url),
            None => project.source.clone(),
        };
        let is_running = self.around.deliverer.is_running(id);
        let held = held.filter(|(workflows, lfs)| !workflows.is_empty() || !lfs.is_empty());
        Ok(DeliveryState { sandbox, steps, is_running, held, target, compare_url })
    }

    /// Waits until nothing of a delivery goes on by itself any more.
    ///
    /// # Errors
    /// `NotFound`; `ShuttingDown`.
    pub async fn delivered(&self, id: SandboxId) -> Result<DeliveryState, Error> {
        let mut changes = self.feed().changes();
        loop {
            let state = self.delivery(id).await?;
            let is_settled = delivery::STEPS.into_iter().all(|kind| {
                let found = state.steps.iter().find(|step| step.kind == kind);
                // What comes after one that failed or waits is not begun.
                found.is_none_or(|step| step.status.is_settled())
                    || state
                        .steps
                        .iter()
                        .any(|step| step.kind < kind && matches!(step.status, StepStatus::Failed | StepStatus::Held))
            });
            if is_settled {
                return Ok(state);
            }
            // Lagging behind only means looking again.
            if let Err(tokio::sync::broadcast::error::RecvError::Closed) = changes.recv().await {
                return Err(Error::shutting_down());
            }
        }
    }

    /// What the pull request would say.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delivery_draft(&self, id: SandboxId) -> Result<PullRequestDraft, Error> {
        Ok(delivery::draft(&self.around, id).await?)
    }

    /// Saves the work, pushes it and opens a pull request, whatever the project's setting is; on a sandbox that has ended,
    /// also what failed is tried again. Returns once the work is saved; the feed tells how the rest goes.
    ///
    /// # Errors
    /// `IllegalState` while it is `creating`; why the work could not be saved.
    pub async fn sandbox_deliver(&self, id: SandboxId, options: DeliverOptions) -> Result<(), Error> {
        if options.title.as_ref().is_some_and(|title| title.len() > LONGEST_TITLE || title.trim().is_empty()) {
            return Err(Error::invalid("the pull request needs a title of at most 1,000 characters".to_owned()));
        }
        if options.body.as_ref().is_some_and(|body| body.len() > LONGEST_BODY) {
            return Err(Error::invalid("the pull request's text is longer than GitHub takes".to_owned()));
        }
        let row = self.sandbox_get(id).await?;
        match (row.lifecycle.status, row.lifecycle.activity) {
            (Status::Creating, _) => {
                return Err(Error::illegal_state(&row.lifecycle, "has no work yet", "Wait until it runs."));
            }
            // What ends saves by itself.
            (Status::Running | Status::Paused, Activity::Stopping) => {}
            (Status::Running | Status::Paused, _) => {
                self.ask(id, |reply| Request::Save(Occasion::Asked, reply)).await?
            }
            (Status::Killed | Status::Error, _) => self.save_ended(&row).await?,
        }
        let confirmed = options.is_confirmed;
        self.around
            .store
            .write(move |tx| {
                let mut wishes = deliveries::wishes(tx, id)?;
                wishes.is_asked = true;
                wishes.title = options.title.or(wishes.title);
                wishes.body = options.body.or(wishes.body);
                wishes.is_draft = options.is_draft.or(wishes.is_draft);
                if let (true, Some(last)) = (confirmed, checkpoints::last(tx, id)?) {
                    wishes.confirmed = last.workflows.into_iter().chain(last.lfs).collect();
                }
                deliveries::set_wishes(tx, id, &wishes)
            })
            .await?;
        let row = self.sandbox_get(id).await?;
        if row.lifecycle.activity == Activity::Stopping {
            // It delivers by itself, now that it is asked for.
            return Ok(());
        }
        delivery::begin(&self.around, id).await?;
        let around = self.around.clone();
        around.tasks.clone().spawn(async move { around.deliverer.run(&around, id).await });
        Ok(())
    }

    /// Saves what an ended sandbox left, where that is not saved.
    async fn save_ended(&self, row: &SandboxRow) -> Result<(), Error> {
        let id = row.id;
        let last = self.around.store.read(move |c| checkpoints::last(c, id)).await?;
        if last.is_some() && !row.is_unsaved {
            return Ok(());
        }
        let Some(provider) = self.around.provider(row.provider) else { return Err(Error::unsupported(row.provider)) };
        match save(&self.around, provider, row, &Occasion::Ending { is_answering: false }).await {
            Ok(_) => Ok(()),
            // What was saved before is delivered all the same.
            Err(error) if last.is_some() => {
                tracing::warn!(sandbox = %id, %error, "the files of an ended sandbox could not be saved again");
                Ok(())
            }
            Err(error) => Err(Error::not_saved(&error)),
        }
    }

    /// How a project's work is delivered.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn project_settings(&self, id: ProjectId) -> Result<ProjectSettings, Error> {
        Ok(self.around.store.read(move |c| projects::settings(c, id)).await?)
    }

    /// Changes how a project's work is delivered. Empty texts mean the app's own.
    ///
    /// # Errors
    /// `Invalid`, `NotFound`.
    pub async fn project_settings_set(&self, id: ProjectId, mut settings: ProjectSettings) -> Result<(), Error> {
        let blank = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        settings.commit_author = blank(settings.commit_author);
        settings.commit_email = blank(settings.commit_email);
        settings.commit_message = blank(settings.commit_message);
        let is_bad = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| text.len() > 200 || text.contains(['<', '>', '\n', '\0']))
        };
        if is_bad(&settings.commit_author) || is_bad(&settings.commit_email) {
            return Err(Error::invalid("a name and an e-mail are one line each, without < and >".to_owned()));
        }
        if settings.commit_message.as_ref().is_some_and(|text| text.len() > 10_000 || text.contains('\0')) {
            return Err(Error::invalid("the commit message is too long".to_owned()));
        }
        Ok(self.around.store.write(move |tx| projects::set_settings(tx, id, &settings)).await?)
    }
}

/// An address without its scheme, user and suffix.
fn bare(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    rest.trim_end_matches('/').trim_end_matches(".git").to_owned()
}
