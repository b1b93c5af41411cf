//! The shell: window, tray and IPC around the engine. The only Rust that knows Tauri exists.

pub mod ipc;
mod log;
mod notify;
mod plain;
mod quit;
mod tray;
#[cfg(target_os = "linux")]
mod web_view;

use std::{path::PathBuf, process::ExitCode};

use courier_engine::engine::Engine;
use tauri::{AppHandle, Manager, Runtime, WebviewWindow, WindowEvent};
use tauri_plugin_dialog::{DialogExt, MessageDialogKind};

/// The data folder, where it is not the usual one.
const HOME: &str = "CODECOURIER_HOME";
const WINDOW: &str = "main";

/// Starts the app and returns when it has quit.
pub fn run() -> ExitCode {
    #[cfg(target_os = "linux")]
    web_view::set_up();
    let surface = ipc::surface();
    let app = tauri::Builder::default()
        .plugin(tauri_plugin_single_instance::init(|app, _arguments, _directory| show(app)))
        .plugin(tauri_plugin_dialog::init())
        .plugin(tauri_plugin_notification::init())
        .plugin(tauri_plugin_opener::init())
        .plugin(stay())
        .manage(ipc::Subscriptions::default())
        .invoke_handler(surface.invoke_handler())
        .on_page_load(|view, load| {
            if load.event() == tauri::webview::PageLoadEvent::Started {
                // A page that is loaded anew knows nothing of the old one's channels.
                view.state::<ipc::Subscriptions>().close_all();
            }
        })
        .on_window_event(|window, event| {
            if let WindowEvent::CloseRequested { api, .. } = event {
                api.prevent_close();
                quit::close(window);
            }
        })
        .setup(move |app| {
            surface.mount_events(app);
            start(app.handle());
            Ok(())
        })
        .build(tauri::generate_context!());
    match app {
        Ok(app) => {
            let code = app.run_return(|app, event| {
                if let tauri::RunEvent::Exit = event
                    && let Some(engine) = app.try_state::<Engine>()
                {
                    tauri::async_runtime::block_on(engine.shutdown());
                }
            });
            u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            tracing::error!(%error, "the app could not start");
            // There is no window to say it in.
            eprintln!("CodeCourier could not start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps the window on its own page, whatever leads away from it: a script, a form, something dropped on it.
fn stay<R: Runtime>() -> tauri::plugin::TauriPlugin<R> {
    let builder = tauri::plugin::Builder::<R>::new("stay");
    builder
        .on_navigation(|webview, url| {
            let development = webview.config().build.dev_url.as_ref().filter(|_| tauri::is_dev());
            let is_own = match url.scheme() {
                "tauri" => url.host_str() == Some("localhost"),
                "http" | "https" => {
                    url.host_str() == Some("tauri.localhost")
                        || development.is_some_and(|development| development.origin() == url.origin())
                }
                _ => false,
            };
            if !is_own {
                tracing::warn!(scheme = url.scheme(), "the window stays on its own page");
            }
            is_own
        })
        .build()
}

/// Opens the engine and wires it to the window; where it cannot be opened, says why and leaves everything as it is.
fn start<R: Runtime>(app: &AppHandle<R>) {
    app.manage(ipc::Outside::new(app));
    let home = match home(app) {
        Ok(home) => home,
        Err(error) => return refuse(app, &error.to_string(), "Set HOME to your home folder, then start again."),
    };
    log::start(&home);
    let config = courier_engine::desktop::config(home);
    match tauri::async_runtime::block_on(Engine::open(config)) {
        Ok(engine) => {
            app.manage(engine.clone());
            let mut tray = tray::Tray::new(app, &engine);
            let mut notify = notify::Notifier::new(app.clone(), engine.clone());
            let forwarding = ipc::forward(app.clone(), engine, move |sandbox| {
                tray.sandbox_changed(sandbox);
                notify.sandbox_changed(sandbox);
            });
            tauri::async_runtime::spawn(forwarding);
        }
        Err(error) => {
            refuse(app, &error.to_string(), error.detail().unwrap_or("The log in the data folder says more."));
        }
    }
}

fn home<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<PathBuf> {
    match std::env::var_os(HOME).filter(|home| !home.is_empty()) {
        Some(home) => Ok(PathBuf::from(home)),
        None => app.path().app_data_dir(),
    }
}

/// Says why the engine could not be opened, and quits once that was read.
fn refuse<R: Runtime>(app: &AppHandle<R>, cause: &str, remedy: &str) {
    tracing::error!(cause, "the engine could not be opened");
    if let Some(window) = app.get_webview_window(WINDOW) {
        _ = window.hide();
    }
    let quitting = app.clone();
    app.dialog()
        .message(format!("CodeCourier could not open its data: {cause}.\n\n{remedy}"))
        .title("CodeCourier")
        .kind(MessageDialogKind::Error)
        .show(move |_| quitting.exit(1));
}

/// Brings the window to the front.
fn show<R: Runtime>(app: &AppHandle<R>) {
    if let Some(window) = app.get_webview_window(WINDOW) {
        bring_to_front(&window);
    }
}

fn bring_to_front<R: Runtime>(window: &WebviewWindow<R>) {
    // Each may be refused by the desktop; the others still help.
    _ = window.show();
    _ = window.unminimize();
    _ = window.set_focus();
}
