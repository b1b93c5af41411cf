//! What a person does again and again.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use courier_test_support::{e2b::State, processes};

use crate::{
    app::{App, DEADLINE},
    journey::{Journey, program},
    store,
};

/// A new sandbox, as far as it differs from what the dialog proposes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewSandbox<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) agent: Option<&'a str>,
    /// One that the list may not have.
    pub(crate) model: Option<&'a str>,
    pub(crate) minutes: Option<&'a str>,
    pub(crate) setup_script: Option<&'a str>,
}

impl App {
    /// From the first start to the sample project.
    pub(crate) async fn open_sample(&self) -> anyhow::Result<()> {
        self.click("sample-project").await?;
        self.see("project-row").await?;
        self.see("new-sandbox").await?;
        Ok(())
    }

    /// Fills in the dialog; it stays open.
    pub(crate) async fn fill_new_sandbox(&self, new: NewSandbox<'_>) -> anyhow::Result<()> {
        self.click("new-sandbox").await?;
        self.see("new-sandbox-dialog").await?;
        self.click(&format!("agent-{}", new.agent.unwrap_or("shell"))).await?;
        self.choose_ground().await?;
        self.fill("prompt-input", new.prompt).await?;
        if let Some(model) = new.model {
            if self.look("model-input").await?.is_none() {
                // As no model is called.
                self.select("model-select", " other").await?;
            }
            self.fill("model-input", model).await?;
        }
        if new.minutes.is_some() || new.setup_script.is_some() {
            if self.look("timeout-input").await?.is_none() {
                self.click("more-toggle").await?;
            }
            if let Some(minutes) = new.minutes {
                self.fill("timeout-input", minutes).await?;
            }
            if let Some(script) = new.setup_script {
                self.fill("setup-input", script).await?;
            }
        }
        Ok(())
    }

    /// Creates a sandbox; hands over its id. Its page is open.
    pub(crate) async fn create(&self, new: NewSandbox<'_>) -> anyhow::Result<String> {
        let before = self.sandboxes().await?;
        self.fill_new_sandbox(new).await?;
        self.click("start-sandbox").await?;
        // Until its row is the chosen one, the page may still be another's.
        let is_new = async || {
            let rows = self.all("[data-testid=\"sandbox-row\"][aria-selected=\"true\"]").await?;
            Ok(rows.iter().map(|row| row.attribute("data-id").to_owned()).find(|id| !before.contains(id)))
        };
        let id = self.wait("the new sandbox is chosen in the list", DEADLINE, is_new).await?;
        self.is_gone("new-sandbox-dialog").await?;
        self.see("status-badge").await?;
        Ok(id)
    }

    /// A Shell sandbox with this script.
    pub(crate) async fn create_shell(&self, script: &str) -> anyhow::Result<String> {
        self.create(NewSandbox { prompt: script, ..NewSandbox::default() }).await
    }

    /// The ids in the list.
    pub(crate) async fn sandboxes(&self) -> anyhow::Result<Vec<String>> {
        let rows = self.all("sandbox-row").await?;
        Ok(rows.iter().map(|row| row.attribute("data-id").to_owned()).collect())
    }

    pub(crate) async fn open_sandbox(&self, id: &str) -> anyhow::Result<()> {
        // In a narrow window the page stands where the list was.
        if self.look("back").await?.is_some() {
            self.click("back").await?;
        }
        let row = format!("[data-testid=\"sandbox-row\"][data-id=\"{id}\"]");
        // In a long list it may stand half beneath the edge, where the driver's pointer meets something else.
        let show = "document.querySelector(arguments[0])?.scrollIntoView({ block: 'center' })";
        self.script(show, vec![row.as_str().into()]).await?;
        self.click(&row).await?;
        self.see("status-badge").await?;
        Ok(())
    }

    /// Waits until the open sandbox has this status and nothing is in hand.
    pub(crate) async fn is(&self, status: &str) -> anyhow::Result<()> {
        let settled = |seen: &crate::look::Seen| {
            seen.attribute("data-status") == status && seen.attribute("data-activity") == "none"
        };
        self.see_within("status-badge", &format!("is {status}"), 2 * DEADLINE, settled).await?;
        Ok(())
    }

    pub(crate) async fn send(&self, text: &str) -> anyhow::Result<()> {
        self.fill("composer-input", text).await?;
        self.click("composer-send").await
    }

    pub(crate) async fn save_setting(&self, field: &str, value: &str) -> anyhow::Result<()> {
        self.click("nav-settings").await?;
        self.fill(field, value).await?;
        self.click(&format!("{field}-save")).await?;
        // Once it is kept there is nothing left to save.
        self.see_that(&format!("{field}-save"), "has nothing to save", |seen| !seen.is_enabled).await?;
        Ok(())
    }

    /// Says where an agent's program is, in its row of the settings.
    pub(crate) async fn save_agent_path(&self, agent: &str, path: &str) -> anyhow::Result<()> {
        self.click("nav-settings").await?;
        let field = format!("agent-path-{agent}");
        self.see(&format!("agent-row-{agent}")).await?;
        if self.look(&field).await?.is_none() {
            self.click(&format!("agent-row-{agent}")).await?;
        }
        self.fill(&field, path).await?;
        let save = format!("agent-save-{agent}");
        self.click(&save).await?;
        // Once it is kept there is nothing left to save.
        self.see_that(&save, "has nothing to save", |seen| !seen.is_enabled).await?;
        Ok(())
    }

    /// Hands over a key; the window then shows its last four characters and nothing else of it.
    pub(crate) async fn save_key(&self, kind: &str, key: &str) -> anyhow::Result<()> {
        self.click("nav-settings").await?;
        self.fill(&format!("key-input-{kind}"), key).await?;
        self.click(&format!("key-save-{kind}")).await?;
        self.see_text(&format!("key-last-four-{kind}"), &key[key.len() - 4..]).await?;
        Ok(())
    }

    /// As Esc does: the dialog is told to cancel.
    pub(crate) async fn close_dialog(&self) -> anyhow::Result<()> {
        let cancel = "document.querySelector('dialog[open]')?.dispatchEvent(new Event('cancel', {cancelable: true}))";
        self.script(cancel, vec![]).await?;
        self.is_gone("dialog[open]").await
    }

    /// Back to the list of all sandboxes.
    pub(crate) async fn show_sandboxes(&self) -> anyhow::Result<()> {
        self.click("nav-sandboxes").await
    }
}

impl Journey {
    /// What was written down where the agent runs.
    pub(crate) fn spool(&self, sandbox: &str) -> anyhow::Result<Vec<u8>> {
        let inside = self.machine(sandbox).map(|machine| machine.folder.join("var/lib/courier"));
        store::spool(&inside.unwrap_or_else(|| self.folder(sandbox)))
    }

    /// Waits until what was written down there fulfils something.
    pub(crate) async fn spool_that(
        &self,
        sandbox: &str,
        what: &str,
        holds: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let begun = std::time::Instant::now();
        loop {
            let text = String::from_utf8_lossy(&self.spool(sandbox)?).into_owned();
            if holds(&text) {
                return Ok(text);
            }
            anyhow::ensure!(
                begun.elapsed() < DEADLINE,
                "the spool: not within {DEADLINE:?}: {what}; it holds {text:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The sandbox's folder on this machine.
    fn folder(&self, sandbox: &str) -> PathBuf {
        self.desktop.data().join("sandboxes").join(sandbox)
    }

    /// The sandbox's processes, with its keeper or all of its machine.
    pub(crate) fn processes(&self, sandbox: &str) -> Vec<processes::Process> {
        let folder = match (&self.cloud, self.machine(sandbox)) {
            (None, _) => self.folder(sandbox),
            (Some(_), Some(machine)) => machine.folder,
            (Some(_), None) => return vec![],
        };
        processes::mentioning(&folder.to_string_lossy())
    }

    /// Waits until nothing of the sandbox runs.
    pub(crate) async fn nothing_runs(&self, sandbox: &str, deadline: Duration) -> anyhow::Result<()> {
        let begun = std::time::Instant::now();
        loop {
            let left = self.processes(sandbox);
            if left.is_empty() {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < deadline, "still running after {deadline:?}: {left:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until nothing of the sandbox costs anything more although the app is closed: its keeper has ended it, or its
    /// provider has paused its machine, whose work is not saved yet.
    pub(crate) async fn is_over(&self, sandbox: &str, deadline: Duration) -> anyhow::Result<()> {
        let begun = std::time::Instant::now();
        while self.cloud.is_some() {
            let machine = self.machine(sandbox).context("it is not destroyed before its work is saved")?;
            if machine.state == State::Paused {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < deadline, "still running after {deadline:?}: {machine:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.nothing_runs(sandbox, deadline).await
    }

    pub(crate) fn workspace(&self, sandbox: &str) -> PathBuf {
        match self.machine(sandbox) {
            Some(machine) => machine.folder.join("home/user/workspace"),
            None => self.folder(sandbox).join("workspace"),
        }
    }
}

/// A file of the sandbox's newest checkpoint of this name, as the vault has it.
pub(crate) fn saved_file(
    data: &std::path::Path,
    sandbox: &str,
    checkpoint: &str,
    file: &str,
) -> anyhow::Result<String> {
    let projects = std::fs::read_dir(data.join("projects"))?.collect::<Result<Vec<_>, _>>()?;
    let project = projects.first().context("there is a project")?;
    let object = format!("refs/courier/{sandbox}/{checkpoint}:{file}");
    courier_test_support::repositories::git(&project.path().join("vault.git"), &["show", &object])
}

/// The real Claude Code.
pub(crate) fn claude_program() -> anyhow::Result<PathBuf> {
    program("CODECOURIER_TEST_CLAUDE", "claude").context("`cargo xtask test` installs Claude Code and says where it is")
}
