//! Text and thinking that stream in, and the whole blocks that confirm them.
//!
//! With `--include-partial-messages` a block comes twice: in pieces (`stream_event`), then whole (`assistant`, one
//! block per line, before its `content_block_stop`). The pieces are shown as they come; the whole block is matched to
//! them by message id and order, and changes nothing unless it differs. A block whose stream broke stays where it is
//! until the agent's next attempt at it, which takes its place.

use super::event::Abandoned;
use crate::{
    model::{Delta, Item},
    transcript::Items,
};

/// What a block of prose is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prose {
    Text,
    Thinking,
}

impl Prose {
    fn item(self, text: String) -> Item {
        match self {
            Self::Text => Item::Text { text },
            Self::Thinking => Item::Thinking { text },
        }
    }
}

/// The messages that are streaming: the main one, and one per sub-agent.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<OpenMessage>,
    /// Items whose block broke off, with whose they are: the next attempt replaces them.
    broken: Vec<(Option<String>, Prose, u32)>,
}

#[derive(Debug)]
struct OpenMessage {
    id: String,
    parent: Option<String>,
    blocks: Vec<OpenBlock>,
}

#[derive(Debug)]
struct OpenBlock {
    index: u32,
    prose: Prose,
    /// Its item, once there is anything to show.
    at: Option<u32>,
    text: String,
    confirmed: bool,
}

impl Blocks {
    /// `message_start`: whatever the same agent streamed before has ended.
    pub fn start_message(&mut self, id: &str, parent: Option<&str>) {
        self.open.retain(|message| message.parent.as_deref() != parent);
        self.open.push(OpenMessage { id: id.to_owned(), parent: parent.map(str::to_owned), blocks: Vec::new() });
    }

    /// `content_block_start` of a block of prose.
    pub fn start_block(&mut self, parent: Option<&str>, index: u32, prose: Prose) {
        if let Some(message) = self.message(parent) {
            message.blocks.retain(|block| block.index != index);
            message.blocks.push(OpenBlock { index, prose, at: None, text: String::new(), confirmed: false });
        }
    }

    /// `content_block_delta`: more of a block. Says what it is more of.
    pub fn append(
        &mut self,
        parent: Option<&str>,
        index: u32,
        more: &str,
        items: &mut Items,
        deltas: &mut Vec<Delta>,
    ) -> Option<Prose> {
        let Self { open, broken } = self;
        let message = open.iter_mut().find(|message| message.parent.as_deref() == parent)?;
        let block = message.blocks.iter_mut().rfind(|block| block.index == index && !block.confirmed)?;
        if more.is_empty() {
            return Some(block.prose);
        }
        block.text.push_str(more);
        match block.at {
            Some(at) => deltas.push(Delta::Append { at, text: more.to_owned() }),
            None => block.at = Some(place(broken, parent, block.prose, more, items, deltas)),
        }
        Some(block.prose)
    }

    /// A whole block: confirms the one that streamed, or adds it.
    pub fn whole(
        &mut self,
        message: Option<&str>,
        parent: Option<&str>,
        prose: Prose,
        text: &str,
        items: &mut Items,
        deltas: &mut Vec<Delta>,
    ) {
        let Self { open, broken } = self;
        let streamed = open
            .iter_mut()
            .find(|open| open.parent.as_deref() == parent && Some(open.id.as_str()) == message)
            .and_then(|open| open.blocks.iter_mut().find(|block| block.prose == prose && !block.confirmed));
        if let Some(block) = streamed {
            block.confirmed = true;
            let shown = std::mem::take(&mut block.text);
            match block.at {
                Some(_) if shown == text => {}
                Some(at) => deltas.push(Delta::Put { at, item: prose.item(text.to_owned()) }),
                None if text.is_empty() => {}
                None => _ = place(broken, parent, prose, text, items, deltas),
            }
        } else if !text.is_empty() {
            place(broken, parent, prose, text, items, deltas);
        }
    }

    /// The stream of a message broke: what was shown of these blocks waits for the next attempt.
    pub fn abandon(&mut self, abandoned: &Abandoned<'_>) {
        let Self { open, broken } = self;
        let Some(message) = open.iter_mut().find(|message| message.id == *abandoned.api_message_id) else { return };
        for block in &message.blocks {
            if let (Some(at), false, true) = (block.at, block.confirmed, block.index >= abandoned.from_block_index) {
                broken.push((message.parent.clone(), block.prose, at));
            }
        }
        message.blocks.retain(|block| block.index < abandoned.from_block_index);
    }

    /// The message the agent called by `parent` is streaming.
    pub fn current(&self, parent: Option<&str>) -> Option<&str> {
        self.open.iter().find(|message| message.parent.as_deref() == parent).map(|message| message.id.as_str())
    }

    fn message(&mut self, parent: Option<&str>) -> Option<&mut OpenMessage> {
        self.open.iter_mut().find(|message| message.parent.as_deref() == parent)
    }
}

/// Shows a block: in the place of one that broke off, or as a new item.
fn place(
    broken: &mut Vec<(Option<String>, Prose, u32)>,
    parent: Option<&str>,
    prose: Prose,
    text: &str,
    items: &mut Items,
    deltas: &mut Vec<Delta>,
) -> u32 {
    let item = prose.item(text.to_owned());
    match broken.iter().position(|(whose, what, _)| whose.as_deref() == parent && *what == prose) {
        Some(found) => {
            let (_, _, at) = broken.remove(found);
            deltas.push(Delta::Put { at, item });
            at
        }
        None => items.add(item, deltas),
    }
}
