//! From a turn's bytes to rows: what was read is parsed at once and stored in one transaction about every 30 ms,
//! together with the offset up to which it was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    agent::{Exit, Outcome, Parser},
    model::{Delta, Item, SandboxId, Stream, Timestamp},
    provider::Offsets,
    secrets::TextRedactor,
    store::{self, ItemRow, Store, TranscriptBatch, TurnRow, items, log, sandboxes, turns},
};

/// How long bytes wait for others before they are stored and shown.
pub(super) const COALESCE: Duration = Duration::from_millis(30);
/// How many bytes are stored at once at most.
const BATCH: usize = 1 << 20;
/// How many items that may still grow are kept in memory.
const GROWING: usize = 64;

/// Reads one turn's output into the store.
#[derive(Debug)]
pub(super) struct Ingest {
    pub turn: TurnRow,
    parser: Box<dyn Parser>,
    redactor: TextRedactor,
    offsets: Offsets,
    /// The place in the conversation of each item the parser has made.
    seqs: Vec<i64>,
    next_seq: i64,
    /// Items that text may still be added to.
    growing: BTreeMap<u32, Item>,
    pending: Pending,
    headline: Option<String>,
}

/// What was read and is not stored yet.
#[derive(Debug, Default)]
struct Pending {
    raw: Vec<(Stream, Vec<u8>)>,
    length: usize,
    dirty: BTreeSet<u32>,
    /// Items that were put anew, and so are shown whole.
    whole: BTreeSet<u32>,
    appends: BTreeMap<u32, String>,
    items: BTreeMap<u32, (Item, Timestamp)>,
}

impl Ingest {
    /// Begins to read a turn, or goes on where an earlier life of the app stopped: the parser reads again what is
    /// stored, so that it knows what it knew, and its items keep their places.
    pub(super) async fn open(
        store: &Store,
        turn: TurnRow,
        mut parser: Box<dyn Parser>,
        mut redactor: TextRedactor,
        now: Timestamp,
    ) -> Result<Self, store::Error> {
        let (id, sandbox) = (turn.id, turn.sandbox);
        let (parser, redactor, growing, seqs, next_seq) = store
            .read(move |connection| {
                let mut deltas = Vec::new();
                let mut growing = BTreeMap::new();
                log::replay(connection, id, |stream, bytes| {
                    parser.read(stream, bytes, now, &mut deltas);
                    for delta in redactor.clean(std::mem::take(&mut deltas)) {
                        grow(&mut growing, &delta);
                        trim(&mut growing);
                    }
                })?;
                let seqs = items::parsed_seqs(connection, id)?;
                Ok::<_, store::Error>((parser, redactor, growing, seqs, items::next_seq(connection, sandbox)?))
            })
            .await?;
        let offsets = turn.offsets;
        Ok(Self {
            turn,
            parser,
            redactor,
            offsets,
            seqs,
            next_seq,
            growing,
            pending: Pending::default(),
            headline: None,
        })
    }

    /// A place in the conversation for an item of the engine's own. Call it when nothing waits to be stored.
    pub(super) fn take_seq(&mut self) -> i64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// How much of the spool has been read.
    pub(super) fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Whether something waits to be stored.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.length > 0 || !self.pending.dirty.is_empty()
    }

    /// Whether so much waits that it must be stored now.
    pub(super) fn is_full(&self) -> bool {
        self.pending.length >= BATCH
    }

    /// Takes bytes from the spool.
    pub(super) fn read(&mut self, stream: Stream, bytes: Vec<u8>, now: Timestamp) {
        let length = bytes.len();
        match stream {
            Stream::Out => self.offsets.out += length as u64,
            Stream::Err => self.offsets.err += length as u64,
        }
        let mut deltas = Vec::new();
        self.parser.read(stream, &bytes, now, &mut deltas);
        self.take(deltas, now);
        self.pending.length += length;
        match self.pending.raw.last_mut() {
            Some((last, buffer)) if *last == stream => buffer.extend_from_slice(&bytes),
            _ => self.pending.raw.push((stream, bytes)),
        }
    }

    /// The process has ended and everything was read.
    pub(super) fn finish(&mut self, exit: Exit, now: Timestamp) -> Outcome {
        let mut deltas = Vec::new();
        let outcome = self.parser.finish(exit, self.turn.is_interrupted, now, &mut deltas);
        self.take(deltas, now);
        for (at, text) in self.redactor.release() {
            self.append(at, &text);
        }
        outcome
    }

    fn take(&mut self, deltas: Vec<Delta>, now: Timestamp) {
        for delta in self.redactor.clean(deltas) {
            match delta {
                Delta::Put { at, item } => {
                    grow(&mut self.growing, &Delta::Put { at, item: item.clone() });
                    self.pending.appends.remove(&at);
                    self.pending.whole.insert(at);
                    self.pending.dirty.insert(at);
                    self.pending.items.insert(at, (item, now));
                }
                Delta::Append { at, text } => self.append(at, &text),
            }
        }
    }

    fn append(&mut self, at: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        grow(&mut self.growing, &Delta::Append { at, text: text.to_owned() });
        self.pending.dirty.insert(at);
        if !self.pending.whole.contains(&at) {
            self.pending.appends.entry(at).or_default().push_str(text);
        }
    }

    /// Stores what waits, in one transaction with the offset, and announces it.
    pub(super) async fn store(&mut self, store: &Store, now: Timestamp) -> Result<(), store::Error> {
        let pending = std::mem::take(&mut self.pending);
        let mut rows = Vec::new();
        let mut appends = Vec::new();
        for at in &pending.dirty {
            while self.seqs.len() <= *at as usize {
                self.seqs.push(self.next_seq);
                self.next_seq += 1;
            }
            let seq = self.seqs[*at as usize];
            let item = self.growing.get(at).cloned().or_else(|| pending.items.get(at).map(|(item, _)| item.clone()));
            let Some(item) = item else { continue };
            let time = pending.items.get(at).map_or(now, |(_, time)| *time);
            rows.push((pending.whole.contains(at), ItemRow { seq, turn: self.turn.number, at: time, item }));
            if let Some(text) = pending.appends.get(at) {
                appends.push((seq, text.clone()));
            }
        }
        trim(&mut self.growing);
        let headline = self.parser.headline().filter(|headline| self.headline.as_ref() != Some(headline));
        if headline.is_some() {
            self.headline.clone_from(&headline);
        }
        let (sandbox, turn, offsets) = (self.turn.sandbox, self.turn.id, self.offsets);
        store
            .write(move |tx| {
                let mut log_end = None;
                for (stream, bytes) in &pending.raw {
                    log_end = Some(log::append(tx, sandbox, turn, *stream, bytes)?);
                }
                for (_, row) in &rows {
                    items::put(tx, sandbox, turn, row, true)?;
                }
                turns::set_offsets(tx, turn, offsets)?;
                if let Some(headline) = headline {
                    sandboxes::set_headline(tx, sandbox, &headline)?;
                }
                let rows = rows.into_iter().filter(|(whole, _)| *whole).map(|(_, row)| row).collect();
                items::announce(tx, sandbox, TranscriptBatch { rows, appends, log_end, ..TranscriptBatch::default() });
                Ok(())
            })
            .await
    }
}

/// Forgets the oldest of the items that may grow: text is added to the newest.
fn trim(growing: &mut BTreeMap<u32, Item>) {
    while growing.len() > GROWING {
        growing.pop_first();
    }
}

/// Keeps the items that text may be added to.
fn grow(growing: &mut BTreeMap<u32, Item>, delta: &Delta) {
    match delta {
        Delta::Put { at, item } => match item {
            Item::Text { .. } | Item::Thinking { .. } | Item::Output { .. } => {
                growing.insert(*at, item.clone());
            }
            _ => {
                growing.remove(at);
            }
        },
        Delta::Append { at, text: more } => {
            if let Some(Item::Text { text } | Item::Thinking { text } | Item::Output { text, .. }) = growing.get_mut(at)
            {
                text.push_str(more);
            }
        }
    }
}

/// Adds an item of the engine's own to a turn.
pub(super) fn add_item(
    tx: &store::Tx<'_>,
    sandbox: SandboxId,
    turn: &TurnRow,
    seq: i64,
    item: Item,
    at: Timestamp,
) -> Result<(), store::Error> {
    let row = ItemRow { seq, turn: turn.number, at, item };
    items::put(tx, sandbox, turn.id, &row, false)?;
    items::announce(tx, sandbox, TranscriptBatch { rows: vec![row], ..TranscriptBatch::default() });
    Ok(())
}
