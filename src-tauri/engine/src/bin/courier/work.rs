//! `courier sandbox diff`, `checkpoint` and `pr`: a sandbox's work.

use std::{io::Write, process::ExitCode};

use clap::{Args, Subcommand};
use courier_engine::{
    engine::{DeliverOptions, Engine},
    model::{CheckpointId, SandboxId, StepStatus},
};
use serde_json::json;

use crate::{Failure, print::Output};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    sandbox: SandboxId,
    /// The checkpoint to compare from; where the sandbox began if none is given.
    #[arg(long)]
    from: Option<CheckpointId>,
    /// The checkpoint to compare to; the newest if none is given.
    #[arg(long)]
    to: Option<CheckpointId>,
    /// Print the names of the files, and how many lines were added and removed.
    #[arg(long)]
    stat: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Checkpoint {
    /// Print a sandbox's checkpoints, oldest first.
    List { sandbox: SandboxId },
}

#[derive(Debug, Args)]
pub(crate) struct PullRequest {
    sandbox: SandboxId,
    #[arg(long)]
    title: Option<String>,
    #[arg(long)]
    body: Option<String>,
    #[arg(long)]
    draft: bool,
    /// Push also what would be held: workflows, and files of Git LFS.
    #[arg(long)]
    confirm: bool,
    /// Print what the pull request would say, and do nothing.
    #[arg(long)]
    preview: bool,
}

/// Prints a patch that `git apply` takes.
pub(crate) async fn diff(engine: &Engine, diff: Diff, output: &Output) -> Result<ExitCode, Failure> {
    if !diff.stat {
        let patch = engine.changes_patch(diff.sandbox, diff.from, diff.to).await?;
        for path in &patch.left_out {
            eprintln!("without {path}, which is too large for a patch");
        }
        if output.is_json {
            output.line("", &json!({ "patch": String::from_utf8_lossy(&patch.text), "left_out": patch.left_out }))?;
        } else {
            std::io::stdout().lock().write_all(&patch.text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let changes = engine.changes(diff.sandbox, diff.from, diff.to).await?;
    for file in &changes.files {
        let from = file.old_path.as_ref().map_or(String::new(), |old| format!("{old} → "));
        let text = if file.is_binary {
            format!("     binary  {from}{}", file.path)
        } else {
            let (added, removed) = (file.additions.unwrap_or(0), file.deletions.unwrap_or(0));
            format!("+{added:<5} -{removed:<5} {from}{}", file.path)
        };
        let value = json!({
            "path": file.path, "old_path": file.old_path, "added": file.additions, "removed": file.deletions,
            "is_binary": file.is_binary,
        });
        output.line(&text, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn checkpoint(engine: &Engine, command: Checkpoint, output: &Output) -> Result<ExitCode, Failure> {
    let Checkpoint::List { sandbox } = command;
    for checkpoint in engine.sandbox_checkpoints(sandbox).await? {
        let mut text = format!(
            "{}  {:<12}  {}  {} files changed",
            checkpoint.id,
            checkpoint.name,
            &checkpoint.commit.get(..12).unwrap_or_default(),
            checkpoint.files_changed
        );
        for skipped in &checkpoint.skipped {
            text += &format!("\n    without {}: {}", skipped.path, skipped.why);
        }
        let value = json!({
            "id": checkpoint.id, "name": checkpoint.name, "turn": checkpoint.turn, "commit": checkpoint.commit,
            "head": checkpoint.head, "files_changed": checkpoint.files_changed, "created_at": checkpoint.created_at,
            "skipped": checkpoint.skipped, "lfs": checkpoint.lfs, "workflows": checkpoint.workflows,
        });
        output.line(&text, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves, pushes and opens a pull request, and waits for what comes of it.
pub(crate) async fn pull_request(engine: &Engine, wanted: PullRequest, output: &Output) -> Result<ExitCode, Failure> {
    let id = wanted.sandbox;
    if wanted.preview {
        let draft = engine.delivery_draft(id).await?;
        let why = draft.skip.as_ref().map_or(String::new(), |skip| format!("(none would be opened: {skip})\n"));
        let text = format!("{why}{}\n\n{}", draft.title, draft.body);
        output.line(&text, &json!({ "title": draft.title, "body": draft.body, "skip": draft.skip }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_draft = wanted.draft.then_some(true);
    let options = DeliverOptions { title: wanted.title, body: wanted.body, is_draft, is_confirmed: wanted.confirm };
    engine.sandbox_deliver(id, options).await?;
    let delivery = engine.delivered(id).await?;
    let mut is_good = true;
    for step in &delivery.steps {
        is_good &= !matches!(step.status, StepStatus::Failed | StepStatus::Held);
        let remedy = if step.remedy.is_empty() { String::new() } else { format!(". {}", step.remedy) };
        let text = format!("{:<13} {:<8} {}{remedy}", step.kind.code(), step.status.code(), step.detail);
        let value = json!({
            "step": step.kind, "status": step.status, "detail": step.detail, "remedy": step.remedy,
            "attempts": step.attempts,
        });
        output.line(&text, &value)?;
    }
    if let Some(request) = &delivery.sandbox.pull_request {
        let text = request.url.clone().or_else(|| request.reason.clone()).unwrap_or_default();
        let value = json!({ "status": request.status, "url": request.url, "number": request.number });
        output.line(&text, &value)?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
