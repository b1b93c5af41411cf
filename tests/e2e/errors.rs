//! What goes wrong is said with its cause and its remedy, in the right place, and nothing is lost by it.

use std::time::Duration;

use courier_test_support::{models::ModelServer, repositories::Repository};

use crate::{
    app::App,
    journey::{Journey, journey, journey_on_e2b},
    steps::{NewSandbox, claude_program},
    store,
};

#[test]
fn a_project_that_cannot_be_one_says_why() {
    journey("errors-projects", async |journey: &mut Journey| {
        let app = journey.open().await?;
        let (plain, empty, bare) = (Repository::not_a_repository()?, Repository::empty()?, Repository::bare()?);
        let file = plain.path().join("notes.txt").to_string_lossy().into_owned();
        let vanished = Repository::ordinary()?.vanish()?.to_string_lossy().into_owned();
        app.click("welcome-add-project").await?;
        let mut said = vec![];
        let bad = [
            ("plain", plain.source()),
            ("empty", empty.source()),
            ("file", file),
            ("vanished", vanished),
            ("bare", bare.source()),
        ];
        for (name, source) in bad {
            app.fill("project-source", &source).await?;
            app.click("project-add-confirm").await?;
            let before = said.last().cloned().unwrap_or_default();
            let banner = "[data-testid=\"add-project-dialog\"] [data-testid=\"error-banner\"]";
            let words = app.see_that(banner, "says something new", |seen| seen.text != before).await?.text;
            assert!(words.lines().count() >= 2, "{name}: a cause and a remedy: {words:?}");
            app.screenshot(name).await?;
            said.push(words);
        }
        Ok(())
    });
}

#[test]
fn an_agent_without_program_or_key_says_what_to_do() {
    journey("errors-agent", async |journey: &mut Journey| {
        let app = journey.open().await?;
        app.open_sample().await?;
        app.save_agent_path("claude", "/nonexistent/claude").await?;
        app.show_sandboxes().await?;
        fails(&app, "1-no-cli", "/nonexistent/claude").await?;

        app.save_agent_path("claude", &claude_program()?.to_string_lossy()).await?;
        app.show_sandboxes().await?;
        fails(&app, "2-no-key", "no key").await?;
        Ok(())
    });
}

/// Starts a Claude sandbox that cannot work. Either the dialog refuses, or the sandbox ends as `error`; both say why.
async fn fails(app: &App, picture: &str, cause: &str) -> anyhow::Result<()> {
    let new = NewSandbox { prompt: "Do something", agent: Some("claude"), ..NewSandbox::default() };
    app.fill_new_sandbox(new).await?;
    // A program that is not there is told beforehand, and nothing can be started.
    if app.see("start-sandbox").await?.is_enabled {
        app.click("start-sandbox").await?;
    }
    let places = "[data-testid=\"new-sandbox-dialog\"] [data-testid=\"error-banner\"], \
                  [data-testid=\"agent-problem\"], main.page [data-testid=\"error-banner\"]";
    let says = async || Ok(app.look(places).await?.map(|seen| seen.text).filter(|text| text.contains(cause)));
    let words = app.wait(&format!("the window says {cause:?}"), crate::app::DEADLINE, says).await?;
    assert!(words.lines().count() >= 2, "a cause and a remedy: {words:?}");
    if app.look("new-sandbox-dialog").await?.is_none() {
        app.is("error").await?;
    }
    app.screenshot(picture).await?;
    if app.look("new-sandbox-dialog").await?.is_some() {
        app.close_dialog().await?;
    }
    Ok(())
}

#[test]
fn a_refused_key_fails_the_message_and_not_the_sandbox() {
    journey("errors-key", fails_the_message_alone);
}

#[test]
fn a_refused_key_fails_the_message_and_not_the_sandbox_on_e2b() {
    journey_on_e2b("errors-key", fails_the_message_alone);
}

async fn fails_the_message_alone(journey: &mut Journey) -> anyhow::Result<()> {
    let server = ModelServer::start()?;
    let app = journey.open().await?;
    app.open_sample().await?;
    app.save_agent_path("claude", &claude_program()?.to_string_lossy()).await?;
    app.save_setting("base-url-anthropic_key", &server.url_of("e401")).await?;
    app.save_key("anthropic_key", "sk-ant-api03-refused-key-0000").await?;
    app.show_sandboxes().await?;
    let new = NewSandbox { prompt: "Do something", agent: Some("claude"), ..NewSandbox::default() };
    let sandbox = app.create(new).await?;
    app.see_that("row-error", "says cause and remedy", |seen| seen.text.lines().count() >= 2).await?;
    app.is("running").await?;
    app.screenshot("1-refused").await?;
    let turns = store::turns(&journey.desktop.data(), &sandbox)?;
    assert_eq!(turns[0].error_kind.as_deref(), Some("rejected_key"));

    // The sandbox still takes a message, and a good answer ends well.
    app.send("Once more [[scenario:text]]").await?;
    app.see_text("row-text", "All done.").await?;
    app.screenshot("2-once-more").await?;
    app.click("stop").await?;
    app.is("killed").await
}

#[test]
fn a_sandbox_stopped_while_it_is_made_is_killed() {
    journey("errors-creating", is_killed_while_it_is_made);
}

#[test]
fn a_sandbox_stopped_while_it_is_made_is_killed_on_e2b() {
    journey_on_e2b("errors-creating", is_killed_while_it_is_made);
}

async fn is_killed_while_it_is_made(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    let new = NewSandbox { prompt: "echo never", setup_script: Some("sleep 600"), ..NewSandbox::default() };
    let sandbox = app.create(new).await?;
    app.see_that("status-badge", "is creating", |seen| seen.attribute("data-status") == "creating").await?;
    app.screenshot("1-creating").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    app.screenshot("2-stopped").await?;
    journey.nothing_runs(&sandbox, Duration::from_secs(20)).await?;
    let data = journey.desktop.data();
    assert_eq!(store::last_transition(&data, &sandbox)?, ("killed".into(), Some("stopped".into())));
    assert_eq!(store::turns(&data, &sandbox)?, [], "its first turn never began");
    Ok(())
}
