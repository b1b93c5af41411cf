//! A sandbox ends when its time is over, whether the app is there to see it or not.

use std::time::Duration;

use crate::{
    journey::{Journey, journey, journey_on_e2b},
    steps::{NewSandbox, saved_file},
    store,
};

#[test]
fn a_sandbox_ends_when_its_time_is_over() {
    journey("timeout", ends_when_its_time_is_over);
}

#[test]
fn a_sandbox_ends_when_its_time_is_over_on_e2b() {
    journey_on_e2b("timeout", ends_when_its_time_is_over);
}

async fn ends_when_its_time_is_over(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    // One second, in minutes.
    let new = NewSandbox {
        prompt: "echo first > work.txt; echo begun; sleep 1000",
        minutes: Some("0.0167"),
        ..NewSandbox::default()
    };
    let sandbox = app.create(new).await?;
    app.is("killed").await?;
    app.screenshot("1-timed-out").await?;
    let data = journey.desktop.data();
    assert_eq!(store::last_transition(&data, &sandbox)?, ("killed".into(), Some("timed_out".into())));
    journey.nothing_runs(&sandbox, Duration::from_secs(10)).await?;
    assert_eq!(saved_file(&data, &sandbox, "end", "work.txt")?, "first", "what it made is in the vault");

    // The same while the app is closed.
    let new = NewSandbox {
        prompt: "trap '' TERM; echo second > work.txt; echo begun; sleep 1000",
        minutes: Some("0.2"),
        ..NewSandbox::default()
    };
    let sandbox = app.create(new).await?;
    app.see_text("row-output", "begun").await?;
    journey.kill9().await?;
    assert!(!journey.processes(&sandbox).is_empty(), "the sandbox outlives the app");
    journey.is_over(&sandbox, Duration::from_secs(120)).await?;

    let app = journey.open().await?;
    app.open_sandbox(&sandbox).await?;
    app.is("killed").await?;
    app.see_text("row-output", "begun").await?;
    app.screenshot("2-timed-out-while-closed").await?;
    assert_eq!(store::last_transition(&data, &sandbox)?, ("killed".into(), Some("timed_out".into())));
    assert_eq!(saved_file(&data, &sandbox, "end", "work.txt")?, "second", "and so is this");
    Ok(())
}
