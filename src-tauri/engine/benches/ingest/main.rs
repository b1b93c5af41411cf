//! From the spool to the database: 100 MB of an agent's output through the engine as the app runs it (the follower of a
//! spool's file, the parser, the redaction of texts, items, raw log and offset, one reader of the feed), against the least
//! that could be done with it: every line parsed to a tree of values and stored as it came.
//!
//! - `ingest/throughput`: MB/s; `ratio` is ours by the floor's, required ≥ 1.0, more is better.
//! - `ingest/memory`: the peak of our process in MB, by the 64 it may use; required ≤ 1.0, less is better.
//! - `ingest/live_rate`: MB/s taken in while another process appends, by what it appended; required ≥ 0.99.
//! - `ingest/live_lag_p95`, `_end`: from a line's write to its row in the feed, in ms; the latter by the 500 it may be.
//!
//! Each measurement has a process of its own, so that none pays for another's memory.

#[path = "../figures/mod.rs"]
mod figures;
mod floor;
mod ours;
mod recorded;
mod recording;
mod writer;

use std::{collections::HashMap, path::Path, process::Stdio};

/// How much output there is, in bytes.
const SIZE: usize = 100_000_000;
/// How often each side is measured; the best counts.
const ROUNDS: usize = 3;
/// The most memory our side may use, in MB.
const MEMORY: f64 = 64.0;
/// How far behind a follower may be when the writer stops, in milliseconds.
const LAG: f64 = 500.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["floor", folder] => floor::run(Path::new(folder)),
        ["ours", folder] => ours::run(Path::new(folder)),
        ["live", folder] => ours::follow(Path::new(folder)),
        ["write", from, to] => writer::run(Path::new(from), Path::new(to)),
        _ => measure(),
    }
}

fn measure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let size = std::env::var("COURIER_PROOF_SIZE").ok().and_then(|size| size.parse().ok()).unwrap_or(SIZE);
    let made = recording::write(&folder.path().join(recording::NAME), size);
    figures::print("ingest/lines", made as f64, "lines", None);

    let (mut floor, mut ours, mut memory) = (f64::MAX, f64::MAX, 0.0_f64);
    for _ in 0..ROUNDS {
        floor = floor.min(child("floor", folder.path())["seconds"]);
        let run = child("ours", folder.path());
        ours = ours.min(run["seconds"]);
        memory = memory.max(run["memory"]);
    }
    let speed = |seconds: f64| size as f64 / 1e6 / seconds;
    figures::print("ingest/throughput", speed(ours), "MB/s", Some(speed(floor)));
    figures::print("ingest/memory", memory, "MB", Some(MEMORY));

    let live = child("live", folder.path());
    figures::print("ingest/live_rate", live["rate"], "MB/s", Some(live["written"]));
    figures::print("ingest/live_lag_p95", live["lag_p95"], "ms", None);
    figures::print("ingest/live_lag_end", live["lag_end"], "ms", Some(LAG));
    figures::print("ingest/live_memory", live["memory"], "MB", Some(MEMORY));
}

/// Runs one measurement in a process of its own; it prints a name and a number per line.
fn child(what: &str, folder: &Path) -> HashMap<String, f64> {
    let output = program()
        .args([what, &folder.to_string_lossy()])
        .stderr(Stdio::inherit())
        .output()
        .expect("this program can be started again");
    assert!(output.status.success(), "{what} failed");
    let text = String::from_utf8(output.stdout).expect("figures are text");
    let line =
        |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.parse().expect("a number")));
    text.lines().filter_map(line).collect()
}

/// This program again.
fn program() -> std::process::Command {
    let path = std::env::current_exe().expect("the path of this program");
    #[expect(clippy::disallowed_methods, reason = "a measurement of its own, not an agent or a tool")]
    std::process::Command::new(path)
}

/// The most memory this process has used, in MB.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(0.0, |kilobytes| kilobytes * 1024.0 / 1e6)
}
