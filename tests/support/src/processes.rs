//! What runs on this machine, read from /proc: to find survivors, and to see that there are none.

use std::{fs, time::Duration};

/// One process, as it was when looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// The kernel's letter: R, S, D, T (stopped), Z (dead and not yet reaped) …
    pub state: char,
    /// In clock ticks since boot: with the pid it names a process for ever.
    pub started: u64,
    /// Its arguments, joined by spaces; its name in brackets where it has none.
    pub command: String,
}

impl Process {
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Every process; those that end while we look are left out.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

pub fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any character, parentheses included.
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(').map_or("", |(_, name)| name);
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        started: fields.get(19)?.parse().ok()?,
        command: if command.is_empty() { format!("[{name}]") } else { command },
    })
}

/// The memory a process holds, in bytes, what it shares counted whole.
pub fn resident(pid: u32) -> std::io::Result<u64> {
    field(pid, "smaps_rollup", "Rss:")
}

/// The memory a process holds, in bytes, what it shares counted by its share.
pub fn proportional(pid: u32) -> std::io::Result<u64> {
    field(pid, "smaps_rollup", "Pss:")
}

/// How long a process has had a processor, its threads together.
pub fn processor_time(pid: u32) -> std::io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, tail)| tail).split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let (Some(own), Some(kernel)) = (ticks(11), ticks(12)) else { return Err(std::io::ErrorKind::InvalidData.into()) };
    // Linux counts a hundred ticks a second for programs, whatever it counts itself.
    Ok(Duration::from_millis((own + kernel) * 10))
}

fn field(pid: u32, file: &str, name: &str) -> std::io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()).and_then(|value| value.parse::<u64>().ok());
    kibibytes.map(|value| value << 10).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// The processes that bear `marker` in their arguments, environment or working directory; dead ones are left out.
pub fn mentioning(marker: &str) -> Vec<Process> {
    let mut found = all();
    found.retain(|process| !process.is_dead() && mentions(process, marker));
    found
}

fn mentions(process: &Process, marker: &str) -> bool {
    let at = |name: &str| format!("/proc/{}/{name}", process.pid);
    let holds = |bytes: Vec<u8>| bytes.windows(marker.len()).any(|window| window == marker.as_bytes());
    process.command.contains(marker)
        || fs::read(at("environ")).is_ok_and(holds)
        || ["cwd", "exe"]
            .iter()
            .any(|link| fs::read_link(at(link)).is_ok_and(|path| path.to_string_lossy().contains(marker)))
}

/// The children, their children and so on of a process.
pub fn descendants(pid: u32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = vec![];
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// Kills a process if it is still the one that was seen.
pub fn kill(process: &Process) {
    let Ok(pid) = i32::try_from(process.pid) else { return };
    if pid > 1 && read(process.pid).is_some_and(|now| now.started == process.started) {
        // SAFETY: kill takes numbers.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Kills what `find` finds until it finds nothing: a process may have forked meanwhile. Gives up after some seconds.
pub fn kill_all(find: impl Fn() -> Vec<Process>) {
    for _ in 0..100 {
        let found = find();
        if found.is_empty() {
            return;
        }
        found.iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program to its end and returns what it printed.
#[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
pub fn run(program: &std::path::Path, arguments: &[&str]) -> std::io::Result<std::process::Output> {
    std::process::Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_as_it_is() {
        let own = read(std::process::id()).unwrap();
        assert!(!own.is_dead() && !own.is_stopped());
        assert!(own.started > 0);
        assert!(processor_time(own.pid).unwrap() < Duration::from_secs(3600));
        assert!(proportional(own.pid).unwrap() <= resident(own.pid).unwrap(), "what is shared counts less");
        let is_own = |process: &Process| process.pid == own.pid;
        assert!(descendants(own.parent).iter().any(is_own), "it is its parent's child");
        assert_eq!(read(u32::MAX), None, "there is no such process");
    }
}
