//! From an agent's raw log to what a person reads: what the parsers of all agents share.
//!
//! An agent prints bytes. [`LineSplitter`] makes lines of them whatever the chunks were, the agent's own parser (in
//! `agent/`) reads each line once into borrowed types (`json`), and turns it into changes of numbered items
//! ([`Items`]). The rest here is what every parser needs on the way: tool calls named and summarised alike (`tool`),
//! edits as unified diffs (`diff`), text cut to what a screen can hold (`text`), output of commands in pieces
//! (`output`), times that are checked before they are believed (`time`).

mod diff;
mod items;
pub(crate) mod json;
mod lines;
mod output;
mod text;
mod time;
mod tool;

pub use items::{Items, fold};
pub use lines::{Line, LineSplitter, MAX_LINE};

pub(crate) use diff::{Hunk, between, from_hunks, patch};
pub(crate) use output::OutputText;
pub(crate) use text::{MAX_FIELD, cut, one_line, without_escapes};
pub(crate) use time::{parse_rfc3339, plausible_epoch};
pub(crate) use tool::{kind_of, phrase, relative, summarise};
