//! Agents as the registry offers them, run for real where nothing needs to be installed.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::Stdio,
};

use courier_engine::{
    agent::{self, Exit, Launch, Outcome, Session},
    model::{AgentKind, ErrorKind, Item, Stream, Timestamp},
    transcript::fold,
};

/// Runs a script as a turn of Shell does, outside any sandbox.
#[expect(clippy::disallowed_methods, reason = "a test of the command line, not of the engine's processes")]
fn shell(script: &str) -> (Vec<Item>, Outcome, Option<i32>) {
    let shell = agent::agent(AgentKind::Shell).expect("it is in the registry");
    let process = shell.launch(&Launch {
        program: PathBuf::from("/bin/bash"),
        prompt: script,
        model: None,
        session: Session::Continue,
        credential: None,
        base_url: None,
        effort: None,
        interpreter: None,
        extra_arguments: &[],
    });
    let mut child = std::process::Command::new(&process.argv[0])
        .args(&process.argv[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&process.stdin).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut err).unwrap();
    let status = child.wait().unwrap();
    let exit = match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(std::os::unix::process::ExitStatusExt::signal(&status).unwrap()),
    };
    let (mut parser, mut items, mut deltas) = (shell.parser(None), Vec::new(), Vec::new());
    let now = Timestamp::from_millis(0);
    parser.read(Stream::Out, &out, now, &mut deltas);
    parser.read(Stream::Err, &err, now, &mut deltas);
    let outcome = parser.finish(exit, false, now, &mut deltas);
    fold(&mut items, deltas);
    (items, outcome, status.code())
}

fn printed(items: &[Item], wanted: Stream) -> String {
    let text = |item: &Item| match item {
        Item::Output { text, stream } if *stream == wanted => text.clone(),
        _ => String::new(),
    };
    items.iter().map(text).collect()
}

#[test]
fn a_script_runs_as_a_script_does() {
    let long = format!("{}echo end; exit 5", "echo 1 >/dev/null # a comment of some length\n".repeat(23_000));
    assert!(long.len() > 1_000_000);
    for (script, code, out) in [
        ("echo a; exit 3", 3, "a\n"),
        ("cat <<EOF\nin $((1+1))\nEOF\necho done", 0, "in 2\ndone\n"),
        ("set -e; false; echo no", 1, ""),
        ("read line; echo \"[$line]\"; cat", 0, "[]\n"),
        ("-n", 127, ""),
        ("", 0, ""),
        ("sleep 0.05 & echo first; wait; echo second", 0, "first\nsecond\n"),
        ("trap 'echo bye' EXIT; echo hi", 0, "hi\nbye\n"),
        ("printf 'ü✓'; printf '\\xff'", 0, "ü✓\u{FFFD}"),
        (&long, 5, "end\n"),
    ] {
        let (items, outcome, returned) = shell(script);
        let shown = &script[..script.floor_char_boundary(60)];
        assert_eq!((returned, printed(&items, Stream::Out).as_str()), (Some(code), out), "{shown}");
        assert_eq!(outcome.error, None, "a code is an answer, not a failure: {shown}");
    }
}

#[test]
fn a_mistake_in_a_script_names_its_line() {
    let (items, outcome, code) = shell("echo before\nif [ ; then\n");
    assert_eq!((code, outcome.error), (Some(2), None));
    assert_eq!(printed(&items, Stream::Out), "before\n");
    assert!(printed(&items, Stream::Err).contains("line 3: syntax error"), "{items:?}");
    let (items, ..) = shell("echo 1\nno-such-command");
    assert!(printed(&items, Stream::Err).contains("line 2: no-such-command: command not found"), "{items:?}");
}

#[test]
fn a_script_that_is_ended_has_failed() {
    for (signal, kind) in [("TERM", ErrorKind::Interrupted), ("KILL", ErrorKind::Crashed)] {
        let (items, outcome, _) = shell(&format!("echo here; kill -{signal} $$"));
        assert_eq!(outcome.error.map(|failure| failure.kind), Some(kind));
        assert!(matches!(items.last(), Some(Item::Error { .. })), "{items:?}");
        assert_eq!(printed(&items, Stream::Out), "here\n");
    }
}

#[test]
fn the_registry_offers_what_can_be_started() {
    let kinds: Vec<_> = agent::agents().iter().map(|agent| agent.kind()).collect();
    use AgentKind as K;
    assert_eq!(kinds, [K::Claude, K::Codex, K::Opencode, K::Pi, K::Shell]);
    let claude = agent::agent(AgentKind::Claude).expect("it is in the registry");
    assert!(claude.models().iter().any(|model| model.id == "sonnet"));
    assert_eq!(claude.hosts(), ["api.anthropic.com"]);
}
