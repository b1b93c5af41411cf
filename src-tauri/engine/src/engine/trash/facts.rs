//! What is known of a sandbox's work: what exists nowhere else, and so whether anything can be removed without losing it.

use std::path::{Path, PathBuf};

use super::{
    super::{Engine, Error},
    purge::{blocking, vault},
};
use crate::{
    folder::{self, Measure},
    model::SandboxId,
    sandbox::Surroundings,
    store::{self, SandboxRow, Skipped, sandboxes, trash},
    work::{self, KnownWork},
};

/// What is lost with a sandbox that is purged.
#[derive(Clone, Debug)]
pub struct PurgeFacts {
    pub title: String,
    /// Files that are in no commit that was pushed; without a checkpoint, those written since it began.
    pub uncommitted_files: u32,
    /// The agent's commits that were not pushed.
    pub unpushed_commits: u32,
    /// Changes were put away with `git stash`: they are in no commit and no checkpoint.
    pub has_stash: bool,
    /// What the last checkpoint could not take.
    pub skipped: Vec<Skipped>,
    /// What is on the disk for it: its folder, and its raw log in the database.
    pub bytes: u64,
    /// It has not ended, and cannot be purged yet.
    pub is_live: bool,
    /// Where its files are.
    pub path: PathBuf,
    /// What stays, in sentences.
    pub kept: Vec<String>,
    /// What else is gone for good, in sentences; what is counted above is not said again.
    pub lost: Vec<String>,
}

impl Engine {
    /// What exists nowhere else of a sandbox, for whoever thinks of purging it.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn purge_facts(&self, id: SandboxId) -> Result<PurgeFacts, Error> {
        let around = self.around.clone();
        let row = self.sandbox_get(id).await?;
        let found = Found::of(&around, row.clone()).await?;
        let log = around.store.read(move |c| trash::log_bytes_of(c, id)).await?;
        let path = around.directory(id);
        let folder = path.clone();
        let bytes = blocking(move || Ok(Measure::new().sandbox(&folder).all)).await?;
        Ok(PurgeFacts {
            kept: found.kept(&row),
            lost: found.lost(),
            title: row.title,
            uncommitted_files: found.uncommitted_files,
            unpushed_commits: found.unpushed_commits,
            has_stash: found.has_stash,
            skipped: found.skipped,
            bytes: bytes + log,
            is_live: row.lifecycle.status.is_live(),
            path,
        })
    }
}

/// What would be lost with a sandbox's files, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WouldLose(String);

impl WouldLose {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// How a sandbox's work is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Save {
    /// It never had files.
    NoFiles,
    /// There is no checkpoint: its folder is all there is.
    Nowhere,
    /// There is one.
    Checkpoint,
    /// There is one, and it cannot be read.
    Unreadable(String),
}

/// What was found out about a sandbox's work.
#[derive(Clone, Debug)]
pub(super) struct Found {
    save: Save,
    uncommitted_files: u32,
    unpushed_commits: u32,
    has_stash: bool,
    skipped: Vec<Skipped>,
    /// Output was not stored yet.
    has_unread: bool,
    /// What it did last may be in no checkpoint.
    is_unsaved: bool,
    is_owed: bool,
    is_pushed: bool,
    branch: String,
}

impl Found {
    pub(super) async fn of(around: &Surroundings, row: SandboxRow) -> Result<Self, Error> {
        let id = row.id;
        let stored = around.store.read(move |c| Ok::<_, store::Error>((sandboxes::get(c, id)?, trash::work(c, id)?)));
        let (_, stored) = stored.await?;
        let (directory, vault) = (around.directory(id), vault(around, row.project));
        blocking(move || Ok(Self::look(&directory, &vault, &row, stored))).await
    }

    fn look(directory: &Path, vault: &Path, row: &SandboxRow, stored: trash::StoredWork) -> Self {
        let workspace = directory.join("workspace");
        let has_files = workspace.symlink_metadata().is_ok();
        let pushed = row.pushed.as_ref().map(|pushed| pushed.commit.clone());
        let is_pushed = pushed.is_some();
        let saved = |checkpoint| KnownWork { checkpoint, pushed, base: row.base_commit.clone() };
        let (mut save, only) = match stored.checkpoint.map(saved) {
            None => (Save::Nowhere, work::OnlyHere::default()),
            Some(saved) => match work::only_here(vault, &saved) {
                Ok(only) => (Save::Checkpoint, only),
                Err(error) => (Save::Unreadable(error.to_string()), work::OnlyHere::default()),
            },
        };
        let mut uncommitted_files = count(only.uncommitted_files);
        if save == Save::Nowhere {
            if has_files {
                uncommitted_files = folder::written_since(&workspace, row.started_at.unwrap_or(row.created_at));
            } else if row.files_cleaned_at.is_none() {
                save = Save::NoFiles;
            }
        }
        Self {
            save,
            uncommitted_files,
            unpushed_commits: count(only.unpushed_commits),
            has_stash: folder::has_stash(&workspace),
            skipped: if has_files { stored.skipped } else { Vec::new() },
            has_unread: stored.spools.iter().any(|(turn, read)| {
                let turn = directory.join("turns").join(turn.to_string());
                let is_longer = |name, read| turn.join(name).metadata().is_ok_and(|found| found.len() > read);
                is_longer("out", read.out) || is_longer("err", read.err)
            }),
            is_unsaved: row.is_unsaved,
            is_owed: stored.is_owed,
            is_pushed,
            branch: row.branch.clone(),
        }
    }

    /// Why the sandbox's files can be removed without losing anything.
    ///
    /// # Errors
    /// What would be lost.
    pub(super) fn safety(&self) -> Result<String, WouldLose> {
        let files = self.uncommitted_files;
        match &self.save {
            Save::NoFiles => return Ok("it never had a workspace".to_owned()),
            Save::Nowhere => return Err(WouldLose::new("its work was never saved: its folder is all there is")),
            Save::Unreadable(cause) => {
                return Err(WouldLose::new(format!("what was saved of it cannot be read: {cause}")));
            }
            Save::Checkpoint => {}
        }
        if self.is_owed {
            return Err(WouldLose::new("something is still being done for it: it is saved, delivered or ended"));
        }
        if self.is_unsaved {
            return Err(WouldLose::new("what it did last is in no checkpoint, only in its folder"));
        }
        if self.has_unread {
            return Err(WouldLose::new("the end of what it printed was not stored yet"));
        }
        if self.has_stash {
            return Err(WouldLose::new("changes were put away with `git stash`: they are only in its folder"));
        }
        if !self.skipped.is_empty() {
            return Err(WouldLose::new(format!(
                "{} could not be saved, and only its folder has them",
                paths(self.skipped.len())
            )));
        }
        match (files, self.unpushed_commits) {
            (0, 0) if self.is_pushed => Ok(format!("everything was pushed to {}", self.branch)),
            (0, 0) => Ok("nothing was changed in it".to_owned()),
            (files, 0) => Err(WouldLose::new(format!("changes to {} were not pushed", paths(files as usize)))),
            (0, commits) => Err(WouldLose::new(format!("{} not pushed", were(commits, "commit")))),
            (files, commits) => Err(WouldLose::new(format!(
                "{} and changes to {} were not pushed",
                counted(commits, "commit"),
                paths(files as usize)
            ))),
        }
    }

    fn kept(&self, row: &SandboxRow) -> Vec<String> {
        let mut kept = vec!["What it consumed stays in Usage, with its project and title.".to_owned()];
        if self.is_pushed {
            kept.push(format!("What was pushed to {} stays there.", self.branch));
        }
        kept.push(format!("The repository {} is not touched.", row.repository));
        kept
    }

    fn lost(&self) -> Vec<String> {
        let mut lost = Vec::new();
        match &self.save {
            Save::NoFiles => {}
            Save::Nowhere if self.uncommitted_files > 0 => lost.push(format!(
                "Its work was never saved: {} written since it began, what Git ignores included.",
                were(self.uncommitted_files, "file")
            )),
            Save::Nowhere => lost.push("Its work was never saved: whatever its folder holds.".to_owned()),
            Save::Unreadable(cause) => {
                lost.push(format!(
                    "Its work. What was saved of it cannot be read, so nobody can say how much: {cause}."
                ));
            }
            Save::Checkpoint => lost.push("All its checkpoints.".to_owned()),
        }
        if self.is_unsaved {
            lost.push("What it did last, which is in no checkpoint.".to_owned());
        }
        if !self.skipped.is_empty() {
            lost.push(format!("{} that no checkpoint could take.", paths(self.skipped.len())));
        }
        lost.push("The conversation, the raw log, and the agent's home folder.".to_owned());
        lost
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn counted(number: u32, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

fn were(number: u32, word: &str) -> String {
    format!("{} {}", counted(number, word), if number == 1 { "was" } else { "were" })
}

fn paths(number: usize) -> String {
    counted(count(number), "file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        Found {
            save: Save::Checkpoint,
            uncommitted_files: 0,
            unpushed_commits: 0,
            has_stash: false,
            skipped: Vec::new(),
            has_unread: false,
            is_unsaved: false,
            is_owed: false,
            is_pushed: true,
            branch: "courier/work".to_owned(),
        }
    }

    #[test]
    fn only_what_is_clean_pushed_and_idle_is_safe() {
        assert_eq!(found().safety().unwrap(), "everything was pushed to courier/work");
        assert_eq!(Found { is_pushed: false, ..found() }.safety().unwrap(), "nothing was changed in it");
        assert!(Found { save: Save::NoFiles, is_pushed: false, ..found() }.safety().is_ok());
        let skipped = vec![Skipped { path: "large.bin".into(), why: "it is too large".into() }];
        let unsafe_ones = [
            Found { save: Save::Nowhere, ..found() },
            Found { save: Save::Unreadable("no vault".into()), ..found() },
            Found { uncommitted_files: 1, ..found() },
            Found { unpushed_commits: 1, ..found() },
            Found { has_stash: true, ..found() },
            Found { has_unread: true, ..found() },
            Found { is_unsaved: true, ..found() },
            Found { is_owed: true, ..found() },
            Found { skipped, ..found() },
        ];
        for found in unsafe_ones {
            let reason = found.safety().expect_err("something would be lost").to_string();
            assert!(!reason.is_empty() && !reason.ends_with('.'), "{reason:?}");
        }
    }

    #[test]
    fn what_is_lost_is_said_in_sentences() {
        let found = Found { uncommitted_files: 2, unpushed_commits: 1, has_stash: true, is_pushed: false, ..found() };
        assert_eq!(
            found.lost(),
            ["All its checkpoints.", "The conversation, the raw log, and the agent's home folder."],
            "what is counted is not said again"
        );
        assert_eq!(
            found.safety().unwrap_err().to_string(),
            "changes were put away with `git stash`: they are only in its folder"
        );
    }
}
