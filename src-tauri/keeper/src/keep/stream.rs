//! One stream of a turn on its way from the agent's pipe to the spool.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, PipeReader, Read, Write},
    os::fd::{AsRawFd, RawFd},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    redact::{Patterns, Redactor},
    spool, sys,
};

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// How long after a failed write the next is tried.
const RETRY: Duration = Duration::from_secs(1);

/// Copies a pipe to a file, redacted. Whatever the file does not take stays in memory, and meanwhile nothing more is
/// read: the agent waits, no byte is lost.
#[derive(Debug)]
pub(super) struct Stream {
    /// `None`: everybody inside has closed it.
    pipe: Option<PipeReader>,
    file: File,
    redactor: Redactor,
    /// Redacted, and not in the file yet.
    pending: Vec<u8>,
    /// How long the file is.
    length: u64,
    /// How many bytes were read.
    read: u64,
    last_read: Instant,
    /// Up to where it is read, whoever may write on: what was in the pipe when the turn's leader ended.
    owed_until: u64,
    trouble: Option<(Instant, io::Error)>,
}

impl Stream {
    /// Makes the file, which must not be there yet.
    pub(super) fn new(pipe: PipeReader, file: &Path, patterns: &Patterns) -> io::Result<Self> {
        let file = spool::private_file().create_new(true).append(true).open(file)?;
        Ok(Self {
            pipe: Some(pipe),
            file,
            redactor: Redactor::new(patterns.clone()),
            pending: Vec::new(),
            length: 0,
            read: 0,
            last_read: Instant::now(),
            owed_until: 0,
            trouble: None,
        })
    }

    /// How long the file is.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// When the pipe last gave something.
    pub(super) fn last_read(&self) -> Instant {
        self.last_read
    }

    /// What keeps the bytes from the disk.
    pub(super) fn trouble(&self) -> Option<&io::Error> {
        self.trouble.as_ref().map(|(_, error)| error)
    }

    /// When the next try is due, if there is trouble.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.trouble.as_ref().map(|(at, _)| *at)
    }

    /// What to poll: the pipe while the spool takes more, else nothing.
    pub(super) fn descriptor(&self, cap: u64) -> RawFd {
        match &self.pipe {
            Some(pipe) if self.pending.is_empty() && (self.length < cap || self.read < self.owed_until) => {
                pipe.as_raw_fd()
            }
            _ => -1,
        }
    }

    /// The turn's leader has ended: what is in the pipe now is its own.
    pub(super) fn leader_exited(&mut self) {
        let waiting = self.pipe.as_ref().map_or(0, sys::readable_bytes);
        self.owed_until = self.read + waiting;
        self.last_read = Instant::now();
    }

    /// Whether everything the leader wrote was read. (An agent can take bytes out of its own pipe again: what is not
    /// there is not waited for.)
    pub(super) fn is_settled(&self) -> bool {
        self.pipe.as_ref().is_none_or(|pipe| self.read >= self.owed_until || sys::readable_bytes(pipe) == 0)
    }

    /// Whether nobody can write to it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Puts text of our own into the spool, as if the agent had printed it.
    pub(super) fn inject(&mut self, text: &str) {
        self.redactor.push(text.as_bytes(), &mut self.pending);
    }

    /// Reads once. Call it when [`Self::descriptor`] is readable.
    pub(super) fn read(&mut self, room: &mut Vec<u8>) {
        let Some(pipe) = &mut self.pipe else { return };
        room.resize(CHUNK, 0);
        match pipe.read(room) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.read += count as u64;
                self.last_read = Instant::now();
                self.redactor.push(&room[..count], &mut self.pending);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A pipe's read end does not fail; if it does, there will be no more from it.
            Err(_) => self.pipe = None,
        }
    }

    /// Nothing more belongs to the turn: what was held back as a possible beginning of a secret was none.
    pub(super) fn finish(&mut self) {
        self.redactor.finish(&mut self.pending);
    }

    /// Writes what is pending, unless the last try failed just now. Whether nothing is pending any more.
    pub(super) fn write(&mut self) -> bool {
        if self.retry_at().is_some_and(|at| at > Instant::now()) {
            return false;
        }
        self.trouble = None;
        let mut done = 0;
        while done < self.pending.len() {
            match self.file.write(&self.pending[done..]) {
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.trouble = Some((Instant::now() + RETRY, error));
                    break;
                }
            }
        }
        self.length += done as u64;
        self.pending.drain(..done);
        self.pending.is_empty()
    }

    /// Makes sure the bytes outlive the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.length == 0 { Ok(()) } else { self.file.sync_data() }
    }

    /// From here on, what comes goes to another file, up to a length, and then nowhere; never to a full pipe, which
    /// would stop what the turn left running.
    pub(super) fn become_late(&mut self, directory: &Path, patterns: &Patterns) -> io::Result<()> {
        let late = spool::private_file().create(true).append(true).open(directory.join(spool::LATE));
        self.file = late.or_else(|_| OpenOptions::new().append(true).open("/dev/null"))?;
        self.redactor = Redactor::new(patterns.clone());
        Ok(())
    }

    /// Writes what is pending to the late file, or drops it where that is long enough or cannot be written.
    pub(super) fn write_late(&mut self, most: u64) {
        let length = self.file.metadata().as_ref().map_or(most, fs::Metadata::len);
        if length < most {
            // Its loss is announced: it is output after the end.
            _ = self.file.write_all(&self.pending);
        }
        self.pending.clear();
    }
}
