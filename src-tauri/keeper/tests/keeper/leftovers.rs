//! Attacks on the end of a turn: the sandbox lives on, and nothing of the turn may.

use courier_keeper::protocol::Request;

use crate::support::{Sandbox, as_both_users, wait_for};

/// How many processes were begun inside while three tenths of a second passed. (The last field of `/proc/loadavg` is
/// the newest number of this namespace.)
const PACE: &str =
    "read -r a b c d first < /proc/loadavg; sleep 0.3; read -r a b c d last < /proc/loadavg; echo $((last - first))";

fn pace(sandbox: &Sandbox) -> i64 {
    sandbox.run(PACE).out.trim().parse().unwrap()
}

/// One that forks and leaves, again and again, is never who a list of processes says it is.
#[test]
pub fn who_is_always_somebody_else_does_not_outlive_its_turn() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let turn = sandbox.begin(&format!(
            "for one in 1 2 3 4 5 6; do perl -e 'use POSIX; exit if fork; while (1) {{ exit if fork; setsid }}' >/dev/null 2>&1; done
             pace=$({PACE}); [ $pace -gt 20 ] && echo hopping; sleep 60"
        ));
        sandbox.wait_for_output(&turn, "hopping");
        sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 0 });
        sandbox.end(&turn);
        wait_for("the end of the hopping", || (pace(&sandbox) < 5).then_some(()));
        assert_eq!(sandbox.run("echo still here").out, "still here\n");
    }
}

#[test]
pub fn no_variable_and_no_session_saves_what_a_turn_began() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let earlier = sandbox.begin("sleep 4713.2 >/dev/null 2>&1 & sleep 0");
        sandbox.end(&earlier);
        let turn = sandbox.begin(&format!(
            "for marker in COURIER_TURN={earlier} COURIER_TURN= COURIER_TURN=another A=b; do
               (env -i $marker setsid sh -c '(setsid sh -c \"trap : TERM HUP; sleep 4713.1; :\" &)' >/dev/null 2>&1 &)
             done; echo begun; sleep 60"
        ));
        sandbox.wait_for_output(&turn, "begun");
        wait_for("four of them", || (Sandbox::processes_with("4713.1").len() == 4).then_some(()));
        sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 0 });
        sandbox.end(&turn);
        wait_for("the end of all four", || Sandbox::processes_with("4713.1").is_empty().then_some(()));
        assert_eq!(Sandbox::processes_with("4713.2").len(), 1, "an earlier turn's own lives on");
    }
}

#[test]
pub fn a_turn_ends_whatever_its_processes_say_of_themselves() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let turn = sandbox.begin(
            // The third's first thread leaves, so that it looks over while its second goes on.
            r#"perl -e '$0 = "x" x 4096; sleep 60' & perl -e '$0 = ") Z 1 1 1 (\n\0"; sleep 60' &
               perl -Mthreads -e 'threads->create(sub { sleep 60 })->detach; syscall 60, 0' & echo begun; sleep 60"#,
        );
        sandbox.wait_for_output(&turn, "begun");
        sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 0 });
        assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGKILL));
        let left = || sandbox.run("ls -d /proc/[0-9]* | wc -l").out.trim().parse::<u32>().unwrap();
        wait_for("the end of them", || (left() <= 4).then_some(()));
    }
}

#[test]
pub fn nothing_moves_while_paused_however_it_hops() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let turn = sandbox.begin(
            r#"perl -e 'use POSIX; open my $file, ">", "hops"; select $file; $| = 1; exit if fork; while (1) { exit if fork; setsid; print "." }'
               echo hopping; sleep 60"#,
        );
        sandbox.wait_for_output(&turn, "hopping");
        let hops = || std::fs::metadata(sandbox.workspace().join("hops")).map_or(0, |file| file.len());
        wait_for("some hops", || (hops() > 50).then_some(()));
        sandbox.done(&Request::Pause);
        let paused_at = hops();
        let window = std::time::Instant::now();
        while window.elapsed().as_millis() < 200 {
            assert_eq!(hops(), paused_at, "it moved while paused");
        }
        sandbox.done(&Request::Resume);
        wait_for("it to go on", || (hops() > paused_at).then_some(()));
    }
}
