//! Standard error: shown between the agent's events, and kept to explain a failure.

use std::mem;

use crate::{
    model::{Delta, Stream},
    transcript::{Items, OutputText},
};

/// How much of it is kept to explain a failure, in bytes.
const KEPT: usize = 8 * 1024;

/// What an agent prints on standard error.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    /// What no item shows yet.
    held: Vec<u8>,
    /// Its beginning, for an explanation.
    text: String,
    output: OutputText,
    /// Tells lines that are not shown.
    is_noise: Option<fn(&str) -> bool>,
}

impl Stderr {
    /// One that leaves out lines which tell nothing.
    pub fn without(is_noise: fn(&str) -> bool) -> Self {
        Self { is_noise: Some(is_noise), ..Self::default() }
    }

    /// Keeps it until the next event of the agent: where it explains why the agent ended, it becomes the error's text.
    pub fn hold(&mut self, bytes: &[u8], items: &mut Items, deltas: &mut Vec<Delta>) {
        self.held.extend_from_slice(bytes);
        if self.held.len() > KEPT {
            self.show(items, deltas);
        }
    }

    /// Shows what was held.
    pub fn show(&mut self, items: &mut Items, deltas: &mut Vec<Delta>) {
        if self.held.is_empty() {
            return;
        }
        let held = self.take();
        if held.is_empty() {
            return;
        }
        let more = self.more(&held);
        self.text.push_str(&more);
        self.output.push(Stream::Err, &held, items, deltas);
        self.output.close();
    }

    /// All of it that is kept, also what was not shown yet.
    pub fn text(&mut self) -> String {
        self.held = self.take();
        format!("{}{}", self.text, self.more(&self.held)).trim().to_owned()
    }

    /// Nothing more comes. What the failure's `message` says already is not shown twice.
    pub fn finish(&mut self, message: Option<&str>, items: &mut Items, deltas: &mut Vec<Delta>) {
        let text = self.text();
        let is_told = !text.is_empty() && message.is_some_and(|message| message.contains(&text));
        if is_told && self.held.len() <= KEPT {
            self.held.clear();
        }
        self.show(items, deltas);
        self.output.finish(items, deltas);
    }

    fn take(&mut self) -> Vec<u8> {
        let held = mem::take(&mut self.held);
        let Some(is_noise) = self.is_noise else { return held };
        let is_told = |line: &&[u8]| !is_noise(&String::from_utf8_lossy(line));
        held.split_inclusive(|byte| *byte == b'\n').filter(is_told).collect::<Vec<_>>().concat()
    }

    /// What of these bytes there is room for.
    fn more(&self, bytes: &[u8]) -> String {
        let room = KEPT.saturating_sub(self.text.len()).min(bytes.len());
        String::from_utf8_lossy(&bytes[..room]).into_owned()
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
}
