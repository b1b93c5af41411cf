//! Closing the window and quitting: agents go on in both cases, and the person is told so.

use courier_engine::{engine::Engine, model::Status, store::Query};
use tauri::{AppHandle, Manager, Runtime, Window};
use tauri_plugin_dialog::{DialogExt, MessageDialogButtons};
use tauri_plugin_notification::NotificationExt;

/// The window is closed: it hides, and says once that agents go on.
pub(crate) fn close<R: Runtime>(window: &Window<R>) {
    let app = window.app_handle().clone();
    let Some(engine) = app.try_state::<Engine>().map(|engine| engine.inner().clone()) else {
        app.exit(0);
        return;
    };
    // A desktop that refuses to hide a window keeps it, which loses nothing.
    _ = window.hide();
    tauri::async_runtime::spawn(async move {
        let Ok(mut settings) = engine.settings().await else { return };
        if settings.has_seen_close_notice {
            return;
        }
        settings.has_seen_close_notice = true;
        let shown = app
            .notification()
            .builder()
            .title("CodeCourier goes on")
            .body("Agents keep working. Start CodeCourier again, or use its tray icon, to see them.")
            .show();
        if shown.is_ok() {
            _ = engine.settings_set(settings).await;
        }
    });
}

/// Quits, after asking where something runs.
pub(crate) fn quit<R: Runtime>(app: &AppHandle<R>) {
    let Some(engine) = app.try_state::<Engine>().map(|engine| engine.inner().clone()) else {
        app.exit(0);
        return;
    };
    let app = app.clone();
    tauri::async_runtime::spawn(async move {
        let live =
            Query { statuses: vec![Status::Creating, Status::Running, Status::Paused], limit: 1, ..Query::default() };
        let count = engine.sandbox_list(live).await.map_or(0, |page| page.total);
        if count == 0 {
            app.exit(0);
            return;
        }
        let (what, go_on) = if count == 1 { ("1 sandbox is", "It goes") } else { ("Sandboxes are", "They go") };
        let what = if count == 1 { what.to_owned() } else { format!("{count} {}", what.to_lowercase()) };
        let quitting = app.clone();
        app.dialog()
            .message(format!("{what} alive. {go_on} on without the window, until the time is over."))
            .title("Quit CodeCourier")
            .buttons(MessageDialogButtons::OkCancelCustom("Quit".to_owned(), "Keep open".to_owned()))
            .show(move |agreed| {
                if agreed {
                    quitting.exit(0);
                }
            });
    });
}
