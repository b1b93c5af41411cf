//! A long turn, made of what Claude Code was recorded to print: thinking and text in pieces, whole messages, tool calls,
//! edits, results, some of them long. Ids are made unique, so that no item stands in for another.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use serde_json::{Value, json};

/// What the recording is called in its folder.
pub const NAME: &str = "recording.jsonl";

/// What one round of the conversation is made of: a third of the bytes are short pieces, the rest are long results.
const PARTS: [&str; 6] = ["partial", "longout", "longout", "stdin_edits", "longout", "longout"];
/// What an agent says when it explains itself, in the pieces in which it comes.
const ANSWER: &str = "The parser keeps the *first* error it meets, so a line that is cut in two is reported once: see \
    `src/lines.rs`.\n\n```rust\nfn next(&mut self) -> Option<Line<'_>> {\n    self.buffer.split_once('\\n')\n}\n```\n\n";
/// How many pieces such an answer has.
const PIECES: usize = 75;

/// Writes at least `size` bytes and returns the number of lines.
pub fn write(path: &Path, size: usize) -> usize {
    let lines = |name| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/agents/claude/");
        std::fs::read_to_string(format!("{folder}{name}.jsonl")).expect("a recording of the repository")
    };
    let parts = PARTS.map(lines);
    let is_frame = |line: &str| line.contains(r#""subtype":"init""#) || line.contains(r#""type":"result""#);
    let mut round = Vec::new();
    for (place, part) in (0_u32..).zip(&parts) {
        // A part that comes twice has calls of its own each time.
        let own =
            |line: &str| line.replace("msg_", &format!("msg_{place}")).replace("toolu_", &format!("toolu_{place}"));
        round.extend(part.lines().filter(|line| !is_frame(line)).map(own));
    }
    round.extend(answer(&parts[0]));
    let first = parts[0].lines().next().expect("it begins");
    let last = parts[0].lines().last().expect("it ends");

    let mut file = BufWriter::new(File::create(path).expect("a file in the temporary folder"));
    let (mut written, mut count) = (0, 0);
    let mut add = |line: &str| {
        writeln!(file, "{line}").expect("space in the temporary folder");
        written += line.len() + 1;
        count += 1;
        written
    };
    add(first);
    'rounds: for number in 0_u32.. {
        for line in &round {
            if add(&numbered(line, number)) >= size - last.len() {
                break 'rounds;
            }
        }
    }
    add(last);
    file.flush().expect("space in the temporary folder");
    count
}

/// A long answer: the pieces of one text, and then the whole of it.
fn answer(recording: &str) -> Vec<String> {
    let lines: Vec<Value> = recording.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let event = |kind: &str| lines.iter().find(|line| line["event"]["type"] == kind).expect("it is recorded").clone();
    let mut start = event("message_start");
    let id = "msg_00000000a45ce400";
    start["event"]["message"]["id"] = json!(id);
    let mut begin = event("content_block_start");
    begin["event"]["index"] = json!(0);
    begin["event"]["content_block"] = json!({"type": "text", "text": ""});
    let mut all = vec![start, begin];
    let text: Vec<char> = ANSWER.repeat(PIECES * 12 / ANSWER.len() + 1).chars().collect();
    for piece in text.chunks(12) {
        let mut delta = event("content_block_delta");
        delta["event"]["index"] = json!(0);
        delta["event"]["delta"] = json!({"type": "text_delta", "text": piece.iter().collect::<String>()});
        all.push(delta);
    }
    let said = |line: &&Value| line["type"] == "assistant" && line["message"]["content"][0]["type"] == "text";
    let mut whole = lines.iter().find(said).expect("it is recorded").clone();
    whole["message"]["id"] = json!(id);
    whole["message"]["content"][0]["text"] = json!(text.iter().collect::<String>());
    all.push(whole);
    all.extend([event("content_block_stop"), event("message_delta"), event("message_stop")]);
    all.iter().map(Value::to_string).collect()
}

/// The line with every id in it made the round's own.
fn numbered(line: &str, round: u32) -> String {
    let (mut line, number) = (line.to_owned(), format!("{round:08x}"));
    for mark in ["msg_", "toolu_", r#""uuid":""#] {
        let mut from = 0;
        while let Some(found) = line[from..].find(mark) {
            let at = from + found + mark.len();
            from = at;
            // After the part's own digit.
            if line.get(at + 1..at + 9).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
                line.replace_range(at + 1..at + 9, &number);
            }
        }
    }
    line
}
