//! The real Claude Code against the scripted model: it writes and commits a file in its sandbox, a follow-up brings the
//! earlier conversation along, and what it used is written down.

use courier_test_support::{
    models::{ModelServer, WRITTEN_CONTENT, WRITTEN_FILE},
    repositories::Repository,
};

use crate::{
    app::Theme,
    journey::{Journey, journey, journey_on_e2b},
    steps::{NewSandbox, claude_program},
    store,
};

const KEY: &str = "sk-ant-api03-worthless-key-of-a-journey-7f3c";

#[test]
fn claude_code_works_in_a_sandbox_and_goes_on() {
    journey("claude", works_and_goes_on);
}

#[test]
fn claude_code_works_in_a_sandbox_and_goes_on_on_e2b() {
    journey_on_e2b("claude", works_and_goes_on);
}

async fn works_and_goes_on(journey: &mut Journey) -> anyhow::Result<()> {
    let (server, repository) = (ModelServer::start()?, Repository::ordinary()?);
    let app = journey.open().await?;
    app.save_agent_path("claude", &claude_program()?.to_string_lossy()).await?;
    app.save_setting("base-url-anthropic_key", &server.url_of("happy")).await?;
    app.save_key("anthropic_key", KEY).await?;
    app.screenshot("1-settings").await?;

    app.click("add-project").await?;
    app.fill("project-source", &repository.source()).await?;
    app.click("project-add-confirm").await?;
    app.is_gone("add-project-dialog").await?;
    let prompt = "Add a greeting in hello.txt and commit it";
    let new = NewSandbox { prompt, agent: Some("claude"), ..NewSandbox::default() };
    let sandbox = app.create(new).await?;
    app.is("running").await?;
    app.see_text("row-message", prompt).await?;
    app.see("row-tool").await?;
    app.see_text("row-text", "I have seen 1 user message(s)").await?;
    app.see("row-ended").await?;
    app.screenshot("2-first-turn").await?;

    let workspace = journey.workspace(&sandbox);
    assert_eq!(std::fs::read_to_string(workspace.join(WRITTEN_FILE))?, WRITTEN_CONTENT);
    // As git notes it: what the repository builds upon lies elsewhere, on another machine under another path.
    let reflog = std::fs::read_to_string(workspace.join(".git/logs/HEAD"))?;
    assert!(reflog.ends_with("\tcommit: Add hello.txt\n"), "committed by the agent: {reflog}");
    let first = server.work();
    assert_eq!(first.len(), 3, "write, commit, close: {first:#?}");

    app.send("Say what was first [[scenario:text]]").await?;
    app.see_text("row-text", "I have seen 2 user message(s)").await?;
    app.screenshot("3-follow-up").await?;
    let work = server.work();
    let said = &work.last().expect("the follow-up reached the server").said;
    assert!(said[0].contains(prompt), "the earlier conversation came along: {said:?}");

    app.set_theme(Theme::Dark).await?;
    app.show_sandboxes().await?;
    app.open_sandbox(&sandbox).await?;
    app.see("row-tool").await?;
    app.screenshot("4-dark").await?;

    let data = journey.desktop.data();
    let enough =
        async || Ok(store::turns(&data, &sandbox)?.get(1).is_some_and(|turn| turn.output.is_some()).then_some(()));
    app.wait("the second turn's usage is written down", crate::app::DEADLINE, enough).await?;
    let turns = store::turns(&data, &sandbox)?;
    let served = |column: fn(&courier_test_support::models::UsageServed) -> u64| -> i64 {
        first.iter().filter_map(|request| request.usage.as_ref()).map(column).sum::<u64>().cast_signed()
    };
    assert_eq!(turns[0].input, Some(served(|usage| usage.input)), "input without what was cached");
    assert_eq!(turns[0].output, Some(served(|usage| usage.output)));
    assert_eq!(turns[0].cache_write, Some(served(|usage| usage.cache_write)));
    assert_eq!(turns[0].cache_read, Some(served(|usage| usage.cache_read)));

    let log = String::from_utf8_lossy(&store::raw_log(&data, &sandbox)?).into_owned();
    assert!(!log.contains(KEY), "the key is in no log");
    app.click("stop").await?;
    app.is("killed").await?;
    app.screenshot("5-killed").await?;
    Ok(())
}
