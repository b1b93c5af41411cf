//! A key stays outside; where an agent must have it itself, it goes into that agent's environment and nowhere else: an
//! agent that prints everything it can find, whole, escaped and split over two deltas, is read without it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use courier_engine::{
    engine::{NewSandbox, SendHow},
    model::{AgentKind, Item, NetworkMode, SandboxId},
    secrets::{CredentialKind, Secret},
    settings::Settings,
};
use courier_test_support::models::ModelServer;

use crate::world::World;

const CANARY: &str = "sk-ant-canary-4f1d9c2b7e6a5038-do-not-print";
const TOKEN_CANARY: &str = "sk-ant-oat-canary-4f1d9c2b7e6a5038-do-not-print";

/// Stands in for the agent's program: prints what an agent with bad manners would.
const PROGRAM: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo "2.1.332 (Claude Code)"; exit; fi
key=${ANTHROPIC_API_KEY:-$CLAUDE_CODE_OAUTH_TOKEN}
half=$((${#key} / 2))
delta() { printf '{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}},"session_id":"s"}\n' "$1"; }
echo '{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[],"cwd":"/"}'
echo '{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1","role":"assistant","content":[],"usage":{"input_tokens":1,"output_tokens":1}}},"session_id":"s"}'
echo '{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}},"session_id":"s"}'
delta "split: ${key:0:half}"
delta "${key:half} and on"
echo '{"type":"stream_event","event":{"type":"content_block_stop","index":0},"session_id":"s"}'
echo "plain: $key"
env
env >&2
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0\n' '  '
grep -rls 'do-not[-]print' . "$HOME" /tmp /run /etc
printf '%s' "${key:0:half}"; sleep 0.2; printf '%s\n' "${key:half}"
if [ -n "$ANTHROPIC_BASE_URL" ]; then
  body='{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}'
  exec 3<>"/dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:}"
  printf 'POST /v1/messages HTTP/1.1\r\nx-api-key: %s\r\nContent-Length: %s\r\n\r\n%s' "$key" "${#body}" "$body" >&3
  timeout 15 cat <&3
  echo
fi
printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"%s","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}\n' "$key"
"#;

/// The agent's program and where its model is.
async fn set(world: &World, program: &str, base_url: Option<String>) {
    let place = world.home.path().join("claude");
    std::fs::write(&place, program).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = Settings::default().with_path(AgentKind::Claude, place.display().to_string());
    let settings = match base_url {
        Some(url) => settings.with_base_url(CredentialKind::AnthropicKey, url),
        None => settings,
    };
    world.engine.settings_set(settings).await.unwrap();
}

/// One turn of Claude, to its end.
async fn one_turn(world: &World, network: NetworkMode) -> SandboxId {
    let project = world.project().await;
    let new = NewSandbox { network, ..NewSandbox::of(project, AgentKind::Claude, "print everything") };
    let sandbox = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(sandbox, |row| !row.is_working && row.queued == 0).await;
    sandbox
}

/// What a person reads.
async fn said(world: &World, sandbox: SandboxId) -> String {
    let words = |item| match item {
        Item::Text { text } => text,
        other => format!("{other:?}"),
    };
    world.items(sandbox).await.into_iter().map(words).collect()
}

#[tokio::test]
async fn a_key_stays_outside_and_the_model_is_asked_with_it() {
    let world = World::on_this_machine().await;
    let server = ModelServer::start().unwrap();
    set(&world, PROGRAM, Some(server.url_of("text"))).await;
    world.engine.credential_set(CredentialKind::AnthropicKey, Secret::new(CANARY), true).await.unwrap();
    let mut sandboxes = Vec::new();
    for network in [NetworkMode::None, NetworkMode::Open, NetworkMode::Listed] {
        let sandbox = one_turn(&world, network).await;
        let log = String::from_utf8_lossy(&world.log(sandbox).await).into_owned();
        assert!(log.contains("plain: sandbox-token-"), "what it has is a token: {log}");
        assert!(log.contains("ANTHROPIC_BASE_URL=http://127.0.0.1:17982\n"), "{log}");
        assert!(!log.contains("canary") && !log.contains("[redacted]"), "there was nothing to take out: {log}");
        assert!(log.contains("HTTP/1.1 200 OK\r\n") && log.contains("\"type\":\"message\""), "{log}");
        assert!(!said(&world, sandbox).await.contains("canary"));
        assert!(!world.engine.sandbox_get(sandbox).await.unwrap().is_key_inside);
        sandboxes.push(sandbox);
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        let key = request.key.unwrap();
        assert_eq!((key.header.as_str(), key.value.as_str()), ("x-api-key", CANARY), "the real one, where it belongs");
    }
    for sandbox in sandboxes {
        world.engine.sandbox_stop(sandbox).await.unwrap();
        world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
    }
    world.engine.shutdown().await;
    nowhere_beneath(world.home.path(), CANARY);
}

#[tokio::test]
async fn a_subscriptions_token_is_found_nowhere_but_in_its_agents_environment() {
    let world = World::on_this_machine().await;
    set(&world, PROGRAM, None).await;
    world.engine.credential_set(CredentialKind::ClaudeOauthToken, Secret::new(TOKEN_CANARY), true).await.unwrap();
    let claude = one_turn(&world, NetworkMode::Open).await;
    let said = said(&world, claude).await;
    assert!(said.contains("split: [redacted] and on"), "the halves came together redacted: {said}");
    let log = world.log(claude).await;
    assert!(contains(&log, b"plain: [redacted]"), "{}", String::from_utf8_lossy(&log));
    assert!(!contains(&log, TOKEN_CANARY.as_bytes()), "the raw log is what was printed, without the key");
    assert!(world.engine.sandbox_get(claude).await.unwrap().is_key_inside, "and the window says where it is");

    let project = world.project().await;
    let new = NewSandbox::of(project, AgentKind::Shell, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'");
    let shell = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(shell, |row| !row.is_working && row.queued == 0).await;
    let log = String::from_utf8_lossy(&world.log(shell).await).into_owned();
    assert!(
        log.contains("HOME=") && !log.contains("ANTHROPIC") && !log.contains("CLAUDE"),
        "a Shell gets no key: {log}"
    );
    assert!(!world.engine.sandbox_get(shell).await.unwrap().is_key_inside);

    // Another key, another turn: what is shown is what holds.
    let server = ModelServer::start().unwrap();
    set(&world, PROGRAM, Some(server.url_of("text"))).await;
    world.engine.credential_set(CredentialKind::AnthropicKey, Secret::new(CANARY), true).await.unwrap();
    world.engine.sandbox_send(claude, "again", SendHow::Queue).await.unwrap();
    let row = world.until(claude, |row| !row.is_key_inside && !row.is_working && row.queued == 0).await;
    assert_eq!(row.billed_to.as_deref(), Some("Anthropic key, …rint"));
    assert_eq!(server.requests().len(), 1);

    for sandbox in [claude, shell] {
        world.engine.sandbox_stop(sandbox).await.unwrap();
        world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
    }
    world.engine.shutdown().await;
    nowhere_beneath(world.home.path(), TOKEN_CANARY);
    nowhere_beneath(world.home.path(), CANARY);
}

#[tokio::test]
async fn a_key_is_on_no_command_line() {
    let world = World::on_this_machine().await;
    let script = "#!/bin/bash\nif [ \"$1\" = --version ]; then echo 2.1.332; exit; fi\necho ready; sleep 30\n";
    set(&world, script, None).await;
    world.engine.credential_set(CredentialKind::AnthropicKey, Secret::new(CANARY), true).await.unwrap();
    let project = world.project().await;
    let prompt = "a prompt nobody else should read";
    let new = NewSandbox::of(project, AgentKind::Claude, prompt);
    let sandbox = world.engine.sandbox_create(new).await.unwrap().id;
    let mut transcript = world.engine.transcript_open(sandbox).await.unwrap();
    while world.log(sandbox).await.is_empty() {
        transcript.batches.recv().await.unwrap();
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&line).into_owned();
        assert!(!contains(&line, CANARY.as_bytes()) && !contains(&line, prompt.as_bytes()), "{text}");
    }
    world.engine.sandbox_stop(sandbox).await.unwrap();
    world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
}

fn nowhere_beneath(folder: &Path, secret: &str) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            nowhere_beneath(&path, secret);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!contains(&bytes, secret.as_bytes()), "the key lies in {}", path.display());
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
