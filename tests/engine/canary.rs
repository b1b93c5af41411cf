//! A key goes into one agent's environment and nowhere else: an agent that prints it, whole, escaped and split over two
//! deltas, is read without it.

use std::{os::unix::fs::PermissionsExt, path::Path};

use courier_engine::{
    engine::NewSandbox,
    model::{AgentKind, Item},
    secrets::{CredentialKind, Secret},
    settings::Settings,
};

use crate::world::World;

const CANARY: &str = "sk-ant-canary-4f1d9c2b7e6a5038-do-not-print";

/// Stands in for the agent's program: prints what an agent with bad manners would.
const PROGRAM: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo "2.1.332 (Claude Code)"; exit; fi
key=$ANTHROPIC_API_KEY
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
printf '%s' "${key:0:half}"; sleep 0.2; printf '%s\n' "${key:half}"
printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"%s","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}\n' "$key"
"#;

#[tokio::test]
async fn a_key_is_found_nowhere_but_in_its_agents_environment() {
    let world = World::on_this_machine().await;
    let program = world.home.path().join("claude");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let claude_path = Some(program.display().to_string());
    world.engine.settings_set(Settings { claude_path, ..Settings::default() }).await.unwrap();
    let key = Secret::new(CANARY);
    world.engine.credential_set(CredentialKind::AnthropicKey, key, true).await.unwrap();

    let project = world.project().await;
    let new = NewSandbox::of(project, AgentKind::Claude, "print everything");
    let claude = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(claude, |row| !row.is_working && row.queued == 0).await;
    let said: String = world
        .items(claude)
        .await
        .into_iter()
        .map(|item| match item {
            Item::Text { text } => text,
            other => format!("{other:?}"),
        })
        .collect();
    assert!(said.contains("split: [redacted] and on"), "the halves came together redacted: {said}");
    let log = world.log(claude).await;
    assert!(contains(&log, b"plain: [redacted]"), "{}", String::from_utf8_lossy(&log));
    assert!(!contains(&log, CANARY.as_bytes()), "the raw log is what was printed, without the key");

    let new = NewSandbox::of(project, AgentKind::Shell, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'");
    let shell = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(shell, |row| !row.is_working && row.queued == 0).await;
    let log = String::from_utf8_lossy(&world.log(shell).await).into_owned();
    assert!(log.contains("HOME=") && !log.contains("ANTHROPIC"), "a Shell sandbox gets no key: {log}");

    for sandbox in [claude, shell] {
        world.engine.sandbox_stop(sandbox).await.unwrap();
        world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
    }
    world.engine.shutdown().await;
    nowhere_beneath(world.home.path());
}

#[tokio::test]
async fn a_key_is_on_no_command_line() {
    let world = World::on_this_machine().await;
    let program = world.home.path().join("claude");
    let script = "#!/bin/bash\nif [ \"$1\" = --version ]; then echo 2.1.332; exit; fi\necho ready; sleep 30\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let claude_path = Some(program.display().to_string());
    world.engine.settings_set(Settings { claude_path, ..Settings::default() }).await.unwrap();
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

fn nowhere_beneath(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            nowhere_beneath(&path);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!contains(&bytes, CANARY.as_bytes()), "the key lies in {}", path.display());
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
