//! Standard error: shown between the agent's events, and kept to explain a failure.

use std::mem;

use crate::{
    model::{Delta, Stream},
    transcript::{Items, OutputText, without_escapes},
};

/// How much of it is kept to explain a failure, in bytes.
const KEPT: usize = 8 * 1024;

/// What an agent prints on standard error. What is shown of it depends only on the bytes and on the events between them,
/// not on how the bytes came.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    /// What no item shows yet.
    held: Vec<u8>,
    /// More was printed than explains anything: it is shown as it comes.
    is_long: bool,
    /// The beginning of all of it.
    beginning: Vec<u8>,
    output: OutputText,
    /// Tells lines that are not shown.
    is_noise: Option<fn(&str) -> bool>,
    /// A line whose end has not come, where lines are told apart.
    line: Vec<u8>,
    /// The line that goes on was kept so far.
    is_within: bool,
}

impl Stderr {
    /// One that leaves out lines which tell nothing.
    pub fn without(is_noise: fn(&str) -> bool) -> Self {
        Self { is_noise: Some(is_noise), ..Self::default() }
    }

    /// Keeps it until the next event of the agent: where it explains why the agent ended, it becomes the error's text. Too
    /// much for an explanation is shown at once.
    pub fn hold(&mut self, bytes: &[u8], items: &mut Items, deltas: &mut Vec<Delta>) {
        if self.is_noise.is_none() {
            self.keep(bytes);
        } else {
            let mut lines = mem::take(&mut self.line);
            lines.extend_from_slice(bytes);
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                if line.ends_with(b"\n") {
                    self.keep_line(line);
                } else if self.is_within || line.len() > KEPT {
                    // It is longer than any we would leave out.
                    self.is_within = true;
                    self.keep(line);
                } else {
                    self.line = line.to_vec();
                }
            }
        }
        if self.is_long || self.held.len() > KEPT {
            self.is_long = true;
            self.flush(items, deltas);
        }
    }

    /// Shows what is held: the agent went on.
    pub fn show(&mut self, items: &mut Items, deltas: &mut Vec<Delta>) {
        self.end_line();
        self.flush(items, deltas);
        self.output.close();
        self.is_long = false;
    }

    /// Its beginning, also what was not shown yet, without colours.
    pub fn text(&mut self) -> String {
        self.end_line();
        without_escapes(&String::from_utf8_lossy(&self.beginning)).trim().to_owned()
    }

    /// Nothing more comes. What the failure's `message` says already is not shown twice.
    pub fn finish(&mut self, message: Option<&str>, items: &mut Items, deltas: &mut Vec<Delta>) {
        let text = self.text();
        let is_told = !text.is_empty() && message.is_some_and(|message| message.contains(&text));
        if is_told && !self.is_long {
            self.held.clear();
        }
        self.flush(items, deltas);
        self.output.finish(items, deltas);
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        self.keep_line(&line);
    }

    fn keep_line(&mut self, line: &[u8]) {
        let is_kept = mem::take(&mut self.is_within) || line.len() > KEPT;
        if is_kept || self.is_noise.is_none_or(|is_noise| !is_noise(&String::from_utf8_lossy(line))) {
            self.keep(line);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.beginning.len()).min(bytes.len());
        self.beginning.extend_from_slice(&bytes[..room]);
        self.held.extend_from_slice(bytes);
    }

    fn flush(&mut self, items: &mut Items, deltas: &mut Vec<Delta>) {
        let held = mem::take(&mut self.held);
        self.output.push(Stream::Err, &held, items, deltas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Item, transcript::fold};

    fn shown(told: &[&str], message: Option<&str>) -> Vec<Item> {
        let (mut stderr, mut shown) = (Stderr::without(|line| line.starts_with("noise")), Items::default());
        let (mut items, mut deltas) = (Vec::new(), Vec::new());
        for part in told {
            stderr.hold(part.as_bytes(), &mut shown, &mut deltas);
        }
        stderr.finish(message, &mut shown, &mut deltas);
        fold(&mut items, deltas);
        items
    }

    #[test]
    fn what_a_failure_does_not_say_already_is_shown_beside_it() {
        assert_eq!(shown(&["no room\n"], Some("It failed: no room")).len(), 0);
        let items = shown(&["a warn", "ing\nnoise\n"], Some("It failed"));
        assert!(matches!(&items[..], [Item::Output { text, .. }] if text == "a warning\n"), "{items:?}");
        assert_eq!(shown(&["noise\n"], None).len(), 0);
    }

    #[test]
    fn what_is_long_is_shown_the_same_however_it_came() {
        let long = "größer\nnoise 1\n".repeat(2000) + &"x".repeat(3 * KEPT) + "\nnoise 2\nend";
        let whole = shown(&[&long], None);
        assert!(whole.len() > 2, "in pieces a window can draw");
        let texts: String =
            whole.iter().map(|item| if let Item::Output { text, .. } = item { text } else { "" }).collect();
        assert!(!texts.contains("noise") && texts.ends_with("\nend"), "{}", &texts[texts.len() - 40..]);
        for size in [3, 8191, 8192, 8193] {
            let mut parts = Vec::new();
            let mut rest = long.as_str();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.ceil_char_boundary(size));
                parts.push(part);
                rest = after;
            }
            assert_eq!(shown(&parts, None), whole, "parts of {size}");
        }
    }
}
