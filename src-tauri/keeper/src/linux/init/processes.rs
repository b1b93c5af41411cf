//! Whose process is whose, read from `/proc`.
//!
//! A turn's processes carry its marker in their environment, or are in its session, or descend from one that does or
//! is. An agent can shed all three (an empty environment, a new session, a parent that died); what is nobody's then
//! belongs to the turn that was newest when it began.

use std::{collections::HashMap, fs};

use crate::protocol::TURN_VARIABLE;

/// One line of the process table.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub pid: i32,
    pub parent: i32,
    pub session: i32,
    /// When it began, as the kernel counts.
    pub start: u64,
    /// The turn its environment names.
    pub marker: Option<String>,
}

/// What is known of a turn, in the order they were started.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub id: String,
    pub leader: i32,
    pub start: u64,
}

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

/// The processes of the turn with this index.
pub(super) fn members(table: &[Process], turns: &[Known], index: usize) -> Vec<i32> {
    let by_pid: HashMap<i32, &Process> = table.iter().map(|process| (process.pid, process)).collect();
    let is_member = |process: &Process| {
        // Upwards until somebody is known. Bounded, should the table (read while it changed) hold a circle.
        let ancestors = std::iter::successors(Some(process), |process| by_pid.get(&process.parent).copied());
        let mut line = ancestors.take(table.len()).peekable();
        let mut oldest = process;
        while let Some(ancestor) = line.next() {
            oldest = ancestor;
            if let Some(owner) = sign(ancestor, turns) {
                return owner == index;
            }
        }
        turns.iter().rposition(|turn| turn.start <= oldest.start) == Some(index)
    };
    table.iter().filter(|process| is_member(process)).map(|process| process.pid).collect()
}

/// The turn a process shows that it belongs to.
fn sign(process: &Process, turns: &[Known]) -> Option<usize> {
    let by_session = turns.iter().rposition(|turn| turn.leader == process.session && turn.start <= process.start);
    by_session.or_else(|| {
        let marker = process.marker.as_deref()?;
        turns.iter().position(|turn| turn.id == marker)
    })
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

    fn process(pid: i32, parent: i32, session: i32, start: u64, marker: Option<&str>) -> Process {
        Process { pid, parent, session, start, marker: marker.map(str::to_owned) }
    }

    fn turns() -> Vec<Known> {
        let turn = |id: &str, leader, start| Known { id: id.into(), leader, start };
        vec![turn("first", 10, 100), turn("second", 20, 200)]
    }

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let line = "7 (a) R 9 (b)) S 3 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let read = parse(7, line).unwrap();
        assert_eq!((read.parent, read.session, read.start), (3, 5, 4711));
        assert!(parse(7, &line.replace(" S ", " Z ")).is_none(), "a zombie is over");
    }

    #[test]
    fn marker_session_and_descent_tell_turns_apart() {
        let table = [
            process(10, 1, 10, 100, Some("first")),
            process(11, 10, 11, 110, None),            // a child in a session of its own, without marker
            process(12, 1, 12, 120, Some("first")),    // an orphan that kept the marker
            process(13, 1, 13, 130, None),             // an orphan that shed everything
            process(20, 1, 20, 200, Some("second")),
            process(21, 12, 21, 210, None),            // what the first left running forks during the second
            process(22, 1, 20, 220, None),             // an orphan in the second's session
            process(23, 1, 23, 230, None),             // an orphan that shed everything, later
        ];
        assert_eq!(members(&table, &turns(), 0), [10, 11, 12, 13, 21]);
        assert_eq!(members(&table, &turns(), 1), [20, 22, 23]);
    }

    #[test]
    fn a_marker_that_names_no_turn_is_none() {
        let table = [process(30, 1, 30, 300, Some("another"))];
        assert_eq!(members(&table, &turns(), 1), [30]);
    }

    #[test]
    fn a_circle_in_a_table_read_while_it_changed_ends() {
        let table = [process(30, 31, 30, 90, None), process(31, 30, 30, 90, None)];
        assert!(members(&table, &turns(), 0).is_empty());
    }
}
