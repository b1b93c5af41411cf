//! First start → sample project → Shell sandbox → its output streams → a follow-up → stop → killed.

use std::time::Duration;

use crate::journey::{Journey, journey, journey_on_e2b};
use crate::store;

#[test]
fn the_sample_project_works_without_key_or_network() {
    journey("sample", works_without_key_or_network);
}

#[test]
fn the_sample_project_works_without_key_or_network_on_e2b() {
    journey_on_e2b("sample", works_without_key_or_network);
}

async fn works_without_key_or_network(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.see("first-start").await?;
    app.screenshot("1-first-start").await?;
    app.open_sample().await?;
    app.screenshot("2-sample-project").await?;

    let script = "echo begun; ls; sleep 2; printf '\\033[32mgreen\\033[0m and plain\\n'; echo ended";
    let sandbox = app.create_shell(script).await?;
    app.is("running").await?;
    // It streams: the beginning is on the screen while the script still sleeps.
    app.see_text("row-output", "begun").await?;
    let early = app.see("row-output").await?.text;
    assert!(!early.contains("ended"), "the end is not there before it happened: {early}");
    app.screenshot("3-streaming").await?;
    app.see_text("row-output", "ended").await?;
    app.see_that("row-ended", "ended well", |seen| seen.attribute("data-exit-code") == "0").await?;
    app.screenshot("4-first-turn-done").await?;

    // A follow-up goes on in the same place.
    app.type_text("composer-input", "echo second turn; exit 3").await?;
    app.click("composer-send").await?;
    app.see_text("row-output", "second turn").await?;
    app.see_that("row-ended", "tells the exit code", |seen| seen.attribute("data-exit-code") == "3").await?;
    app.is("running").await?;
    app.screenshot("5-follow-up").await?;

    app.click("tab-terminal").await?;
    app.see_text("terminal", "green and plain").await?;
    app.screenshot("6-terminal").await?;
    app.click("tab-conversation").await?;

    app.click("stop").await?;
    app.is("killed").await?;
    app.screenshot("7-killed").await?;
    let data = journey.desktop.data();
    journey.nothing_runs(&sandbox, Duration::from_secs(10)).await?;
    assert_eq!(store::last_transition(&data, &sandbox)?, ("killed".into(), Some("stopped".into())));
    assert_eq!(store::counter(&data, &sandbox)?, (0, 0), "nothing runs, and the counter says so");
    Ok(())
}
