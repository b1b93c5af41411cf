//! `courier`: the engine without a window, for scripts. Results go to standard output, everything else to standard
//! error; with `--json` results are JSON, one value a line.
//!
//! Exit codes: 0 done; 1 the engine said no (the error says why); 2 the command line is wrong; 3 the app holds the data
//! folder.

mod log;
mod print;
mod project;
mod sandbox;
mod settings;
mod transcript;
mod work;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use courier_engine::{
    desktop,
    engine::{Code, Engine, Error},
};

use print::Output;

/// Run AI coding agents in isolated sandboxes, without the window.
#[derive(Debug, Parser)]
#[command(name = "courier", version)]
struct Arguments {
    /// The data folder; the desktop app's where none is given.
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Print results as JSON, one value a line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Repositories sandboxes are made from.
    #[command(subcommand)]
    Project(project::Command),
    /// Make, steer and end sandboxes.
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Print the raw log of a sandbox.
    Log(log::Arguments),
    /// The person's settings.
    #[command(subcommand)]
    Settings(settings::Command),
    /// Look at everything the app needs of this machine.
    Doctor,
    /// Read a recorded raw log and print what a person would read.
    Transcript(transcript::Arguments),
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Transcript(#[from] transcript::Error),
    #[error("{0}")]
    Usage(String),
    #[error("could not print: {0}")]
    Print(#[from] std::io::Error),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    match run(arguments).await {
        Ok(code) => code,
        // Whoever reads has seen enough.
        Err(Failure::Print(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => report(&failure, is_json),
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let output = Output { is_json: arguments.json };
    let command = match arguments.command {
        Command::Transcript(transcript) => {
            transcript::run(&transcript)?;
            return Ok(ExitCode::SUCCESS);
        }
        other => other,
    };
    let home = arguments
        .home
        .or_else(desktop::default_home)
        .ok_or_else(|| Failure::Usage("there is no home folder; give one with --home".to_owned()))?;
    let home = std::path::absolute(home)?;
    let engine = Engine::open(desktop::config(home)).await?;
    let done = match command {
        Command::Project(command) => project::run(&engine, command, &output).await,
        Command::Sandbox(command) => sandbox::run(&engine, command, &output).await,
        Command::Log(arguments) => log::run(&engine, &arguments).await,
        Command::Settings(command) => settings::run(&engine, command, &output).await,
        Command::Doctor => doctor(&engine, &output).await,
        Command::Transcript(_) => Ok(ExitCode::SUCCESS),
    };
    // Agents go on; the next command, or the app, takes them up again.
    engine.shutdown().await;
    done
}

async fn doctor(engine: &Engine, output: &Output) -> Result<ExitCode, Failure> {
    use courier_engine::engine::CheckState;
    let report = engine.doctor().await?;
    let has_failed = report.checks.iter().any(|check| check.state == CheckState::Failed);
    for check in &report.checks {
        output.check(check)?;
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(failure: &Failure, is_json: bool) -> ExitCode {
    let (code, exit) = match failure {
        Failure::Engine(error) if error.code() == Code::AlreadyOpen => ("alreadyOpen", 3),
        Failure::Engine(error) => (error.code().code(), 1),
        Failure::Usage(_) => ("invalid", 2),
        Failure::Transcript(_) | Failure::Print(_) => ("internal", 1),
    };
    let detail = match failure {
        Failure::Engine(error) => error.detail(),
        _ => None,
    };
    let text = if is_json {
        serde_json::json!({ "error": { "code": code, "message": failure.to_string(), "detail": detail } }).to_string()
    } else {
        let remedy = detail.map_or(String::new(), |detail| format!("\n{detail}"));
        format!("courier: {failure}{remedy}")
    };
    // Where standard error is closed nobody reads.
    _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(exit)
}
