//! Wakes a thread that waits in `poll`.

use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::fd::{AsRawFd, RawFd},
};

use crate::sys;

/// The end that wakes.
#[derive(Debug)]
pub(super) struct Waker(PipeWriter);

/// The end that waits.
#[derive(Debug)]
pub(super) struct Sleeper(PipeReader);

/// Both ends.
pub(super) fn pair() -> io::Result<(Waker, Sleeper)> {
    let (reader, writer) = io::pipe()?;
    sys::set_nonblocking(&reader)?;
    sys::set_nonblocking(&writer)?;
    Ok((Waker(writer), Sleeper(reader)))
}

impl Waker {
    /// Wakes the other end, now or when it next waits.
    pub(super) fn wake(&self) {
        // A full pipe wakes as well as one more byte would, and a thread that is gone needs no waking.
        _ = (&self.0).write(&[1]);
    }
}

impl Sleeper {
    /// For `poll`.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes in that it was woken.
    pub(super) fn clear(&mut self) {
        let mut bytes = [0; 64];
        while self.0.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }
}
