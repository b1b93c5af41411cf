//! `cargo xtask test`: set-up, checks, builds, tests, and one line of truth at the end.
//!
//! A stage that fails is counted and named, and the run goes on with what does not need it: one run shows everything
//! that is broken.

use std::{fs, process::ExitCode};

use anyhow::bail;

use crate::{
    agents,
    build::{self, Built, FEATURES, TestProgram},
    command::Run,
    place::Place,
    python,
    setup::{self, Purpose},
    tally::{self, Counts, Tally},
    ui,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The engine, its keeper, the stand-ins and these scripts.
    Engine,
    /// The shell on Tauri's mock runtime.
    Shell,
    /// The window's own checks and tests.
    Ui,
    /// People's ways through the real window (Linux).
    Journeys,
}

pub fn run(place: &Place, part: Option<Part>, filter: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut tally = Tally::default();
    let is_wanted = |wanted: Part| part.is_none_or(|part| part == wanted);
    if let Err(error) = everything(place, &is_wanted, part.is_none(), filter, &mut tally) {
        tally.stage_failed("set-up", &error);
    }
    println!();
    for failure in &tally.failures {
        println!("FAILED {failure}");
    }
    if part.is_none() || is_wanted(Part::Journeys) {
        println!("screenshots: {}", place.journeys().display());
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An error ends the run: nothing further can work. Everything else is in the tally.
fn everything(
    place: &Place,
    is_wanted: &dyn Fn(Part) -> bool,
    is_whole: bool,
    filter: Option<&str>,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    setup::machine(Purpose::Tests)?;
    ui::install(place)?;
    let stage = |name: &str, outcome: anyhow::Result<()>, tally: &mut Tally| {
        outcome.inspect_err(|error| tally.stage_failed(name, error)).is_ok()
    };
    if is_whole {
        stage("formatting", formatting(place), tally);
    }
    if is_wanted(Part::Ui) {
        title("window: checks");
        stage("window: checks", place.npm().args(["run", "check"]).run(), tally);
        title("window: tests");
        window_tests(place, filter, tally)?;
    }
    let needs_cargo = [Part::Engine, Part::Shell, Part::Journeys].into_iter().any(is_wanted);
    if !needs_cargo || !stage("window: build", ui::build(place), tally) {
        return Ok(());
    }
    if is_whole {
        title("clippy");
        stage("clippy", clippy(place), tally);
    }
    title("build");
    let built = match build::everything(place) {
        Ok(built) => built,
        Err(error) => {
            tally.stage_failed("build", &error);
            return Ok(());
        }
    };
    if is_wanted(Part::Engine) {
        stage("packages that judge", ui::install_judges(place), tally);
    }
    let mut agents = Vec::new();
    if is_wanted(Part::Engine) || is_wanted(Part::Journeys) {
        for agent in &agents::PINNED {
            match agent.installed(place) {
                Ok(program) => agents.push((agent.variable, program)),
                Err(error) => tally.stage_failed(agent.name, &error),
            }
        }
    }
    if is_wanted(Part::Engine) {
        match python::installed(place) {
            Ok(python) => agents.extend(python.map(|python| (python::VARIABLE, python))),
            Err(error) => tally.stage_failed("E2B's client for Python", &error),
        }
    }
    for test in order(&built.tests) {
        let part = part_of(test);
        if !is_wanted(part) {
            continue;
        }
        if part == Part::Journeys {
            if !cfg!(target_os = "linux") {
                println!("journeys run on Linux only: skipped");
                continue;
            }
            fs::create_dir_all(place.journeys())?;
        }
        let mut run = Run::new(&test.program).in_folder(&test.folder).args(filter);
        for (variable, agent) in &agents {
            run = run.env(variable, agent);
        }
        program(run, part, test, &built, place, tally)?;
    }
    Ok(())
}

/// Runs one program full of tests and adds its counts.
fn program(
    run: Run,
    part: Part,
    test: &TestProgram,
    built: &Built,
    place: &Place,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let name = format!("{} {}", test.package, test.target);
    title(&name);
    let mut run = built.programs.named_to(run).env("CARGO_MANIFEST_DIR", &test.folder);
    run = run.env(build::ENVD_VARIABLE, &built.envd);
    run = run.env("CODECOURIER_JOURNEYS", place.journeys());
    if part == Part::Journeys {
        run = run.arg("--test-threads=1"); // One window at a time: two cores draw it.
    }
    let mut counts = None;
    let status = run.watched(|line| counts = tally::libtest(line).or(counts))?;
    tally.program_ended(&name, counts, status.success());
    Ok(())
}

fn part_of(test: &TestProgram) -> Part {
    match (test.package.as_str(), test.target.as_str()) {
        ("codecourier", _) => Part::Shell,
        ("courier-test-support", "e2e") => Part::Journeys,
        _ => Part::Engine,
    }
}

/// The quick ones first, the journeys last.
fn order(tests: &[TestProgram]) -> Vec<&TestProgram> {
    let mut tests: Vec<_> = tests.iter().collect();
    tests.sort_by_key(|test| (part_of(test) as u8, test.package.clone(), test.target.clone()));
    tests
}

fn window_tests(place: &Place, filter: Option<&str>, tally: &mut Tally) -> anyhow::Result<()> {
    let mut counts: Option<Counts> = None;
    let run = place.npm().args(["run", "test", "--"]).args(filter.map(|filter| ["-t", filter]).into_iter().flatten());
    let status = run.watched(|line| counts = tally::vitest(line).or(counts))?;
    tally.program_ended("window: tests", counts, status.success());
    Ok(())
}

fn formatting(place: &Place) -> anyhow::Result<()> {
    title("formatting");
    place.cargo().args(["fmt", "--all", "--check"]).run()
}

fn clippy(place: &Place) -> anyhow::Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"];
    place.cargo().args(clippy).run()
}

/// `cargo xtask lint`: every check that is no test.
pub fn lint(place: &Place) -> anyhow::Result<ExitCode> {
    setup::machine(Purpose::App)?;
    formatting(place)?;
    ui::install(place)?;
    title("window: checks");
    place.npm().args(["run", "check"]).run()?;
    ui::build(place)?;
    title("clippy");
    clippy(place)?;
    title("dependencies");
    if !place.cargo().args(["deny", "--version"]).succeeds() {
        bail!("cargo-deny is missing: cargo install --locked cargo-deny");
    }
    place.cargo().args(["deny", "check", "bans", "licenses", "sources"]).run()?;
    Ok(ExitCode::SUCCESS)
}

fn title(name: &str) {
    println!("\n── {name}");
}
