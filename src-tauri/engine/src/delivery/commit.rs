//! What is uncommitted becomes a commit on the sandbox's branch.

use git2::Oid;

use super::{Outcome, Work};
use crate::{
    sandbox::{Surroundings, author},
    store::{self, deliveries},
    work::{self, MESSAGE, Saving},
};

pub(super) async fn commit(around: &Surroundings, work: &Work) -> Result<Outcome, store::Error> {
    let Some(checkpoint) = work.checkpoint.clone() else {
        return Ok(Outcome::failed("nothing was saved yet", "Save the work first."));
    };
    let vault = around.host.vault(work.row.project);
    let (id, branch) = (work.row.id, work.branch().to_owned());
    let author = author(&work.settings);
    let template = work.settings.commit_message.as_deref().unwrap_or(MESSAGE);
    let message = work::message(template, &work.row.title, id, &branch);
    let saving = tokio::task::spawn_blocking(move || {
        vault.save(&Saving {
            sandbox: id,
            branch: &branch,
            head: oid(&checkpoint.head)?,
            checkpoint: oid(&checkpoint.commit)?,
            author: (&author.0, &author.1),
            message: &message,
            // Its own time: the same checkpoint makes the same commit, however often it is made.
            at: checkpoint.created_at,
        })
    });
    let saved = match saving.await {
        Ok(Ok(saved)) => saved,
        Ok(Err(error)) => return Ok(failed(&error)),
        Err(_) => return Ok(Outcome::failed("it was broken off", "Try again.")),
    };
    let commit = saved.commit.to_string();
    if commit == work.row.base_commit {
        return Ok(Outcome::Skipped("nothing was changed".to_owned()));
    }
    around.store.write(move |tx| deliveries::set_head(tx, id, &commit)).await?;
    Ok(Outcome::Made(
        if saved.has_new_commit { "what was uncommitted was committed" } else { "all was committed" }.to_owned(),
    ))
}

fn oid(text: &str) -> Result<Oid, work::Error> {
    Ok(Oid::from_str(text)?)
}

fn failed(error: &work::Error) -> Outcome {
    let remedy = match error {
        error if error.is_disk_full() => "Make room on the disk, then try again.",
        work::Error::BranchTaken(_) => "Run it again with another branch; the work is in its checkpoint.",
        work::Error::BadBranchName(_) => "Run it again with another branch name; the work is in its checkpoint.",
        _ => "Try again; the work is in its checkpoint.",
    };
    Outcome::Failed { detail: error.to_string(), remedy: remedy.to_owned(), is_worth_retrying: error.is_disk_full() }
}
