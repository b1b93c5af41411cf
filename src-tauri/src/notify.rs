//! A native notification on each change of status, where the person wants it.

use std::collections::HashMap;

use courier_engine::{
    engine::Engine,
    model::{Ending, Reason, SandboxId, Status},
    store::SandboxRow,
};
use tauri::{AppHandle, Runtime};
use tauri_plugin_notification::NotificationExt;

use crate::plain::plain;

/// Remembers what was told.
pub(crate) struct Notifier<R: Runtime> {
    app: AppHandle<R>,
    engine: Engine,
    known: HashMap<SandboxId, Status>,
}

impl<R: Runtime> Notifier<R> {
    pub(crate) fn new(app: AppHandle<R>, engine: Engine) -> Self {
        Self { app, engine, known: HashMap::new() }
    }

    /// Tells a new status once. What was so before the app started is no news.
    pub(crate) fn sandbox_changed(&mut self, sandbox: &SandboxRow) {
        let status = sandbox.lifecycle.status;
        let before = self.known.insert(sandbox.id, status);
        if before == Some(status) || (before.is_none() && status != Status::Creating) {
            return;
        }
        let (app, engine, title, body) =
            (self.app.clone(), self.engine.clone(), plain(&sandbox.title), plain(&body(sandbox)));
        tauri::async_runtime::spawn(async move {
            let wanted =
                engine.settings().await.is_ok_and(|settings| settings.notifications.get(&status) != Some(&false));
            if wanted && let Err(error) = app.notification().builder().title(title).body(body).show() {
                tracing::debug!(%error, "the desktop took no notification");
            }
        });
    }
}

fn body(sandbox: &SandboxRow) -> String {
    match (sandbox.lifecycle.status, sandbox.lifecycle.ending) {
        (Status::Creating, _) => "is being created".to_owned(),
        (Status::Running, _) => "runs".to_owned(),
        (Status::Paused, _) => "is paused".to_owned(),
        (Status::Killed, Some(Ending::Killed(Reason::TimedOut))) => "ended: its time was over".to_owned(),
        (Status::Killed, Some(Ending::Killed(Reason::Lost))) => "ended: it went away by itself".to_owned(),
        (Status::Killed, Some(Ending::Killed(Reason::StepFinished))) => "ended: its step is finished".to_owned(),
        (Status::Killed, _) => "was stopped".to_owned(),
        (Status::Error, _) => sandbox.error.as_ref().map_or_else(|| "failed".to_owned(), |error| error.message.clone()),
    }
}
