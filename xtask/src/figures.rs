//! Figures by name: what `cargo xtask bench` measures and what `cargo xtask prove` shows. Both print one line of JSON
//! per figure, `{"name","value","unit","against","ratio"}`; the registries here say which programs print them.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    agents,
    build::{self, Built, Profile},
    command::Run,
    place::Place,
    setup::{self, Purpose},
    ui,
};

/// A bench target. It measures itself against a floor or a peer in the same run, on a release build.
#[derive(Debug)]
struct Bench {
    name: &'static str,
    package: &'static str,
    target: &'static str,
}

/// A test too long for every day (marked `#[ignore]`), of which `cargo xtask test` runs a short, seeded slice.
#[derive(Debug)]
struct Proof {
    name: &'static str,
    package: &'static str,
    target: &'static str,
    /// As the test program lists it; all beneath it, where it is a module.
    test: &'static str,
}

const BENCHES: &[Bench] = &[Bench { name: "transcript", package: "courier-engine", target: "transcript" }];

const PROOFS: &[Proof] = &[];

/// Runs the benches of this name, or all.
pub fn bench(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let chosen = chosen("bench", BENCHES, name, |bench| bench.name)?;
    let programs = prepare(place, || build::app(place, Profile::Release))?;
    let mut is_good = true;
    for bench in chosen {
        let cargo = place.cargo().args(["bench", "--quiet", "--package", bench.package, "--bench", bench.target]);
        let status = programs.named_to(cargo).read(|line| _ = print_figure(line))?;
        if !status.success() {
            eprintln!("bench {} failed ({} of {})", bench.name, bench.target, bench.package);
            is_good = false;
        }
    }
    Ok(code(is_good))
}

/// Runs the proofs of this name, or all.
pub fn prove(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let chosen = chosen("proof", PROOFS, name, |proof| proof.name)?;
    let built = prepare(place, || build::everything(place))?;
    let claude = agents::claude(place)?;
    let mut is_good = true;
    for proof in chosen {
        let run = tests_of(&built, proof)?.env(agents::CLAUDE_VARIABLE, &claude);
        let run = run.env("CODECOURIER_JOURNEYS", place.journeys());
        let mut said = String::new();
        let mut count = 0;
        let status = built.programs.named_to(run).read(|line| {
            if !print_figure(line) {
                said += line;
                said.push('\n');
            }
            count += u32::from(line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 "));
        })?;
        if !status.success() || count == 0 {
            eprintln!("{said}proof {} failed ({} in {} of {})", proof.name, proof.test, proof.target, proof.package);
            is_good = false;
        }
    }
    Ok(code(is_good))
}

fn prepare<T>(place: &Place, build: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    setup::machine(Purpose::Tests)?;
    ui::install(place)?;
    ui::build(place)?;
    build()
}

fn tests_of(built: &Built, proof: &Proof) -> anyhow::Result<Run> {
    let program = built.tests.iter().find(|test| test.package == proof.package && test.target == proof.target);
    let program = program.with_context(|| format!("{} has no tests called {}", proof.package, proof.target))?;
    // Both the long ones and the slices: a module's attacks are ordinary tests.
    let run = Run::new(&program.program).in_folder(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    Ok(run.args([proof.test, "--include-ignored", "--nocapture", "--test-threads=1"]))
}

/// Prints a line that is a figure; says whether it is one.
fn print_figure(line: &str) -> bool {
    // libtest prints the beginning of a line of its own before a test's first.
    let Some(start) = line.find("{\"name\":") else { return false };
    let figure = serde_json::from_str(&line[start..]).ok().filter(Value::is_object);
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
        assert!(!print_figure("test result: ok. 1 passed"));
    }
}
