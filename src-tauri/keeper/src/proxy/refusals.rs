//! A record of what was refused, for the person who wonders why an agent fails.

use std::{io::Write, path::PathBuf, sync::Mutex};

use super::policy::Denial;
use crate::{spool, sys};

/// How long the record may get. Its beginning says most.
const LIMIT: u64 = 1 << 20;

/// Appends to the sandbox's `refused.log`.
#[derive(Debug)]
pub(super) struct Refusals {
    path: PathBuf,
    writing: Mutex<()>,
}

impl Refusals {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, writing: Mutex::new(()) }
    }

    /// One line: when, where to, why.
    pub(super) fn add(&self, host: &str, port: u16, denial: Denial) {
        let line = serde_json::json!({"at": sys::wall_clock(), "host": host, "port": port, "reason": denial.reason()});
        let _alone = self.writing.lock().expect("nobody panics while holding it");
        let file = spool::private_file().create(true).append(true).open(&self.path);
        let written = file.and_then(|mut file| match file.metadata()?.len() {
            length if length < LIMIT => writeln!(file, "{line}"),
            _ => Ok(()),
        });
        if let Err(error) = written {
            sys::note(&format!("a refusal could not be recorded: {error}"));
        }
    }
}
