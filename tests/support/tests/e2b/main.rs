//! The E2B-compatible server is faithful: the official clients, unmodified, find in it what they expect. What goes wrong
//! when it is told to, how machines stand still, and that nothing of them stays, is tested with a client of our own.
//!
//! The official ones need `npm ci` in `e2b-conformance` and `CODECOURIER_TEST_PYTHON`; `cargo xtask test` sees to both.
#![cfg(target_os = "linux")]

mod client;
mod faults;
mod lifecycle;
mod machines;

use std::process::{Command, Output};

use courier_test_support::{
    e2b::{E2bServer, Options},
    judges,
};

fn judged(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], server: &E2bServer) -> Output {
    #[expect(clippy::disallowed_methods, reason = "a program of the tests")]
    let mut command = Command::new(program);
    let folder = judges::e2b("").expect("the client is installed");
    let command = command.args(arguments).current_dir(folder).env_remove("E2B_DOMAIN");
    let command = command.env("E2B_API_KEY", server.key()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("E2B_API_URL", server.url()).env("E2B_SANDBOX_URL", server.url()).output().expect("it starts")
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn the_official_client_finds_what_it_expects() {
    let server = E2bServer::start(Options::default()).unwrap();
    let arguments = ["--test", "--test-concurrency=1", "--test-reporter=tap", "sdk.test.mjs"];
    let output = judged(judges::node(), &arguments, &server);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.lines().any(|line| line == "# pass 14"), "{said}");
    assert_eq!(server.machines(), [], "it has killed what it made");
}

#[test]
fn the_official_client_for_python_does_too() {
    let Some(python) = judges::python() else {
        eprintln!("not driven: CODECOURIER_TEST_PYTHON names no Python with E2B's client (`cargo xtask test` does)");
        return;
    };
    let server = E2bServer::start(Options::default()).unwrap();
    let output = judged(python, &["-m", "unittest", "test_sdk"], &server);
    let said = said(&output);
    assert!(output.status.success() && said.contains("Ran 14 tests"), "{said}");
    assert_eq!(server.machines(), [], "it has killed what it made");
}
