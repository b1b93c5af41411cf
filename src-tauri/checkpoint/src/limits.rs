//! What the worker allows itself, whatever it is given to read.

/// Private memory, in bytes: a 100-MB file and its conversions fit, a bomb does not.
#[cfg(unix)]
const MEMORY: u64 = 2 << 30;

/// Processor time, in seconds.
#[cfg(unix)]
const TIME: u64 = 900;

/// Open files.
#[cfg(unix)]
const FILES: u64 = 1024;

/// Applies all of them to this process. What the system does not take is a courtesy less: the jail and the time limit
/// are others' work.
pub fn apply() {
    #[cfg(unix)]
    for (what, most) in [
        // No core: what was read is nobody's to find.
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_DATA, MEMORY),
        (libc::RLIMIT_CPU, TIME),
        (libc::RLIMIT_NOFILE, FILES),
    ] {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of our own, filled in by the first call and read by the second.
        unsafe {
            if libc::getrlimit(what, &raw mut limit) == 0 {
                let most = most as libc::rlim_t;
                limit.rlim_cur = most.min(limit.rlim_max);
                limit.rlim_max = limit.rlim_cur;
                libc::setrlimit(what, &raw const limit);
            }
        }
    }
}
