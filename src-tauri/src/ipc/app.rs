//! The app itself: the Doctor, links, folders, and what this build is.

use courier_engine::engine::{Check, CheckState, Engine, Report};
use serde::Serialize;
use specta::Type;
use tauri::{AppHandle, Runtime, State};
use tauri_plugin_dialog::DialogExt;
use tauri_plugin_opener::OpenerExt;
use tokio::sync::oneshot;

use super::{error::IpcError, millis};

/// What was looked for on this machine, and what was found.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    checks: Vec<DoctorCheck>,
    ran_at: f64,
}

/// One thing the app needs, or can use.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct DoctorCheck {
    id: String,
    name: String,
    state: DoctorState,
    found: String,
    looked_for: Vec<String>,
    remedy: Option<String>,
}

/// `notFound` is no alarm: something optional is absent.
#[derive(Clone, Copy, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub enum DoctorState {
    Ok,
    Warning,
    Failed,
    NotFound,
}

impl From<Check> for DoctorCheck {
    fn from(check: Check) -> Self {
        let state = match check.state {
            CheckState::Ok => DoctorState::Ok,
            CheckState::Warning => DoctorState::Warning,
            CheckState::Failed => DoctorState::Failed,
            CheckState::NotFound => DoctorState::NotFound,
        };
        Self {
            id: check.id.to_owned(),
            name: check.name,
            state,
            found: check.found,
            looked_for: check.looked_for,
            remedy: check.remedy,
        }
    }
}

impl From<Report> for DoctorReport {
    fn from(report: Report) -> Self {
        Self { checks: report.checks.into_iter().map(DoctorCheck::from).collect(), ran_at: millis(report.ran_at) }
    }
}

/// What this build is, and where its data is.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct AppInfo {
    version: String,
    data_directory: String,
    platform: String,
}

/// Looks at everything the app needs.
#[tauri::command]
#[specta::specta]
pub async fn doctor_run(engine: State<'_, Engine>) -> Result<DoctorReport, IpcError> {
    Ok(engine.doctor().await?.into())
}

/// Opens a link outside, once the person has agreed to its whole target.
#[tauri::command]
#[specta::specta]
pub async fn link_open<R: Runtime>(app: AppHandle<R>, url: String) -> Result<(), IpcError> {
    // What an agent printed must not start a program: only what a browser or a mail program opens.
    if !["https://", "http://", "mailto:"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(IpcError::invalid(format!("{url:?} is not a web or mail address")));
    }
    app.opener().open_url(&url, None::<&str>).map_err(|error| IpcError::invalid(error.to_string()))
}

/// A native folder chooser; null when dismissed.
#[tauri::command]
#[specta::specta]
pub async fn folder_choose<R: Runtime>(app: AppHandle<R>) -> Result<Option<String>, IpcError> {
    let (sender, receiver) = oneshot::channel();
    app.dialog().file().pick_folder(move |folder| _ = sender.send(folder));
    let chosen = receiver.await.unwrap_or(None);
    Ok(chosen.and_then(|folder| folder.into_path().ok()).map(|path| path.display().to_string()))
}

/// What this build is.
#[tauri::command]
#[specta::specta]
pub async fn app_info<R: Runtime>(app: AppHandle<R>, engine: State<'_, Engine>) -> Result<AppInfo, IpcError> {
    Ok(AppInfo {
        version: app.package_info().version.to_string(),
        data_directory: engine.home().display().to_string(),
        platform: std::env::consts::OS.to_owned(),
    })
}
