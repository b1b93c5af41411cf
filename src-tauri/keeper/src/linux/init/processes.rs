//! The process table of the sandbox, read from `/proc`.

use std::fs;

use crate::tree::Process;

/// Every process inside but init. Zombies are not in it: they are over.
pub(in crate::platform) fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|&pid| pid != 1).filter_map(read).collect()
}

/// When a process began, also one that is over and was not taken in yet.
pub(super) fn start_of(pid: i32) -> Option<u64> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(process, _)| process.start)
}

/// Of its environment nothing is read: that is whatever the process says it is, of whatever length.
fn read(pid: i32) -> Option<Process> {
    let (process, is_over) = parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    (!is_over).then_some(process)
}

/// Reads a line of `/proc/<pid>/stat`, and whether it is of one that is over: a zombie with no thread that lives on. (A
/// first thread that left by itself is shown as a zombie, whatever the others do.)
fn parse(pid: i32, stat: &str) -> Option<(Process, bool)> {
    // The name in parentheses may hold anything: count from the last one.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let threads: u32 = fields.nth(13)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some((Process { pid, parent, session, start, marker: None }, is_zombie && threads <= 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "7 (a) R 9 (b)) S 3 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let (read, is_over) = parse(7, line).unwrap();
        assert_eq!((read.parent, read.session, read.start, is_over), (3, 5, 4711, false));
        let zombie = line.replace(" S ", " Z ").replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!parse(7, &zombie).unwrap().1, "its other thread lives on");
        assert!(parse(7, &line.replace(" S ", " Z ")).unwrap().1, "a zombie is over");
    }
}
