//! What was committed, in order, under one global revision.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::broadcast;

use super::{ItemRow, MessageRow};
use crate::model::{ProjectId, SandboxId};

/// How many changes a slow listener may lag behind before it has to read everything again.
const CHANGES: usize = 4096;
/// How many transcript batches a slow reader may lag behind before it has to open the transcript again.
const BATCHES: usize = 64;

/// What changed; the receiver reads the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A sandbox's row, or what is shown with it.
    Sandbox(SandboxId),
    /// A project's row.
    Project(ProjectId),
    /// Which keys are stored.
    Credentials,
    /// The settings.
    Settings,
}

/// A change and its place in the one order of all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub revision: u64,
    pub change: Change,
}

/// What one transaction added to a sandbox's conversation.
#[derive(Clone, Debug, Default)]
pub struct TranscriptBatch {
    pub revision: u64,
    /// Rows that are new or replace the one with the same `seq`.
    pub rows: Vec<ItemRow>,
    /// Text to add to the end of the row with this `seq`.
    pub appends: Vec<(i64, String)>,
    /// The cursor of the newest raw log chunk, where one was added.
    pub log_end: Option<i64>,
    /// The queue, where it changed.
    pub queue: Option<Vec<MessageRow>>,
}

/// The feed. Cloning it gives another handle to the same one.
#[derive(Clone, Debug)]
pub struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    revision: AtomicU64,
    changes: broadcast::Sender<Changed>,
    transcripts: Mutex<HashMap<SandboxId, broadcast::Sender<Arc<TranscriptBatch>>>>,
}

impl Feed {
    pub(super) fn new() -> Self {
        let shared = Shared {
            revision: AtomicU64::new(0),
            changes: broadcast::Sender::new(CHANGES),
            transcripts: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The newest revision. Read it before the rows: what is read is then at least as new.
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Ordering::Acquire)
    }

    /// Every change from now on.
    pub fn changes(&self) -> broadcast::Receiver<Changed> {
        self.shared.changes.subscribe()
    }

    /// Announces a change. Only the writer thread calls this (and whoever changes what is not in the database).
    pub fn publish(&self, change: Change) {
        let revision = self.next_revision();
        // Nobody may be listening.
        _ = self.shared.changes.send(Changed { revision, change });
    }

    /// Every transcript batch of `sandbox` from now on. Called after a commit, so that no batch falls between what the
    /// transaction read and the first one received.
    pub fn follow_transcript(&self, sandbox: SandboxId) -> broadcast::Receiver<Arc<TranscriptBatch>> {
        let mut transcripts = self.shared.transcripts.lock().unwrap_or_else(PoisonError::into_inner);
        transcripts.entry(sandbox).or_insert_with(|| broadcast::Sender::new(BATCHES)).subscribe()
    }

    pub(super) fn publish_transcript(&self, sandbox: SandboxId, mut batch: TranscriptBatch) {
        let mut transcripts = self.shared.transcripts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = transcripts.get(&sandbox) else { return };
        if sender.receiver_count() == 0 {
            transcripts.remove(&sandbox);
            return;
        }
        batch.revision = self.next_revision();
        _ = sender.send(Arc::new(batch));
    }

    fn next_revision(&self) -> u64 {
        self.shared.revision.fetch_add(1, Ordering::AcqRel) + 1
    }
}
