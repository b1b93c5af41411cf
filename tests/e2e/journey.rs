//! A journey's frame: a desktop, the app on it, and what is left behind when it fails.

use std::{
    fs,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::{Context, ensure};
use courier_test_support::{desktop::Desktop, e2b::E2bServer};
use futures_util::FutureExt;

use crate::{
    app::{App, Ground},
    cloud,
};

/// One person's way through the window.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) desktop: Desktop,
    /// Where the sandboxes' machines are, if they are not on this one.
    pub(crate) cloud: Option<E2bServer>,
    shots: PathBuf,
    app: Option<Rc<App>>,
    is_signed_in: bool,
}

/// Runs a journey to its end. A failure, however it comes, is photographed and explained first.
pub(crate) fn journey(name: &str, body: impl AsyncFnOnce(&mut Journey) -> anyhow::Result<()>) {
    run(name, None, body);
}

/// The same journey, whose sandboxes are on machines of an E2B-compatible server.
pub(crate) fn journey_on_e2b(name: &str, body: impl AsyncFnOnce(&mut Journey) -> anyhow::Result<()>) {
    let server = cloud::start().expect("an E2B-compatible server starts");
    run(&format!("{name}-e2b"), Some(server), body);
}

fn run(name: &str, cloud: Option<E2bServer>, body: impl AsyncFnOnce(&mut Journey) -> anyhow::Result<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let shots = shots_folder().join(name);
    _ = fs::remove_dir_all(&shots); // Pictures of an earlier run would lie.
    let desktop = Desktop::start().expect("a desktop of one's own starts");
    let mut journey = Journey { desktop, cloud, shots, app: None, is_signed_in: false };
    runtime.block_on(async {
        let outcome = AssertUnwindSafe(body(&mut journey)).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(()))) {
            journey.explain().await;
        }
        match outcome {
            Ok(outcome) => outcome.unwrap_or_else(|error| panic!("journey {name}: {error:?}")),
            Err(panic) => resume_unwind(panic),
        }
    });
}

impl Journey {
    /// Opens the app and waits until it is drawn.
    pub(crate) async fn open(&mut self) -> anyhow::Result<Rc<App>> {
        self.open_with(&[]).await
    }

    /// The same with these variables on top of its environment.
    pub(crate) async fn open_with(&mut self, environment: &[(&str, &str)]) -> anyhow::Result<Rc<App>> {
        let program = program("CODECOURIER_APP", "codecourier")?;
        let app = self.launch(&program, &[], environment).await?;
        app.is_ready().await?;
        app.resize(1440, 900).await?;
        if let Some(server) = &self.cloud
            && !self.is_signed_in
        {
            cloud::sign_in(&app, server).await?;
            self.is_signed_in = true;
        }
        Ok(app)
    }

    /// Opens any program with a web view.
    pub(crate) async fn open_program(&mut self, program: &Path, arguments: &[&str]) -> anyhow::Result<Rc<App>> {
        self.launch(program, arguments, &[]).await
    }

    async fn launch(
        &mut self,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Rc<App>> {
        ensure!(self.app.is_none(), "the app is open");
        let ground = if self.cloud.is_some() { Ground::E2b } else { Ground::Here };
        let app = App::launch(&self.desktop, ground, program, arguments, environment, &self.shots).await?;
        Ok(Rc::clone(self.app.insert(Rc::new(app))))
    }

    /// Ends the app as a crash does.
    pub(crate) async fn kill9(&mut self) -> anyhow::Result<()> {
        self.app.take().context("the app is not open")?.kill9().await
    }

    /// Says what a person would ask: what was on the screen, what the app said, what still runs.
    async fn explain(&self) {
        if let Some(app) = &self.app {
            if let Err(error) = app.screenshot("failure").await {
                eprintln!("no picture of the failure: {error:#}");
            }
            eprintln!("── the app's log\n{}", app.log());
        }
        for log in self.logs() {
            eprintln!("── {}\n{}", log.display(), fs::read_to_string(&log).unwrap_or_default());
        }
        for process in self.desktop.survivors() {
            eprintln!("runs: {} {} {}", process.pid, process.state, process.command);
        }
    }

    /// The app's log files, and each keeper's.
    fn logs(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (vec![], vec![(self.desktop.data(), 0)]);
        while let Some((folder, depth)) = folders.pop() {
            for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let is_folder = path.is_dir() && !path.is_symlink();
                let is_of_the_work = path.ends_with("workspace") || path.ends_with("home");
                match path.extension() {
                    _ if is_folder && depth < 3 && !is_of_the_work => folders.push((path, depth + 1)),
                    Some(extension) if extension == "log" => found.push(path),
                    _ => {}
                }
            }
        }
        found
    }
}

/// A program of the product: where the environment says, else beside this test.
pub(crate) fn program(variable: &str, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let path = own.ancestors().nth(2).context("a test lies two folders deep")?.join(name);
    ensure!(path.is_file(), "there is no {}: build the app first, or run `cargo xtask test journeys`", path.display());
    Ok(path)
}

fn shots_folder() -> PathBuf {
    let beside_sources = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/journeys");
    std::env::var_os("CODECOURIER_JOURNEYS").map_or_else(beside_sources, PathBuf::from)
}
