//! Copies a turn's spool to standard output and error while it grows.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use super::{FOLLOWER, GROW, READ, record};
use crate::{
    identity::Identity,
    protocol::SPOOL_CAP,
    spool::{self, ExitRecord},
    sys,
};

/// How much is copied at once.
const CHUNK: usize = 256 << 10;
/// What comes within this time goes out together.
const COALESCE: Duration = Duration::from_millis(25);
/// How often it is looked whether somebody still writes, while nothing comes.
const LOOK: Duration = Duration::from_secs(1);

/// Returns once the turn has ended and all of it was copied: how it ended is in `exit`, and where nobody wrote that, the
/// guest is gone.
pub(super) fn follow(folder: &Path, turn: &str, from: [u64; 2]) -> io::Result<()> {
    let place = spool::turn_directory(folder, turn);
    if !spool::is_turn_id(turn) || !place.exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the turn was never started"));
    }
    take_over(&place)?;
    let changes = Changes::of(&place)?;
    let [out, err] = from;
    let mut tails = [Tail::new(&place, spool::OUT, out), Tail::new(&place, spool::ERR, err)];
    let (mut room, mut allowed) = (vec![0; CHUNK], SPOOL_CAP);
    let mut is_kept = true;
    loop {
        // The end first: everything before it is in the files by then.
        let exit = spool::read_exit(&place)?;
        let mut has_copied = false;
        for (tail, sink) in tails.iter_mut().zip([&mut io::stdout() as &mut dyn Write, &mut io::stderr()]) {
            has_copied |= tail.copy(exit.as_ref(), &mut room, sink)?;
        }
        let read = tails.iter().map(|tail| tail.offset).max().unwrap_or(0);
        if exit.is_none() && read + SPOOL_CAP / 2 > allowed {
            allowed = read + SPOOL_CAP;
            spool::write_at_once(&place, READ, read.to_string().as_bytes())?;
            if let Some(record) = record(folder, turn)? {
                record.guest.signal(GROW)?;
            }
        }
        if has_copied {
            continue;
        }
        if exit.is_some() || !is_kept {
            return Ok(());
        }
        if changes.wait(LOOK)? {
            std::thread::sleep(COALESCE);
            changes.clear()?;
        } else {
            // Looked at everything once more after it was gone. One that is not recorded yet is just starting.
            is_kept = record(folder, turn)?.is_none_or(|record| record.guest.is_alive());
        }
    }
}

/// Ends the follower before: its stream broke, and nobody reads what it copies.
fn take_over(place: &Path) -> io::Result<()> {
    let before = std::fs::read(place.join(FOLLOWER)).ok();
    if let Some(before) = before.and_then(|bytes| serde_json::from_slice::<Identity>(&bytes).ok()) {
        before.signal(libc::SIGKILL)?;
    }
    spool::write_at_once(place, FOLLOWER, &serde_json::to_vec(&Identity::own()?)?)
}

/// One stream.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    is_out: bool,
}

impl Tail {
    fn new(place: &Path, name: &str, offset: u64) -> Self {
        Self { path: place.join(name), file: None, offset, is_out: name == spool::OUT }
    }

    /// Copies what there is, at most once around; whether there was any.
    fn copy(&mut self, exit: Option<&ExitRecord>, room: &mut [u8], sink: &mut dyn Write) -> io::Result<bool> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let Some(file) = &self.file else { return Ok(false) };
        let length = file.metadata()?.len();
        let end = exit.map_or(length, |exit| length.min(if self.is_out { exit.out_len } else { exit.err_len }));
        let count = usize::try_from(end.saturating_sub(self.offset)).unwrap_or(CHUNK).min(room.len());
        if count == 0 {
            return Ok(false);
        }
        file.read_exact_at(&mut room[..count], self.offset)?;
        sink.write_all(&room[..count])?;
        sink.flush()?;
        self.offset += count as u64;
        Ok(true)
    }
}

/// Tells when something in a folder changes.
struct Changes(File);

impl Changes {
    fn of(folder: &Path) -> io::Result<Self> {
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
        let wanted = libc::IN_MODIFY | libc::IN_CREATE | libc::IN_MOVED_TO;
        // SAFETY: system calls with a C string that lives until they return; the descriptor is new and nobody else's.
        unsafe {
            let descriptor = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let held = OwnedFd::from_raw_fd(descriptor);
            if libc::inotify_add_watch(held.as_raw_fd(), path.as_ptr(), wanted) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(File::from(held)))
        }
    }

    /// Whether something changed within this time.
    fn wait(&self, limit: Duration) -> io::Result<bool> {
        let mut entries = [sys::interest(self.0.as_raw_fd(), libc::POLLIN)];
        sys::poll(&mut entries, Some(limit))?;
        Ok(entries[0].revents != 0)
    }

    fn clear(&self) -> io::Result<()> {
        use io::Read;
        let mut room = [0; 4096];
        loop {
            match (&self.0).read(&mut room) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
