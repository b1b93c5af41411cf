//! Sandboxes on machines of an E2B-compatible server: how it is started, how a person signs in, and what is seen from outside.

use std::path::{Path, PathBuf};

use courier_test_support::e2b::{E2bServer, Machine, Options, Template};

use crate::{
    app::{App, Ground},
    journey::Journey,
};

/// The agents' programs, by the variables that say where they are.
const PROGRAMS: [(&str, &str); 5] = [
    ("node", "CODECOURIER_TEST_NODE"),
    ("claude", "CODECOURIER_TEST_CLAUDE"),
    ("codex", "CODECOURIER_TEST_CODEX"),
    ("opencode", "CODECOURIER_TEST_OPENCODE"),
    ("pi", "CODECOURIER_TEST_PI"),
];
/// What the app calls the sandbox in its machine's metadata.
const MARK: &str = "courier-sandbox";

/// A server whose machines have every agent.
pub(crate) fn start() -> anyhow::Result<E2bServer> {
    let mut template = Template::default();
    for (name, variable) in PROGRAMS {
        if let Some(program) = std::env::var_os(variable) {
            template.read_only.push(package(program.as_ref())?);
            template.programs.push((name.to_owned(), program.into()));
        }
    }
    let templates = ["base"].into_iter().chain(PROGRAMS.map(|(name, _)| name));
    let templates = templates.map(|name| (name.to_owned(), template.clone())).collect();
    E2bServer::start(Options { templates, ..Options::default() })
}

/// The folder a program and all it needs were installed in.
fn package(program: &Path) -> anyhow::Result<PathBuf> {
    let program = program.canonicalize()?;
    let modules = program.ancestors().find(|folder| folder.ends_with("node_modules"));
    Ok(modules.or(program.parent()).unwrap_or(&program).to_owned())
}

/// Says where the account is and whose, in the settings, and begins anew.
pub(crate) async fn sign_in(app: &App, server: &E2bServer) -> anyhow::Result<()> {
    app.save_setting("e2b-apiUrl", &server.url()).await?;
    app.save_setting("e2b-sandboxUrl", &server.url()).await?;
    app.save_key("e2b_key", server.key()).await?;
    app.reload().await
}

impl App {
    /// Chooses in the open dialog where the sandbox is made.
    pub(crate) async fn choose_ground(&self) -> anyhow::Result<()> {
        match self.ground {
            Ground::Here => Ok(()),
            Ground::E2b => self.click("provider-e2b").await,
        }
    }
}

impl Journey {
    /// The sandbox's machine, while there is one.
    pub(crate) fn machine(&self, sandbox: &str) -> Option<Machine> {
        let machines = self.cloud.as_ref()?.machines();
        machines.into_iter().find(|machine| machine.metadata.get(MARK).is_some_and(|mark| mark == sandbox))
    }
}
