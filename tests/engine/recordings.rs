//! What a person reads of the recorded logs of Codex, OpenCode and Pi; and that no parser falls over, whatever it reads.

use std::{fs, path::PathBuf};

use courier_engine::{
    agent::Exit,
    model::{AgentKind, Item, Stream, Usage},
};
use proptest::prelude::*;

use crate::transcript::{chunks, page, read};

const KINDS: [AgentKind; 3] = [AgentKind::Codex, AgentKind::Opencode, AgentKind::Pi];

/// One recorded turn.
#[derive(Clone, Debug)]
struct Recording {
    agent: AgentKind,
    name: String,
    exit: Exit,
}

impl Recording {
    fn stream(&self, ending: &str) -> Vec<u8> {
        // One that was empty may have no file.
        fs::read(folder(self.agent).join(format!("{}.{ending}", self.name))).unwrap_or_default()
    }
}

fn folder(agent: AgentKind) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents").join(agent.code())
}

/// Those of the table in the fixtures' README, with what the agent's process ended with.
fn recordings(agent: AgentKind) -> Vec<Recording> {
    let readme = fs::read_to_string(folder(agent).join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, code) = (cells.next()?.to_owned(), cells.next()?.split(' ').next()?.parse::<i32>().ok()?);
        // A conversation over standard input is none of ours.
        let is_ours = !["app_server", "rpc"].contains(&name.as_str());
        let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
        is_ours.then_some(Recording { agent, name, exit })
    });
    let rows = rows.collect::<Vec<_>>();
    assert!(rows.len() > 20, "the table of {agent} was found");
    rows
}

/// What each recorded turn of an agent printed.
#[cfg(target_os = "linux")]
pub fn logs(agent: AgentKind) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder(agent)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension() == Some("jsonl".as_ref())).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

#[test]
fn every_recording_of_every_agent_reads_as_it_happened() {
    for recording in KINDS.into_iter().flat_map(recordings) {
        let (out, err) = (recording.stream("jsonl"), recording.stream("stderr"));
        let streams = [(Stream::Out, &*out), (Stream::Err, &*err)];
        let (items, outcome) = read(recording.agent, &streams, recording.exit, false);
        let unknown = items.iter().find(|item| matches!(item, Item::Unknown { .. }));
        assert!(unknown.is_none(), "{recording:?}: {unknown:?}");
        let place = format!("snapshots/{}", recording.agent);
        insta::with_settings!({ snapshot_path => place, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(recording.name.clone(), page(&items, &outcome));
        });
    }
}

#[test]
fn what_a_turn_of_a_thread_consumed_is_a_difference() {
    // The scripted model's steps, and a session's total before the turn.
    let total = |name: &str| {
        let recording = recordings(AgentKind::Codex).into_iter().find(|recording| recording.name == name).unwrap();
        let log = recording.stream("jsonl");
        let (_, outcome) = read(AgentKind::Codex, &[(Stream::Out, &log)], recording.exit, false);
        outcome.session_usage.unwrap()
    };
    let (first, second) = (total("cont_1_fresh"), total("cont_2_last"));
    let recording = recordings(AgentKind::Codex).into_iter().find(|one| one.name == "cont_2_last").unwrap();
    let mut parser = courier_engine::agent::agent(AgentKind::Codex).unwrap().parser(Some(first));
    let (now, mut deltas) = (courier_engine::model::Timestamp::from_millis(0), Vec::new());
    parser.read(Stream::Out, &recording.stream("jsonl"), now, &mut deltas);
    let outcome = parser.finish(Exit::Code(0), false, now, &mut deltas);
    let part = Usage { input: 1000, output: 50, cache_write: 0, cache_read: 0 };
    assert_eq!(outcome.usage, Some(part), "{first:?} {second:?}");
    assert_eq!(outcome.session_usage, Some(second));
}

fn any_recording() -> impl Strategy<Value = Recording> {
    prop::sample::select(KINDS.into_iter().flat_map(recordings).collect::<Vec<_>>())
}

/// What a damaged log is made of: some of it is cut off, some bytes are others.
fn damaged(log: &mut Vec<u8>, cut: usize, noise: &[(usize, u8)]) {
    log.truncate(cut % (log.len() + 1));
    for (at, byte) in noise {
        if !log.is_empty() {
            let at = at % log.len();
            log[at] = *byte;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn how_the_bytes_came_does_not_matter(
        recording in any_recording(),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let log = recording.stream("jsonl");
        let whole = read(recording.agent, &[(Stream::Out, &log)], recording.exit, false);
        prop_assert_eq!(read(recording.agent, &chunks(&log, &cuts), recording.exit, false), whole);
    }

    #[test]
    fn no_parser_falls_over_damage(
        recording in any_recording(),
        cut in any::<usize>(),
        noise in prop::collection::vec((any::<usize>(), any::<u8>()), 0..30),
        interrupted in any::<bool>(),
    ) {
        let mut log = recording.stream("jsonl");
        damaged(&mut log, cut, &noise);
        read(recording.agent, &[(Stream::Out, &log), (Stream::Err, &log)], recording.exit, interrupted);
    }
}
