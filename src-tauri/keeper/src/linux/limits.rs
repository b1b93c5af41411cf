//! Memory and processors: by force through a cgroup where the system delegates one, else by what a process can be told.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::sys;

/// Less than this no Node.js starts.
const LEAST_MEMORY_MB: u32 = 1024;

/// Enough for any build, too few for a fork bomb to take the machine.
const MOST_PROCESSES: u64 = 8192;

/// How much sooner than others a sandbox's processes go when the machine runs out of memory, in thousandths of it.
const SACRIFICE: &[u8] = b"500";

/// Where limits are advisory a sandbox can take all memory there is. Then it goes, and not the person's own programs.
/// For a child, between fork and exec: inside, it can be made worse and not better.
pub(super) fn go_first() {
    // SAFETY: async-signal-safe calls with a C string and a slice. Where it is not possible, it was only a courtesy.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(file, SACRIFICE.as_ptr().cast(), SACRIFICE.len());
        libc::close(file);
    }
}

/// What each process of a turn is told before it begins.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct PerProcess {
    /// The most private writable memory, in bytes; `None` where a cgroup counts.
    pub data: Option<u64>,
}

impl PerProcess {
    /// Where no cgroup counts, each process is held to the sandbox's limit. By RLIMIT_DATA: RLIMIT_AS would count
    /// address space, of which WebAssembly and garbage collectors reserve far more than they use.
    pub(super) fn new(memory_mb: u32, is_enforced: bool) -> Self {
        Self { data: (!is_enforced).then(|| u64::from(memory_mb.max(LEAST_MEMORY_MB)) << 20) }
    }

    /// Applies it; for a child, between fork and exec.
    pub(super) fn apply(self) -> io::Result<()> {
        sys::limit(libc::RLIMIT_CORE, sys::NO_CORE)?;
        sys::limit(libc::RLIMIT_NPROC, MOST_PROCESSES)?;
        self.data.map_or(Ok(()), |most| sys::limit(libc::RLIMIT_DATA, most))
    }
}

/// The words to put before bubblewrap's so that a cgroup counts; `None` where none is delegated to this user.
pub(super) fn scope(memory_mb: u32, cpus: u32) -> Option<Vec<String>> {
    let program = ["/usr/bin/systemd-run", "/bin/systemd-run"].into_iter().find(|path| PathBuf::from(path).exists())?;
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    if !runtime.join("systemd/private").exists() {
        return None;
    }
    // SAFETY: a system call without arguments that cannot fail.
    let user = unsafe { libc::getuid() };
    let delegated = format!("/sys/fs/cgroup/user.slice/user-{user}.slice/user@{user}.service/cgroup.controllers");
    let controllers = fs::read_to_string(delegated).ok()?;
    if !["memory", "cpu"].iter().all(|needed| controllers.split_whitespace().any(|one| one == *needed)) {
        return None;
    }
    let words = ["--user", "--scope", "--quiet", "--collect"].map(str::to_owned);
    let limits = [
        format!("--property=MemoryMax={memory_mb}M"),
        "--property=MemorySwapMax=0".to_owned(),
        format!("--property=CPUQuota={}%", u64::from(cpus) * 100),
        format!("--property=TasksMax={MOST_PROCESSES}"),
        "--".to_owned(),
    ];
    Some([program.to_owned()].into_iter().chain(words).chain(limits).collect())
}

/// Which processors a sandbox is asked to stay on: `cpus` of those this process may use, beginning somewhere else for
/// each sandbox. `None`: all of them.
pub(super) fn processors(cpus: u32) -> Option<libc::cpu_set_t> {
    // SAFETY: zeroes are an empty set; the pointer is to one of the size given, and CPU_* stay below CPU_SETSIZE.
    unsafe {
        let size = std::mem::size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut allowed) != 0 {
            return None;
        }
        let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(1024);
        let all: Vec<usize> = (0..most).filter(|&index| libc::CPU_ISSET(index, &allowed)).collect();
        let wanted = usize::try_from(cpus).unwrap_or(usize::MAX).max(1);
        if wanted >= all.len() {
            return None;
        }
        let first = std::process::id() as usize % all.len();
        let mut chosen: libc::cpu_set_t = std::mem::zeroed();
        all.iter().cycle().skip(first).take(wanted).for_each(|&index| libc::CPU_SET(index, &mut chosen));
        Some(chosen)
    }
}
