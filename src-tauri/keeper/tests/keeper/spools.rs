//! What reaches the disk: everything but secrets, whatever happens.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use courier_keeper::{
    protocol::{Request, SPOOL_CAP},
    spool,
};

use crate::support::{Draft, Sandbox, wait_for};

const KEY: &str = "sk-ant-api03-canary/\"ü-0123456789";

#[test]
fn a_secret_is_redacted_however_it_is_printed() {
    let sandbox = Sandbox::start();
    // In pieces, so that no single read holds it.
    let script = "env; printf '%s' \"$KEY\" | while IFS= read -r -n1 letter; do printf '%s' \"$letter\"; sleep 0.005; done; \
                  echo; printf '%s\\n' \"$KEY\" >&2";
    let turn =
        sandbox.begin_with(&format!("exec bash -c '{}'", script.replace('\'', "'\\''")), &[("KEY", KEY)], &[KEY]);
    let ended = sandbox.end(&turn);
    assert_eq!(ended.exit.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("KEY=[redacted]\n"), "{}", ended.out);
    assert!(ended.out.ends_with("\n[redacted]\n"), "letter by letter: {}", ended.out);
    assert_eq!(ended.err, "[redacted]\n");
    assert_found_nowhere(&sandbox.directory);
}

fn assert_found_nowhere(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_found_nowhere(&path);
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            assert!(!bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()), "in {}", path.display());
        }
    }
}

#[test]
fn no_secret_is_on_any_command_line_or_outside_the_agents_environment() {
    const OTHER: &str = "sk-ant-api03-another-canary-9876543210"; // Other tests put theirs in other environments.
    let sandbox = Sandbox::start();
    let turn = sandbox.begin_with("echo here; sleep 60", &[("KEY", OTHER)], &[OTHER]);
    sandbox.wait_for_output(&turn, "here");
    let holders = |file: &str| {
        let numbers =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let has_it = |pid: &i32| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(OTHER.len()).any(|window| window == OTHER.as_bytes())
        };
        numbers.filter(has_it).collect::<Vec<i32>>()
    };
    assert!(holders("cmdline").is_empty());
    assert!((1..=2).contains(&holders("environ").len()), "only the turn's shell and its sleep");
}

#[test]
fn a_child_that_holds_the_pipes_does_not_hold_up_the_end() {
    let sandbox = Sandbox::start();
    let began = Instant::now();
    let turn = sandbox.begin("(while :; do echo more; sleep 0.05; done) & echo done");
    let ended = sandbox.end(&turn);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(ended.out.starts_with("done\n") || ended.out.starts_with("more\ndone\n"), "{}", ended.out);
    let place = sandbox.turn_directory(&turn);
    wait_for("what came later", || {
        fs::read_to_string(place.join(spool::LATE)).ok().filter(|late| late.contains("more"))
    });
    assert_eq!(fs::metadata(place.join(spool::OUT)).unwrap().len(), ended.exit.out_len, "`out` is final");
}

#[test]
fn a_quiet_child_that_holds_the_pipes_costs_half_a_second() {
    let sandbox = Sandbox::start();
    let began = Instant::now();
    let turn = sandbox.begin("sleep 60 & echo done");
    sandbox.end(&turn);
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn a_full_spool_makes_the_agent_wait_until_it_is_read() {
    let sandbox = Sandbox::start();
    let more = SPOOL_CAP + (8 << 20);
    let turn = sandbox.begin(&format!("head -c {more} /dev/zero"));
    wait_for("the cap", || sandbox.status().turns.iter().any(|turn| turn.capped).then_some(()));
    let length = || fs::metadata(sandbox.turn_directory(&turn).join(spool::OUT)).unwrap().len();
    assert!(length() < more && length() >= SPOOL_CAP);
    sandbox.done(&Request::AllowSpool { turn: turn.clone(), bytes: 2 * SPOOL_CAP });
    let exit = wait_for("the exit", || spool::read_exit(&sandbox.turn_directory(&turn)).unwrap());
    assert_eq!((exit.code, exit.out_len, length()), (Some(0), more, more));
}

const SMALL_DISK: &str = "COURIER_SMALL_DISK";

/// Runs this test again where temporary files lie on a disk of its own of so many bytes, in a private namespace that
/// leaves nothing behind. False: it has run there.
#[expect(clippy::disallowed_methods, reason = "the test starts itself again")]
fn is_on_a_small_disk(test: &str, bytes: u32) -> bool {
    if std::env::var_os(SMALL_DISK).is_some() {
        return true;
    }
    let place = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("bwrap")
        .args(["--dev-bind", "/", "/", "--die-with-parent", "--size", &bytes.to_string(), "--tmpfs"])
        .arg(place.path())
        .args(["--setenv", SMALL_DISK])
        .arg(place.path())
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

#[test]
fn a_full_disk_loses_nothing() {
    if !is_on_a_small_disk("spools::a_full_disk_loses_nothing", 1 << 20) {
        return;
    }
    let disk = std::path::PathBuf::from(std::env::var_os(SMALL_DISK).unwrap());
    let draft = Draft::new();
    std::os::unix::fs::symlink(&disk, draft.spec.directory.join(spool::TURNS)).unwrap();
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![0; 512 << 10]).unwrap();
    let sandbox = draft.start();
    let turn = sandbox.begin("seq 120000; echo end >&2");
    let blocked = wait_for("the full disk", || sandbox.status().turns.into_iter().find_map(|turn| turn.blocked));
    assert!(blocked.contains("No space left"), "{blocked}");
    fs::remove_file(&ballast).unwrap();
    let ended = sandbox.end(&turn);
    let expected: String = (1..=120_000).map(|number| format!("{number}\n")).collect();
    assert!(ended.out == expected, "{} bytes of {}", ended.out.len(), expected.len());
    assert_eq!((ended.exit.code, ended.err.as_str()), (Some(0), "end\n"));
}
