//! Whose process is whose. Pure: the process table is given.
//!
//! A turn's processes are in its session, or descend from one that is. An agent can shed both: a new session, a parent
//! that died. Where a sandbox has a process table of its own, the time when such a process began tells whose it is.
//! Elsewhere the marker in its environment does, which an agent can shed or forge.

use std::collections::HashMap;

/// One line of the process table.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub pid: i32,
    pub parent: i32,
    pub session: i32,
    /// When it began, in the system's own unit.
    pub start: u64,
    /// The turn its environment names, where that is looked at.
    pub marker: Option<String>,
}

/// What is known of a turn, in the order they were started.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub id: String,
    /// Its first process, whose number is also its session's.
    pub leader: i32,
    pub start: u64,
}

/// Whose those are that shed every sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// There is nobody else in the table: they belong to the turn that was newest when they began.
    #[cfg_attr(all(target_os = "macos", not(test)), expect(dead_code, reason = "here no sandbox has a pid namespace"))]
    Newest,
    /// The table is the whole machine's: they are nobody's.
    Nobody,
}

/// The processes of the turn with this index.
pub(crate) fn members(table: &[Process], turns: &[Known], index: usize, unsigned: Unsigned) -> Vec<i32> {
    let by_pid: HashMap<i32, &Process> = table.iter().map(|process| (process.pid, process)).collect();
    let mut owners: HashMap<i32, Option<usize>> = HashMap::with_capacity(table.len());
    for process in table {
        // Upwards until somebody is known; each is looked at once, however deep the tree. Bounded, should the table
        // (read while it changed) hold a circle.
        let ancestors = std::iter::successors(Some(process), |process| by_pid.get(&process.parent).copied());
        let (mut path, mut owner) = (Vec::new(), None);
        for ancestor in ancestors.take(table.len()) {
            if let Some(&known) = owners.get(&ancestor.pid) {
                owner = known;
                break;
            }
            path.push(ancestor);
            owner = sign(ancestor, turns, unsigned);
            if owner.is_some() {
                break;
            }
        }
        if let (None, Unsigned::Newest, Some(oldest)) = (owner, unsigned, path.last()) {
            owner = turns.iter().rposition(|turn| turn.start <= oldest.start);
        }
        owners.extend(path.into_iter().map(|one| (one.pid, owner)));
    }
    table.iter().filter(|process| owners[&process.pid] == Some(index)).map(|process| process.pid).collect()
}

/// Everybody who descends from this process.
#[cfg_attr(target_os = "macos", expect(dead_code, reason = "only a guest is its turn's last parent"))]
pub(crate) fn descendants(table: &[Process], root: i32) -> Vec<i32> {
    let by_pid: HashMap<i32, i32> = table.iter().map(|process| (process.pid, process.parent)).collect();
    let descends = |pid: i32| {
        // Bounded, should the table (read while it changed) hold a circle.
        let mut parents = std::iter::successors(by_pid.get(&pid), |parent| by_pid.get(parent)).take(table.len());
        parents.any(|&parent| parent == root)
    };
    table.iter().map(|process| process.pid).filter(|&pid| descends(pid)).collect()
}

/// The turn a process shows that it belongs to.
fn sign(process: &Process, turns: &[Known], unsigned: Unsigned) -> Option<usize> {
    let by_session = turns.iter().rposition(|turn| turn.leader == process.session && turn.start <= process.start);
    by_session.or_else(|| {
        let marker = process.marker.as_deref().filter(|_| unsigned == Unsigned::Nobody)?;
        turns.iter().position(|turn| turn.id == marker)
    })
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
    fn session_descent_and_age_tell_turns_apart() {
        let table = [
            process(10, 1, 10, 100, None),
            process(11, 10, 11, 110, None), // a child in a session of its own
            process(13, 1, 13, 130, None),  // an orphan that shed everything
            process(20, 1, 20, 200, None),
            process(21, 13, 21, 210, None), // what the first left running forks during the second
            process(22, 1, 20, 220, None),  // an orphan in the second's session
            process(23, 1, 23, 230, None),  // an orphan that shed everything, later
            process(24, 23, 24, 240, None), // and its child
        ];
        assert_eq!(members(&table, &turns(), 0, Unsigned::Newest), [10, 11, 13, 21]);
        assert_eq!(members(&table, &turns(), 1, Unsigned::Newest), [20, 22, 23, 24]);
    }

    #[test]
    fn a_forged_marker_saves_nobody() {
        let table = [process(30, 1, 30, 300, Some("first")), process(31, 1, 31, 310, Some("another"))];
        assert_eq!(members(&table, &turns(), 1, Unsigned::Newest), [30, 31], "they began during the second");
    }

    #[test]
    fn a_circle_in_a_table_read_while_it_changed_ends() {
        let table = [process(30, 31, 30, 90, None), process(31, 30, 30, 90, None)];
        assert!(members(&table, &turns(), 0, Unsigned::Newest).is_empty());
    }

    #[test]
    fn descendants_are_found_however_deep() {
        let table = [
            process(5, 1, 5, 1, None),
            process(6, 5, 6, 2, None),
            process(7, 6, 7, 3, None),
            process(8, 1, 8, 4, None),
        ];
        assert_eq!(descendants(&table, 5), [6, 7]);
        assert!(descendants(&table, 8).is_empty());
    }

    #[test]
    fn on_a_whole_machine_only_signs_count() {
        let table = [
            process(12, 1, 12, 120, Some("first")), // an orphan that kept the marker
            process(20, 1, 20, 200, None),
            process(21, 20, 21, 210, None),
            process(30, 1, 30, 300, None),
        ];
        assert_eq!(members(&table, &turns(), 0, Unsigned::Nobody), [12]);
        assert_eq!(members(&table, &turns(), 1, Unsigned::Nobody), [20, 21]);
    }
}
