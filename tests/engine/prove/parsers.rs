//! No parser falls over, whatever an agent prints, and none keeps more of a line than a line may be long.

use std::time::{Duration, Instant};

use courier_engine::{
    agent::{Exit, agent},
    model::{AgentKind, Stream, Timestamp},
    transcript::{MAX_LINE, fold},
};
use courier_test_support::processes;

use super::{Dice, figure, seed, size};
use crate::recordings;

/// The agents that print events.
const KINDS: [AgentKind; 4] = [AgentKind::Claude, AgentKind::Codex, AgentKind::Opencode, AgentKind::Pi];
/// Every so many logs one is a single line that is longer than any may be.
const LONG: u64 = 4000;
/// What all parsers together may hold beyond the longest lines, in bytes: logs, items, what is being read.
const ROOM: u64 = 256 << 20;

#[test]
#[ignore = "long: cargo xtask prove parsers"]
fn no_parser_falls_over_in_ten_minutes() {
    let (seed, seconds) = (seed("parsers"), size(600));
    let before = processes::resident(std::process::id()).unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    let logs = std::thread::scope(|scope| {
        let all = KINDS.map(|kind| scope.spawn(move || fuzz(kind, seed, until)));
        all.map(|one| one.join().expect("no parser panics"))
    });
    for (kind, logs) in KINDS.iter().zip(logs) {
        figure(&format!("parsers/{kind}"), logs, "logs");
    }
    let grown = processes::resident(std::process::id()).unwrap().saturating_sub(before);
    figure("parsers/memory", grown >> 20, "MB");
    let bound = ROOM + KINDS.len() as u64 * 4 * MAX_LINE as u64;
    assert!(grown < bound, "{grown} bytes more than at first, {bound} allowed");
}

/// Reads damaged recordings until then; says how many.
fn fuzz(kind: AgentKind, seed: u64, until: Instant) -> u64 {
    let mut dice = Dice::of(seed, kind as u64);
    let known = recordings::logs(kind);
    let mut logs = 0;
    while Instant::now() < until {
        let log = match logs % LONG {
            0 => [b"{\"type\":\"text\",\"part\":\"".as_slice(), &vec![b'x'; MAX_LINE + (1 << 20)]].concat(),
            _ => damaged(&known, &mut dice),
        };
        let mut parser = agent(kind).expect("it is in the registry").parser(None);
        let (mut items, mut deltas) = (Vec::new(), Vec::new());
        let mut rest = log.as_slice();
        while !rest.is_empty() {
            let length = (1 + dice.roll() as usize % (1 << 16)).min(rest.len());
            let (chunk, after) = rest.split_at(length);
            let stream = if dice.one_in(20) { Stream::Err } else { Stream::Out };
            parser.read(stream, chunk, Timestamp::from_millis(0), &mut deltas);
            fold(&mut items, deltas.drain(..));
            _ = parser.headline();
            _ = parser.usage();
            rest = after;
        }
        let exit = if dice.one_in(2) { Exit::Code(dice.roll() as u8 as i32) } else { Exit::Signal(9) };
        _ = parser.finish(exit, dice.one_in(3), Timestamp::from_millis(0), &mut deltas);
        logs += 1;
    }
    logs
}

/// A recording with lines doubled, mixed with another's, cut off, and with bytes changed: mostly still JSON, so that what
/// is read goes deep.
fn damaged(known: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let pick =
        |dice: &mut Dice| known[dice.roll() as usize % known.len()].split(|byte| *byte == b'\n').collect::<Vec<_>>();
    let (one, other) = (pick(dice), pick(dice));
    let mut log = Vec::new();
    for line in one.iter().take(200) {
        let line = if dice.one_in(10) { other[dice.roll() as usize % other.len()] } else { line };
        for _ in 0..if dice.one_in(20) { 2 } else { 1 } {
            log.extend_from_slice(line);
            log.push(b'\n');
        }
    }
    let noise = [0, 0, 1, 5, 50][dice.roll() as usize % 5];
    for _ in 0..noise {
        if !log.is_empty() {
            let at = dice.roll() as usize % log.len();
            log[at] = *[b'"', b'{', b'}', b'[', b'0', b'n', b'\\', 0xff, b'\n', dice.roll() as u8]
                .get(dice.roll() as usize % 10)
                .unwrap();
        }
    }
    if dice.one_in(3) {
        log.truncate(dice.roll() as usize % (log.len() + 1));
    }
    log
}
