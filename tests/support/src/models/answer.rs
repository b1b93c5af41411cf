//! What is said in one request, before any API puts it into words: thoughts, a text, and calls, as a series of beats.

use serde_json::Value;
use uuid::Uuid;

use super::{
    api::Api,
    conversation::Conversation,
    scenario::{Cause, Ending, Step, Text, UsageServed},
    tools::{self, Worded},
};

/// The answer to one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) model: Value,
    pub(super) thought: Option<&'static str>,
    pub(super) text: String,
    /// The calls in the agent's own words.
    pub(super) calls: Vec<Worded>,
    pub(super) usage: UsageServed,
    /// Whether the usage is part of a stream.
    pub(super) tells_usage: bool,
    ending: Ending,
    /// Characters in a piece of text.
    piece: usize,
}

/// What happens next in a streamed answer.
#[derive(Debug, PartialEq)]
pub(super) enum Beat {
    Begin,
    Thought(Part),
    Text(Part),
    /// By its place among the calls.
    Call(usize, Part),
    End,
    /// An error is told, and nothing follows.
    Fail(Cause),
    /// The connection breaks here, without a proper end.
    Break,
    /// Nothing more comes, and the connection stays open.
    Silence,
}

#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Begins,
    Piece(String),
    Ends,
}

/// A piece of a stream on the wire.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Bytes(String),
    Break,
    Silence,
}

impl Piece {
    /// An event that bears the name of its type.
    pub(super) fn named(value: &Value) -> Self {
        let name = value["type"].as_str().unwrap_or_default();
        Piece::Bytes(format!("event: {name}\ndata: {value}\n\n"))
    }

    /// An event without a name.
    pub(super) fn data(data: &dyn std::fmt::Display) -> Self {
        Piece::Bytes(format!("data: {data}\n\n"))
    }
}

impl Answer {
    pub(super) fn new(conversation: &Conversation, step: &Step, ending: Ending, usage: UsageServed) -> Self {
        let is_side_request = conversation.tools.is_empty();
        let text = match &step.text {
            _ if is_side_request => "Mock title".to_owned(),
            Text::Said(text) => text.clone(),
            Text::Closing => {
                let first: String =
                    conversation.said.first().map(|said| said.chars().take(120).collect()).unwrap_or_default();
                let count = conversation.said.len();
                format!("All done. I have seen {count} user message(s); the first was: \"{first}\"")
            }
        };
        let calls = if is_side_request { &[][..] } else { &step.calls };
        Answer {
            model: Value::Null,
            thought: step.thought.filter(|_| !is_side_request),
            text,
            calls: calls.iter().filter_map(|call| tools::in_words_of(call, conversation)).collect(),
            usage,
            tells_usage: true,
            ending,
            piece: 12,
        }
    }

    /// Fits the answer to what a request asks for.
    pub(super) fn to(mut self, api: Api, body: &Value) -> Self {
        self.model = body["model"].clone();
        self.thought = self.thought.filter(|_| api.wants_thoughts(body));
        self.tells_usage = api.tells_usage(body);
        self
    }

    pub(super) fn in_pieces_of(mut self, characters: usize) -> Self {
        self.piece = characters;
        self
    }

    /// Whether nothing breaks it.
    pub(super) fn has_end(&self) -> bool {
        self.ending == Ending::Whole
    }

    /// The answer in order, broken where the scenario breaks it.
    pub(super) fn beats(&self) -> Vec<Beat> {
        if self.ending == Ending::Silent {
            return vec![Beat::Silence];
        }
        let mut beats = vec![Beat::Begin];
        if let Some(thought) = self.thought {
            beats.extend(spoken(parts(thought, 0, self.piece)).map(Beat::Thought));
        }
        if let Ending::Fails(cause) = self.ending {
            beats.extend([Beat::Text(Part::Begins), Beat::Fail(cause)]);
            return beats;
        }
        beats.extend(spoken(parts(&self.text, 0, self.piece)).map(Beat::Text));
        if self.ending == Ending::BreaksInText {
            beats.pop();
            beats.push(Beat::Break);
            return beats;
        }
        for (index, call) in self.calls.iter().enumerate() {
            let mut arguments = parts(&call.written(), 90, 24);
            let breaks = self.ending == Ending::BreaksInCall;
            if breaks {
                arguments.truncate(arguments.len().div_ceil(2));
            }
            beats.extend(spoken(arguments).map(|part| Beat::Call(index, part)));
            if breaks {
                beats.pop();
                beats.push(Beat::Break);
                return beats;
            }
        }
        beats.push(Beat::End);
        beats
    }
}

fn spoken(pieces: Vec<String>) -> impl Iterator<Item = Part> {
    std::iter::once(Part::Begins).chain(pieces.into_iter().map(Part::Piece)).chain([Part::Ends])
}

/// Cuts a text into pieces of `size` characters, the first one of `first` where that is not 0.
fn parts(text: &str, first: usize, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let (head, rest) = characters.split_at(first.min(characters.len()));
    let chunks = std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(size));
    chunks.map(|chunk| chunk.iter().collect()).collect()
}

/// An id such as the APIs give: `toolu_0123456789abcdef`.
pub(super) fn id(kind: &str) -> String {
    format!("{kind}_{}", &Uuid::new_v4().simple().to_string()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::scenario;

    #[test]
    fn parts_keep_every_character() {
        assert_eq!(parts("abcdefg", 3, 2), ["abc", "de", "fg"]);
        assert_eq!(parts("✓日本", 0, 2), ["✓日", "本"]);
        assert!(parts("", 0, 12).is_empty());
    }

    #[test]
    fn a_broken_answer_has_no_end() {
        let tools = std::collections::BTreeMap::from([("bash".to_owned(), tools::Tool::default())]);
        let conversation = Conversation { tools, ..Conversation::default() };
        for name in ["drop", "droptool", "hang", "sse_error"] {
            let step = &scenario::steps(name)[0];
            let beats = Answer::new(&conversation, step, scenario::ending(name), UsageServed::default()).beats();
            assert!(!beats.contains(&Beat::End), "{name}: {beats:?}");
            assert!(matches!(beats.last(), Some(Beat::Break | Beat::Silence | Beat::Fail(_))), "{name}: {beats:?}");
        }
    }
}
