//! The pull request: its words, made from the conversation, and its making.

use super::{Outcome, Work};
use crate::{
    agent,
    forge::{
        Forge, GitHub, NewPullRequest, State,
        skip::{self, Situation},
        text::{self, Conversation, Text},
    },
    model::{PullRequestStatus, Role, SandboxId},
    sandbox::Surroundings,
    settings::Settings,
    store::{self, PullRequest, deliveries, items, messages, turns},
};

/// How many of a conversation's newest items are looked at for what was said and checked.
const ITEMS: u32 = 2_000;

pub(super) async fn open(around: &Surroundings, work: &Work) -> Result<Outcome, store::Error> {
    let forge = forge(around, work).await?;
    // What has nothing new does not come this far.
    if let Some(reason) = skipped(work, &forge, true) {
        skip(around, work.row.id, reason.to_owned()).await?;
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    if work.settings.is_reviewed_first && !work.wishes.is_asked {
        return Ok(Outcome::Held {
            detail: "its words are to be read first".to_owned(),
            remedy: "Save and open the pull request when they are right.".to_owned(),
        });
    }
    let Forge::GitHub { host, repository } = &forge else {
        return Ok(Outcome::failed("the forge is not known", "Open the pull request there by hand."));
    };
    let token = match around.host.stored(host.credential()).await {
        Ok(Some(stored)) => stored.secret,
        Ok(None) => {
            let detail = format!("there is no token for {}", host.name());
            return failed(around, work, &detail, "Set it in Settings, under Keys, then try again.", false).await;
        }
        Err(error) => {
            let detail = format!("the token could not be read: {error}");
            return failed(around, work, &detail, "Unlock the keychain, then try again.", false).await;
        }
    };
    let before = work.row.pull_request.clone().filter(|known| known.number.is_some());
    set(around, work.row.id, PullRequest { status: PullRequestStatus::Creating, ..before.unwrap_or_else(none) })
        .await?;
    let text = words(around, work).await?;
    let new = NewPullRequest {
        title: work.wishes.title.clone().unwrap_or(text.title),
        body: work.wishes.body.clone().unwrap_or(text.body),
        branch: work.branch().to_owned(),
        base: work.row.base_branch.clone(),
        is_draft: work.wishes.is_draft.unwrap_or(work.settings.is_draft),
    };
    let opened = match GitHub::new(host.clone(), token) {
        Ok(github) => github.open(repository, &new).await,
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => {
            let (id, number) = (work.row.id, opened.pull.number);
            set(around, id, known(opened.pull.state, opened.pull.url, number)).await?;
            around.deliverer.watch_more();
            let verb = if opened.is_reused { "the open one was brought up to date" } else { "opened" };
            Ok(Outcome::Made(format!("{verb}: #{number}")))
        }
        Err(error) => {
            let is_worth_retrying = error.reason.is_passing();
            failed(around, work, &error.to_string(), error.remedy(), is_worth_retrying).await
        }
    }
}

async fn forge(around: &Surroundings, work: &Work) -> Result<Forge, store::Error> {
    let settings = Settings::load(&around.store).await?;
    Ok(Forge::of(work.project.remote_url.as_deref().unwrap_or_default(), settings.github_enterprise().as_ref()))
}

/// Why there is no pull request to make, in words.
fn skipped(work: &Work, forge: &Forge, has_new_commit: bool) -> Option<&'static str> {
    let situation = Situation {
        remote: work.project.remote_url.as_deref(),
        forge,
        branch: work.branch(),
        default_branch: &work.project.default_branch,
        base: &work.row.base_branch,
        has_new_commit,
    };
    skip::skip(&situation).map(|skip| skip.reason.words())
}

/// Why none would be made now, in words.
pub(super) async fn reason_to_skip(around: &Surroundings, work: &Work) -> Result<Option<String>, store::Error> {
    let has_new_commit = match &work.checkpoint {
        Some(last) if last.head == work.row.base_commit => {
            !super::changed_files(around, &work.row, &last.commit).await.is_empty()
        }
        // It may still be at work on its first.
        Some(_) | None => true,
    };
    Ok(skipped(work, &forge(around, work).await?, has_new_commit).map(str::to_owned))
}

fn none() -> PullRequest {
    PullRequest { status: PullRequestStatus::Creating, url: None, number: None, reason: None, is_closed: false }
}

/// A pull request as GitHub tells of it.
pub(super) fn known(state: State, url: String, number: u64) -> PullRequest {
    let status = match state {
        State::Merged => PullRequestStatus::Merged,
        State::Open | State::Closed => PullRequestStatus::Created,
    };
    PullRequest { status, url: Some(url), number: Some(number), reason: None, is_closed: state == State::Closed }
}

/// Says that there is none, and why. One that was made earlier stays.
pub(super) async fn skip(around: &Surroundings, id: SandboxId, reason: String) -> Result<(), store::Error> {
    around
        .store
        .write(move |tx| {
            let known = store::sandboxes::get(tx, id)?.pull_request;
            if known.is_some_and(|known| known.number.is_some()) {
                return Ok(());
            }
            let skipped = PullRequest { status: PullRequestStatus::Skipped, reason: Some(reason), ..none() };
            deliveries::set_pull_request(tx, id, &skipped)
        })
        .await
}

async fn failed(
    around: &Surroundings,
    work: &Work,
    detail: &str,
    remedy: &str,
    is_worth_retrying: bool,
) -> Result<Outcome, store::Error> {
    let known = work.row.pull_request.clone().filter(|known| known.number.is_some()).unwrap_or_else(none);
    let failed = PullRequest { status: PullRequestStatus::Failed, reason: Some(detail.to_owned()), ..known };
    set(around, work.row.id, failed).await?;
    Ok(Outcome::Failed { detail: detail.to_owned(), remedy: remedy.to_owned(), is_worth_retrying })
}

pub(super) async fn set(around: &Surroundings, id: SandboxId, request: PullRequest) -> Result<(), store::Error> {
    around.store.write(move |tx| deliveries::set_pull_request(tx, id, &request)).await
}

/// The words for a sandbox's conversation.
pub(super) async fn words(around: &Surroundings, work: &Work) -> Result<Text, store::Error> {
    let id = work.row.id;
    let (asked, items, turns, usage) = around
        .store
        .read(move |connection| {
            let asked = messages::all(connection, id)?.into_iter().filter(|message| message.role == Role::User);
            Ok::<_, store::Error>((
                asked.map(|message| message.content).collect::<Vec<_>>(),
                items::newest(connection, id, ITEMS)?,
                turns::all(connection, id)?.len(),
                turns::usage(connection, id)?.0,
            ))
        })
        .await?;
    let files = match &work.checkpoint {
        None => Vec::new(),
        Some(checkpoint) => super::changed_files(around, &work.row, &checkpoint.commit).await,
    };
    let agent = agent::agent(work.row.agent);
    let secrets = match agent {
        Some(agent) => around.host.secrets_of(agent).await,
        None => Vec::new(),
    };
    let directory = around.directory(id);
    let workspace = directory.join("workspace").display().to_string();
    let private = [
        Some(id.to_string()),
        work.row.agent_session.clone(),
        Some(directory.display().to_string()),
        Some(around.host.home().display().to_string()),
    ];
    let private: Vec<_> = private.into_iter().flatten().collect();
    let checks = text::checks(&items);
    Ok(text::write(&Conversation {
        title: &work.row.title,
        asked: &asked,
        answer: text::final_words(&items),
        files: &files,
        checks: &checks,
        agent: agent.map_or("an agent", |agent| agent.name()),
        model: work.row.model.as_deref(),
        turns: u32::try_from(turns).unwrap_or(u32::MAX),
        usage,
        cost: None,
        issue: work.row.issue.as_ref().map(|issue| issue.0),
        workspace: &workspace,
        private: &private,
        secrets: &secrets,
    }))
}
