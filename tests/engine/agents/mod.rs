//! The real agents against a scripted model, each through every scene it must master. The tests print a table: agent,
//! scene, how it went. They need `CODECOURIER_TEST_CLAUDE` and its like, which `cargo xtask test` sets.
//!
//! `COURIER_SCENE=interrupt` plays that scene alone.

mod app;
mod scenes;
mod stage;

use std::{
    fmt::Write as _,
    io::Write as _,
    time::{Duration, Instant},
};

use courier_engine::{model::AgentKind, secrets::CredentialKind};
use stage::{Ground, Stage};

/// An agent as it is driven here.
#[derive(Debug)]
pub struct Driven {
    pub kind: AgentKind,
    /// Names its program.
    variable: &'static str,
    pub credential: CredentialKind,
    pub key: &'static str,
    pub model: Option<&'static str>,
    /// It prints a text as it comes, and not only when it is whole.
    pub streams: bool,
    /// What the base URL of its model ends in.
    path: &'static str,
    /// Scenes it cannot master, with the reason.
    cannot: &'static [(&'static str, &'static str)],
}

const OPENAI_KEY: &str = "sk-proj-worthless-key-of-a-test-7f3c";

const CLAUDE: Driven = Driven {
    kind: AgentKind::Claude,
    variable: "CODECOURIER_TEST_CLAUDE",
    credential: CredentialKind::AnthropicKey,
    key: "sk-ant-api03-worthless-key-of-a-test-7f3c",
    model: None,
    streams: true,
    path: "",
    cannot: &[],
};

const CODEX: Driven = Driven {
    kind: AgentKind::Codex,
    variable: "CODECOURIER_TEST_CODEX",
    credential: CredentialKind::OpenaiKey,
    key: OPENAI_KEY,
    // Its newer models get their tools in a form of their own, which the scripted model does not speak.
    model: Some("gpt-5.5"),
    streams: false,
    path: "/v1",
    cannot: &[],
};

const OPENCODE: Driven = Driven {
    kind: AgentKind::Opencode,
    variable: "CODECOURIER_TEST_OPENCODE",
    credential: CredentialKind::AnthropicKey,
    key: CLAUDE.key,
    model: None,
    streams: false,
    path: "",
    cannot: &[
        ("known_end", "it waits for a limit's end without a word; after 5 minutes it is said to be quiet"),
        ("too_long", "it summarises the conversation and goes on"),
    ],
};

const PI: Driven = Driven {
    kind: AgentKind::Pi,
    variable: "CODECOURIER_TEST_PI",
    credential: CredentialKind::CompatibleKey,
    key: "worthless-key-of-a-server-7f3c",
    model: Some("compatible/scripted"),
    streams: true,
    path: "/v1",
    cannot: &[],
};

const ALL: [&Driven; 4] = [&CLAUDE, &CODEX, &OPENCODE, &PI];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_masters_every_scene() {
    play(&CLAUDE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_masters_every_scene() {
    play(&CODEX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_masters_every_scene() {
    play(&OPENCODE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pi_masters_every_scene() {
    play(&PI).await;
}

/// Pi with the key of each maker: its own server is what the scenes above use.
const PI_OF_MAKERS: [Driven; 3] = [
    Driven {
        credential: CredentialKind::AnthropicKey,
        key: CLAUDE.key,
        model: Some("anthropic/claude-sonnet-5"),
        path: "",
        ..PI
    },
    // Newer models of OpenAI get their tools in a form of their own, which the scripted model does not speak.
    Driven { credential: CredentialKind::OpenaiKey, key: OPENAI_KEY, model: Some("openai/gpt-5.5"), ..PI },
    // One of a maker that OpenRouter has an API of its own for.
    Driven {
        credential: CredentialKind::OpenrouterKey,
        key: "sk-or-v1-worthless-key-of-a-test-7f3c",
        model: Some("openrouter/anthropic/claude-sonnet-5"),
        ..PI
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pi_asks_each_maker_in_its_own_way() {
    for driven in &PI_OF_MAKERS {
        play_these(driven, Some("follow_up"), &[], |_, _| Ground::Here).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_masters_every_scene_on_e2b() {
    // When a limit ends the gateway reads from the model's answer, and there it is not in the way.
    let cannot = [("known_end", "the agent asks its model itself, and does not say when a limit ends")];
    play_these(&CLAUDE, std::env::var("COURIER_SCENE").ok().as_deref(), &cannot, Ground::cloud).await;
}

/// Plays every scene on a stage of its own, prints the agent's part of the table, and fails where one did.
async fn play(driven: &'static Driven) {
    play_these(driven, std::env::var("COURIER_SCENE").ok().as_deref(), &[], |_, _| Ground::Here).await;
}

/// The same for one scene only, where one is named.
async fn play_these(
    driven: &'static Driven,
    only: Option<&str>,
    cannot_there: &[(&str, &str)],
    ground: fn(&Driven, &std::path::Path) -> Ground,
) {
    let Some(program) = std::env::var_os(driven.variable) else {
        eprintln!("not driven: {} names no program (`cargo xtask test` does)", driven.variable);
        return;
    };
    let mut table = String::new();
    let (mut failed, mut is_cloud) = (Vec::new(), false);
    for scene in scenes::ALL.iter().filter(|scene| only.is_none_or(|only| only == scene.name)) {
        let begun = Instant::now();
        let cannot = driven.cannot.iter().chain(cannot_there).find(|(name, _)| *name == scene.name);
        let result = match cannot {
            Some((_, why)) => format!("cannot: {why}"),
            None => {
                let ground = ground(driven, program.as_ref());
                is_cloud = matches!(ground, Ground::Cloud(_));
                let stage = Stage::new(driven, program.clone().into(), ground).await;
                // A scene that panics fails by itself, and the others are played all the same.
                let local = tokio::task::LocalSet::new();
                let played = local.run_until(async { tokio::task::spawn_local((scene.play)(stage)).await });
                match tokio::time::timeout(scene.limit, played).await {
                    Ok(Ok(())) => "ok".to_owned(),
                    Ok(Err(_)) => "FAILED".to_owned(),
                    Err(_) => format!("FAILED: not over after {:?}", scene.limit),
                }
            }
        };
        if result.starts_with("FAILED") {
            failed.push(scene.name);
        }
        let took = begun.elapsed().as_secs_f64();
        _ = writeln!(
            table,
            "{:<10}{:<7}{:<34}{took:>6.1} s  {result}",
            driven.kind.code(),
            if is_cloud { "e2b" } else { "local" },
            scene.words
        );
    }
    // Past the capture: the table is what a person who runs the tests wants to see.
    _ = std::io::stdout().lock().write_all(table.as_bytes());
    assert!(failed.is_empty(), "{}: {}", driven.kind, failed.join(", "));
}

/// One thing an agent must master.
pub struct Scene {
    name: &'static str,
    words: &'static str,
    limit: Duration,
    play: fn(Stage) -> std::pin::Pin<Box<dyn Future<Output = ()>>>,
}
