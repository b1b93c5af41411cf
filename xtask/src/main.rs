//! The repository's scripts. `cargo xtask app` opens the app, `cargo xtask test` proves it; both first set up what a
//! fresh machine lacks. This program needs nothing but std, clap and JSON, so that it compiles there.
#![expect(clippy::print_stdout, reason = "a program for people: what it does and finds is its output")]

mod agents;
mod build;
mod command;
mod figures;
mod place;
mod python;
mod setup;
mod system_packages;
mod tally;
mod test;
mod ui;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::{build::Profile, command::Run, place::Place, setup::Purpose};

#[derive(Parser, Debug)]
#[command(name = "cargo xtask", about = "CodeCourier's scripts")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Sets up, builds and opens the app.
    App {
        /// Builds the release profile.
        #[arg(long)]
        release: bool,
        /// Handed to the app.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Sets up, builds and runs the tests; ends with a line `N passed, N failed`.
    Test {
        /// One part only.
        part: Option<test::Part>,
        /// Runs the tests whose names contain this.
        filter: Option<String>,
    },
    /// Prints one JSON line per figure, measured on a release build.
    Bench { name: Option<String> },
    /// Runs the proofs too long for every day (attacks, crashes, hours) and prints one JSON line per figure.
    Prove { name: Option<String> },
    /// Reads an agent's recorded raw log and prints its transcript and outcome as JSON lines.
    Transcript {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Installs the pinned agents that tests drive, and the Python that judges, and prints the variables by which tests find them.
    Agents,
    /// Formatting, clippy, dependencies and the window's own checks: what runs before a push, but for the tests.
    Lint,
}

fn main() -> ExitCode {
    let outcome = Place::find().and_then(|place| match Arguments::parse().task {
        Task::App { release, arguments } => {
            app(&place, if release { Profile::Release } else { Profile::Dev }, &arguments)
        }
        Task::Test { part, filter } => test::run(&place, part, filter.as_deref()),
        Task::Bench { name } => figures::bench(&place, name.as_deref()),
        Task::Prove { name } => figures::prove(&place, name.as_deref()),
        Task::Transcript { arguments } => transcript(&place, &arguments),
        Task::Agents => agents(&place),
        Task::Lint => test::lint(&place),
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn app(place: &Place, profile: Profile, arguments: &[String]) -> anyhow::Result<ExitCode> {
    setup::machine(Purpose::App)?;
    ui::install(place)?;
    ui::build(place)?;
    let programs = build::app(place, profile)?;
    println!("opening {}", programs.app.display());
    Run::new(&programs.app).args(arguments).in_folder(&place.root).code()
}

fn agents(place: &Place) -> anyhow::Result<ExitCode> {
    for agent in &agents::PINNED {
        println!("{}={}", agent.variable, agent.installed(place)?.display());
    }
    if let Some(python) = python::installed(place)? {
        println!("{}={}", python::VARIABLE, python.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn transcript(place: &Place, arguments: &[String]) -> anyhow::Result<ExitCode> {
    // The file is named from where the person stands, which need not be the repository's root.
    let here = std::env::current_dir().context("could not tell the current folder")?;
    let run = place.cargo().args(["run", "--quiet", "--package", "courier-engine", "--bin", "courier"]);
    let run = run.arg("--manifest-path").arg(place.root.join("Cargo.toml")).in_folder(&here);
    run.args(["--", "transcript"]).args(arguments).code()
}
