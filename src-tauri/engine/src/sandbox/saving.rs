//! Saving: the agent's own commits, then its whole working tree, come into the project's vault.
//!
//! Commits leave the sandbox as a bundle made inside it; the tree is read from outside, so that it is saved whatever
//! became of the agent, its Git, or the sandbox's processes. Both are looked at by a worker in a jail of its own.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use git2::Oid;

use super::{
    Surroundings,
    elsewhere::{self, Bringing},
    launch,
};
use crate::{
    engine,
    model::{CheckpointId, SandboxId, Status},
    provider::{self, Provider, ProviderId},
    store::{self, CheckpointRow, SandboxRow, Skipped, checkpoints, projects},
    work::{
        self, AUTHOR,
        bundle::{self, Told},
        checkpoint::Whose,
        restore,
    },
};

/// How long making the bundle may take inside.
const BUNDLE: Duration = Duration::from_secs(60);

/// Why the work is saved now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A turn has ended.
    Turn { number: u32 },
    /// The sandbox stands still.
    Paused,
    /// It ends. One that did not answer is not asked for the agent's commits.
    Ending { is_answering: bool },
    /// The app is being quit while a turn runs.
    Quit,
    /// Somebody asked.
    Asked,
}

impl Occasion {
    /// The last part of the checkpoint's ref. One of the same name is replaced, however often it is taken; only what
    /// somebody asked for is kept beside the others.
    fn name(&self, at: i64) -> String {
        match self {
            Self::Turn { number } => format!("turn-{number}"),
            Self::Ending { .. } => "end".to_owned(),
            Self::Paused => "pause".to_owned(),
            Self::Quit => "quit".to_owned(),
            Self::Asked => format!("asked-{at}"),
        }
    }

    /// Whether the sandbox is asked to make a bundle: quitting does not wait for that.
    fn asks_inside(&self) -> bool {
        match self {
            Self::Turn { .. } | Self::Asked => true,
            Self::Ending { is_answering } => *is_answering,
            Self::Paused | Self::Quit => false,
        }
    }
}

/// Why the work could not be saved, in words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Work(#[from] work::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The sandbox, whose files are elsewhere, did not give them.
    #[error(transparent)]
    Provider(#[from] provider::Error),
    #[error("{0}")]
    Untold(&'static str),
}

impl Error {
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Work(error) => error.is_disk_full(),
            Self::Store(error) => matches!(error, store::Error::DiskFull),
            Self::Provider(_) | Self::Untold(_) => false,
        }
    }

    /// Whether there is nothing to save any more, however often it is tried.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Provider(provider::Error::Gone))
    }

    pub(crate) fn remedy(&self) -> &'static str {
        if self.is_disk_full() {
            "Make room on the disk, then save again."
        } else if matches!(self, Self::Provider(_) | Self::Untold(_)) {
            "Its files are still in the sandbox. It is tried again; stopping a second time gives them up."
        } else {
            "Its files are still in its folder. Save again, or copy them from there."
        }
    }
}

/// Saves a sandbox's work, and records the checkpoint. One at a time per sandbox.
pub(crate) async fn save(
    around: &Surroundings,
    provider: Arc<dyn Provider>,
    row: &SandboxRow,
    occasion: &Occasion,
) -> Result<CheckpointRow, Error> {
    let _one_at_a_time = around.saving.lock(row.id).await;
    let (now, id, project) = (around.clock.now(), row.id, row.project);
    let name = occasion.name(now.millis());
    let (last, settings) = around
        .store
        .read(move |c| Ok::<_, store::Error>((checkpoints::last(c, id)?, projects::settings(c, project)?)))
        .await?;
    let message = format!("Checkpoint of \u{201c}{}\u{201d}\n\nSandbox: {id}\n", row.title);
    let author = author(&settings);
    let author = (author.0.as_str(), author.1.as_str());
    let mut bundle = None;
    let (head, taken) = if provider.keeps_files() {
        let places = Places::of(around, row)?;
        let known = last.as_ref().map_or_else(|| row.base_commit.clone(), |last| last.head.clone());
        let bundle = bundle.insert(places.home.join(format!(".courier-{name}.bundle")));
        // Nothing runs in one that stands still.
        let asks_inside = occasion.asks_inside() && row.lifecycle.status == Status::Running;
        let head = match (&row.provider_id, asks_inside) {
            (Some(provider_id), true) => {
                let provider_id = ProviderId(provider_id.clone());
                bring_commits(around, provider.as_ref(), &provider_id, row, &places, bundle, &known).await
            }
            _ => known,
        };
        let oid = |text: &str| Oid::from_str(text).map_err(work::Error::from);
        let taking = work::Taking {
            sandbox: id,
            name: &name,
            workspace: &places.workspace,
            base: oid(&row.base_commit)?,
            head: Some(oid(&head)?),
            message: &message,
            author,
            at: now.millis().div_euclid(1000),
        };
        (head, around.checkpoints(row).await?.take(&taking).await?)
    } else {
        let (provider, last) = (&provider, last.as_ref());
        Bringing { around, provider, row, occasion, name: &name, last, message: &message, author }.take().await?
    };
    let turn = match occasion {
        Occasion::Turn { number } => Some(*number),
        Occasion::Paused | Occasion::Ending { .. } | Occasion::Quit | Occasion::Asked => None,
    };
    let checkpoint = CheckpointRow {
        id: CheckpointId::fresh(),
        sandbox: id,
        name,
        turn,
        commit: taken.commit.to_string(),
        tree: taken.tree.to_string(),
        head,
        files_changed: u32::try_from(taken.files_changed).unwrap_or(u32::MAX),
        skipped: taken
            .skipped
            .into_iter()
            .map(|one| Skipped { path: one.path, why: why(one.why).to_owned() })
            .collect(),
        lfs: taken.lfs,
        workflows: taken.workflows,
        created_at: now,
    };
    let (stored, is_complete) = (checkpoint.clone(), *occasion != Occasion::Quit);
    around
        .store
        .write(move |tx| {
            checkpoints::put(tx, &stored)?;
            if is_complete {
                store::sandboxes::set_unsaved(tx, stored.sandbox, false)?;
            }
            Ok::<_, store::Error>(())
        })
        .await?;
    // Not before: asked for again after a crash, the same bundle is read once more.
    if let Some(bundle) = bundle {
        _ = tokio::fs::remove_file(&bundle).await;
    }
    Ok(checkpoint)
}

/// Makes a running sandbox's working tree what it was at a checkpoint, once what is there now is saved.
pub(super) async fn restore(
    around: &Surroundings,
    provider: Arc<dyn Provider>,
    row: &SandboxRow,
    checkpoint: CheckpointId,
) -> Result<(), engine::Error> {
    let wanted = around.store.read(move |connection| checkpoints::get(connection, checkpoint)).await?;
    save(around, provider.clone(), row, &Occasion::Asked).await.map_err(|error| engine::Error::not_saved(&error))?;
    let Some(id) = row.provider_id.clone().map(ProviderId) else { return Err(engine::Error::nothing_saved()) };
    if !provider.keeps_files() {
        let commit = Oid::from_str(&wanted.commit).map_err(work::Error::from)?;
        let printed = elsewhere::restore(around, provider.as_ref(), &id, row, commit).await?;
        return restore::told(&printed).map_err(engine::Error::not_restored);
    }
    let (vault, mirror) = (around.host.vault(row.project), around.host.mirror(row.project).objects());
    let places = Places::of(around, row)?;
    let (commit, folder) =
        (Oid::from_str(&wanted.commit).map_err(work::Error::from)?, places.home.join(".courier-restore"));
    let (made, within) = (vault.clone(), folder.clone());
    let packing = tokio::task::spawn_blocking(move || {
        Ok::<_, work::Error>((restore::pack(&made, commit, &within)?, restore::tree(&made, commit)?))
    });
    let (pack, tree) = packing.await.map_err(|_| engine::Error::shutting_down())??;
    let text = |path: &Path| path.display().to_string();
    let script = restore::script(&text(&places.workspace), tree, &text(&mirror), pack.as_deref().map(text).as_deref());
    let name = format!("restore-{}", around.clock.now().millis());
    let ran = provider.run(&id, &name, &launch::script(&script), BUNDLE).await;
    // It was only a way in.
    _ = tokio::fs::remove_dir_all(&folder).await;
    restore::told(&ran?.stdout).map_err(engine::Error::not_restored)
}

/// Whose name the app's commits bear: name and email.
pub(crate) fn author(settings: &store::ProjectSettings) -> (String, String) {
    let or = |text: &Option<String>, other: &str| text.clone().unwrap_or_else(|| other.to_owned());
    (or(&settings.commit_author, AUTHOR.0), or(&settings.commit_email, AUTHOR.1))
}

/// Why a path is not in a checkpoint, in words.
fn why(why: work::Why) -> &'static str {
    use work::Why;
    match why {
        Why::TooLarge => "it is larger than 100 MB",
        Why::Special => "it is a pipe, a socket or a device",
        Why::Name => "git takes no such name",
        Why::TooDeep => "its path is too long",
        Why::Unreadable => "it could not be read",
        Why::NestedWithoutCommit => "it is a repository without a commit",
        Why::Nested => "it is a repository of its own: only its commit is recorded",
        Why::Outside => "it points outside the workspace",
    }
}

/// Where a sandbox's files are.
struct Places {
    workspace: PathBuf,
    home: PathBuf,
}

impl Places {
    fn of(around: &Surroundings, row: &SandboxRow) -> Result<Self, work::Error> {
        let directory = around.directory(row.id);
        let places = Self { workspace: directory.join("workspace"), home: directory.join("home") };
        if places.workspace.is_dir() { Ok(places) } else { Err(work::Error::Missing(places.workspace)) }
    }
}

/// Brings in what the agent committed; its newest commit, or the one that was known. That fails for an agent that broke
/// its repository, and then its working tree is all there is.
async fn bring_commits(
    around: &Surroundings,
    provider: &dyn Provider,
    id: &ProviderId,
    row: &SandboxRow,
    places: &Places,
    bundle: &Path,
    known: &str,
) -> String {
    let brought = async {
        let tips: Vec<Oid> = [&row.base_commit, known].into_iter().filter_map(|id| Oid::from_str(id).ok()).collect();
        let text = |path: &Path| path.display().to_string();
        let script = bundle::script(&text(&places.workspace), &tips, &text(bundle));
        let name = bundle.file_stem().unwrap_or_default().to_string_lossy();
        let output = provider.run(id, name.trim_start_matches('.'), &launch::script(&script), BUNDLE).await;
        match Told::parse(&output.map_err(|error| error.to_string())?.stdout) {
            Told::Nothing { why } => Err(why.to_owned()),
            Told::Head { commit, .. } if commit.to_string() == known => Ok(known.to_owned()),
            Told::Head { commit, has_bundle, .. } => {
                let bundle = has_bundle.then(|| bundle.to_owned());
                let verified = vec![row.base_commit.clone(), known.to_owned()];
                let brought = async {
                    let checkpoints = around.checkpoints(row).await?;
                    checkpoints.bring_in((row.id, Whose::Agents), (bundle, &places.home), commit, verified).await
                };
                brought.await.map(|brought| brought.head).map_err(|error| error.to_string())
            }
        }
    };
    brought.await.unwrap_or_else(|cause: String| {
        tracing::warn!(sandbox = %row.id, cause, "the agent's commits could not be brought in");
        known.to_owned()
    })
}

/// One save at a time for each sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saving {
    locks: Arc<std::sync::Mutex<std::collections::HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Saving {
    async fn lock(&self, sandbox: SandboxId) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Nobody waits for those that only this map holds.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(sandbox).or_default().clone()
        };
        lock.lock_owned().await
    }
}
