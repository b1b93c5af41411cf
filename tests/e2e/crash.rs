//! The app is killed in mid-turn. The agent goes on; on restart the sandbox is joined again, and every byte is there
//! once.

use crate::journey::{Journey, journey};
use crate::store;

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
    journey("crash", async |journey: &mut Journey| {
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
        let spooled = String::from_utf8(store::spool(&data, &sandbox)?)?;
        assert_eq!(spooled, expected(), "the keeper wrote down what the agent printed");
        let ingested = String::from_utf8(store::raw_log(&data, &sandbox)?)?;
        assert_eq!(ingested, expected(), "no gap, no duplicate");

        // It is the same sandbox, and it takes a message.
        app.send("echo alive after the crash").await?;
        app.see_text("row-output", "alive after the crash").await?;
        app.click("stop").await?;
        app.is("killed").await
    });
}
