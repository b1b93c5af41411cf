//! Turns: started once, their output whole, ended whole.

use std::{fs, time::Instant};

use courier_keeper::protocol::{Refusal, Request, Response, StartTurn};

use crate::support::{Draft, Sandbox, as_both_users, wait_for};

fn start(turn: &str, argv: &[&str]) -> Request {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    Request::StartTurn(StartTurn { turn: turn.into(), argv, env: Vec::new(), redact: Vec::new(), gateway: None })
}

#[test]
fn output_arrives_byte_for_byte() {
    for draft in as_both_users() {
        let bytes: Vec<u8> =
            (0..3_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs::write(draft.spec.workspace.join("bytes"), &bytes).unwrap();
        let sandbox = draft.start();
        let turn = sandbox.begin("cat bytes; echo problem >&2; exit 3");
        let ended = sandbox.end(&turn);
        assert_eq!((ended.exit.code, ended.exit.signal), (Some(3), None));
        assert!(fs::read(sandbox.turn_directory(&turn).join("out")).unwrap() == bytes, "12 MB came through changed");
        assert_eq!(ended.exit.out_len, bytes.len() as u64);
        assert_eq!((ended.err.as_str(), ended.exit.err_len), ("problem\n", 8));
    }
}

#[test]
fn a_turn_starts_once_whoever_retries() {
    let sandbox = Sandbox::start();
    let request = start("once", &["/bin/sh", "-c", "echo x >> count"]);
    assert!(matches!(sandbox.ask(&request), Response::Started { fresh: true }));
    assert!(matches!(sandbox.ask(&request), Response::Started { fresh: false }));
    sandbox.end("once");
    assert!(matches!(sandbox.ask(&request), Response::Started { fresh: false }), "not after its end either");
    assert_eq!(fs::read_to_string(sandbox.workspace().join("count")).unwrap(), "x\n");
}

#[test]
fn a_prompt_of_a_megabyte_arrives_and_ends() {
    let sandbox = Sandbox::start();
    let prompt = "äöü\0x".repeat(300_000).into_bytes();
    let response = sandbox.ask_with(&start("long", &["/bin/cat"]), &prompt);
    assert!(matches!(response, Response::Started { fresh: true }));
    assert_eq!(sandbox.end("long").exit.code, Some(0));
    assert!(fs::read(sandbox.turn_directory("long").join("out")).unwrap() == prompt);
}

#[test]
fn without_a_prompt_standard_input_is_at_its_end() {
    assert_eq!(Sandbox::start().run("cat; echo end").out, "end\n");
}

#[test]
fn an_agent_that_does_not_read_its_prompt_hinders_nobody() {
    let sandbox = Sandbox::start();
    sandbox.ask_with(&start("deaf", &["/bin/true"]), &vec![b'x'; 1 << 20]);
    assert_eq!(sandbox.end("deaf").exit.code, Some(0));
    assert_eq!(sandbox.run("echo next").out, "next\n");
}

#[test]
fn a_program_that_is_not_there_says_so_where_errors_are_read() {
    let sandbox = Sandbox::start();
    assert!(matches!(sandbox.ask(&start("missing", &["/no/such/agent"])), Response::Started { fresh: true }));
    let ended = sandbox.end("missing");
    assert_eq!(ended.exit.code, Some(127));
    assert!(ended.err.contains("could not start /no/such/agent"), "{}", ended.err);
}

#[test]
fn a_turn_must_have_a_decent_id() {
    let response = Sandbox::start().ask(&start("../../escape", &["/bin/true"]));
    assert!(matches!(response, Response::Refused { refusal: Refusal::Malformed, .. }), "{response:?}");
}

#[test]
fn interrupting_asks_first_and_leaves_nobody() {
    let sandbox = Sandbox::start();
    let turn = sandbox.begin(
        "trap 'echo asked; exit 7' TERM
         setsid sh -c 'trap \"\" TERM; (setsid sleep 4711.1 &) ; sleep 4711.1' &
         (env -i setsid setsid sh -c 'trap \"\" TERM; sleep 4711.1; :' &)
         echo started
         while :; do sleep 0.01; done",
    );
    sandbox.wait_for_output(&turn, "started");
    wait_for("three of them", || (Sandbox::processes_with("4711.1").len() == 3).then_some(()));
    sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 5_000 });
    let ended = sandbox.end(&turn);
    assert_eq!(ended.exit.code, Some(7), "it was asked, and answered");
    assert_eq!(ended.out, "started\nasked\n");
    wait_for("the last survivor's end", || Sandbox::processes_with("4711.1").is_empty().then_some(()));
    assert_eq!(sandbox.run("echo still here").out, "still here\n");
}

#[test]
fn who_ignores_the_question_is_killed_after_the_grace() {
    let sandbox = Sandbox::start();
    let turn = sandbox.begin("trap '' TERM; echo deaf; while :; do sleep 0.01; done");
    sandbox.wait_for_output(&turn, "deaf");
    let asked = Instant::now();
    sandbox.done(&Request::EndTurn { turn: turn.clone(), grace_ms: 300 });
    assert_eq!(sandbox.end(&turn).exit.signal, Some(libc::SIGKILL));
    assert!(asked.elapsed().as_millis() >= 300);
}

#[test]
fn ending_one_turn_leaves_what_another_left_running() {
    let sandbox = Sandbox::start();
    sandbox.run("sleep 4711.2 >/dev/null 2>&1 & sleep 4711.2 >/dev/null 2>&1 & sleep 0");
    assert_eq!(Sandbox::processes_with("4711.2").len(), 2, "a turn's background work lives on");
    let second = sandbox.begin("sleep 4711.3");
    wait_for("the second turn", || (!Sandbox::processes_with("4711.3").is_empty()).then_some(()));
    sandbox.done(&Request::EndTurn { turn: second.clone(), grace_ms: 0 });
    assert_eq!(sandbox.end(&second).exit.signal, Some(libc::SIGKILL));
    assert_eq!(Sandbox::processes_with("4711.2").len(), 2);
    sandbox.done(&Request::EndTurn { turn: "turn-0".into(), grace_ms: 0 });
    wait_for("the first turn's background", || Sandbox::processes_with("4711.2").is_empty().then_some(()));
}

#[test]
fn ending_what_never_was_is_told_from_ending_what_is_over() {
    let sandbox = Sandbox::start();
    let response = sandbox.ask(&Request::EndTurn { turn: "never".into(), grace_ms: 0 });
    assert!(matches!(response, Response::Refused { refusal: Refusal::NoSuchTurn, .. }));
    sandbox.run("true");
    sandbox.done(&Request::EndTurn { turn: "turn-0".into(), grace_ms: 0 });
}

#[test]
fn the_environment_is_the_sandboxs_the_projects_and_the_turns() {
    let mut draft = Draft::new();
    draft.spec.variables = vec![("PROJECT".into(), "p".into()), ("BOTH".into(), "project".into())];
    let home = draft.spec.home.display().to_string();
    let sandbox = draft.start();
    let turn = sandbox.begin_with("env | sort", &[("BOTH", "turn"), ("COURIER_TURN", "forged")], &[]);
    let out = sandbox.end(&turn).out;
    let names: Vec<&str> = out.lines().map(|line| line.split_once('=').map_or(line, |(name, _)| name)).collect();
    assert_eq!(
        names,
        [
            "ALL_PROXY",
            "BOTH",
            "COURIER_TURN",
            "HOME",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "LANG",
            "LOGNAME",
            "NODE_USE_ENV_PROXY",
            "NO_PROXY",
            "PATH",
            "PROJECT",
            "PWD",
            "SHELL",
            "TERM",
            "TMPDIR",
            "USER",
            "all_proxy",
            "http_proxy",
            "https_proxy",
            "no_proxy"
        ],
        "nothing of the keeper's own"
    );
    for line in [format!("HOME={home}"), "BOTH=turn".into(), format!("COURIER_TURN={turn}")] {
        assert!(out.lines().any(|one| one == line), "{line} is missing in\n{out}");
    }
}

#[test]
fn an_agents_tools_work() {
    let script = r#"
        set -e
        git init -q repo && cd repo && echo text > file && git add .
        git -c user.name=a -c user.email=a@b commit -qm first && git log --format=%s
        cat <(echo substitution)
        echo through > /dev/stdout
        echo tee | tee /dev/stderr 2>/dev/null
        (exec 9> "$(mktemp)"; flock -n 9 echo locked)
        date +%Z >/dev/null; getent hosts localhost >/dev/null; hostname
        [ "$(nproc)" -ge 1 ]; ulimit -c
        if command -v node >/dev/null; then node -e '
            const { Worker } = require("worker_threads");
            new WebAssembly.Memory({ initial: 10, maximum: 1000 });
            new Worker("console.log(\"worker\")", { eval: true });'
        else echo worker; fi
        if command -v gdb >/dev/null; then gdb -q -batch -ex run /bin/true 2>&1 | grep -o "exited normally"
        else echo exited normally; fi
        echo end"#;
    for draft in as_both_users() {
        let sandbox = draft.start();
        fs::write(sandbox.workspace().join("script"), script).unwrap();
        let ended = sandbox.run("bash script");
        assert_eq!(
            ended.out, "first\nsubstitution\nthrough\ntee\nlocked\nsandbox\n0\nworker\nexited normally\nend\n",
            "standard error: {}",
            ended.err
        );
    }
}
