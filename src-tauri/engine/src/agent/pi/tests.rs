use std::path::PathBuf;

use super::*;
use crate::{
    agent::{Exit, Outcome},
    model::{ErrorKind, Item, Stream, Timestamp},
    secrets::Secret,
    transcript::fold,
};

fn launch<'a>(model: Option<&'a str>, session: Session, kind: CredentialKind) -> Launch<'a> {
    Launch {
        program: PathBuf::from("/opt/pi/dist/cli.js"),
        interpreter: Some(PathBuf::from("/opt/node")),
        prompt: "--help @me",
        model,
        session,
        credential: Some((kind, EnvValue::Secret(Secret::new("sk-canary")))),
        base_url: Some("http://127.0.0.1:1/model"),
        effort: None,
        extra_arguments: &[],
    }
}

fn variable(process: &Process, name: &str) -> String {
    match process.env.iter().find(|(known, _)| known == name) {
        Some((_, EnvValue::Plain(value))) => value.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn endpoints_of(process: &Process) -> Value {
    serde_json::from_str(&variable(process, ENDPOINTS_VARIABLE)).unwrap()
}

#[test]
fn a_turn_is_a_command_line_without_prompt_or_secret() {
    let extra = ["--no-mcp".to_owned()];
    let process = Pi.launch(&Launch {
        effort: Some("high"),
        extra_arguments: &extra,
        ..launch(Some("anthropic/claude-opus-5-5"), Session::Fresh("id-1".into()), CredentialKind::AnthropicKey)
    });
    let line = process.argv[3..].join(" ");
    assert_eq!(
        line,
        "pi /opt/node /opt/pi/dist/cli.js -p --mode json --provider anthropic --model claude-opus-5-5 --thinking high \
         --session-id id-1 --no-mcp"
    );
    assert_eq!(process.stdin, b"--help @me");
    let told = format!("{process:?}");
    assert!(!told.contains("canary"), "{told}");
    let endpoints = endpoints_of(&process);
    assert_eq!(endpoints["providers"]["anthropic"]["baseUrl"], "http://127.0.0.1:1/model");
    assert_eq!(endpoints["providers"]["anthropic"]["apiKey"], "$CODECOURIER_MODEL_KEY", "not the key itself");
}

#[test]
fn a_conversation_goes_on_by_its_id_or_as_the_newest() {
    let argv = |session| Pi.launch(&launch(None, session, CredentialKind::OpenaiKey)).argv.join(" ");
    assert!(argv(Session::Resume("old".into())).ends_with("--session old"));
    assert!(argv(Session::Continue).ends_with("--continue"));
}

#[test]
fn what_its_catalogue_knows_is_not_described_anew() {
    let provider = |model: &str, kind: CredentialKind, effort| {
        let process = Pi.launch(&Launch { effort, ..launch(Some(model), Session::Continue, kind) });
        endpoints_of(&process)["providers"][makers::name(kind)].clone()
    };
    let openai = provider("openai/gpt-6.2-sol", CredentialKind::OpenaiKey, None);
    assert_eq!((&openai["api"], &openai["models"]), (&Value::Null, &Value::Null));
    let router = provider("openrouter/openai/gpt-6.2-sol", CredentialKind::OpenrouterKey, None);
    assert_eq!(router["models"], Value::Null);
    for id in ["anthropic/claude-sonnet-5", "~anthropic/claude-opus-latest"] {
        let router = provider(&format!("openrouter/{id}"), CredentialKind::OpenrouterKey, None);
        assert_eq!((&router["api"], &router["models"][0]["id"]), (&json!("openai-completions"), &json!(id)));
    }
    let own = provider("compatible/llama", CredentialKind::CompatibleKey, None);
    assert_eq!((&own["models"][0]["id"], &own["models"][0]["reasoning"]), (&json!("llama"), &json!(false)));
    let asked = provider("compatible/llama", CredentialKind::CompatibleKey, Some("high"));
    assert_eq!(asked["models"][0]["reasoning"], true);
}

/// The script that starts it, with a program in its place.
#[cfg(unix)]
#[tokio::test]
async fn the_endpoints_are_written_by_the_turn_itself_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;

    let home = tempfile::tempdir().unwrap();
    let process = Pi.launch(&launch(None, Session::Continue, CredentialKind::CompatibleKey));
    let mut command = crate::process::helper(std::path::Path::new("/bin/sh"));
    command.args([
        "-c",
        RUN,
        "pi",
        "/bin/sh",
        "-c",
        "echo \"$PI_CODING_AGENT_SESSION_DIR:${CODECOURIER_ENDPOINTS-none}\"",
    ]);
    command.env("HOME", home.path()).env(ENDPOINTS_VARIABLE, variable(&process, ENDPOINTS_VARIABLE));
    let printed = command.output().await.unwrap().stdout;
    let folder = home.path().join(".pi/agent");
    assert_eq!(String::from_utf8(printed).unwrap().trim(), format!("{}/sessions:none", folder.display()));
    let file = folder.join("models.json");
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap(), endpoints_of(&process));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

/// Reads one turn's lines, which a person sees as these items.
fn read(out: &str, err: &str, exit: Exit) -> (Vec<Item>, Outcome) {
    let mut parser = Pi.parser(None);
    let (mut items, mut deltas, now) = (Vec::new(), Vec::new(), Timestamp::from_millis(0));
    parser.read(Stream::Err, err.as_bytes(), now, &mut deltas);
    parser.read(Stream::Out, out.as_bytes(), now, &mut deltas);
    let outcome = parser.finish(exit, false, now, &mut deltas);
    fold(&mut items, deltas);
    (items, outcome)
}

const UPDATE: &str = r#"{"type":"message_update","usage":{"input":7,"output":2,"cacheRead":1,"cacheWrite":3},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Hal"}}"#;

#[test]
fn a_turn_that_is_killed_has_consumed_what_was_last_known() {
    let (items, outcome) = read(&format!("{UPDATE}\n"), "", Exit::Signal(9));
    assert_eq!(outcome.usage, Some(Usage { input: 7, output: 2, cache_write: 3, cache_read: 1 }));
    assert!(matches!(&items[..], [Item::Text { text }, Item::Error { .. }] if text == "Hal"), "{items:?}");
}

#[test]
fn what_a_message_says_at_its_end_replaces_what_was_streamed() {
    let end = r#"{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Hello"}],"usage":{"input":7,"output":5},"stopReason":"stop"}}"#;
    let settled = r#"{"type":"agent_settled","aborted":false}"#;
    let (items, outcome) = read(&format!("{UPDATE}\n{end}\n{settled}\n"), "", Exit::Code(0));
    assert!(matches!(&items[..], [Item::Text { text }] if text == "Hello"), "{items:?}");
    assert_eq!((outcome.error, outcome.usage), (None, Some(Usage { input: 7, output: 5, ..Usage::default() })));
}

#[test]
fn summaries_and_a_cache_kept_warm_are_paid_for_too() {
    let lines = [
        r#"{"type":"compaction_start","reason":"threshold"}"#,
        r#"{"type":"summarization_retry_scheduled","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"terminated"}"#,
        r#"{"type":"compaction_end","reason":"threshold","result":{"summary":"s","usage":{"input":10,"output":1}},"aborted":false,"willRetry":false}"#,
        r#"{"type":"entry_appended","entry":{"type":"usage","kind":"cache_warm","usage":{"cacheRead":100}}}"#,
        r#"{"type":"message_end","message":{"role":"toolResult","content":[],"usage":{"input":5}}}"#,
        r#"{"type":"thinking_level_changed","level":"high"}"#,
    ];
    let (items, outcome) = read(&lines.map(|line| format!("{line}\n")).concat(), "", Exit::Signal(15));
    assert_eq!(outcome.usage, Some(Usage { input: 15, output: 1, cache_write: 0, cache_read: 100 }));
    assert!(!items.iter().any(|item| matches!(item, Item::Unknown { .. })), "{items:?}");
    let notices = items.iter().filter(|item| matches!(item, Item::Notice { .. })).count();
    assert_eq!(notices, 2, "a retry, and that it was summarised: {items:?}");
}

#[test]
fn a_session_that_is_gone_or_elsewhere_is_told_as_such() {
    for (err, exit) in [
        ("No session found matching 'x'\n", Exit::Code(1)),
        ("Session found in different project: /x\nFork this session into current directory? [y/N] ", Exit::Code(0)),
    ] {
        let (items, outcome) = read("", err, exit);
        let error = outcome.error.unwrap();
        assert_eq!(error.kind, ErrorKind::SessionNotFound, "{}", error.message);
        assert!(!error.message.contains("y/N"), "nobody is asked: {}", error.message);
        assert_eq!(items.len(), 1, "{items:?}");
    }
}
