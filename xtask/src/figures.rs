//! Figures by name: each is a bench target of the workspace that prints lines of JSON; the registry says which.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use crate::{place::Place, setup, setup::Purpose};

/// A bench target. It measures itself against a floor or a peer in the same run, on a release build.
#[derive(Debug)]
struct Entry {
    name: &'static str,
    package: &'static str,
    target: &'static str,
}

const BENCHES: &[Entry] = &[Entry { name: "transcript", package: "courier-engine", target: "transcript" }];

/// Prints one line of JSON per figure: `{"name","value","unit","against","ratio"}`.
pub fn bench(place: &Place, name: Option<&str>) -> anyhow::Result<ExitCode> {
    let chosen = chosen(BENCHES, name)?;
    setup::machine(Purpose::Tests)?;
    let mut is_good = true;
    for entry in chosen {
        let cargo = place.cargo().args(["bench", "--quiet", "--package", entry.package, "--bench", entry.target]);
        let status = cargo.read(|line| {
            if let Some(figure) = serde_json::from_str(line).ok().filter(Value::is_object) {
                println!("{figure}");
            }
        })?;
        if !status.success() {
            eprintln!("bench {} failed ({} of {})", entry.name, entry.target, entry.package);
            is_good = false;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen<'a>(entries: &'a [Entry], name: Option<&str>) -> anyhow::Result<Vec<&'a Entry>> {
    let chosen: Vec<_> = entries.iter().filter(|entry| name.is_none_or(|name| name == entry.name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        bail!("no bench is called {}; there are: {}", name.unwrap_or_default(), names.join(", "));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_names_there_are() {
        assert_eq!(chosen(BENCHES, None).unwrap().len(), BENCHES.len());
        let error = chosen(BENCHES, Some("speed")).unwrap_err().to_string();
        assert_eq!(error, "no bench is called speed; there are: transcript");
    }
}
