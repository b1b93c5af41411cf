//! Who a process is: a pid alone names whoever has it today.

use std::io;

use serde::{Deserialize, Serialize};

/// A process, told from every other that ever ran: its number, when it began, and during which boot of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// When it began, in the system's own unit.
    pub start: u64,
    /// Which boot of the machine that was.
    pub boot: String,
}

impl Identity {
    /// The process that has this number now.
    pub fn of(pid: i32) -> io::Result<Self> {
        let (start, _) = platform::start_and_zombie(pid)?;
        Ok(Self { pid, start, boot: platform::boot()? })
    }

    /// This process.
    pub fn own() -> io::Result<Self> {
        Self::of(i32::try_from(std::process::id()).expect("a pid fits its own type"))
    }

    /// Whether exactly this process still runs. A zombie does not: the kernel has emptied its pid namespace by then.
    pub fn is_alive(&self) -> bool {
        let same_boot = platform::boot().is_ok_and(|boot| boot == self.boot);
        same_boot && platform::start_and_zombie(self.pid).is_ok_and(|(start, zombie)| start == self.start && !zombie)
    }

    /// Sends a signal to exactly this process; `false`: it was gone already.
    pub fn signal(&self, signal: i32) -> io::Result<bool> {
        platform::signal(self, signal)
    }
}

/// Which boot of the machine this is; empty where the system does not say.
pub fn boot() -> String {
    platform::boot().unwrap_or_default()
}

/// How long it has lasted, sleep included.
#[cfg(unix)]
pub fn since_boot() -> std::time::Duration {
    crate::sys::steady_clock()
}

/// How long this process has looked at the clock: elsewhere nothing better is known.
#[cfg(not(unix))]
pub fn since_boot() -> std::time::Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(target_os = "linux")]
mod platform {
    use std::{
        fs, io,
        os::fd::{AsRawFd, FromRawFd, OwnedFd},
    };

    use super::Identity;

    pub fn boot() -> io::Result<String> {
        Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    pub fn start_and_zombie(pid: i32) -> io::Result<(u64, bool)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold anything, parentheses too: count from the last one.
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        let zombie = matches!(fields.next(), Some("Z" | "X"));
        let start = fields.nth(18).and_then(|field| field.parse().ok());
        start.map(|start| (start, zombie)).ok_or_else(|| io::Error::other("a line of /proc/PID/stat without a start"))
    }

    pub fn signal(who: &Identity, signal: i32) -> io::Result<bool> {
        // SAFETY: a system call without pointers; it returns a new descriptor or -1.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, who.pid, 0) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) };
        }
        // SAFETY: the descriptor is new and nobody else's.
        let held = unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).expect("a descriptor is small")) };
        // Whoever has the number is held now and cannot change any more: only then it is compared.
        if !who.is_alive() {
            return Ok(false);
        }
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is allowed, and the descriptor is open.
        if unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held.as_raw_fd(), signal, nothing, 0) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) }
    }
}

#[cfg(target_os = "macos")]
mod platform {
    use std::{ffi::CStr, io, mem};

    use super::Identity;

    pub fn boot() -> io::Result<String> {
        let mut text = [0u8; 64];
        let mut length = text.len();
        // SAFETY: name is a C string, the buffer and its length belong together.
        let answer = unsafe {
            libc::sysctlbyname(
                c"kern.bootsessionuuid".as_ptr(),
                text.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
                0,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        let text = CStr::from_bytes_until_nul(&text).map_err(io::Error::other)?;
        Ok(text.to_string_lossy().into_owned())
    }

    pub fn start_and_zombie(pid: i32) -> io::Result<(u64, bool)> {
        // SAFETY: zero is a valid value of this plain struct.
        let mut info: libc::proc_bsdinfo = unsafe { mem::zeroed() };
        let size = i32::try_from(mem::size_of_val(&info)).expect("a small struct");
        // SAFETY: the buffer is the struct this flavour fills, and its size is given.
        let got = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), size) };
        if got != size {
            return Err(io::Error::last_os_error());
        }
        let start = info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec;
        Ok((start, info.pbi_status == libc::SZOMB))
    }

    pub fn signal(who: &Identity, signal: i32) -> io::Result<bool> {
        // Best effort: macOS has no descriptor that holds a process, so a moment passes between the two lines.
        if !who.is_alive() {
            return Ok(false);
        }
        // SAFETY: a system call without pointers.
        if unsafe { libc::kill(who.pid, signal) } == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod platform {
    use std::io;

    use super::Identity;

    pub fn boot() -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn start_and_zombie(_pid: i32) -> io::Result<(u64, bool)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn signal(_who: &Identity, _signal: i32) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_a_stranger_with_its_number_is_not() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        let earlier = Identity { start: own.start - 1, ..own.clone() };
        assert!(!earlier.is_alive());
        assert!(!earlier.signal(libc::SIGKILL).unwrap(), "or this test would not live to say so");
        assert!(!Identity { boot: "another".into(), ..own }.is_alive());
    }
}
