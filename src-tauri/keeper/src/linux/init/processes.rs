//! The process table of the sandbox, read from `/proc`.

use std::fs;

use crate::{protocol::TURN_VARIABLE, tree::Process};

/// Every process inside but init. Zombies are not in it: they are over.
pub(super) fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|&pid| pid != 1).filter_map(read).collect()
}

/// When a process began.
pub(super) fn start_of(pid: i32) -> Option<u64> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|process| process.start)
}

fn read(pid: i32) -> Option<Process> {
    let mut process = parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    process.marker = environment.split(|&byte| byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(TURN_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    });
    Some(process)
}

/// Reads a line of `/proc/<pid>/stat`; `None` for a zombie.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The name in parentheses may hold anything: count from the last one.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, session, start, marker: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "7 (a) R 9 (b)) S 3 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let read = parse(7, line).unwrap();
        assert_eq!((read.parent, read.session, read.start), (3, 5, 4711));
        assert!(parse(7, &line.replace(" S ", " Z ")).is_none(), "a zombie is over");
    }
}
