//! One conversation of each agent in the real window: real programs, a scripted model, two turns, in light and dark.

use courier_test_support::models::{ModelServer, WRITTEN_CONTENT, WRITTEN_FILE};

use crate::{
    app::{DEADLINE, Theme},
    journey::{Journey, journey, journey_on_e2b, program},
    steps::NewSandbox,
};

/// An agent as it is set up here.
struct Driven {
    agent: &'static str,
    /// Names its program.
    variable: &'static str,
    credential: &'static str,
    key: &'static str,
    model: Option<&'static str>,
    /// What the base URL of its model ends in.
    path: &'static str,
}

const ALL: [Driven; 4] = [
    Driven {
        agent: "claude",
        variable: "CODECOURIER_TEST_CLAUDE",
        credential: "anthropic_key",
        key: "sk-ant-api03-worthless-key-of-a-journey-7f3c",
        model: None,
        path: "",
    },
    Driven {
        agent: "codex",
        variable: "CODECOURIER_TEST_CODEX",
        credential: "openai_key",
        key: "sk-proj-worthless-key-of-a-journey-7f3c",
        model: Some("gpt-5.5"),
        path: "/v1",
    },
    Driven {
        agent: "opencode",
        variable: "CODECOURIER_TEST_OPENCODE",
        credential: "anthropic_key",
        key: "sk-ant-api03-worthless-key-of-a-journey-7f3c",
        model: None,
        path: "",
    },
    Driven {
        agent: "pi",
        variable: "CODECOURIER_TEST_PI",
        credential: "compatible_key",
        key: "worthless-key-of-a-server-7f3c",
        model: Some("compatible/scripted"),
        path: "/v1",
    },
];

#[test]
fn every_agent_has_its_conversation() {
    journey("agents", every_agent_talks);
}

#[test]
fn every_agent_has_its_conversation_on_e2b() {
    journey_on_e2b("agents", every_agent_talks);
}

async fn every_agent_talks(journey: &mut Journey) -> anyhow::Result<()> {
    let server = ModelServer::start()?;
    // A script needs its interpreter: the pinned one, where the machine's is too old.
    let node = std::env::var("CODECOURIER_TEST_NODE").unwrap_or_default();
    let folder = std::path::Path::new(&node).parent().unwrap_or("/".as_ref()).display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let app = journey.open_with(&[("PATH", &path)]).await?;
    app.open_sample().await?;
    let mut ids = vec![];
    for Driven { agent, variable, credential, key, model, path } in &ALL {
        let program = program(variable, agent)?;
        app.save_agent_path(agent, &program.to_string_lossy()).await?;
        if app.look(&format!("key-last-four-{credential}")).await?.is_none() {
            app.save_setting(&format!("base-url-{credential}"), &format!("{}{path}", server.url())).await?;
            app.save_key(credential, key).await?;
        }
        app.show_sandboxes().await?;
        let prompt = "Add a greeting in hello.txt and commit it [[scenario:happy]]";
        let new = NewSandbox { prompt, agent: Some(agent), model: *model, ..NewSandbox::default() };
        let id = app.create(new).await?;
        app.is("running").await?;
        let seen = app.see_within("row-text", "the agent's answer", 6 * DEADLINE, |seen| {
            seen.text.contains("I have seen 1 user message(s)")
        });
        seen.await?;
        app.see_within("row-ended", "the end of the turn", 3 * DEADLINE, |_| true).await?;
        let written = std::fs::read_to_string(journey.workspace(&id).join(WRITTEN_FILE))?;
        assert_eq!(written, WRITTEN_CONTENT, "{agent}");
        app.send("What does the folder hold? [[scenario:bash_ls]]").await?;
        app.see_within("row-text", "the second answer", 6 * DEADLINE, |seen| {
            seen.text.contains("I have seen 2 user message(s)")
        })
        .await?;
        app.screenshot(&format!("{agent}-light")).await?;
        ids.push((*agent, id));
    }
    app.set_theme(Theme::Dark).await?;
    app.show_sandboxes().await?;
    for (agent, id) in &ids {
        app.open_sandbox(id).await?;
        app.see("row-tool").await?;
        app.screenshot(&format!("{agent}-dark")).await?;
    }
    for (_, id) in &ids {
        app.open_sandbox(id).await?;
        app.click("stop").await?;
        app.is("killed").await?;
    }
    Ok(())
}
