//! Numbered items and the changes made to them.

use crate::model::{Delta, Item};

/// Numbers a turn's items in the order they first appear.
#[derive(Debug, Default)]
pub struct Items {
    next: u32,
}

impl Items {
    /// Adds an item and returns its number.
    pub fn add(&mut self, item: Item, deltas: &mut Vec<Delta>) -> u32 {
        let at = self.next;
        self.next += 1;
        deltas.push(Delta::Put { at, item });
        at
    }

    /// Whether nothing was added after item `at`.
    pub fn is_newest(&self, at: u32) -> bool {
        at + 1 == self.next
    }
}

/// Applies changes to the items of one turn, as a reader of the stream does.
///
/// A change to an item that was never put is ignored: the parsers make none, and a reader need not fall over it.
pub fn fold(items: &mut Vec<Item>, deltas: impl IntoIterator<Item = Delta>) {
    for delta in deltas {
        match delta {
            Delta::Put { at, item } => {
                let at = at as usize;
                if at < items.len() {
                    items[at] = item;
                } else if at == items.len() {
                    items.push(item);
                }
            }
            Delta::Append { at, text: more } => {
                if let Some(Item::Text { text } | Item::Thinking { text } | Item::Output { text, .. }) =
                    items.get_mut(at as usize)
                {
                    text.push_str(&more);
                }
            }
        }
    }
}
