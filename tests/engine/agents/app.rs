//! An app that is killed in mid-turn: this program once more, with the engine over the stage's folder.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use courier_engine::{
    engine::NewSandbox,
    model::{AgentKind, NetworkMode, ProviderKind, SandboxId},
};

use super::{
    Driven,
    stage::{self, Stage},
};

const NAME: &str = "agents::app::the_app_that_is_killed_in_mid_turn";
const HOME: &str = "COURIER_AGENTS_HOME";
const PROGRAM: &str = "COURIER_AGENTS_PROGRAM";
const AGENT: &str = "COURIER_AGENTS_AGENT";
const URL: &str = "COURIER_AGENTS_URL";
const CLOUD: &str = "COURIER_AGENTS_CLOUD";
const KEY: &str = "COURIER_AGENTS_CLOUD_KEY";
const PROMPT: &str = "COURIER_AGENTS_PROMPT";

pub struct App {
    child: Child,
    sandbox: SandboxId,
}

impl App {
    #[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
    pub fn start(stage: &Stage, prompt: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(HOME, stage.home.path())
            .env(PROGRAM, &stage.program)
            .env(AGENT, stage.driven.kind.code())
            .env(URL, format!("{}{}", stage.server.url(), stage.driven.path))
            .env(PROMPT, prompt)
            .envs(stage.ground.cloud_of().map(|(url, key)| [(CLOUD, url), (KEY, key)]).into_iter().flatten())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let sandbox = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("sandbox ")?.parse().ok());
        Self { child, sandbox: sandbox.expect("it makes a sandbox") }
    }

    pub fn sandbox(&self) -> SandboxId {
        self.sandbox
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The same stage, with the engine opened again.
pub async fn reopened(stage: Stage) -> Stage {
    let url = format!("{}{}", stage.server.url(), stage.driven.path);
    let cloud = stage.ground.cloud_of();
    let cloud = cloud.as_ref().map(|(url, key)| (url.as_str(), key.as_str()));
    let engine = stage::engine(stage.home.path(), stage.driven, &stage.program, &url, stage.clock.clone(), cloud).await;
    Stage { engine, ..stage }
}

#[tokio::test]
#[ignore = "it is started by another test, and killed"]
async fn the_app_that_is_killed_in_mid_turn() {
    let given = |name| std::env::var(name).expect("it is started by another test");
    let kind = AgentKind::from_code(&given(AGENT)).unwrap();
    let driven: &Driven = super::ALL.iter().copied().find(|driven| driven.kind == kind).unwrap();
    let cloud = std::env::var(CLOUD).ok().zip(std::env::var(KEY).ok());
    let cloud = cloud.as_ref().map(|(url, key)| (url.as_str(), key.as_str()));
    let (home, program, clock) = (given(HOME), given(PROGRAM), Arc::default());
    let engine = stage::engine(home.as_ref(), driven, program.as_ref(), &given(URL), clock, cloud).await;
    let project = engine.project_sample().await.unwrap().id;
    let new = NewSandbox {
        provider: if cloud.is_some() { ProviderKind::E2b } else { ProviderKind::Local },
        network: if cloud.is_some() { NetworkMode::Open } else { NetworkMode::None },
        model: driven.model.map(str::to_owned),
        ..NewSandbox::of(project, kind, &given(PROMPT))
    };
    println!("\nsandbox {}", engine.sandbox_create(new).await.unwrap().id);
    std::future::pending().await
}
