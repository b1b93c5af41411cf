//! What a person reads of the recorded logs of real agents, and that it does not depend on how the bytes came.

use std::{fmt::Write, fs, path::PathBuf};

use courier_engine::{
    agent::{self, Exit, Outcome},
    model::{AgentKind, Item, Stream, Timestamp, Usage},
    transcript::fold,
};
use proptest::prelude::*;

/// When every test reads: a little after the recordings were made.
const NOW: i64 = 1_796_000_000_000;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents/claude")
}

/// The recordings of the table in the fixtures' README, with what the agent's process ended with.
fn recordings() -> Vec<(String, Exit)> {
    let readme = fs::read_to_string(fixtures().join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, code) = (cells.next()?, cells.next()?.parse::<i32>().ok()?);
        let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
        Some((name.to_owned(), exit))
    });
    let rows = rows.collect::<Vec<_>>();
    assert!(rows.len() > 40, "the table was found");
    rows
}

/// One recorded stream; one that was empty may have no file.
fn recorded(name: &str) -> Vec<u8> {
    fs::read(fixtures().join(name)).unwrap_or_default()
}

pub fn read(kind: AgentKind, chunks: &[(Stream, &[u8])], exit: Exit, interrupted: bool) -> (Vec<Item>, Outcome) {
    let mut parser = agent::agent(kind).expect("it is in the registry").parser(None);
    let (mut items, mut deltas) = (Vec::new(), Vec::new());
    let now = Timestamp::from_millis(NOW);
    for (stream, bytes) in chunks {
        parser.read(*stream, bytes, now, &mut deltas);
        fold(&mut items, deltas.drain(..));
        let _ = parser.headline();
    }
    let outcome = parser.finish(exit, interrupted, now, &mut deltas);
    fold(&mut items, deltas);
    (items, outcome)
}

fn claude(out: &[u8], err: &[u8], exit: Exit) -> (Vec<Item>, Outcome) {
    read(AgentKind::Claude, &[(Stream::Out, out), (Stream::Err, err)], exit, false)
}

/// As `courier transcript` prints it, except that a long field is cut and the outcome has its message.
pub fn page(items: &[Item], outcome: &Outcome) -> String {
    let mut page = String::new();
    for item in items {
        let line = serde_json::to_string(item).unwrap();
        let end = line.floor_char_boundary(1200);
        let rest = if end < line.len() { format!(" … {} more bytes", line.len() - end) } else { String::new() };
        writeln!(page, "{}{rest}", &line[..end]).unwrap();
    }
    let kind = outcome.error.as_ref().map(|failure| failure.kind.code());
    let usage = outcome.usage.map(|usage| {
        let Usage { input, output, cache_write, cache_read } = usage;
        format!("{input} in, {output} out, {cache_write} written, {cache_read} read")
    });
    writeln!(page, "outcome: {}", kind.unwrap_or("completed")).unwrap();
    writeln!(page, "session: {}", outcome.session_id.as_deref().unwrap_or("unknown")).unwrap();
    write!(page, "usage: {}", usage.as_deref().unwrap_or("unknown")).unwrap();
    page
}

#[test]
fn every_recording_reads_as_it_happened() {
    for (name, exit) in recordings() {
        let (items, outcome) = claude(&recorded(&format!("{name}.jsonl")), &recorded(&format!("{name}.stderr")), exit);
        insta::with_settings!({ snapshot_path => "snapshots/claude", prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, page(&items, &outcome));
        });
    }
}

#[test]
fn every_file_is_in_the_table_and_says_nothing_unknown() {
    let known: Vec<String> = recordings().into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".jsonl").filter(|name| !name.ends_with(".stdin")) else { continue };
        assert!(known.iter().any(|known| known == name), "{name}");
        let (items, _) = claude(&recorded(&format!("{name}.jsonl")), b"", Exit::Code(0));
        let unknown = items.iter().find(|item| matches!(item, Item::Unknown { .. }));
        assert!(unknown.is_none(), "{name}: {unknown:?}");
    }
}

#[test]
fn usage_is_what_the_model_served() {
    // The scripted model serves at step k: input 1000 + 100k, output 50 + k, read from cache 200k; written at step 0: 300.
    let served = |steps: u64| Usage {
        input: (0..steps).map(|k| 1000 + 100 * k).sum(),
        output: (0..steps).map(|k| 50 + k).sum(),
        cache_write: 300,
        cache_read: (0..steps).map(|k| 200 * k).sum(),
    };
    for (name, steps) in [
        ("happy", 3),
        ("partial", 3),
        ("flaky", 3),
        ("cont_1_fresh", 3),
        ("cont_2_continue", 1),
        ("cont_3_resume", 1),
        ("toolerr", 2),
        ("bidi_queue", 2),
        ("maxturns", 1),
    ] {
        let (_, outcome) = claude(&recorded(&format!("{name}.jsonl")), b"", Exit::Code(0));
        assert_eq!(outcome.usage, Some(served(steps)), "{name}");
    }
    // Without its result the messages' own reports stand in: a stream tells the end's, whole blocks only the start's.
    let without_result = |name: &str| {
        let log = String::from_utf8(recorded(name)).unwrap();
        let lines = log.lines().filter(|line| !line.contains("\"type\":\"result\"")).collect::<Vec<_>>();
        claude(lines.join("\n").as_bytes(), b"", Exit::Signal(9)).1.usage
    };
    assert_eq!(without_result("partial.jsonl"), Some(served(3)));
    assert_eq!(without_result("happy.jsonl"), Some(Usage { output: 3, ..served(3) }));
}

#[test]
fn a_streamed_answer_is_put_once_and_only_appended_to() {
    use courier_engine::model::Delta;
    let mut parser = agent::agent(AgentKind::Claude).expect("it is in the registry").parser(None);
    let mut deltas = Vec::new();
    parser.read(Stream::Out, &recorded("partial.jsonl"), Timestamp::from_millis(NOW), &mut deltas);
    let mut prose = 0;
    for delta in &deltas {
        let at = match delta {
            Delta::Put { at, item: Item::Text { .. } | Item::Thinking { .. } } => *at,
            _ => continue,
        };
        prose += 1;
        let puts = deltas.iter().filter(|delta| matches!(delta, Delta::Put { at: other, .. } if *other == at)).count();
        assert_eq!(puts, 1, "the whole block that follows changes nothing");
    }
    assert_eq!(prose, 5, "three texts and two thoughts");
    assert!(deltas.iter().filter(|delta| matches!(delta, Delta::Append { .. })).count() > 10);
}

#[test]
fn a_recording_that_stops_in_the_middle_is_not_completed() {
    let log = recorded("happy.jsonl");
    let end_of_last_line = log.len() - 2;
    for cut in (0..end_of_last_line).step_by(997) {
        let (_, outcome) = claude(&log[..cut], b"", Exit::Code(0));
        assert!(outcome.error.is_some(), "cut at {cut}");
    }
}

#[test]
fn an_interrupted_turn_keeps_what_was_printed() {
    let log = recorded("sig_slow_sigterm.jsonl");
    for exit in [Exit::Code(143), Exit::Signal(15), Exit::Signal(9), Exit::Unknown] {
        let (items, outcome) = read(AgentKind::Claude, &[(Stream::Out, &log)], exit, true);
        assert!(matches!(&items[0], Item::Text { text } if text.starts_with("word0 word1")), "{items:?}");
        assert_eq!(outcome.error.map(|failure| failure.kind.code()), Some("interrupted"));
        assert!(outcome.session_id.is_some());
    }
}

#[test]
fn what_is_not_understood_is_kept() {
    let log = b"not json\n{\"type\":\"new_kind\",\"a\":1}\n[]\n{\"type\":\"system\",\"subtype\":\"new\"}\n\xff\xfe\n\n";
    let (items, _) = claude(log, b"", Exit::Code(0));
    let raw = items.iter().filter(|item| matches!(item, Item::Unknown { .. })).count();
    assert_eq!(raw, 5, "{items:?}");
}

#[test]
fn counts_beyond_all_measure_are_no_more_than_the_most() {
    let most = format!(r#"{{"inputTokens":{0},"outputTokens":1,"cacheReadInputTokens":{0}}}"#, u64::MAX);
    let line = format!(
        r#"{{"type":"result","subtype":"success","usage":{{"input_tokens":1}},"model_usage_since_last_result":{{"m":{most}}}}}"#
    );
    let (_, outcome) = claude(line.as_bytes(), b"", Exit::Code(0));
    assert_eq!(outcome.usage.map(|usage| usage.cache_read), Some(u64::MAX));
}

#[test]
fn text_cut_in_the_middle_of_an_emoji_is_still_read() {
    let line = br#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"half \ud83d"}]},"session_id":"s"}"#;
    let (items, _) = claude(line, b"", Exit::Code(0));
    assert_eq!(items[0], Item::Text { text: "half \u{FFFD}".to_owned() });
}

/// Cuts `bytes` at these places, in any order.
pub fn chunks<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<(Stream, &'a [u8])> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let (mut chunks, mut from) = (Vec::new(), 0);
    for cut in cuts.into_iter().chain([bytes.len()]) {
        chunks.push((Stream::Out, &bytes[from..cut]));
        from = cut;
    }
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn chunks_do_not_matter(which in any::<prop::sample::Index>(), cuts in prop::collection::vec(any::<usize>(), 0..40)) {
        let recordings = recordings();
        let (name, exit) = which.get(&recordings);
        let log = recorded(&format!("{name}.jsonl"));
        let whole = read(AgentKind::Claude, &[(Stream::Out, &log)], *exit, false);
        prop_assert_eq!(read(AgentKind::Claude, &chunks(&log, &cuts), *exit, false), whole);
    }

    #[test]
    fn damage_does_not_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec((any::<usize>(), any::<u8>()), 0..30),
        code in -64i32..256,
        interrupted in any::<bool>(),
    ) {
        let recordings = recordings();
        let mut log = recorded(&format!("{}.jsonl", which.get(&recordings).0));
        log.truncate(cut.index(log.len() + 1));
        for (at, byte) in noise {
            if !log.is_empty() {
                let at = at % log.len();
                log[at] = byte;
            }
        }
        let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
        read(AgentKind::Claude, &[(Stream::Out, &log), (Stream::Err, &log)], exit, interrupted);
    }

    #[test]
    fn shuffled_lines_do_not_panic(
        which in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        order in prop::collection::vec(any::<usize>(), 0..300),
    ) {
        let recordings = recordings();
        let logs: Vec<_> =
            which.iter().map(|which| recorded(&format!("{}.jsonl", which.get(&recordings).0))).collect();
        let lines: Vec<&[u8]> = logs.iter().flat_map(|log| log.split_inclusive(|byte| *byte == b'\n')).collect();
        if !lines.is_empty() {
            let shuffled: Vec<u8> = order.iter().flat_map(|at| lines[at % lines.len()].to_vec()).collect();
            read(AgentKind::Claude, &chunks(&shuffled, &order[..order.len().min(9)]), Exit::Code(0), false);
        }
    }
}
