//! `courier sandbox`.

use std::{io::Read, process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use courier_engine::{
    engine::{Engine, NewSandbox, SendHow},
    model::{AgentKind, Clock, NetworkMode, OnTimeout, ProjectId, SandboxId, Status, SystemClock},
    store::Query,
};
use serde_json::json;

use crate::{
    Failure,
    print::{Output, value},
    work,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a sandbox and give its agent the first message.
    Create(Create),
    /// Print sandboxes, newest first.
    List {
        #[arg(long)]
        project: Option<ProjectId>,
        /// Only those with this status; may be given several times.
        #[arg(long, value_parser = status)]
        status: Vec<Status>,
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Those in the trash instead, the last deleted first.
        #[arg(long, conflicts_with_all = ["status", "limit"])]
        deleted: bool,
    },
    /// Print one sandbox.
    Show { sandbox: SandboxId },
    /// Give it a message.
    Send {
        sandbox: SandboxId,
        /// The message; `-` reads it from standard input.
        message: String,
        /// End the turn that runs, and send at once.
        #[arg(long)]
        interrupt: bool,
        /// Wait until the agent has answered.
        #[arg(long)]
        wait: bool,
    },
    /// Let its agent go on by itself, once a limit has ended.
    ContinueLater {
        sandbox: SandboxId,
        /// In how many seconds; without it, not at all.
        #[arg(long, value_name = "SECONDS")]
        after: Option<u32>,
    },
    /// Suspend it.
    Pause { sandbox: SandboxId },
    /// Let it go on.
    Resume { sandbox: SandboxId },
    /// End it.
    Stop { sandbox: SandboxId },
    /// Print what its work changes, as a patch.
    Diff(work::Diff),
    /// Its checkpoints.
    #[command(subcommand)]
    Checkpoint(work::Checkpoint),
    /// Save its work, push it and open a pull request; on one that has ended, try again what failed.
    Pr(work::PullRequest),
    /// Stop waiting for the end of one whose provider does not answer; what may still run is destroyed later.
    GiveUp { sandbox: SandboxId },
    /// Move it to the trash, and end it where it is live.
    Delete { sandbox: SandboxId },
    /// Take it out of the trash.
    Restore { sandbox: SandboxId },
    /// Remove one that is in the trash for good; without `--yes` say what would be lost.
    Purge {
        sandbox: SandboxId,
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[arg(long)]
    project: ProjectId,
    /// The first message; `-` reads it from standard input.
    prompt: String,
    #[arg(long, default_value = "claude", value_parser = agent)]
    agent: AgentKind,
    #[arg(long)]
    model: Option<String>,
    #[arg(long)]
    title: Option<String>,
    #[arg(long)]
    base_branch: Option<String>,
    #[arg(long)]
    branch: Option<String>,
    /// Running time, in seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Pause it when the time is over, rather than end it.
    #[arg(long)]
    pause_on_timeout: bool,
    #[arg(long, value_parser = network, default_value = "open")]
    network: NetworkMode,
    /// A host it may reach in network mode `listed`; may be given several times.
    #[arg(long)]
    allow_host: Vec<String>,
    /// Wait until the agent has answered.
    #[arg(long)]
    wait: bool,
}

/// What was given is none of the words there are.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it must be one of {0}")]
struct NoSuchWord(String);

impl NoSuchWord {
    fn of(words: &[impl ToString]) -> Self {
        Self(words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    }
}

fn status(code: &str) -> Result<Status, NoSuchWord> {
    Status::from_code(code).ok_or_else(|| NoSuchWord::of(Status::ALL))
}

fn agent(code: &str) -> Result<AgentKind, NoSuchWord> {
    AgentKind::from_code(code).ok_or_else(|| NoSuchWord::of(AgentKind::ALL))
}

fn network(code: &str) -> Result<NetworkMode, NoSuchWord> {
    NetworkMode::from_code(code).ok_or_else(|| NoSuchWord::of(NetworkMode::ALL))
}

pub(crate) async fn run(engine: &Engine, command: Command, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        Command::Create(create) => return self::create(engine, create, output).await,
        Command::List { project, deleted: true, .. } => {
            for sandbox in engine.trash_list(project).await? {
                output.sandbox(&sandbox)?;
            }
        }
        Command::List { project, status, limit, deleted: false } => {
            let query = Query { project, statuses: status, limit: limit.clamp(1, 1000), ..Query::default() };
            for sandbox in engine.sandbox_list(query).await?.rows {
                output.sandbox(&sandbox)?;
            }
        }
        Command::Diff(diff) => return work::diff(engine, diff, output).await,
        Command::Checkpoint(command) => return work::checkpoint(engine, command, output).await,
        Command::Pr(wanted) => return work::pull_request(engine, wanted, output).await,
        Command::Show { sandbox } => show(engine, sandbox, output).await?,
        Command::Send { sandbox, message, interrupt, wait } => {
            let how = if interrupt { SendHow::Interrupt } else { SendHow::Queue };
            let sent = engine.sandbox_send(sandbox, &text(message)?, how).await?;
            if wait {
                answered(engine, sandbox).await?;
            }
            output.line(&sent.id.to_string(), &json!({ "id": sent.id, "seq": sent.seq }))?;
        }
        Command::ContinueLater { sandbox, after } => {
            let at = after.map(|seconds| SystemClock.now() + Duration::from_secs(seconds.into()));
            engine.sandbox_continue_at(sandbox, at).await?;
            let text = at.map_or("it does not go on by itself", |_| "it goes on by itself then");
            output.line(text, &json!({ "continue_at": at }))?;
        }
        Command::Pause { sandbox } => {
            engine.sandbox_pause(sandbox).await?;
            return settled(engine, sandbox, Status::Paused, output).await;
        }
        Command::Resume { sandbox } => {
            engine.sandbox_resume(sandbox).await?;
            return settled(engine, sandbox, Status::Running, output).await;
        }
        Command::GiveUp { sandbox } => {
            engine.sandbox_give_up(sandbox).await?;
            return settled(engine, sandbox, Status::Killed, output).await;
        }
        Command::Stop { sandbox } => {
            engine.sandbox_stop(sandbox).await?;
            return settled(engine, sandbox, Status::Killed, output).await;
        }
        Command::Delete { sandbox } => {
            engine.sandbox_delete(sandbox).await?;
            // What ends is better ended now than by the next command.
            output.sandbox(&engine.sandbox_settled(sandbox).await?)?;
        }
        Command::Restore { sandbox } => {
            engine.sandbox_restore(sandbox).await?;
            output.sandbox(&engine.sandbox_get(sandbox).await?)?;
        }
        Command::Purge { sandbox, yes } => return purge(engine, sandbox, yes, output).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn purge(engine: &Engine, id: SandboxId, is_sure: bool, output: &Output) -> Result<ExitCode, Failure> {
    if is_sure {
        engine.sandbox_purge(id).await?;
        output.line("purged", &json!({ "id": id, "is_purged": true }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let facts = engine.purge_facts(id).await?;
    let listed = |head: &str, sentences: &[String]| {
        sentences.iter().fold(head.to_owned(), |text, sentence| format!("{text}\n  {sentence}"))
    };
    let stash = if facts.has_stash { ", and what was put away with `git stash`" } else { "" };
    let text = format!(
        "{}: {} bytes, in {}\nExists nowhere else: {} files, {} commits{stash}\n{}\n{}\nGive --yes to purge it.",
        facts.title,
        facts.bytes,
        facts.path.display(),
        facts.uncommitted_files,
        facts.unpushed_commits,
        listed("Gone for good:", &facts.lost),
        listed("Kept:", &facts.kept)
    );
    output.line(
        &text,
        &json!({
            "id": id, "is_purged": false, "title": facts.title, "uncommitted_files": facts.uncommitted_files,
            "unpushed_commits": facts.unpushed_commits, "has_stash": facts.has_stash, "skipped": facts.skipped,
            "bytes": facts.bytes, "is_live": facts.is_live, "path": facts.path, "kept": facts.kept, "lost": facts.lost,
        }),
    )?;
    Ok(ExitCode::FAILURE)
}

async fn create(engine: &Engine, create: Create, output: &Output) -> Result<ExitCode, Failure> {
    let mut new = NewSandbox::of(create.project, create.agent, &text(create.prompt)?);
    if let Some(seconds) = create.timeout {
        new.timeout = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::Usage(format!("{seconds} seconds are no timeout")))?;
    }
    if create.pause_on_timeout {
        new.on_timeout = OnTimeout::Pause;
    }
    new.model = create.model;
    new.title = create.title;
    new.base_branch = create.base_branch;
    new.branch = create.branch;
    new.network = create.network;
    new.allowed_hosts = create.allow_host;
    let created = engine.sandbox_create(new).await?;
    // A sandbox that is still being made when the command ends is made by the next one; it is better made now.
    let mut sandbox = engine.sandbox_settled(created.id).await?;
    if create.wait {
        answered(engine, created.id).await?;
        sandbox = engine.sandbox_get(created.id).await?;
    } else {
        started(engine, created.id).await?;
    }
    output.sandbox(&sandbox)?;
    let is_live = sandbox.lifecycle.status.is_live();
    Ok(if is_live { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for what was asked to be done, and says whether it was.
async fn settled(engine: &Engine, id: SandboxId, wanted: Status, output: &Output) -> Result<ExitCode, Failure> {
    let sandbox = engine.sandbox_settled(id).await?;
    output.sandbox(&sandbox)?;
    Ok(if sandbox.lifecycle.status == wanted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn show(engine: &Engine, id: SandboxId, output: &Output) -> Result<(), Failure> {
    let details = engine.sandbox_details(id).await?;
    if !output.is_json {
        output.sandbox(&details.sandbox)?;
    }
    let mut json = value(&details.sandbox);
    json["running_ms"] = json!(u64::try_from(details.running.as_millis()).unwrap_or(u64::MAX));
    json["turns"] = json!(details.turns);
    json["usage"] = json!(details.usage);
    json["workspace"] = json!(details.workspace);
    let text = format!(
        "  {} turns, {} s of running time, {} input and {} output tokens\n  {}",
        details.turns,
        details.running.as_secs(),
        details.usage.input,
        details.usage.output,
        details.workspace.display()
    );
    Ok(output.line(&text, &json)?)
}

/// Waits until the queue is empty and no turn is open, or the sandbox has ended.
async fn answered(engine: &Engine, id: SandboxId) -> Result<(), Failure> {
    until(engine, id, |queued, is_working| queued == 0 && !is_working).await
}

/// Waits until the agent has the first message.
async fn started(engine: &Engine, id: SandboxId) -> Result<(), Failure> {
    until(engine, id, |queued, _| queued == 0).await
}

async fn until(engine: &Engine, id: SandboxId, enough: impl Fn(u32, bool) -> bool) -> Result<(), Failure> {
    let mut changes = engine.feed().changes();
    loop {
        let sandbox = engine.sandbox_get(id).await?;
        if enough(sandbox.queued, sandbox.is_working) || sandbox.lifecycle.status != Status::Running {
            return Ok(());
        }
        // Lagging behind only means looking again.
        if let Err(tokio::sync::broadcast::error::RecvError::Closed) = changes.recv().await {
            return Ok(());
        }
    }
}

/// A text given on the command line, or on standard input.
fn text(argument: String) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
