//! The work's way out: a stop that ends in a pull request, a remote that is away, the changes on the screen, and the trash.

use anyhow::ensure;
use courier_test_support::{
    github::GithubServer,
    models::{ModelServer, WRITTEN_FILE},
    repositories::Repository,
};

use crate::{
    app::{App, DEADLINE},
    journey::{Journey, journey, journey_on_e2b},
    steps::{NewSandbox, claude_program},
};

const KEY: &str = "sk-ant-api03-worthless-key-of-a-journey-4c1d";
const TOKEN: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";

/// A project on a GitHub of this machine, whose token the app has.
async fn add_project(app: &App, server: &GithubServer) -> anyhow::Result<()> {
    app.save_setting("enterprise-host", &server.host()).await?;
    app.save_key("github_enterprise_token", TOKEN).await?;
    app.click("add-project").await?;
    app.fill("project-source", &server.url()).await?;
    app.click("project-add-confirm").await?;
    app.is_gone("add-project-dialog").await
}

async fn pull_request_is(app: &App, status: &str) -> anyhow::Result<()> {
    let is = |seen: &crate::look::Seen| seen.attribute("data-status") == status;
    app.see_within("pull-request", &format!("is {status}"), 4 * DEADLINE, is).await?;
    Ok(())
}

#[test]
fn a_stop_ends_in_a_pull_request() {
    journey("stop", ends_in_a_pull_request);
}

#[test]
fn a_stop_ends_in_a_pull_request_on_e2b() {
    journey_on_e2b("stop", ends_in_a_pull_request);
}

async fn ends_in_a_pull_request(journey: &mut Journey) -> anyhow::Result<()> {
    let (models, server) = (ModelServer::start()?, GithubServer::start(TOKEN)?);
    let app = journey.open().await?;
    app.save_agent_path("claude", &claude_program()?.to_string_lossy()).await?;
    app.save_setting("base-url-anthropic_key", &models.url_of("happy")).await?;
    app.save_key("anthropic_key", KEY).await?;
    add_project(&app, &server).await?;
    let prompt = "Add a greeting in hello.txt and commit it";
    let sandbox = app.create(NewSandbox { prompt, agent: Some("claude"), ..NewSandbox::default() }).await?;
    app.see("row-ended").await?;
    // What nobody has committed: changed, new, and new in a folder.
    let workspace = journey.workspace(&sandbox);
    std::fs::write(workspace.join("README.md"), "# Changed by hand\n")?;
    std::fs::create_dir_all(workspace.join("notes"))?;
    std::fs::write(workspace.join("notes/plan.md"), "not committed\n")?;

    app.click("tab-changes").await?;
    app.see_text("changes", WRITTEN_FILE).await?;
    app.screenshot_both("1-changes").await?;
    app.click("layout-split").await?;
    app.screenshot("2-changes-split").await?;
    app.click("layout-unified").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    pull_request_is(&app, "created").await?;
    app.click("tab-conversation").await?;
    app.screenshot_both("3-pull-request").await?;
    app.click("tab-changes").await?;
    app.see_text("changes", "notes").await?;
    app.screenshot("4-all-changes").await?;

    let pulls = server.pulls();
    ensure!(pulls.len() == 1, "one pull request: {pulls:#?}");
    let branch = &pulls[0].head;
    let names = server.git().git(&["diff", "--name-only", "main", branch])?;
    ensure!(names.lines().collect::<Vec<_>>() == ["README.md", WRITTEN_FILE, "notes/plan.md"], "{names}");
    let subjects = server.git().git(&["log", "--format=%s", &format!("main..{branch}")])?;
    ensure!(subjects.contains("Add hello.txt"), "the agent's own commit: {subjects}");
    ensure!(pulls[0].body.contains(prompt), "{}", pulls[0].body);

    server.merge(1)?;
    // The next start looks at once.
    journey.kill9().await?;
    let app = journey.open().await?;
    app.open_sandbox(&sandbox).await?;
    pull_request_is(&app, "merged").await?;
    app.screenshot("5-merged").await?;
    Ok(())
}

#[test]
fn a_remote_that_is_away_keeps_nobody_from_ending() {
    journey("offline", ends_without_its_remote);
}

#[test]
fn a_remote_that_is_away_keeps_nobody_from_ending_on_e2b() {
    journey_on_e2b("offline", ends_without_its_remote);
}

async fn ends_without_its_remote(journey: &mut Journey) -> anyhow::Result<()> {
    let server = GithubServer::start(TOKEN)?;
    let app = journey.open().await?;
    add_project(&app, &server).await?;
    app.create_shell("echo work > work.txt; echo done").await?;
    app.see("row-ended").await?;
    server.git().accept(Some("another token"));
    app.click("stop").await?;
    app.is("killed").await?;
    app.see("delivery-retry").await?;
    app.screenshot_both("1-push-failed").await?;
    ensure!(server.pulls().is_empty(), "nothing came through");
    server.git().accept(Some(TOKEN));
    app.click("delivery-retry").await?;
    pull_request_is(&app, "created").await?;
    app.screenshot("2-retried").await?;
    let branch = server.pulls()[0].head.clone();
    ensure!(server.git().git(&["show", &format!("{branch}:work.txt")])? == "work", "the work is there");

    app.create_shell("mkdir -p .github/workflows; echo 'on: push' > .github/workflows/check.yml").await?;
    app.see("row-ended").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    app.see("held-push").await?;
    app.screenshot_both("3-held").await?;
    ensure!(server.pulls().len() == 1, "a workflow is not pushed before it is confirmed");
    app.click("held-push").await?;
    app.click("push-held-confirm").await?;
    pull_request_is(&app, "created").await?;
    ensure!(server.pulls().len() == 2, "{:#?}", server.pulls());
    Ok(())
}

#[test]
fn what_is_deleted_can_come_back_and_what_is_purged_says_what_is_lost() {
    journey("trash", comes_back_or_says_what_is_lost);
}

#[test]
fn what_is_deleted_can_come_back_and_what_is_purged_says_what_is_lost_on_e2b() {
    journey_on_e2b("trash", comes_back_or_says_what_is_lost);
}

async fn comes_back_or_says_what_is_lost(journey: &mut Journey) -> anyhow::Result<()> {
    let repository = Repository::ordinary()?;
    let app = journey.open().await?;
    app.click("add-project").await?;
    app.fill("project-source", &repository.source()).await?;
    app.click("project-add-confirm").await?;
    app.is_gone("add-project-dialog").await?;
    app.click("nav-project-settings").await?;
    app.see("project-settings").await?;
    app.click("deliver-never").await?;
    app.screenshot_both("1-project-settings").await?;
    app.show_sandboxes().await?;
    let work = "echo one > one.txt && git add -A && git commit -qm one; echo loose > loose.txt";
    let sandbox = app.create_shell(work).await?;
    app.see("row-ended").await?;
    app.click("stop").await?;
    app.is("killed").await?;

    app.click("page-menu").await?;
    app.click("menu-delete").await?;
    let is_gone = async || Ok((!app.sandboxes().await?.contains(&sandbox)).then_some(()));
    app.wait("it is out of the list", DEADLINE, is_gone).await?;
    app.click("nav-trash").await?;
    app.see("trash-row").await?;
    app.screenshot_both("2-trash").await?;
    app.click("trash-restore").await?;
    app.see("trash-is-empty").await?;
    app.screenshot("3-trash-empty").await?;
    app.show_sandboxes().await?;
    app.open_sandbox(&sandbox).await?;

    app.click("page-menu").await?;
    app.click("menu-delete").await?;
    app.click("nav-trash").await?;
    app.click("trash-purge").await?;
    // One commit of the agent's, and one file nobody committed, exist nowhere else.
    app.see_text("purge-only-here", "1").await?;
    app.screenshot_both("4-purge").await?;
    app.click("purge-confirm").await?;
    app.see("trash-is-empty").await?;
    let folder = journey.desktop.data().join("sandboxes").join(&sandbox);
    ensure!(!folder.exists(), "{} is still there", folder.display());
    repository.git(&["fsck", "--strict"])?;
    app.click("nav-settings").await?;
    app.see("storage").await?;
    app.screenshot_both("5-settings").await?;
    Ok(())
}
