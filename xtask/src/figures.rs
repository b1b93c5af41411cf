//! Figures by name: what `cargo xtask bench` measures and what `cargo xtask prove` shows. Both print one line of JSON
//! per figure, `{"name","value","unit","against","ratio"}`; the registries here say which programs print them.

use std::{fs, process::ExitCode};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    agents,
    build::{self, Built, Profile, TestProgram},
    command::Run,
    place::Place,
    setup::{self, Purpose},
    ui,
};

/// What measures itself against a floor or a peer in the same run, on a release build of the product.
#[derive(Debug)]
struct Bench {
    name: &'static str,
    package: &'static str,
    target: &'static str,
    how: How,
}

#[derive(Debug)]
enum How {
    /// A bench target.
    Target,
    /// A journey through the window, which is a test that is not run every day.
    Journey(&'static str),
}

/// A test too long for every day (marked `#[ignore]`), of which `cargo xtask test` runs a short, seeded slice.
#[derive(Debug)]
struct Proof {
    name: &'static str,
    package: &'static str,
    target: &'static str,
    /// As the test program lists it.
    test: &'static str,
}

const BENCHES: &[Bench] = &[
    engine("transcript"),
    engine("start"),
    engine("idle"),
    engine("ingest"),
    engine("open"),
    engine("list"),
    engine("diff"),
    engine("e2b"),
    Bench { name: "checkpoint", package: "courier-checkpoint", target: "checkpoint", how: How::Target },
    Bench { name: "gateway", package: "courier-keeper", target: "gateway", how: How::Target },
    Bench { name: "stream", package: "courier-test-support", target: "e2e", how: How::Journey("stream::prove_stream") },
];

const fn engine(name: &'static str) -> Bench {
    Bench { name, package: "courier-engine", target: name, how: How::Target }
}

const PROOFS: &[Proof] = &[
    Proof { name: "isolation", package: "courier-keeper", target: "keeper", test: "proof::every_attack_fails" },
    Proof {
        name: "fuzz",
        package: "courier-engine",
        target: "engine",
        test: "prove::life::any_order_of_events_keeps_every_promise",
    },
    Proof {
        name: "crash",
        package: "courier-engine",
        target: "engine",
        test: "prove::crash::an_app_killed_at_any_moment_loses_and_doubles_nothing",
    },
    Proof {
        name: "checkpoint",
        package: "courier-checkpoint",
        target: "checkpoint",
        test: "same_as_git::many_checkpoints_are_what_git_would_add",
    },
    Proof {
        name: "parsers",
        package: "courier-engine",
        target: "engine",
        test: "prove::parsers::no_parser_falls_over_in_ten_minutes",
    },
    Proof {
        name: "e2b",
        package: "courier-engine",
        target: "engine",
        test: "e2b::faults::prove_every_fault_at_every_request",
    },
    Proof { name: "soak", package: "courier-test-support", target: "e2e", test: "soak::prove_soak" },
];

/// Runs the benches of this name, or all.
pub fn bench(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let chosen = chosen("bench", BENCHES, name, |bench| bench.name)?;
    setup::machine(Purpose::Tests)?;
    let (journeys, targets): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|bench| matches!(bench.how, How::Journey(_)));
    let mut is_good = true;
    if !targets.is_empty() {
        // The official clients are the peers of what speaks their protocols.
        ui::install_judges(place)?;
        let [node, ..] = &agents::PINNED;
        let node = (node.variable, node.installed(place)?);
        let helpers = build::helpers(place, Profile::Release)?;
        for bench in targets {
            let run = place.cargo().args(["bench", "--quiet", "--package", bench.package, "--bench", bench.target]);
            let run = helpers.iter().chain([&node]).fold(run, |run, (variable, program)| run.env(variable, program));
            is_good &= figures(run, bench.name)?;
        }
    }
    if !journeys.is_empty() {
        prepare(place)?;
        let Built { tests, envd, .. } = build::everything(place)?;
        let programs = build::app(place, Profile::Release)?;
        for bench in journeys {
            let How::Journey(test) = bench.how else { continue };
            let run = one_test(&tests, bench.package, bench.target, test, place)?;
            let run = run.env(build::ENVD_VARIABLE, &envd);
            is_good &= figures(programs.named_to(run), bench.name)?;
        }
    }
    Ok(code(is_good))
}

/// Runs the proofs of this name, or all.
pub fn prove(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let chosen = chosen("proof", PROOFS, name, |proof| proof.name)?;
    setup::machine(Purpose::Tests)?;
    prepare(place)?;
    let Built { programs, envd, tests } = build::everything(place)?;
    let mut is_good = true;
    for proof in chosen {
        let run = one_test(&tests, proof.package, proof.target, proof.test, place)?;
        let run = run.env(build::ENVD_VARIABLE, &envd);
        is_good &= figures(programs.named_to(run), proof.name)?;
    }
    Ok(code(is_good))
}

fn prepare(place: &Place) -> anyhow::Result<()> {
    ui::install(place)?;
    ui::build(place)
}

fn one_test(tests: &[TestProgram], package: &str, target: &str, test: &str, place: &Place) -> anyhow::Result<Run> {
    let program = tests.iter().find(|program| program.package == package && program.target == target);
    let program = program.with_context(|| format!("{package} has no tests called {target}"))?;
    fs::create_dir_all(place.journeys())?;
    let run = Run::new(&program.program).in_folder(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    let run = run.env("CODECOURIER_JOURNEYS", place.journeys());
    Ok(run.args([test, "--exact", "--ignored", "--nocapture"]))
}

/// Prints the figures of a program, and what else it says if it fails.
fn figures(run: Run, name: &str) -> anyhow::Result<bool> {
    let (mut said, mut count) = (String::new(), 0);
    let status = run.read(|line| match print_figure(line) {
        true => count += 1,
        false => said.extend([line, "\n"]),
    })?;
    let is_good = status.success() && count > 0;
    if !is_good {
        eprintln!("{said}{name} failed ({status}, {count} figures)");
    }
    Ok(is_good)
}

/// Prints a line that is a figure; says whether it is one.
fn print_figure(line: &str) -> bool {
    // libtest prints the beginning of a line of its own before a test's first.
    let Some(start) = line.find('{') else { return false };
    let figure = serde_json::from_str::<Value>(&line[start..]).ok().filter(|value| value["name"].is_string());
    if let Some(figure) = &figure {
        println!("{figure}");
    }
    figure.is_some()
}

fn chosen<'a, T>(
    what: &str,
    entries: &'a [T],
    wanted: Option<&str>,
    name: fn(&T) -> &'static str,
) -> anyhow::Result<Vec<&'a T>> {
    let chosen: Vec<_> = entries.iter().filter(|entry| wanted.is_none_or(|wanted| wanted == name(entry))).collect();
    if let (true, Some(wanted)) = (chosen.is_empty(), wanted) {
        let names: Vec<_> = entries.iter().map(name).collect();
        bail!("no {what} is called {wanted}; there are: {}", names.join(", "));
    }
    Ok(chosen)
}

fn code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_names_there_are() {
        let entries = ["transcript", "open"];
        let all = chosen("bench", &entries, None, |name| name).unwrap();
        assert_eq!(all.len(), 2);
        let error = chosen("bench", &entries, Some("speed"), |name| name).unwrap_err().to_string();
        assert_eq!(error, "no bench is called speed; there are: transcript, open");
    }

    #[test]
    fn a_figure_is_told_from_what_libtest_says() {
        assert!(print_figure(r#"test crash::prove ... {"name":"crash/seed","value":1}"#));
        assert!(print_figure(r#"{"against":null,"name":"stream/lag","value":1}"#));
        assert!(!print_figure(r#"test work::braces_{} ... ok"#));
        assert!(!print_figure("test result: ok. 1 passed"));
    }
}
