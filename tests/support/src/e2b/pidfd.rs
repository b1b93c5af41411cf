//! A process by a handle that stays its own when its number is another's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use tokio::io::{Interest, unix::AsyncFd};

/// A process.
#[derive(Debug)]
pub(super) struct PidFd(OwnedFd);

impl PidFd {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the call takes numbers; what it returns is a new descriptor that nobody else has.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match RawFd::try_from(fd) {
            // SAFETY: see above.
            Ok(fd) if fd >= 0 => Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Signals it; to one that has ended nothing happens.
    pub(super) fn signal(&self, signal: i32) {
        // SAFETY: the call takes numbers and no information about the signal.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, std::ptr::null::<u8>(), 0) };
    }

    /// Waits until it has ended, on this thread and no longer than this.
    pub(super) fn wait(&self, patience: Duration) {
        let mut watched = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the pointer is to one value of ours that outlives the call.
        unsafe { libc::poll(&raw mut watched, 1, patience) };
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) -> io::Result<()> {
        // SAFETY: the descriptor is ours and stays open, and the same, for as long as it is borrowed here.
        let watched = unsafe { AsyncFd::register_with_interest(self.0.as_fd(), Interest::READABLE)? };
        let ready = watched.readable().await;
        ready.map(|mut ready| ready.retain_ready())
    }
}
