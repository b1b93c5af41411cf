//! How fast a raw log becomes a transcript, against the plainest thing that could be done with it: every line parsed to
//! a tree of values. Prints one JSON line per figure.

use std::{
    hint::black_box,
    io::{Write, stdout},
    time::Instant,
};

use courier_engine::{
    agent,
    model::{AgentKind, Stream, Timestamp},
};

/// The least that is read, in bytes.
const SIZE: usize = 32 * 1024 * 1024;

/// As much as a spool's follower reads at a time.
const CHUNK: usize = 64 * 1024;

fn main() -> std::io::Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/agents/claude/");
    for name in ["partial", "longout"] {
        let log = std::fs::read(format!("{folder}{name}.jsonl"))?.repeat(4);
        let log = log.repeat(SIZE / log.len() + 1);
        let plain = best_of_three(|| {
            for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let _ = black_box(serde_json::from_slice::<serde_json::Value>(line));
            }
        });
        let ours = best_of_three(|| {
            let mut parser = agent::agent(AgentKind::Claude).expect("it is in the registry").parser();
            let mut deltas = Vec::new();
            for chunk in log.chunks(CHUNK) {
                parser.read(Stream::Out, chunk, Timestamp::from_millis(0), &mut deltas);
                black_box(&mut deltas).clear();
            }
        });
        let value = log.len() as f64 / ours / 1e6;
        let against = log.len() as f64 / plain / 1e6;
        let ratio = value / against;
        writeln!(
            stdout(),
            r#"{{"name":"transcript_{name}","value":{value:.0},"unit":"MB/s","against":{against:.0},"ratio":{ratio:.2}}}"#
        )?;
    }
    Ok(())
}

/// Seconds.
fn best_of_three(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}
