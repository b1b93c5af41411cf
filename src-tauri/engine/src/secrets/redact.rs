//! Redaction of assembled text. The keeper takes secrets out of the bytes before they reach the disk, but a secret can
//! be split over two deltas of an agent's output, and comes together only when a person would read it.

use std::collections::BTreeMap;

use courier_keeper::redact::{Patterns, Redactor};

use super::Secret;
use crate::model::{Delta, Item};

/// Takes secrets out of the items of one turn.
#[derive(Debug)]
pub(crate) struct TextRedactor {
    patterns: Patterns,
    /// One stream per item that grows.
    streams: BTreeMap<u32, Redactor>,
    newest: Option<u32>,
}

impl TextRedactor {
    /// Looks for these secrets.
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        Self { patterns: Patterns::new(secrets.iter().map(Secret::expose)), streams: BTreeMap::new(), newest: None }
    }

    /// The changes with every secret taken out. What may still become one is held back until more text comes, or until
    /// another item begins.
    pub(crate) fn clean(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let mut clean = Vec::with_capacity(deltas.len());
        for delta in deltas {
            match delta {
                Delta::Put { at, item } => {
                    if self.newest.is_none_or(|newest| at > newest) {
                        self.newest = Some(at);
                        clean.extend(self.release().into_iter().map(|(at, text)| Delta::Append { at, text }));
                    }
                    clean.push(Delta::Put { at, item: self.item(at, item) });
                }
                Delta::Append { at, text } => {
                    let text = self.text(at, &text);
                    if !text.is_empty() {
                        clean.push(Delta::Append { at, text });
                    }
                }
            }
        }
        clean
    }

    /// Text added to item `at`: what of it is certain now.
    fn text(&mut self, at: u32, text: &str) -> String {
        let stream = self.streams.entry(at).or_insert_with(|| Redactor::new(self.patterns.clone()));
        let mut clean = Vec::with_capacity(text.len());
        stream.push(text.as_bytes(), &mut clean);
        into_text(clean)
    }

    /// A whole item: every text in it.
    fn item(&mut self, at: u32, mut item: Item) -> Item {
        self.streams.remove(&at);
        if let Item::Text { text } | Item::Thinking { text } | Item::Output { text, .. } = &mut item {
            // The item may grow, and a secret may begin at its end.
            *text = self.text(at, text);
            return item;
        }
        item.each_text(&mut |text| {
            if self.patterns.is_in(text.as_bytes()) {
                *text = into_text(self.patterns.redact(text.as_bytes()));
            }
        });
        item
    }

    /// No more text comes for what there is: what was held back.
    pub(crate) fn release(&mut self) -> Vec<(u32, String)> {
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
    use crate::model::{ErrorKind, FileDiff, NoticeLevel, ProgressEntry, ProgressState, ToolKind, ToolState};

    fn append(text: &str) -> Vec<Delta> {
        vec![Delta::Append { at: 0, text: text.to_owned() }]
    }

    fn shown(deltas: &[Delta]) -> String {
        deltas
            .iter()
            .map(|delta| match delta {
                Delta::Put { item: Item::Text { text }, .. } | Delta::Append { text, .. } => text.as_str(),
                Delta::Put { .. } => "",
            })
            .collect()
    }

    #[test]
    fn a_secret_split_over_two_deltas_is_found() {
        let mut redactor = TextRedactor::new(&[Secret::new("sk-ant-canary-0123456789")]);
        let mut text = shown(&redactor.clean(append("the key is sk-ant-can")));
        assert_eq!(text, "the key is ", "what may become a secret is held back");
        text += &shown(&redactor.clean(append("ary-0123456789, keep it")));
        assert_eq!(text, "the key is [redacted], keep it");
    }

    #[test]
    fn a_secret_is_found_in_every_text_of_an_item() {
        let secret = "sk-ant-\"canary\"/0123456789";
        let mut redactor = TextRedactor::new(&[Secret::new(secret)]);
        let diff = || FileDiff { path: secret.into(), added: 1, removed: 0, patch: format!("+{secret}\n") };
        let tool = Item::Tool {
            call: secret.into(),
            tool: ToolKind::Command,
            name: secret.into(),
            summary: format!("echo {secret}"),
            input: serde_json::json!({ "command": format!("echo {secret}") }).to_string(),
            state: ToolState::Done,
            result: Some(format!("{secret}\n{}", serde_json::json!(secret))),
            exit_code: Some(0),
            duration_ms: None,
            diff: Some(diff()),
        };
        let entry = ProgressEntry { text: secret.into(), state: ProgressState::Active };
        let items = [
            tool,
            Item::Notice { level: NoticeLevel::Info, text: secret.into(), retry_at: None },
            Item::Error { error: ErrorKind::Other, message: secret.into(), retry_at: None },
            Item::Progress { entries: vec![entry] },
            Item::Unknown { raw: serde_json::json!({ "key": secret }).to_string() },
        ];
        for (at, item) in (0..).zip(items) {
            let clean = redactor.clean(vec![Delta::Put { at, item }]);
            assert!(!format!("{clean:?}").contains("canary"), "{clean:?}");
            assert!(format!("{clean:?}").contains("[redacted]"), "{clean:?}");
        }
    }

    #[test]
    fn text_that_only_looked_like_a_secret_is_shown_once_another_item_begins() {
        let mut redactor = TextRedactor::new(&[Secret::new("sk-ant-canary-0123456789")]);
        let begin = |at, text: &str| vec![Delta::Put { at, item: Item::Text { text: text.to_owned() } }];
        assert_eq!(shown(&redactor.clean(begin(0, "run the tests"))), "run the test");
        assert_eq!(shown(&redactor.clean(begin(1, "now"))), "snow");
        assert!(redactor.release().is_empty());
    }
}
