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
}

impl Stderr {
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
        let held = mem::take(&mut self.held);
        self.remember(&held);
        self.output.push(Stream::Err, &held, items, deltas);
        self.output.close();
    }

    /// All of it that is kept, also what was not shown yet.
    pub fn text(&mut self) -> &str {
        let held = mem::take(&mut self.held);
        self.remember(&held);
        self.held = held;
        self.text.trim()
    }

    /// Nothing more comes. What the failure's `message` says already is not shown twice.
    pub fn finish(&mut self, message: Option<&str>, items: &mut Items, deltas: &mut Vec<Delta>) {
        let is_told = message.is_some_and(|message| message.contains(self.text.trim()));
        if is_told && self.held.len() <= KEPT {
            self.held.clear();
        }
        self.show(items, deltas);
        self.output.finish(items, deltas);
    }

    fn remember(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.text.len()).min(bytes.len());
        self.text.push_str(&String::from_utf8_lossy(&bytes[..room]));
    }
}
