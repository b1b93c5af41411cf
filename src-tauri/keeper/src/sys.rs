//! The few system calls the standard library has no word for.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    time::Duration,
};

/// Waits until one of the descriptors is ready, a signal arrives, or the time is over (`None`: no end).
pub fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up, or the last millisecond would be spent asking again and again.
    let millis = timeout.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    let count = libc::nfds_t::try_from(entries.len()).expect("a handful of descriptors");
    // SAFETY: the slice is valid for its own length.
    if unsafe { libc::poll(entries.as_mut_ptr(), count, millis) } >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        entries.iter_mut().for_each(|entry| entry.revents = 0);
        return Ok(());
    }
    Err(error)
}

/// An entry for [`poll`]; a negative descriptor is passed over.
pub fn interest(descriptor: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd: descriptor, events, revents: 0 }
}

/// How many bytes a pipe holds.
pub fn readable_bytes(pipe: impl AsFd) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    let answer = unsafe { libc::ioctl(pipe.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if answer == 0 { u64::try_from(count).unwrap_or(0) } else { 0 }
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(descriptor: impl AsFd) -> io::Result<()> {
    let descriptor = descriptor.as_fd().as_raw_fd();
    // SAFETY: system calls on an open descriptor, without pointers.
    let done = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        flags >= 0 && libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on, whoever opened it. Only for a process's first moments.
pub fn close_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        let first = u32::try_from(first).expect("descriptors are not negative");
        // SAFETY: a system call without pointers; nothing of ours is open yet.
        if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
            return;
        }
    }
    // SAFETY: as above.
    let end = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    for descriptor in first..RawFd::try_from(end).unwrap_or(65_536).min(65_536) {
        // SAFETY: as above; closing what is not open is an error without consequence.
        unsafe { libc::close(descriptor) };
    }
}

/// Blocks these signals in this thread and those it will start, so that [`wait_for`] gets them.
pub fn block(signals: &[libc::c_int]) -> io::Result<()> {
    let set = set_of(signals);
    // SAFETY: the set is initialised, and the old one is not asked for.
    let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

/// Blocks nothing any more: for a child, between fork and exec.
pub fn unblock_all() {
    let set = set_of(&[]);
    // SAFETY: as in `block`. It is async-signal-safe and cannot fail with a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Waits until one of these blocked signals arrives.
pub fn wait_for(signals: &[libc::c_int]) -> libc::c_int {
    let set = set_of(signals);
    let mut signal = 0;
    // SAFETY: both point to initialised values of their type.
    while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
    signal
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: zeroes are valid for the type, and sigemptyset makes them a set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        set
    }
}

/// No core dump, of this length in bytes: Linux hands a dump to a program (`core_pattern` with a pipe) whatever the limit
/// is, but for 1 (fs/coredump.c), and a file of one byte is none.
pub const NO_CORE: u64 = if cfg!(target_os = "linux") { 1 } else { 0 };

/// Sets a limit of this process and its children, never above what it is allowed; 0 bytes of core dumps, for example.
pub fn limit(resource: Resource, most: u64) -> io::Result<()> {
    // SAFETY: the struct is plain, the pointers are to it.
    unsafe {
        let mut now: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &raw mut now) != 0 {
            return Err(io::Error::last_os_error());
        }
        let most = most.min(now.rlim_max);
        let new = libc::rlimit { rlim_cur: most, rlim_max: most };
        if libc::setrlimit(resource, &raw const new) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The type of `RLIMIT_*`, which is not the same everywhere.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub type Resource = libc::__rlimit_resource_t;
/// The type of `RLIMIT_*`, which is not the same everywhere.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub type Resource = libc::c_int;

/// A clock that never goes back and counts while the machine sleeps: it agrees with the time on the wall.
pub fn steady_clock() -> Duration {
    // macOS: CLOCK_MONOTONIC counts through sleep there.
    #[cfg(target_os = "linux")]
    let clock = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec. These clocks exist, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time on the wall in Unix milliseconds, for records only.
#[expect(
    clippy::disallowed_methods,
    reason = "a record's time; nothing is decided by it, and no clock is injected here"
)]
pub fn wall_clock() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Writes a line to the log.
pub fn note(text: &str) {
    eprintln!("{} {text}", wall_clock());
}
