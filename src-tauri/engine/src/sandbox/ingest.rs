//! From a turn's bytes to rows: what was read is parsed at once and stored in one transaction about every 35 ms,
//! together with the offset up to which it was read.

use std::{collections::BTreeMap, time::Duration};

use tokio::sync::oneshot;

use crate::{
    agent::{Exit, Failure, Outcome, Parser},
    model::{Delta, ErrorKind, Item, SandboxId, Stream, Timestamp},
    provider::Offsets,
    secrets::TextRedactor,
    store::{self, ItemRow, Store, TranscriptBatch, TurnRow, items, log, sandboxes, turns},
};

/// How long bytes wait for others before they are stored and shown: what is shown costs the window by the picture, however
/// little is in it.
pub(super) const COALESCE: Duration = Duration::from_millis(35);
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
    /// The answer to the batch that was handed over last, where it was not waited for.
    storing: Option<oneshot::Receiver<Result<(), store::Error>>>,
    headline: Option<String>,
}

/// What was read and is not stored yet.
#[derive(Debug, Default)]
struct Pending {
    raw: Vec<(Stream, Vec<u8>)>,
    length: usize,
    /// Items that were put anew, and so are shown whole. `None`: text may be added, so it is among those that grow.
    whole: BTreeMap<u32, (Option<Item>, Timestamp)>,
    /// What was added to items that were stored before.
    appends: BTreeMap<u32, String>,
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
                        match delta {
                            Delta::Put { at, item } => _ = keep(&mut growing, at, item),
                            Delta::Append { at, text } => grow(&mut growing, at, &text),
                        }
                        trim(&mut growing);
                    }
                })?;
                let seqs = items::parsed_seqs(connection, sandbox, id)?;
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
            storing: None,
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

    /// Whether something is not known to be stored.
    pub(super) fn is_pending(&self) -> bool {
        self.storing.is_some() || self.has_read()
    }

    fn has_read(&self) -> bool {
        self.pending.length > 0 || !self.pending.whole.is_empty() || !self.pending.appends.is_empty()
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
            Some((last, chunk)) if *last == stream && chunk.len() + length <= log::CHUNK_BYTES => {
                chunk.extend_from_slice(&bytes);
            }
            _ => self.pending.raw.push((stream, bytes)),
        }
    }

    /// The process has ended and everything was read. `limited_until`: what the model's maker itself said of a limit;
    /// agents tell the limit, and few of them its end.
    pub(super) fn finish(&mut self, exit: Exit, limited_until: Option<Timestamp>, now: Timestamp) -> Outcome {
        let mut deltas = Vec::new();
        let mut outcome = self.parser.finish(exit, self.turn.is_interrupted, now, &mut deltas);
        let limit = limited_until.filter(|until| *until > now);
        if let Some(Failure { kind: ErrorKind::RateLimited, retry_at: retry_at @ None, .. }) = &mut outcome.error {
            *retry_at = limit;
            for delta in &mut deltas {
                if let Delta::Put { item: Item::Error { error: ErrorKind::RateLimited, retry_at, .. }, .. } = delta {
                    *retry_at = limit;
                }
            }
        }
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
                    let item = keep(&mut self.growing, at, item);
                    self.pending.appends.remove(&at);
                    self.pending.whole.insert(at, (item, now));
                }
                Delta::Append { at, text } => self.append(at, &text),
            }
        }
    }

    fn append(&mut self, at: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        grow(&mut self.growing, at, text);
        if !self.pending.whole.contains_key(&at) {
            self.pending.appends.entry(at).or_default().push_str(text);
        }
    }

    /// Stores what waits, in one transaction with the offset, and announces it.
    pub(super) async fn store(&mut self, store: &Store) -> Result<(), store::Error> {
        self.store_ahead(store).await?;
        self.stored().await
    }

    /// Waits for the batch that was handed over.
    async fn stored(&mut self) -> Result<(), store::Error> {
        let Some(storing) = &mut self.storing else { return Ok(()) };
        let answer = storing.await;
        self.storing = None;
        answer.map_err(|_| store::Error::Closed)?
    }

    /// Like `store`, but the commit is not waited for, so that more can be read meanwhile. At most one batch is under
    /// way: the next is made when it is known that the one before was stored.
    pub(super) async fn store_ahead(&mut self, store: &Store) -> Result<(), store::Error> {
        self.stored().await?;
        if !self.has_read() {
            return Ok(());
        }
        let Pending { raw, whole, appends, .. } = std::mem::take(&mut self.pending);
        let number = self.turn.number;
        let mut batch = TranscriptBatch::default();
        let mut grown = Vec::new();
        for (at, (item, time)) in whole {
            let seq = self.seq(at);
            if let Some(item) = item.or_else(|| self.growing.get(&at).cloned()) {
                batch.rows.push(ItemRow { seq, turn: number, at: time, item });
            }
        }
        for (at, text) in appends {
            let seq = self.seq(at);
            if let Some(item) = self.growing.get(&at) {
                grown.push((seq, items::body(item)));
                batch.appends.push((seq, text));
            }
        }
        trim(&mut self.growing);
        let headline = self.parser.headline().filter(|headline| self.headline.as_ref() != Some(headline));
        if headline.is_some() {
            self.headline.clone_from(&headline);
        }
        let (sandbox, turn, offsets) = (self.turn.sandbox, self.turn.id, self.offsets);
        let chunks: Vec<_> = raw.iter().flat_map(|(stream, bytes)| log::Chunk::of(*stream, bytes)).collect();
        let storing = store.write_ahead(move |tx| {
            for chunk in &chunks {
                batch.log_end = Some(log::append(tx, sandbox, turn, chunk)?);
            }
            for row in &batch.rows {
                items::put(tx, sandbox, turn, row, true)?;
            }
            for (seq, body) in &grown {
                items::set_body(tx, sandbox, *seq, body)?;
            }
            turns::set_offsets(tx, turn, offsets)?;
            if let Some(headline) = headline {
                sandboxes::set_headline(tx, sandbox, &headline)?;
            }
            items::announce(tx, sandbox, batch);
            Ok(())
        })?;
        self.storing = Some(storing);
        Ok(())
    }

    /// The place in the conversation of the turn's item `at`.
    fn seq(&mut self, at: u32) -> i64 {
        while self.seqs.len() <= at as usize {
            self.seqs.push(self.next_seq);
            self.next_seq += 1;
        }
        self.seqs[at as usize]
    }
}

/// Forgets the oldest of the items that may grow: text is added to the newest.
fn trim(growing: &mut BTreeMap<u32, Item>) {
    while growing.len() > GROWING {
        growing.pop_first();
    }
}

/// Keeps an item that text may be added to; another one is given back.
fn keep(growing: &mut BTreeMap<u32, Item>, at: u32, item: Item) -> Option<Item> {
    if matches!(item, Item::Text { .. } | Item::Thinking { .. } | Item::Output { .. }) {
        growing.insert(at, item);
        return None;
    }
    growing.remove(&at);
    Some(item)
}

/// Adds text to an item that was kept.
fn grow(growing: &mut BTreeMap<u32, Item>, at: u32, more: &str) {
    if let Some(Item::Text { text } | Item::Thinking { text } | Item::Output { text, .. }) = growing.get_mut(&at) {
        text.push_str(more);
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
