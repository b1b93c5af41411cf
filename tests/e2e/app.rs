//! The app in its real window: started by a driver, looked at and touched through WebDriver.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use courier_test_support::{
    desktop::{Desktop, Driver},
    processes,
};
use fantoccini::{Client, ClientBuilder, Locator, elements::Element};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::look::{FILL, LOOK, SELECT, Seen, selector};

/// How long anything on the screen may take; a busy machine with two cores draws it all.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// Makes the view draw for two seconds, by what nobody sees.
const STIR: &str = "const dot = document.createElement('div'); dot.setAttribute('aria-hidden', 'true');\
    dot.style.cssText = 'position:fixed;right:0;bottom:0;width:1px;height:1px;pointer-events:none';\
    document.documentElement.append(dot); let turn = 0;\
    const stirring = setInterval(() => { dot.style.background = `rgba(128,128,128,${++turn % 2 ? .01 : .02})`;\
    if (turn > 40) { clearInterval(stirring); dot.remove(); } }, 50)";
const POLL: Duration = Duration::from_millis(40);

/// Where sandboxes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Here,
    E2b,
}

/// One launch of a program with a web view.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) ground: Ground,
    client: Client,
    driver: Driver,
    program: PathBuf,
    shots: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

impl Theme {
    pub(crate) const BOTH: [Theme; 2] = [Theme::Light, Theme::Dark];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

impl App {
    /// Starts `program` under a driver of its own.
    pub(crate) async fn launch(
        desktop: &Desktop,
        ground: Ground,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        shots: &Path,
    ) -> anyhow::Result<Self> {
        let driver = desktop.driver(environment)?;
        let Value::Object(capabilities) = json!({
            "webkitgtk:browserOptions": {"binary": program, "args": arguments},
            "timeouts": {"script": 30_000, "pageLoad": 60_000, "implicit": 0},
        }) else {
            bail!("capabilities are an object")
        };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let connected = builder.capabilities(capabilities).connect(&driver.url()).await;
        let client = connected.with_context(|| format!("could not open {}:\n{}", program.display(), driver.log()))?;
        Ok(App { ground, client, driver, program: program.to_owned(), shots: shots.to_owned() })
    }

    /// Waits until the window has drawn its first view.
    pub(crate) async fn is_ready(&self) -> anyhow::Result<()> {
        let script = "return document.documentElement.dataset.ready ?? ''";
        self.wait("the window is drawn", DEADLINE, async || {
            Ok((self.script(script, vec![]).await? == "true").then_some(()))
        })
        .await
    }

    /// Begins anew in the same window.
    pub(crate) async fn reload(&self) -> anyhow::Result<()> {
        // The old page must not be taken for the new one.
        self.script("delete document.documentElement.dataset.ready; location.reload()", vec![]).await?;
        self.is_ready().await
    }

    pub(crate) async fn script(&self, script: &str, arguments: Vec<Value>) -> anyhow::Result<Value> {
        let answered = tokio::time::timeout(DEADLINE * 2, self.client.execute(script, arguments)).await;
        Ok(answered.with_context(|| format!("the window did not answer {script:?}"))??)
    }

    /// Runs a script that answers by its last argument, a function.
    pub(crate) async fn script_async(&self, script: &str) -> anyhow::Result<Value> {
        Ok(self.client.execute_async(script, vec![]).await?)
    }

    /// How many windows are open.
    pub(crate) async fn windows(&self) -> anyhow::Result<usize> {
        Ok(self.client.windows().await?.len())
    }

    pub(crate) async fn goto(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// Everything at a place, visible or not.
    pub(crate) async fn all(&self, place: &str) -> anyhow::Result<Vec<Seen>> {
        let found = self.script(LOOK, vec![selector(place).into()]).await?;
        Ok(serde_json::from_value(found)?)
    }

    /// What is at a place now.
    pub(crate) async fn look(&self, place: &str) -> anyhow::Result<Option<Seen>> {
        Ok(self.all(place).await?.into_iter().find(|seen| seen.is_visible))
    }

    /// Waits until something is at a place.
    pub(crate) async fn see(&self, place: &str) -> anyhow::Result<Seen> {
        self.see_that(place, "is there", |_| true).await
    }

    /// Waits until what is at a place fulfils something, said in words for the error.
    pub(crate) async fn see_that(
        &self,
        place: &str,
        what: &str,
        holds: impl Fn(&Seen) -> bool,
    ) -> anyhow::Result<Seen> {
        self.see_within(place, what, DEADLINE, holds).await
    }

    pub(crate) async fn see_within(
        &self,
        place: &str,
        what: &str,
        deadline: Duration,
        holds: impl Fn(&Seen) -> bool,
    ) -> anyhow::Result<Seen> {
        let words = format!("{place} {what}");
        self.wait(&words, deadline, async || {
            Ok(self.all(place).await?.into_iter().find(|seen| seen.is_visible && holds(seen)))
        })
        .await
    }

    /// Waits until a text is at a place.
    pub(crate) async fn see_text(&self, place: &str, text: &str) -> anyhow::Result<Seen> {
        self.see_that(place, &format!("says {text:?}"), |seen| seen.text.contains(text)).await
    }

    pub(crate) async fn is_gone(&self, place: &str) -> anyhow::Result<()> {
        self.wait(&format!("{place} is gone"), DEADLINE, async || Ok(self.look(place).await?.is_none().then_some(())))
            .await
    }

    /// Clicks with the driver's pointer, once the element is there, enabled and in nobody's way.
    pub(crate) async fn click(&self, place: &str) -> anyhow::Result<()> {
        self.see_that(place, "can be clicked", |seen| seen.is_enabled).await?;
        // It may be drawn anew between the look and the click: then the driver says so and we look again.
        self.wait(&format!("{place} takes a click"), DEADLINE, async || {
            let element = self.element(place).await?;
            Ok(element.click().await.is_ok().then_some(()))
        })
        .await
    }

    /// Types with the driver's keyboard.
    pub(crate) async fn type_text(&self, place: &str, text: &str) -> anyhow::Result<()> {
        self.see_that(place, "takes text", |seen| seen.is_enabled).await?;
        Ok(self.element(place).await?.send_keys(text).await?)
    }

    /// Replaces what a field holds, in one edit.
    pub(crate) async fn fill(&self, place: &str, text: &str) -> anyhow::Result<()> {
        self.see_that(place, "takes text", |seen| seen.is_enabled).await?;
        let held = self.script(FILL, vec![selector(place).into(), text.into()]).await?;
        ensure!(held == text, "{place} holds {held} instead of the text");
        Ok(())
    }

    /// Chooses in a menu, once it offers the value.
    pub(crate) async fn select(&self, place: &str, value: &str) -> anyhow::Result<()> {
        let option = format!("{} option[value=\"{value}\"]", selector(place));
        self.wait(&format!("{place} offers {value}"), DEADLINE, async || {
            Ok((!self.all(&option).await?.is_empty()).then_some(()))
        })
        .await?;
        let chosen = self.script(SELECT, vec![selector(place).into(), value.into()]).await?;
        ensure!(chosen == value, "{place} chose {chosen}");
        Ok(())
    }

    /// Asks again and again until there is an answer.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        deadline: Duration,
        ask: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            let answer = ask().await;
            match answer {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if begun.elapsed() < deadline => {}
                Ok(None) => bail!("not within {deadline:?}: {what}"),
                // The page may be on its way: only a lasting error counts.
                Err(error) if begun.elapsed() >= deadline || !self.is_running() => {
                    return Err(error.context(what.to_owned()));
                }
                Err(_) => {}
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A picture of the whole window.
    pub(crate) async fn screenshot(&self, name: &str) -> anyhow::Result<()> {
        fs::create_dir_all(&self.shots)?;
        let taking = async {
            // The driver waits for the next picture the view draws, and where nothing changes there may be none.
            self.client.execute(STIR, vec![]).await?;
            let drawn =
                "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))";
            self.client.execute_async(drawn, vec![]).await?;
            self.client.screenshot().await
        };
        let taken = tokio::time::timeout(DEADLINE, taking).await;
        let picture = taken.with_context(|| format!("no picture {name} within {DEADLINE:?}"))??;
        Ok(fs::write(self.shots.join(format!("{name}.png")), picture)?)
    }

    /// A picture in each theme, without leaving the view: the tokens are changed where the window changes them.
    pub(crate) async fn screenshot_both(&self, name: &str) -> anyhow::Result<()> {
        let script = "const root = document.documentElement; const was = root.dataset.theme; root.dataset.theme = arguments[0]; return was ?? ''";
        let before = self.script(script, vec![Theme::Light.name().into()]).await?;
        for theme in Theme::BOTH {
            self.script(script, vec![theme.name().into()]).await?;
            self.is_still().await?;
            self.screenshot(&format!("{name}-{}", theme.name())).await?;
        }
        self.script(script, vec![before]).await?;
        Ok(())
    }

    /// Waits until nothing moves but what moves for ever.
    pub(crate) async fn is_still(&self) -> anyhow::Result<()> {
        let script = "return document.getAnimations().every((one) => one.playState !== 'running' || one.effect?.getTiming().iterations === Infinity) && document.fonts.status === 'loaded'";
        self.wait("nothing moves", DEADLINE, async || Ok((self.script(script, vec![]).await? == true).then_some(())))
            .await
    }

    /// Chooses a theme as a person does, in the settings.
    pub(crate) async fn set_theme(&self, theme: Theme) -> anyhow::Result<()> {
        self.click("nav-settings").await?;
        self.click(&format!("theme-{}", theme.name())).await?;
        self.see(&format!("html[data-theme=\"{}\"]", theme.name())).await?;
        Ok(())
    }

    /// Makes the window's inside this large, as far as the window allows.
    pub(crate) async fn resize(&self, width: u32, height: u32) -> anyhow::Result<()> {
        self.client.set_window_size(width, height).await?;
        let script = "return [innerWidth, innerHeight]";
        let wanted = json!([width, height]);
        self.wait(&format!("the window measures {wanted}"), DEADLINE, async || {
            Ok((self.script(script, vec![]).await? == wanted).then_some(()))
        })
        .await
    }

    /// The app's own process, found among the driver's children.
    pub(crate) fn process(&self) -> Option<processes::Process> {
        let program = self.program.to_string_lossy();
        let children = processes::descendants(self.driver.pid());
        children.into_iter().find(|process| process.command.starts_with(&*program) && !process.is_dead())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process().is_some()
    }

    /// Kills the app without a warning, as a crash does; what it started elsewhere goes on.
    pub(crate) async fn kill9(&self) -> anyhow::Result<()> {
        let process = self.process().context("the app runs")?;
        processes::kill(&process);
        let begun = Instant::now();
        while processes::read(process.pid).is_some_and(|now| now.started == process.started && !now.is_dead()) {
            ensure!(begun.elapsed() < DEADLINE, "the app survived a kill");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> String {
        self.driver.log()
    }

    async fn element(&self, place: &str) -> anyhow::Result<Element> {
        Ok(self.client.find(Locator::Css(&selector(place))).await?)
    }
}
