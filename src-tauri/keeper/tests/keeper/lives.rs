//! Keepers and sandboxes: how they begin, wait and end.

use std::{fs, time::Duration};

use courier_keeper::{
    protocol::{EndReason, OnTimeout, Readiness, Refusal, Request, Response},
    spool,
};

use crate::support::{Draft, Sandbox, as_both_users, wait_for};

#[test]
fn a_second_keeper_of_the_same_sandbox_leaves_it_alone() {
    let draft = Draft::new();
    let spec = draft.spec.clone();
    let sandbox = draft.start();
    let mut second = Draft::new();
    second.spec = spec;
    let (mut other, readiness) = second.try_start();
    assert!(matches!(readiness, Readiness::AlreadyKept), "{readiness:?}");
    assert!(other.1.wait().unwrap().success());
    assert_eq!(sandbox.run("echo here").out, "here\n");
}

#[test]
fn a_jail_that_cannot_be_made_says_why() {
    let mut draft = Draft::new();
    draft.spec.bwrap = "/no/such/bwrap".into();
    let ((_, mut keeper, _place), readiness) = draft.try_start();
    assert!(matches!(&readiness, Readiness::Failed { cause } if cause.contains("No such file")), "{readiness:?}");
    assert!(!keeper.wait().unwrap().success());
}

#[test]
fn a_folder_with_a_very_long_path_works() {
    let mut draft = Draft::new();
    let deep = draft.place().join("d".repeat(100)).join("e".repeat(100));
    draft.spec.directory = deep.clone();
    draft.spec.workspace = deep.join("workspace");
    draft.spec.home = deep.join("home");
    fs::create_dir_all(&draft.spec.workspace).unwrap();
    assert_eq!(draft.start().run("pwd").out, format!("{}\n", deep.join("workspace").display()));
}

#[test]
fn nothing_advances_while_paused() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let turn = sandbox.begin("i=0; while :; do i=$((i+1)); echo $i > counter.new; mv counter.new counter; done");
        let counter = sandbox.workspace().join("counter");
        let read = || fs::read_to_string(&counter).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let before = wait_for("the counter", read);
        sandbox.done(&Request::Pause);
        sandbox.done(&Request::Pause);
        assert!(sandbox.status().paused);
        let stopped_at = read();
        let left = sandbox.status().remaining_ms;
        let window = std::time::Instant::now();
        while window.elapsed() < Duration::from_millis(200) {
            assert_eq!(read(), stopped_at, "it moved while paused");
        }
        assert_eq!(sandbox.status().remaining_ms, left, "its time does not count either");
        let refused = sandbox.ask(&Request::StartTurn(courier_keeper::protocol::StartTurn {
            turn: "later".into(),
            argv: vec!["/bin/true".into()],
            env: Vec::new(),
            redact: Vec::new(),
            gateway: None,
        }));
        assert!(matches!(refused, Response::Refused { refusal: Refusal::Paused, .. }));
        sandbox.done(&Request::Resume);
        sandbox.done(&Request::Resume);
        wait_for("the counter to go on", || (read() > stopped_at && read() > Some(before)).then_some(()));
        sandbox.done(&Request::Pause);
        sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 60_000 });
        assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGKILL), "what is paused cannot be asked");
    }
}

#[test]
fn when_its_time_is_over_the_turns_are_ended_and_it_goes() {
    for mut draft in as_both_users() {
        draft.spec.lifetime_ms = 700;
        let mut sandbox = draft.start();
        let turn = sandbox.begin(
            "trap 'echo saved; exit 0' TERM
             (setsid sh -c 'trap \"\" TERM; while :; do sleep 4711.4; done' &)
             echo working; while :; do sleep 0.01; done",
        );
        let ended = sandbox.end(&turn);
        assert_eq!((ended.exit.code, ended.out.as_str()), (Some(0), "working\nsaved\n"));
        sandbox.wait_until_gone();
        assert_eq!(sandbox.ended().unwrap().reason, EndReason::TimedOut);
        assert!(Sandbox::processes_with("4711.4").is_empty(), "nobody is left");
    }
}

#[test]
fn an_idle_sandbox_goes_as_soon_as_the_app_had_its_chance() {
    let mut draft = Draft::new();
    draft.spec.lifetime_ms = 10;
    let began = std::time::Instant::now();
    draft.start().wait_until_gone();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn an_extension_moves_the_end() {
    let mut draft = Draft::new();
    draft.spec.lifetime_ms = 200;
    let sandbox = draft.start();
    sandbox.done(&Request::Extend { remaining_ms: 500_000 });
    assert!(sandbox.status().remaining_ms > 400_000);
    assert_eq!(sandbox.run("sleep 2.5; echo alive").out, "alive\n");
}

#[test]
fn a_sandbox_can_wait_for_the_app_when_its_time_is_over() {
    let mut draft = Draft::new();
    draft.spec.lifetime_ms = 100;
    draft.spec.on_timeout = OnTimeout::Pause;
    let sandbox = draft.start();
    let turn = sandbox.begin("while :; do sleep 0.01; done");
    wait_for("the pause", || sandbox.status().paused.then_some(()));
    assert!(sandbox.status().paused_by_timeout);
    sandbox.done(&Request::Extend { remaining_ms: 60_000 });
    sandbox.done(&Request::Resume);
    assert!(!sandbox.status().paused);
    sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 5_000 });
    assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGTERM));
}

#[test]
fn a_keepers_death_is_the_end_of_everything_inside() {
    for draft in as_both_users() {
        let mut sandbox = draft.start();
        let turn = sandbox.begin("(setsid sh -c 'trap \"\" TERM; sleep 4711.5' &) ; echo go; sleep 4711.5");
        sandbox.wait_for_output(&turn, "go");
        assert!(sandbox.record.keeper.signal(libc::SIGKILL).unwrap());
        sandbox.wait_until_gone();
        assert!(Sandbox::processes_with("4711.5").is_empty());
        assert_eq!(sandbox.ended(), None, "nobody was there to write it");
        assert_eq!(spool::read_exit(&sandbox.turn_directory(&turn)).unwrap(), None);
    }
}

#[test]
fn a_new_keeper_settles_what_the_last_one_left_open() {
    let draft = Draft::new();
    let spec = draft.spec.clone();
    let mut sandbox = draft.start();
    let turn = sandbox.begin("echo some; sleep 60");
    sandbox.wait_for_output(&turn, "some");
    sandbox.record.keeper.signal(libc::SIGKILL).unwrap();
    sandbox.wait_until_gone();
    let mut again = Draft::new();
    again.spec = spec;
    let ((_, mut keeper, _place), readiness) = again.try_start();
    assert!(matches!(readiness, Readiness::Ready { .. }), "{readiness:?}");
    let ended = sandbox.end(&turn);
    assert_eq!((ended.exit.code, ended.exit.signal, ended.exit.out_len), (None, None, 5));
    assert_eq!(sandbox.run("echo more").out, "more\n");
    sandbox.done(&Request::Destroy);
    keeper.wait().unwrap();
}

#[test]
fn the_jails_death_is_the_keepers_end() {
    let mut sandbox = Sandbox::start();
    let turn = sandbox.begin("echo go; sleep 60");
    sandbox.wait_for_output(&turn, "go");
    sandbox.record.init.clone().unwrap().signal(libc::SIGKILL).unwrap();
    assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGKILL));
    sandbox.wait_until_gone();
    assert_eq!(sandbox.ended().unwrap().reason, EndReason::Gone);
}

#[test]
fn destroying_writes_every_exit_and_leaves_nobody() {
    let mut sandbox = Sandbox::start();
    let turn = sandbox.begin("(setsid sh -c 'trap \"\" TERM; sleep 4711.6' &) ; trap '' TERM; echo go; sleep 4711.6");
    sandbox.wait_for_output(&turn, "go");
    sandbox.done(&Request::Destroy);
    assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGKILL));
    sandbox.wait_until_gone();
    assert!(Sandbox::processes_with("4711.6").is_empty());
    assert_eq!(sandbox.ended().unwrap().reason, EndReason::Destroyed);
}

#[test]
fn a_logout_ends_turns_as_a_person_would() {
    let mut sandbox = Sandbox::start();
    let turn = sandbox.begin("trap 'echo bye; exit 0' TERM; echo go; while :; do sleep 0.01; done");
    sandbox.wait_for_output(&turn, "go");
    sandbox.record.keeper.signal(libc::SIGTERM).unwrap();
    assert_eq!(sandbox.end(&turn).out, "go\nbye\n");
    sandbox.wait_until_gone();
    assert_eq!(sandbox.ended().unwrap().reason, EndReason::Terminated);
}

#[test]
fn a_keeper_whose_folder_was_deleted_does_not_live_on_unseen() {
    let mut sandbox = Sandbox::start();
    let turn = sandbox.begin("trap '' TERM; echo busy; while :; do sleep 4711.7; done");
    sandbox.wait_for_output(&turn, "busy");
    fs::remove_dir_all(&sandbox.directory).unwrap();
    sandbox.wait_until_gone();
    assert!(Sandbox::processes_with("4711.7").is_empty(), "nobody is left");
}
