//! The branch goes where the project came from: to its remote, or into the person's own repository.

use std::{path::PathBuf, time::Duration};

use git2::Oid;

use super::{Outcome, Work};
use crate::{
    sandbox::Surroundings,
    settings::Settings,
    store::{self, Pushed, deliveries},
    work::{
        Delivered, Delivery,
        push::{self, Change, Push, Reason},
    },
};

/// How long a push may take in all.
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// How many held paths are named.
const NAMED: usize = 5;

pub(super) async fn push(around: &Surroundings, work: &Work) -> Result<Outcome, store::Error> {
    let Some(head) = work.head.clone() else {
        return Ok(Outcome::failed("there is no commit to push", "Save the work first."));
    };
    if let Some(held) = held(work) {
        return Ok(held);
    }
    let id = work.row.id;
    let pushed = match &work.project.remote_url {
        Some(url) => to_remote(around, work, url).await?,
        None => to_folder(around, work).await?,
    };
    let (branch, words) = match pushed {
        Ok(pushed) => pushed,
        Err(done) => return Ok(done),
    };
    around.store.write(move |tx| deliveries::set_pushed(tx, id, &Pushed { branch, commit: head })).await?;
    Ok(Outcome::Made(words))
}

/// What a person has to see before it is pushed, and has not confirmed.
pub(crate) fn unconfirmed<'a>(paths: &'a [String], confirmed: &[String]) -> Vec<&'a str> {
    paths.iter().map(String::as_str).filter(|path| !confirmed.iter().any(|one| one == path)).collect()
}

fn held(work: &Work) -> Option<Outcome> {
    let checkpoint = work.checkpoint.as_ref()?;
    let workflows = unconfirmed(&checkpoint.workflows, &work.wishes.confirmed);
    let lfs = unconfirmed(&checkpoint.lfs, &work.wishes.confirmed);
    let mut reasons = Vec::new();
    if !workflows.is_empty() {
        reasons.push(format!("{} would run on the forge with the repository\u{2019}s secrets", named(&workflows)));
    }
    if !lfs.is_empty() {
        reasons.push(format!("{} belong to Git LFS, and their contents would be pushed as they are", named(&lfs)));
    }
    (!reasons.is_empty()).then(|| Outcome::Held {
        detail: reasons.join("; "),
        remedy: "Look at them, then push all the same.".to_owned(),
    })
}

fn named(paths: &[&str]) -> String {
    let mut names = paths.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if paths.len() > NAMED {
        names += &format!(" and {} more", paths.len() - NAMED);
    }
    names
}

/// The branch it came to be, and words for it; or why it was not taken.
type Taken = Result<(String, String), Outcome>;

async fn to_remote(around: &Surroundings, work: &Work, url: &str) -> Result<Taken, store::Error> {
    let settings = Settings::load(&around.store).await?;
    let token = match around.host.token_for(url, &settings).await {
        Ok(token) => token,
        Err(error) => {
            return Ok(Err(Outcome::failed(format!("the token could not be read: {error}"), "Unlock the keychain.")));
        }
    };
    let branch = work.branch();
    let push = Push::new(around.host.vault(work.row.project).path(), url, branch).token(token);
    let push = match around.host.known_hosts() {
        Some(file) => push.known_hosts(file),
        None => push,
    };
    Ok(match push.run_or_sibling(&around.shutdown, LIMIT).await {
        Ok(pushed) => {
            let words = match pushed.change {
                Change::None => format!("{} was there already", pushed.branch),
                _ if pushed.branch != branch => {
                    format!("pushed as {}, since others have changed {branch}", pushed.branch)
                }
                _ => format!("pushed as {}", pushed.branch),
            };
            Ok((pushed.branch, words))
        }
        Err(error) => Err(failed(&error)),
    })
}

fn failed(error: &push::Error) -> Outcome {
    Outcome::Failed {
        detail: error.to_string(),
        remedy: error.remedy().to_owned(),
        is_worth_retrying: error.reason.is_passing() && error.reason != Reason::Cancelled,
    }
}

/// The project is a folder without a remote: the branch is brought into its repository, as a new one.
async fn to_folder(around: &Surroundings, work: &Work) -> Result<Taken, store::Error> {
    let (vault, branch) = (around.host.vault(work.row.project), work.branch().to_owned());
    let (folder, commit) = (PathBuf::from(&work.project.source), work.head.clone().unwrap_or_default());
    let last = work.row.pushed.clone();
    let bringing = tokio::task::spawn_blocking(move || {
        let last = last.as_ref().map(|last| Ok::<_, git2::Error>((last.branch.as_str(), Oid::from_str(&last.commit)?)));
        let last = last.transpose()?;
        Delivery { to: &folder, branch: &branch, commit: Oid::from_str(&commit)?, last }.bring(&vault)
    });
    Ok(match bringing.await {
        Ok(Ok(Delivered { branch, is_new })) => {
            let verb = if is_new { "brought into" } else { "was there already in" };
            let words = format!("{verb} {} as {branch}", work.project.source);
            Ok((branch, words))
        }
        Ok(Err(error)) => Err(Outcome::failed(
            format!("{}: {error}", work.project.source),
            "The work is kept here. See that the repository is there and can be written, then try again.",
        )),
        Err(_) => Err(Outcome::failed("it was broken off", "Try again.")),
    })
}
