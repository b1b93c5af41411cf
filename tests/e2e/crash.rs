//! The app is killed in mid-turn. The agent goes on; on restart the sandbox is joined again, and every byte is there
//! once.

use courier_test_support::processes;

use crate::{
    journey::{Journey, journey, journey_on_e2b},
    steps::saved_file,
    store,
};

/// Numbered lines with all that is awkward: wide characters, no newline for a while, a line without an end.
const SCRIPT: &str = r#"i=0
while [ $i -lt 300 ]; do
  i=$((i+1))
  printf 'line %d ' $i; sleep 0.01; printf '✓ 日本語\n'; sleep 0.01
done
printf 'the end without a newline'"#;

fn expected() -> String {
    let lines: String = (1..=300).map(|number| format!("line {number} ✓ 日本語\n")).collect();
    lines + "the end without a newline"
}

#[test]
fn a_crash_of_the_app_loses_and_doubles_nothing() {
    journey("crash", nothing_is_lost_or_doubled);
}

#[test]
fn a_crash_of_the_app_loses_and_doubles_nothing_on_e2b() {
    journey_on_e2b("crash", nothing_is_lost_or_doubled);
}

async fn nothing_is_lost_or_doubled(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    let sandbox = app.create_shell(SCRIPT).await?;
    app.see_text("row-output", "line 40 ").await?;
    app.screenshot("1-before-the-crash").await?;
    journey.kill9().await?;

    // Nobody listens, and the agent works on.
    let data = journey.desktop.data();
    let before = store::raw_log(&data, &sandbox)?.len();
    journey.spool_that(&sandbox, "the agent prints on", |text| text.len() > before + 500).await?;

    let app = journey.open().await?;
    app.open_sandbox(&sandbox).await?;
    app.is("running").await?;
    app.see_text("row-output", "the end without a newline").await?;
    app.see("row-ended").await?;
    app.screenshot("2-joined-again").await?;
    let spooled = String::from_utf8(journey.spool(&sandbox)?)?;
    assert_eq!(spooled, expected(), "the keeper wrote down what the agent printed");
    let ingested = String::from_utf8(store::raw_log(&data, &sandbox)?)?;
    assert_eq!(ingested, expected(), "no gap, no duplicate");

    // It is the same sandbox, and it takes a message.
    app.send("echo alive after the crash").await?;
    app.see_text("row-output", "alive after the crash").await?;
    app.click("stop").await?;
    app.is("killed").await
}

/// The app goes in mid-turn, and while nobody looks the agent dies too: what it made until then is in the vault.
#[test]
fn an_agent_that_dies_while_the_app_is_gone_leaves_its_work() {
    journey("crash-agent", leaves_its_work);
}

#[test]
fn an_agent_that_dies_while_the_app_is_gone_leaves_its_work_on_e2b() {
    journey_on_e2b("crash-agent", leaves_its_work);
}

async fn leaves_its_work(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    let sandbox = app.create_shell("echo work > work.txt; echo begun; sleep 1000").await?;
    app.see_text("row-output", "begun").await?;
    journey.kill9().await?;
    let is_agents = |process: &processes::Process| process.command == "sleep 1000";
    let keepers = journey.processes(&sandbox);
    let inside = keepers.iter().flat_map(|keeper| processes::descendants(keeper.pid));
    let agent: Vec<_> = inside.filter(is_agents).collect();
    let shell = agent.first().map(|sleep| processes::all().into_iter().filter(|one| one.pid == sleep.parent).collect());
    let shells: Vec<processes::Process> = shell.unwrap_or_default();
    assert_eq!(shells.len(), 1, "its shell runs: {agent:?}");
    processes::kill(&shells[0]);

    let app = journey.open().await?;
    app.open_sandbox(&sandbox).await?;
    app.see("row-ended").await?;
    app.screenshot("1-the-agent-died").await?;
    app.click("stop").await?;
    app.is("killed").await?;
    let data = journey.desktop.data();
    assert_eq!(saved_file(&data, &sandbox, "turn-1", "work.txt")?, "work");
    assert_eq!(saved_file(&data, &sandbox, "end", "work.txt")?, "work");
    app.screenshot("2-ended").await
}
