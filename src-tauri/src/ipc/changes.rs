//! What the whole window is told: every change that was committed, under the feed's revision.

use courier_engine::{
    engine::Engine,
    store::{Change, Changed as Committed},
};
use serde::{Deserialize, Serialize};
use specta::Type;
use tauri::{AppHandle, Runtime};
use tauri_specta::Event;
use tokio::sync::broadcast;

use super::{projects::Project, sandboxes::Sandbox};

/// Something changed. A change whose revision is not newer than what is shown is ignored.
#[derive(Clone, Debug, Serialize, Type, Event)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Changed {
    Sandbox { revision: u64, sandbox: Box<Sandbox> },
    Project { revision: u64, project: Project },
    Credentials { revision: u64 },
    Settings { revision: u64 },
}

/// The tray, a notification or a second start asks the window to show something.
#[derive(Clone, Debug, Serialize, Deserialize, Type, Event)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Navigate {
    Sandbox { id: String },
    NewSandbox,
    Settings,
    Doctor,
}

/// Emits every change of the engine to the window, and hands each sandbox to `each` as well.
pub(crate) async fn forward<R: Runtime>(
    app: AppHandle<R>,
    engine: Engine,
    mut each: impl FnMut(&courier_engine::store::SandboxRow) + Send,
) {
    let mut changes = engine.feed().changes();
    loop {
        let change = match changes.recv().await {
            Ok(change) => change,
            // Rows are read when they are emitted, so what was missed is emitted with the next change of the same row;
            // the window asks again when it regains focus.
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "the window was told of some changes late");
                continue;
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if let Some(changed) = read(&engine, change, &mut each).await
            && let Err(error) = changed.emit(&app)
        {
            tracing::warn!(%error, "a change did not reach the window");
        }
    }
}

async fn read(
    engine: &Engine,
    Committed { revision, change }: Committed,
    each: &mut impl FnMut(&courier_engine::store::SandboxRow),
) -> Option<Changed> {
    Some(match change {
        Change::Sandbox(id) => {
            let row = engine.sandbox_get(id).await.ok()?;
            each(&row);
            Changed::Sandbox { revision, sandbox: Box::new(Sandbox::at(revision, row)) }
        }
        Change::Project(id) => Changed::Project { revision, project: engine.project_get(id).await.ok()?.into() },
        Change::Credentials => Changed::Credentials { revision },
        Change::Settings => Changed::Settings { revision },
    })
}
