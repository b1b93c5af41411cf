//! While a sandbox is paused nothing in it advances; after resuming it goes on where it was.

use std::time::{Duration, Instant};

use crate::journey::{Journey, journey, journey_on_e2b};
use crate::store;

/// How long we watch that nothing happens: some forty rounds of the loop.
const WATCH: Duration = Duration::from_secs(2);

#[test]
fn a_paused_sandbox_stands_still() {
    journey("pause", stands_still);
}

#[test]
fn a_paused_sandbox_stands_still_on_e2b() {
    journey_on_e2b("pause", stands_still);
}

async fn stands_still(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    // A child of a child in a session of its own counts too.
    let count = "i=0; while :; do i=$((i+1)); echo \"tick $i\"; sleep 0.05; done";
    let sandbox = app.create_shell(&format!("setsid sh -c '{count}' & wait")).await?;
    app.see_text("row-output", "tick 20").await?;
    app.click("pause").await?;
    app.is("paused").await?;
    app.screenshot("1-paused").await?;

    let data = journey.desktop.data();
    let before = journey.spool(&sandbox)?;
    let begun = Instant::now();
    while begun.elapsed() < WATCH {
        assert_eq!(journey.spool(&sandbox)?.len(), before.len(), "the loop advanced while paused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store::counter(&data, &sandbox)?, (0, 0), "a paused sandbox does not count as running");

    app.click("resume").await?;
    app.is("running").await?;
    journey.spool_that(&sandbox, "the loop goes on", |text| text.len() > before.len()).await?;
    let all = journey.spool(&sandbox)?;
    let text = String::from_utf8_lossy(&all);
    let ticks: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("tick ")?.parse().ok()).collect();
    assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + 1), "it goes on where it was");
    app.screenshot("2-resumed").await?;

    // Stopping a paused sandbox needs no resume.
    app.click("pause").await?;
    app.is("paused").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    journey.nothing_runs(&sandbox, Duration::from_secs(10)).await
}
