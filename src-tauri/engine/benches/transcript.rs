//! How fast a raw log becomes a transcript, against the plainest thing that could be done with it: every line parsed to
//! a tree of values.
//!
//! - `transcript_…`: MB/s; `ratio` is by the plain reading's, more is better.

#[path = "figures/mod.rs"]
mod figures;

use std::{hint::black_box, time::Instant};

use courier_engine::{
    agent,
    model::{AgentKind, Stream, Timestamp},
};

/// The least that is read, in bytes.
const SIZE: usize = 32 * 1024 * 1024;

/// As much as a spool's follower reads at a time.
const CHUNK: usize = 64 * 1024;

/// How often each side is measured; the best counts.
const ROUNDS: usize = 5;

fn main() -> std::io::Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/agents/claude/");
    for name in ["partial", "longout"] {
        let log = std::fs::read(format!("{folder}{name}.jsonl"))?.repeat(4);
        let log = log.repeat(SIZE / log.len() + 1);
        let mut plain = || {
            for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let _ = black_box(serde_json::from_slice::<serde_json::Value>(line));
            }
        };
        let mut ours = || {
            let mut parser = agent::agent(AgentKind::Claude).expect("it is in the registry").parser(None);
            let mut deltas = Vec::new();
            for chunk in log.chunks(CHUNK) {
                parser.read(Stream::Out, chunk, Timestamp::from_millis(0), &mut deltas);
                black_box(&mut deltas).clear();
            }
        };
        let (mut floor, mut best) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            floor = floor.min(seconds(&mut plain));
            best = best.min(seconds(&mut ours));
        }
        let speed = |seconds: f64| log.len() as f64 / seconds / 1e6;
        figures::print(&format!("transcript_{name}"), speed(best), "MB/s", Some(speed(floor)));
    }
    Ok(())
}

fn seconds(run: &mut impl FnMut()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_secs_f64()
}
