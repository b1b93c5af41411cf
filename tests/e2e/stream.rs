//! A fast agent in the open window: how long a line takes from the agent's write to the screen, what the window's memory
//! does meanwhile, that nothing is lost, and that a reader who looks further up is left alone.
//!
//! Each line carries its number and the agent's clock in microseconds, which is this machine's. A script in the page sees
//! each picture of the conversation and compares the newest line with the clock; the lines that came with it are spread
//! evenly between it and the newest one before.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use courier_test_support::processes::{self, Process};
use serde::Deserialize;

use crate::{
    app::{App, DEADLINE},
    figures::{figure, number, size, slope},
    journey::{Journey, journey, journey_on_e2b},
    store,
};

/// Lines a second of the full measurement.
const RATE: u64 = 5_000;
/// How long it takes, in seconds.
const SECONDS: u64 = 60;
/// How often the web process's memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Prints numbered lines at an even pace, each with a write of its own. The pipe in between is how a shell waits without
/// starting a program.
pub(crate) fn printing(rate: u64, seconds: u64) -> String {
    let lines = rate * seconds;
    let pause = if rate > 500 { "0.004" } else { "0.05" };
    format!(
        r#"# Prints numbered lines
exec {{nothing}}<> <(:)
LC_ALL=C; begun=${{EPOCHREALTIME/[.,]/}}; line=0
while ((line < {lines})); do
  now=${{EPOCHREALTIME/[.,]/}}; due=$(( (now - begun) * {rate} / 1000000 )); ((due > {lines})) && due={lines}
  while ((line < due)); do
    ((++line)); printf 'line %07d @%s the quick brown fox\n' "$line" "${{EPOCHREALTIME/[.,]/}}"
  done
  read -rt {pause} -u "$nothing"
done
exit 0"#
    )
}

/// Watches the conversation: after each picture, what its last text ends with. A sample is when it was seen, in
/// microseconds, and the newest line's number and stamp. It makes as little garbage as it can, since memory is measured.
const WATCH: &str = r#"
const LINE = /line (\d{7}) @(\d{16}) the quick brown fox\n?$/;
const samples = (window.streamSamples = []);
let last = 0;
const outputs = document.getElementsByClassName("output");
const look = () => {
  // The last piece may hold nothing but the beginning of a line; the picture before told of what is older.
  const found = LINE.exec((outputs[outputs.length - 1]?.textContent ?? "").trimEnd().slice(-60));
  if (found === null || Number(found[1]) <= last) return;
  last = Number(found[1]);
  samples.push([Date.now() * 1000, last, Number(found[2])]);
};
window.streamPictures = 0;
const picture = () => {
  window.streamPictures++;
  setTimeout(look);
  requestAnimationFrame(picture);
};
requestAnimationFrame(picture);
"#;

/// The lines that are drawn, as their numbers; what stands between them must be nothing.
const DRAWN: &str = r#"
return [...document.querySelectorAll('[data-testid="row-output"]')]
  .flatMap((row) => [...row.textContent.matchAll(/line (\d{7}) @/g)].map((found) => Number(found[1])))"#;

/// The line at the top of the conversation, and how far above or below its edge it stands.
const AT_THE_TOP: &str = r#"
const edge = document.querySelector('[data-testid="conversation"]').getBoundingClientRect().top;
for (const row of document.querySelectorAll('[data-testid="row-output"]')) {
  const walk = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node !== null; node = walk.nextNode()) {
    for (const found of node.data.matchAll(/line (\d{7}) @/g)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + 4);
      const top = range.getBoundingClientRect().top - edge;
      if (top >= 0) return [Number(found[1]), Math.round(top)];
    }
  }
}
return null"#;

#[derive(Debug, Deserialize)]
struct Sample(u64, u64, u64);

/// What a stream was seen to do.
#[derive(Debug)]
struct Seen {
    /// When a line reached the screen, and how long after it was printed; both in microseconds.
    lags: Vec<(u64, u64)>,
    /// When it was looked, and the resident and proportional memory of the web process, in bytes.
    web: Vec<(Instant, u64, u64)>,
    engine: Vec<u64>,
    pictures: f64,
    /// The share of one core that the web process and the app's own took.
    cores: [f64; 2],
}

impl Seen {
    /// The lags of the n-th third of the time, sorted, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a lag is small")]
    fn lags(&self, third: usize) -> Vec<f64> {
        let (first, last) = (self.lags.first().map_or(0, |lag| lag.0), self.lags.last().map_or(0, |lag| lag.0));
        let third_of = |at: u64| ((at - first) * 3 / (last - first + 1)) as usize;
        let mut lags: Vec<f64> =
            self.lags.iter().filter(|(at, _)| third_of(*at) == third).map(|(_, lag)| *lag as f64 / 1000.0).collect();
        lags.sort_by(f64::total_cmp);
        lags
    }

    /// The mean of the web process's proportional memory in the n-th third, in MB.
    fn web(&self, third: usize) -> f64 {
        let count = self.web.len();
        let part = &self.web[count * third / 3..count * (third + 1) / 3];
        part.iter().map(|(_, _, pss)| megabytes(*pss)).sum::<f64>() / number(part.len())
    }
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "memory of this machine")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The process in which the page runs.
pub(crate) fn web_process(app: &App) -> anyhow::Result<Process> {
    let app = app.process().context("the app runs")?;
    let web = processes::descendants(app.pid).into_iter().find(|process| process.command.contains("WebKitWebProcess"));
    web.context("the app has a web process")
}

/// Runs one sandbox at this rate in the open window, and watches.
async fn watch(journey: &mut Journey, app: &App, rate: u64, seconds: u64) -> anyhow::Result<(String, Seen)> {
    app.script(WATCH, vec![]).await?;
    let sandbox = app.create_shell(&printing(rate, seconds)).await?;
    app.see_text("row-output", "line ").await?;
    let (web, engine) = (web_process(app)?, app.process().context("the app runs")?);
    let mut seen = Seen { lags: vec![], web: vec![], engine: vec![], pictures: 0.0, cores: [0.0; 2] };
    let begun = Instant::now();
    let pictures = app.script("return window.streamPictures", vec![]).await?.as_f64().unwrap_or(0.0);
    let times =
        || -> anyhow::Result<_> { Ok([processes::processor_time(web.pid)?, processes::processor_time(engine.pid)?]) };
    let before = times()?;
    let mut drawn = vec![];
    while app.look("row-ended").await?.is_none() {
        ensure!(begun.elapsed() < Duration::from_secs(seconds) + 4 * DEADLINE, "the agent is still not done");
        drawn = serde_json::from_value::<Vec<u64>>(app.script(DRAWN, vec![]).await?)?;
        let is_whole = drawn.windows(2).all(|pair| pair[1] == pair[0] + 1);
        ensure!(is_whole, "a line is missing between those drawn: {drawn:?}");
        let (resident, proportional) = (processes::resident(web.pid)?, processes::proportional(web.pid)?);
        seen.web.push((Instant::now(), resident, proportional));
        seen.engine.push(processes::resident(engine.pid)?);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    for (index, after) in times()?.into_iter().enumerate() {
        seen.cores[index] = (after - before[index]).as_secs_f64() / begun.elapsed().as_secs_f64();
    }
    ensure!(drawn.len() > 20, "lines were drawn: {drawn:?}");
    let now = app.script("return window.streamPictures", vec![]).await?.as_f64().unwrap_or(0.0);
    seen.pictures = (now - pictures) / begun.elapsed().as_secs_f64();

    let last = format!("line {:07} ", rate * seconds);
    app.see_within("row-ended", "ended well", 4 * DEADLINE, |seen| seen.attribute("data-exit-code") == "0").await?;
    app.see_text("row-output", &last).await?;
    let samples: Vec<Sample> = serde_json::from_value(app.script("return window.streamSamples", vec![]).await?)?;
    for pair in samples.windows(2) {
        let (Sample(_, before, stamp_before), Sample(at, newest, stamp)) = (&pair[0], &pair[1]);
        // Ten lines stand for all that came together.
        let count = (newest - before).min(10);
        let lags = (0..count).map(|part| (*at, at.saturating_sub(stamp - (stamp - stamp_before) * part / count)));
        seen.lags.extend(lags);
    }
    ensure!(samples.len() > 20, "the page was watched: {} samples", samples.len());
    all_is_kept(journey, &sandbox, rate * seconds)?;
    Ok((sandbox, seen))
}

/// The raw log holds every line, once and in order.
pub(crate) fn all_is_kept(journey: &Journey, sandbox: &str, lines: u64) -> anyhow::Result<()> {
    let log = String::from_utf8(store::raw_log(&journey.desktop.data(), sandbox)?)?;
    let mut next = 1;
    for line in log.lines() {
        let number = line.strip_prefix("line ").and_then(|rest| rest.get(..7)).and_then(|digits| digits.parse().ok());
        ensure!(number == Some(next) && line.ends_with(" the quick brown fox"), "line {next} of {sandbox} is {line:?}");
        next += 1;
    }
    ensure!(next - 1 == lines, "{} of {lines} lines of {sandbox} are in its log", next - 1);
    Ok(())
}

#[test]
fn a_fast_agent_is_followed_and_a_reader_further_up_is_left_alone() {
    journey("stream", is_followed);
}

#[test]
fn a_fast_agent_is_followed_and_a_reader_further_up_is_left_alone_on_e2b() {
    journey_on_e2b("stream", is_followed);
}

async fn is_followed(journey: &mut Journey) -> anyhow::Result<()> {
    let app = journey.open().await?;
    app.open_sample().await?;
    let (_, seen) = watch(journey, &app, 1_000, 3).await?;
    ensure!(seen.lags.len() > 100, "the page was watched: {} samples", seen.lags.len());
    app.screenshot("1-followed").await?;

    let sandbox = app.create_shell(&printing(2_000, 12)).await?;
    app.see_text("row-output", "line 0002").await?;
    app.script("document.querySelector('[data-testid=\"conversation\"]').scrollTop -= 6000", vec![]).await?;
    app.see("newest").await?;
    let place = app.script(AT_THE_TOP, vec![]).await?;
    ensure!(place.is_array(), "lines are where the reader looks");
    journey.spool_that(&sandbox, "the agent prints on", |text| text.contains("line 0016")).await?;
    ensure!(app.script(AT_THE_TOP, vec![]).await? == place, "what the reader looks at has not moved from {place}");
    app.screenshot("2-read-further-up").await?;
    app.click("newest").await?;
    app.see("row-ended").await?;
    app.see_text("row-output", "line 0024000 ").await?;
    let drawn: Vec<u64> = serde_json::from_value(app.script(DRAWN, vec![]).await?)?;
    ensure!(drawn.last() == Some(&24_000) && drawn.windows(2).all(|pair| pair[1] == pair[0] + 1), "{drawn:?}");
    // Further up still is what scrolled past, loaded again.
    for _ in 0..200 {
        app.script("document.querySelector('[data-testid=\"conversation\"]').scrollTop -= 20000", vec![]).await?;
        if app.look("row-message").await?.is_some() {
            break;
        }
    }
    app.see("row-message").await?;
    let drawn: Vec<u64> = serde_json::from_value(app.script(DRAWN, vec![]).await?)?;
    ensure!(drawn.first() == Some(&1) && drawn.windows(2).all(|pair| pair[1] == pair[0] + 1), "{drawn:?}");
    app.screenshot("3-from-the-beginning").await?;
    all_is_kept(journey, &sandbox, 24_000)
}

#[test]
#[ignore = "long: cargo xtask bench"]
fn prove_stream() {
    journey("stream-bench", async |journey: &mut Journey| {
        let seconds = size(SECONDS);
        let app = journey.open().await?;
        app.open_sample().await?;
        let (_, seen) = watch(journey, &app, RATE, seconds).await?;
        app.screenshot("1-at-the-end").await?;
        let (first, last) = (seen.lags(0), seen.lags(2));
        figure("stream/lag_p50_first_third", percentile(&first, 50), "ms", None);
        figure("stream/lag_p95_first_third", percentile(&first, 95), "ms", None);
        figure("stream/lag_p50_last_third", percentile(&last, 50), "ms", None);
        figure("stream/lag_p95_last_third", percentile(&last, 95), "ms", Some(100.0));
        figure("stream/lag_max_last_third", percentile(&last, 100), "ms", None);
        figure("stream/pictures", seen.pictures, "per second", None);
        figure("stream/web_cores", seen.cores[0], "cores", None);
        figure("stream/engine_cores", seen.cores[1], "cores", None);
        for (third, name) in ["first", "middle", "last"].iter().enumerate() {
            let against = (third == 2).then(|| seen.web(1));
            figure(&format!("stream/web_pss_{name}_third"), seen.web(third), "MB", against);
        }
        let most = |which: fn(&(Instant, u64, u64)) -> u64| megabytes(seen.web.iter().map(which).max().unwrap_or(0));
        figure("stream/web_pss_most", most(|at| at.2), "MB", Some(350.0));
        figure("stream/web_rss_most", most(|at| at.1), "MB", Some(350.0));
        figure("stream/engine_rss_most", megabytes(seen.engine.iter().copied().max().unwrap_or(0)), "MB", None);
        let begun = seen.web.first().context("it was looked")?.0;
        let points: Vec<(f64, f64)> =
            seen.web.iter().map(|(at, _, pss)| ((*at - begun).as_secs_f64() / 60.0, megabytes(*pss))).collect();
        figure("stream/web_slope_second_half", slope(&points[points.len() / 2..]), "MB per minute", None);
        Ok(())
    });
}
