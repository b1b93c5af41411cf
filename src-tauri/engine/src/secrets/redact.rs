//! Redaction of assembled text. The keeper takes secrets out of the bytes before they reach the disk, but a secret can
//! be split over two deltas of an agent's output, and comes together only when a person would read it.

use std::collections::BTreeMap;

use courier_keeper::redact::{Patterns, Redactor};

use super::Secret;
use crate::model::Item;

/// Takes secrets out of the items of one turn.
#[derive(Debug)]
pub(crate) struct TextRedactor {
    patterns: Patterns,
    /// One stream per item that grows.
    streams: BTreeMap<u32, Redactor>,
}

impl TextRedactor {
    /// Looks for these secrets.
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        Self { patterns: Patterns::new(secrets.iter().map(Secret::expose)), streams: BTreeMap::new() }
    }

    /// Text added to item `at`: what of it is certain now. The rest follows with the next text, or in `finish`.
    pub(crate) fn text(&mut self, at: u32, text: &str) -> String {
        let stream = self.streams.entry(at).or_insert_with(|| Redactor::new(self.patterns.clone()));
        let mut clean = Vec::with_capacity(text.len());
        stream.push(text.as_bytes(), &mut clean);
        into_text(clean)
    }

    /// A whole item: every text in it.
    pub(crate) fn item(&mut self, at: u32, item: Item) -> Item {
        self.streams.remove(&at);
        let growing = matches!(item, Item::Text { .. } | Item::Thinking { .. } | Item::Output { .. });
        if growing {
            // The item may grow, and a secret may begin at its end.
            let mut item = item;
            if let Item::Text { text } | Item::Thinking { text } | Item::Output { text, .. } = &mut item {
                *text = self.text(at, text);
            }
            return item;
        }
        let json = serde_json::to_vec(&item).expect("items are plain data");
        let clean = self.patterns.redact(&json);
        if clean == json {
            return item;
        }
        serde_json::from_slice(&clean).unwrap_or_else(|_| Item::Unknown { raw: into_text(clean) })
    }

    /// The turn is over: what was held back.
    pub(crate) fn finish(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.streams)
            .into_iter()
            .map(|(at, mut stream)| {
                let mut clean = Vec::new();
                stream.finish(&mut clean);
                (at, into_text(clean))
            })
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_split_over_two_deltas_is_found() {
        let mut redactor = TextRedactor::new(&[Secret::new("sk-ant-canary-0123456789")]);
        let mut shown = redactor.text(0, "the key is sk-ant-can");
        assert!(!shown.contains("sk-ant"), "what may become a secret is held back: {shown}");
        shown += &redactor.text(0, "ary-0123456789, keep it");
        shown += &redactor.finish().into_iter().map(|(_, text)| text).collect::<String>();
        assert_eq!(shown, "the key is [redacted], keep it");
    }

    #[test]
    fn text_that_only_looked_like_a_secret_is_shown_in_the_end() {
        let mut redactor = TextRedactor::new(&[Secret::new("sk-ant-canary-0123456789")]);
        assert_eq!(redactor.text(3, "ends in sk-"), "ends in ");
        assert_eq!(redactor.finish(), [(3, "sk-".to_owned())]);
    }
}
