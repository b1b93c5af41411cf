//! The scripted model is faithful: the real Claude Code, driven against it outside any sandbox, behaves as it does with
//! the real one, and OpenAI's own client takes its answers for what they are. The first needs `CODECOURIER_TEST_CLAUDE`,
//! the second `npm ci` in `models-conformance`; `cargo xtask test` sees to both.
#![cfg(unix)]

use std::{
    path::Path,
    process::{Command, Stdio},
};

use courier_test_support::{
    judges,
    models::{Api, ModelServer, WRITTEN_CONTENT, WRITTEN_FILE},
    repositories::Repository,
};
use serde_json::Value;

const KEY: &str = "sk-ant-test-key-of-no-worth";

/// One run of Claude Code: its exit code and its events.
struct Outcome {
    code: Option<i32>,
    events: Vec<Value>,
}

impl Outcome {
    fn result(&self) -> &Value {
        self.events.iter().rfind(|event| event["type"] == "result").expect("a run ends with a result")
    }
}

/// Runs it in the repository, or says that there is none: a plain `cargo test` has nothing to drive.
fn claude(repository: &Repository, url: &str, arguments: &[&str]) -> Option<Outcome> {
    let Some(program) = std::env::var_os("CODECOURIER_TEST_CLAUDE") else {
        eprintln!("not driven: CODECOURIER_TEST_CLAUDE names no Claude Code (`cargo xtask test` does)");
        return None;
    };
    let home = tempfile::tempdir().expect("a temporary folder can be made");
    Some(run(Path::new(&program), repository, home.path(), url, arguments))
}

fn run(program: &Path, repository: &Repository, home: &Path, url: &str, arguments: &[&str]) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "the agent is driven bare here, without the engine")]
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let command = command.env_clear().env("PATH", path).env("HOME", home).env("IS_SANDBOX", "1");
    let command =
        command.envs([("ANTHROPIC_API_KEY", KEY), ("ANTHROPIC_BASE_URL", url), ("CLAUDE_CODE_MAX_RETRIES", "1")]);
    let command = command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    let command = command.envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "A Person")));
    let command = command.envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "person@example.org")));
    let command = command.args(["-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]);
    let output = command.args(arguments).current_dir(repository.path()).stdin(Stdio::null()).output();
    let output = output.expect("the agent starts");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!events.is_empty(), "it printed no event: {lines}\n{}", String::from_utf8_lossy(&output.stderr));
    Outcome { code: output.status.code(), events }
}

#[test]
fn claude_writes_and_commits_what_the_script_says_and_counts_what_it_was_served() {
    let (server, repository) = (ModelServer::start().unwrap(), Repository::ordinary().unwrap());
    let Some(outcome) = claude(&repository, &server.url_of("happy"), &["Add a greeting"]) else { return };
    assert_eq!(outcome.code, Some(0));
    let written = std::fs::read_to_string(repository.path().join(WRITTEN_FILE)).unwrap();
    assert_eq!(written, WRITTEN_CONTENT, "the file came through the agent's own tool");
    assert_eq!(repository.git(&["log", "-1", "--format=%s"]).unwrap(), "Add hello.txt");

    let result = outcome.result();
    assert_eq!(result["is_error"], false);
    assert!(result["result"].as_str().unwrap().contains("I have seen 1 user message(s)"), "{result}");
    let work = server.work();
    assert_eq!(work.iter().map(|request| request.step).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(work.iter().all(|request| request.key.as_ref().is_some_and(|key| key.value == KEY)), "the key is its own");
    let (usage, served) = (&result["usage"], server.usage_served());
    let counted = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"]
        .map(|column| usage[column].as_u64().unwrap_or_default());
    let told = [served.input, served.cache_write, served.cache_read, served.output];
    assert_eq!(counted, told, "the agent adds up what it was served");
}

#[test]
fn a_continued_session_brings_the_earlier_conversation() {
    let (server, repository) = (ModelServer::start().unwrap(), Repository::ordinary().unwrap());
    let Some(program) = std::env::var_os("CODECOURIER_TEST_CLAUDE") else { return };
    let home = tempfile::tempdir().unwrap();
    let run =
        |arguments: &[&str]| run(Path::new(&program), &repository, home.path(), &server.url_of("text"), arguments);
    let first = run(&["the first message"]);
    let session = first.result()["session_id"].as_str().unwrap().to_owned();
    run(&["--resume", &session, "the second message"]);
    let work = server.work();
    let said = &work.last().unwrap().said;
    assert!(said[0].contains("the first message") && said[1].contains("the second message"), "{said:?}");
}

#[test]
fn text_arrives_in_pieces() {
    let (server, repository) = (ModelServer::start().unwrap(), Repository::ordinary().unwrap());
    let arguments = ["--include-partial-messages", "Say something long [[scenario:slowtext1]]"];
    let Some(outcome) = claude(&repository, &server.url_of("happy"), &arguments) else { return };
    let is_piece = |event: &&Value| event["type"] == "stream_event" && event["event"]["delta"]["type"] == "text_delta";
    let pieces: Vec<&str> =
        outcome.events.iter().filter(is_piece).filter_map(|e| e["event"]["delta"]["text"].as_str()).collect();
    assert!(pieces.len() >= 10, "{pieces:?}");
    assert_eq!(pieces.concat(), outcome.result()["result"], "the pieces are the whole");
}

#[test]
fn a_refused_key_and_a_rate_limit_are_told_apart() {
    let (server, repository) = (ModelServer::start().unwrap(), Repository::ordinary().unwrap());
    for (scenario, status, word) in [("e401", 401, "authentication_failed"), ("e429", 429, "rate_limit")] {
        let Some(outcome) = claude(&repository, &server.url_of(scenario), &["Work"]) else { return };
        let result = outcome.result();
        assert_eq!((outcome.code, &result["is_error"]), (Some(1), &Value::Bool(true)), "{scenario}: {result}");
        assert_eq!(result["api_error_status"], status, "{scenario}: {result}");
        let is_told = outcome.events.iter().any(|event| event["type"] == "assistant" && event["error"] == word);
        assert!(is_told, "{scenario}: {:?}", outcome.events);
    }
}

#[test]
fn a_broken_connection_is_tried_again_and_what_came_is_kept() {
    let (server, repository) = (ModelServer::start().unwrap(), Repository::ordinary().unwrap());
    let Some(outcome) = claude(&repository, &server.url_of("drop"), &["Work"]) else { return };
    assert!(server.work().len() >= 2, "it tries again");
    assert_eq!(outcome.result()["result"], "This text is cut off in the mid", "as in the recordings of this agent");
}

#[test]
fn openais_own_client_takes_the_answers_for_what_they_are() {
    let server = ModelServer::start().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a program of the tests")]
    let mut command = Command::new(judges::node());
    let output = command.arg(judges::models("conformance.mjs").unwrap()).arg(server.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 14, "{said}");
    for api in [Api::Responses, Api::Chat] {
        let asked = server.work().into_iter().filter(|request| request.api == Some(api));
        let (answered, others): (Vec<_>, Vec<_>) = asked.partition(|request| request.is_answered);
        assert!(answered.iter().any(|request| request.usage.is_some()), "{api:?}: {answered:?}");
        assert!(others.iter().any(|request| request.scenario == "drop"), "{api:?}: what broke was not answered");
        assert!(others.iter().any(|request| request.status == 401 && request.usage.is_none()), "{api:?}: nor refused");
    }
}
