//! The real Claude Code asks a scripted model through the gateway, in a sandbox of this machine: as it is told to, with a
//! network and without. Needs `CODECOURIER_TEST_CLAUDE`, which `cargo xtask test` sets.

use std::time::Duration;

use courier_engine::{
    engine::NewSandbox,
    model::{AgentKind, ErrorKind, Item, NetworkMode, SandboxId},
    secrets::{CredentialKind, Secret},
    settings::Settings,
};
use courier_test_support::models::{ModelServer, WRITTEN_CONTENT, WRITTEN_FILE};

use crate::world::World;

const KEY: &str = "sk-ant-api03-worthless-key-of-a-test-7f3c";

/// How long Claude Code may take, its own retries included.
const PATIENCE: Duration = Duration::from_secs(90);

/// An engine that knows Claude Code and where the model is; `None`: there is no Claude Code to drive.
async fn world(base_url: String) -> Option<World> {
    let Some(program) = std::env::var_os("CODECOURIER_TEST_CLAUDE") else {
        eprintln!("not driven: CODECOURIER_TEST_CLAUDE names no Claude Code (`cargo xtask test` does)");
        return None;
    };
    let world = World::on_this_machine().await;
    let settings = Settings::default()
        .with_path(AgentKind::Claude, program.into_string().unwrap())
        .with_base_url(CredentialKind::AnthropicKey, base_url);
    world.engine.settings_set(settings).await.unwrap();
    world.engine.credential_set(CredentialKind::AnthropicKey, Secret::new(KEY), true).await.unwrap();
    Some(world)
}

/// One turn to its end.
async fn turn(world: &World, network: NetworkMode, prompt: &str) -> (SandboxId, Vec<Item>) {
    let project = world.project().await;
    let new = NewSandbox { network, ..NewSandbox::of(project, AgentKind::Claude, prompt) };
    let sandbox = world.engine.sandbox_create(new).await.unwrap().id;
    let mut changes = world.engine.feed().changes();
    let waiting = async {
        loop {
            let row = world.engine.sandbox_get(sandbox).await.unwrap();
            if !row.is_working && row.queued == 0 {
                return;
            }
            _ = changes.recv().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the turn ends");
    (sandbox, world.items(sandbox).await)
}

#[tokio::test]
async fn claude_code_works_with_a_network_and_without() {
    let server = ModelServer::start().unwrap();
    let Some(world) = world(server.url_of("happy")).await else { return };
    for network in [NetworkMode::None, NetworkMode::Open] {
        let before = server.requests().len();
        let (sandbox, items) = turn(&world, network, "Add a greeting in hello.txt and commit it").await;
        let closing =
            items.iter().any(|item| matches!(item, Item::Text { text } if text.contains("I have seen 1 user")));
        assert!(closing, "{items:#?}");
        let workspace = world.home.path().join("sandboxes").join(sandbox.to_string()).join("workspace");
        assert_eq!(std::fs::read_to_string(workspace.join(WRITTEN_FILE)).unwrap(), WRITTEN_CONTENT);
        let requests = server.requests().split_off(before);
        assert_eq!(requests.iter().filter(|request| request.is_work()).count(), 3, "write, commit, close");
        for request in requests {
            // A probe of whether anybody is there shows no key.
            let shown = request.key.as_ref().map(|key| (key.header.as_str(), key.value.as_str()));
            assert_eq!(shown, Some(("x-api-key", KEY)), "{} {}", request.method, request.path);
        }
        let log = String::from_utf8_lossy(&world.log(sandbox).await).into_owned();
        assert!(!log.contains(KEY) && !log.contains("[redacted]"), "there was nothing to take out");
        world.engine.sandbox_stop(sandbox).await.unwrap();
        world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
    }
}

#[tokio::test]
async fn the_models_own_errors_and_a_network_that_failed_are_told_apart() {
    let server = ModelServer::start().unwrap();
    let Some(world) = world(server.url()).await else { return };
    let error = |items: Vec<Item>| {
        let error = items.into_iter().find_map(|item| match item {
            Item::Error { error, message, .. } => Some((error, message)),
            _ => None,
        });
        error.expect("it failed")
    };
    let (_, items) = turn(&world, NetworkMode::None, "[[scenario:e401]]").await;
    assert_eq!(error(items).0, ErrorKind::RejectedKey);
    let (_, items) = turn(&world, NetworkMode::None, "[[scenario:e400ctx]]").await;
    assert_eq!(error(items).0, ErrorKind::ContextTooLong);
    let place = server.address();
    drop(server);
    let (_, items) = turn(&world, NetworkMode::None, "anybody there?").await;
    let (kind, message) = error(items);
    assert_eq!(kind, ErrorKind::Network, "{message}");
    assert!(message.contains(&format!("could not reach {place}")), "{message}");
}
