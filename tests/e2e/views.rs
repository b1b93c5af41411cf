//! Pictures of every view, light and dark: empty, full, failing, narrow. They are looked at by people.

use crate::{
    app::{App, Theme},
    journey::{Journey, journey, journey_on_e2b},
    steps::NewSandbox,
};

#[test]
fn every_view_has_its_picture() {
    journey("views", async |journey: &mut Journey| {
        let app = journey.open().await?;
        empty(&app).await?;
        full(&app).await?;
        failing(&app).await?;
        narrow(&app).await?;
        Ok(())
    });
}

#[test]
fn what_only_e2b_has_has_its_picture() {
    journey_on_e2b("views", async |journey: &mut Journey| {
        let app = journey.open().await?;
        app.open_sample().await?;
        app.click("new-sandbox").await?;
        app.see("new-sandbox-dialog").await?;
        app.choose_ground().await?;
        app.click("more-toggle").await?;
        app.see("timeout-input").await?;
        app.screenshot_both("dialog").await?;
        app.close_dialog().await?;
        app.create_shell("echo begun; sleep 1000").await?;
        app.see_text("row-output", "begun").await?;
        app.see("resources").await?;
        app.screenshot_both("page").await?;
        app.click("nav-settings").await?;
        let show = "document.querySelector('[data-testid=\"e2b-domain\"]').scrollIntoView({ block: 'start' })";
        app.see("e2b-domain").await?;
        app.script(show, vec![]).await?;
        app.screenshot_both("settings").await?;
        // Nobody answers there.
        app.save_setting("e2b-apiUrl", "http://127.0.0.1:9").await?;
        app.click("nav-doctor").await?;
        app.see("[data-testid=\"doctor-check\"][data-id=\"e2b\"][data-state=\"failed\"]").await?;
        app.screenshot_both("doctor-failing").await?;
        Ok(())
    });
}

async fn empty(app: &App) -> anyhow::Result<()> {
    app.see("doctor-check").await?;
    app.screenshot_both("empty-first-start").await?;
    app.click("nav-settings").await?;
    app.see("settings").await?;
    app.screenshot_both("empty-settings").await?;
    app.see("e2b-domain").await?;
    let show = "document.querySelector('[data-testid=\"e2b-domain\"]').scrollIntoView({ block: 'start' })";
    app.script(show, vec![]).await?;
    app.screenshot_both("empty-settings-e2b").await?;
    app.click("nav-doctor").await?;
    app.see("doctor-check").await?;
    app.screenshot_both("doctor").await?;
    app.click("add-project").await?;
    app.see("add-project-dialog").await?;
    app.screenshot_both("dialog-add-project").await?;
    app.close_dialog().await?;
    app.click("nav-settings").await?;
    for theme in Theme::BOTH {
        app.set_theme(theme).await?;
    }
    app.click("theme-system").await
}

async fn full(app: &App) -> anyhow::Result<()> {
    // The first start is where nothing is, whatever was looked at before.
    app.reload().await?;
    app.open_sample().await?;
    app.screenshot_both("empty-list").await?;

    app.click("new-sandbox").await?;
    app.see("new-sandbox-dialog").await?;
    app.screenshot_both("dialog-new-sandbox").await?;
    app.click("more-toggle").await?;
    app.see("timeout-input").await?;
    app.screenshot_both("dialog-new-sandbox-more").await?;
    app.close_dialog().await?;

    let colours = "for i in 1 2 3 4 5 6 7; do printf '\\033[3%dmcolour %d\\033[0m ' $i $i; done; echo; ls -la; git log --oneline | head";
    app.create_shell(colours).await?;
    app.see("row-ended").await?;
    app.send("echo out; echo err >&2; exit 3").await?;
    app.see_that("row-ended", "tells the exit code", |seen| seen.attribute("data-exit-code") == "3").await?;
    app.screenshot_both("full-conversation").await?;
    app.click("tab-terminal").await?;
    app.see_text("terminal", "colour 7").await?;
    app.screenshot_both("full-terminal").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    app.click("tab-conversation").await?;
    app.screenshot_both("killed").await?;

    app.create_shell("seq 1 100000 | while read i; do echo \"line $i of much output\"; sleep 0.05; done").await?;
    app.see_text("row-output", "line 40 ").await?;
    app.send("echo this one waits its turn").await?;
    app.see("queued").await?;
    app.screenshot_both("full-working-and-queued").await?;
    app.click("pause").await?;
    app.is("paused").await?;
    app.screenshot_both("full-paused").await?;

    for number in 1..=12 {
        app.create_shell(&format!("echo sandbox number {number}")).await?;
        app.see("row-ended").await?;
    }
    app.screenshot_both("full-list").await?;
    app.click("palette-open").await?;
    app.see("palette").await?;
    app.screenshot_both("palette").await?;
    app.close_dialog().await
}

async fn failing(app: &App) -> anyhow::Result<()> {
    app.click("add-project").await?;
    app.fill("project-source", "/nonexistent/repository").await?;
    app.click("project-add-confirm").await?;
    app.see("[data-testid=\"add-project-dialog\"] [data-testid=\"error-banner\"]").await?;
    app.screenshot_both("failing-add-project").await?;
    app.close_dialog().await?;

    let new =
        NewSandbox { prompt: "echo never", setup_script: Some("echo no luck >&2; exit 1"), ..NewSandbox::default() };
    app.create(new).await?;
    app.is("error").await?;
    app.screenshot_both("failing-sandbox").await
}

async fn narrow(app: &App) -> anyhow::Result<()> {
    for (width, height) in [(1100, 720), (960, 640)] {
        app.resize(width, height).await?;
        app.is_still().await?;
        app.screenshot_both(&format!("narrow-{width}-sandbox")).await?;
    }
    app.click("back").await?;
    app.screenshot_both("narrow-960-list").await?;
    app.click("new-sandbox").await?;
    app.see("new-sandbox-dialog").await?;
    app.screenshot_both("narrow-960-dialog").await?;
    app.close_dialog().await?;
    app.click("nav-settings").await?;
    app.screenshot_both("narrow-960-settings").await?;
    app.click("nav-doctor").await?;
    app.see("doctor-check").await?;
    app.screenshot_both("narrow-960-doctor").await?;
    app.resize(1440, 900).await
}
