//! Many sandboxes that print for a long time: the memory of app, window and keepers stays where it is, every line is kept,
//! and nothing is left at the end.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use courier_test_support::processes;

use crate::{
    app::{App, DEADLINE},
    figures::{figure, number, size, slope},
    journey::{Journey, journey},
    steps::NewSandbox,
    stream::{all_is_kept, megabytes, printing, web_process},
};

/// Lines a second of each sandbox.
const RATE: u64 = 100;
/// How long a full run takes, in seconds, and how many sandboxes it has.
const SECONDS: u64 = 1_200;
const SANDBOXES: usize = 20;
/// How often memory is looked at, and how often another sandbox is opened in the window.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const OPEN_ANOTHER_EVERY: Duration = Duration::from_secs(30);

/// What was measured at one time: minutes since the beginning, and the proportional memory in MB.
#[derive(Clone, Copy, Debug)]
struct Point {
    minute: f64,
    engine: f64,
    web: f64,
    keepers: f64,
}

/// One memory over the time in which it must not grow.
#[derive(Debug)]
struct Course {
    mean: f64,
    /// In MB a minute.
    slope: f64,
}

impl Course {
    fn of(points: &[Point], which: fn(&Point) -> f64) -> Self {
        // The first quarter fills what is to be filled: windows of rows, pools, caches.
        let settled: Vec<(f64, f64)> =
            points[points.len() / 4..].iter().map(|point| (point.minute, which(point))).collect();
        let mean = settled.iter().map(|point| point.1).sum::<f64>() / number(settled.len());
        Self { mean, slope: slope(&settled) }
    }
}

/// Runs so many sandboxes for so long, and leaves nothing behind.
async fn soak(journey: &mut Journey, sandboxes: usize, seconds: u64) -> anyhow::Result<Vec<Point>> {
    let app = journey.open().await?;
    app.open_sample().await?;
    let script = printing(RATE, seconds);
    let minutes = (seconds / 60 + 30).to_string();
    let mut ids = vec![];
    for _ in 0..sandboxes {
        ids.push(app.create(NewSandbox { prompt: &script, minutes: Some(&minutes), ..NewSandbox::default() }).await?);
        app.see_text("row-output", "line ").await?;
    }
    let (web, engine) = (web_process(&app)?, app.process().context("the app runs")?);
    let folder = journey.desktop.data().join("sandboxes").to_string_lossy().into_owned();
    let is_keeper = |process: &processes::Process| process.command.contains("courier-keeper");
    let keepers: Vec<_> = processes::mentioning(&folder).into_iter().filter(is_keeper).collect();
    ensure!(keepers.len() >= sandboxes, "each sandbox has a keeper: {keepers:#?}");
    let (begun, mut opened, mut points) = (Instant::now(), Instant::now(), vec![]);
    let mut next = 0;
    while begun.elapsed() < Duration::from_secs(seconds.saturating_sub(2)) {
        let held = keepers.iter().filter_map(|keeper| processes::proportional(keeper.pid).ok()).sum();
        points.push(Point {
            minute: begun.elapsed().as_secs_f64() / 60.0,
            engine: megabytes(processes::proportional(engine.pid)?),
            web: megabytes(processes::proportional(web.pid)?),
            keepers: megabytes(held),
        });
        if opened.elapsed() > OPEN_ANOTHER_EVERY {
            (opened, next) = (Instant::now(), (next + 1) % ids.len());
            app.open_sandbox(&ids[next]).await?;
            app.see_text("row-output", "line ").await?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    app.screenshot("1-near-the-end").await?;
    for id in &ids {
        ends(journey, &app, id, RATE * seconds).await?;
    }
    let left = processes::mentioning(&folder).into_iter().filter(|process| process.pid != engine.pid);
    let left: Vec<_> = left.filter(|process| ids.iter().any(|id| process.command.contains(id.as_str()))).collect();
    ensure!(left.is_empty(), "still running: {left:#?}");
    app.screenshot("2-all-ended").await?;
    Ok(points)
}

/// Waits for a sandbox's last line, looks at all it printed, and stops it.
async fn ends(journey: &Journey, app: &App, id: &str, lines: u64) -> anyhow::Result<()> {
    app.open_sandbox(id).await?;
    app.see_within("row-ended", "ended well", 4 * DEADLINE, |seen| seen.attribute("data-exit-code") == "0").await?;
    app.see_text("row-output", &format!("line {lines:07} ")).await?;
    all_is_kept(journey, id, lines)?;
    app.click("stop").await?;
    app.is("killed").await?;
    journey.nothing_runs(id, DEADLINE).await
}

#[test]
fn several_sandboxes_print_at_once_and_nothing_is_lost_or_left() {
    journey("soak", async |journey: &mut Journey| {
        let points = soak(journey, 4, 8).await?;
        ensure!(points.iter().all(|point| point.engine > 0.0 && point.web > 0.0 && point.keepers > 0.0), "{points:#?}");
        Ok(())
    });
}

#[test]
#[ignore = "long: cargo xtask prove soak"]
fn prove_soak() {
    journey("soak-proof", async |journey: &mut Journey| {
        let seconds = size(SECONDS);
        let begun = Instant::now();
        let points = soak(journey, SANDBOXES, seconds).await?;
        let courses = [
            ("engine", Course::of(&points, |point| point.engine)),
            ("web", Course::of(&points, |point| point.web)),
            ("keepers", Course::of(&points, |point| point.keepers)),
        ];
        for (name, course) in courses {
            figure(&format!("soak/{name}_mean"), course.mean, "MB", None);
            figure(&format!("soak/{name}_slope"), course.slope, "MB per minute", Some(course.mean));
        }
        figure("soak/sandboxes", number(SANDBOXES), "sandboxes", None);
        figure("soak/lines", number(SANDBOXES) * f64::from(u32::try_from(RATE * seconds)?), "lines kept", None);
        figure("soak/lost", 0.0, "lines", None);
        figure("soak/left", 0.0, "processes", None);
        figure("soak/took", begun.elapsed().as_secs_f64(), "s", None);
        Ok(())
    });
}
