//! Figures and long proofs by name. Each is a test of the workspace that prints lines; the registry says which.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use crate::{build::FEATURES, place::Place, setup, setup::Purpose, ui};

/// A figure or a proof: an ignored test in one of the test targets.
#[derive(Debug)]
struct Entry {
    name: &'static str,
    package: &'static str,
    target: &'static str,
    test: &'static str,
}

/// What `cargo xtask bench` measures, on a release build.
const BENCHES: &[Entry] = &[];
/// What `cargo xtask prove` proves.
const PROOFS: &[Entry] = &[];

/// Prints one line of JSON per figure: `{"name","value","unit","against","ratio"}`.
pub fn bench(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    run(place, "bench", BENCHES, name, &["--release"], |line| {
        let figure: Option<Value> = serde_json::from_str(line).ok().filter(Value::is_object);
        figure.map(|figure| figure.to_string())
    })
}

/// Prints what the proofs print: a line per figure, and the seed with which a failure can be replayed.
pub fn prove(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    run(place, "proof", PROOFS, name, &["--release"], |line| Some(line.to_owned()))
}

fn run(
    place: &Place,
    kind: &str,
    entries: &[Entry],
    name: Option<&str>,
    profile: &[&str],
    shown: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<ExitCode> {
    let chosen = chosen(kind, entries, name)?;
    setup::machine(Purpose::Tests)?;
    ui::install(place)?;
    ui::build(place)?;
    let mut is_good = true;
    for entry in chosen {
        let cargo = place.cargo().args(["test", "--quiet", "--workspace", "--features", FEATURES]).args(profile);
        let cargo = cargo.args(["--test", entry.target, "--", "--exact", "--ignored", "--nocapture", entry.test]);
        let status = cargo.read(|line| {
            if let Some(line) = shown(line) {
                println!("{line}");
            }
        })?;
        if !status.success() {
            eprintln!("{kind} {} failed ({} of {})", entry.name, entry.test, entry.package);
            is_good = false;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen<'a>(kind: &str, entries: &'a [Entry], name: Option<&str>) -> anyhow::Result<Vec<&'a Entry>> {
    let chosen: Vec<_> = entries.iter().filter(|entry| name.is_none_or(|name| name == entry.name)).collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    let names = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
    match name {
        Some(name) => bail!("no {kind} is called {name}; there are: {names}"),
        None => bail!("there is nothing to run: {kind} names are: {names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_names_there_are() {
        let entries = [Entry { name: "ingest", package: "courier-engine", target: "engine", test: "bench::ingest" }];
        assert_eq!(chosen("bench", &entries, None).unwrap().len(), 1);
        let error = chosen("bench", &entries, Some("speed")).unwrap_err().to_string();
        assert_eq!(error, "no bench is called speed; there are: ingest");
        assert!(chosen("proof", &[], None).unwrap_err().to_string().contains("none yet"));
    }
}
