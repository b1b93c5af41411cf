//! The app itself: the Doctor, links, folders, and what this build is.

use courier_engine::engine::{Check, CheckState, Engine, Report};
use serde::Serialize;
use specta::Type;
use tauri::{AppHandle, Runtime, State};
use tauri_plugin_dialog::{DialogExt, FilePath};
use tauri_plugin_opener::OpenerExt;
use tokio::sync::oneshot;

use super::{error::IpcError, millis};

/// What was looked for on this machine, and what was found.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    checks: Vec<DoctorCheck>,
    ran_at: i64,
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

type OpenLink = dyn Fn(&str) -> Result<(), tauri_plugin_opener::Error> + Send + Sync;
type OpenFolder = dyn Fn(&str) -> Result<(), tauri_plugin_opener::Error> + Send + Sync;
type ChooseFolder = dyn Fn(oneshot::Sender<Option<FilePath>>) + Send + Sync;

/// What the window needs of the desktop. Commands are the same for every runtime, so what depends on it is put behind
/// plain functions when the app starts.
pub(crate) struct Outside {
    version: String,
    open_link: Box<OpenLink>,
    open_folder: Box<OpenFolder>,
    choose_folder: Box<ChooseFolder>,
}

impl Outside {
    pub(crate) fn new<R: Runtime>(app: &AppHandle<R>) -> Self {
        let (opener, folders, dialogs) = (app.clone(), app.clone(), app.clone());
        Self {
            version: app.package_info().version.to_string(),
            open_link: Box::new(move |url| opener.opener().open_url(url, None::<&str>)),
            open_folder: Box::new(move |path| folders.opener().open_path(path, None::<&str>)),
            choose_folder: Box::new(move |reply| {
                // The asker may have gone with its page.
                dialogs.dialog().file().pick_folder(move |folder| _ = reply.send(folder));
            }),
        }
    }
}

impl Outside {
    /// Opens a folder of ours on the person's desktop.
    pub(super) fn open_folder(&self, folder: &std::path::Path) -> Result<(), IpcError> {
        (self.open_folder)(&folder.display().to_string()).map_err(|error| IpcError::invalid(error.to_string()))
    }
}

/// Opens a link outside, once the person has agreed to its whole target.
#[tauri::command]
#[specta::specta]
pub async fn link_open(outside: State<'_, Outside>, url: String) -> Result<(), IpcError> {
    // What an agent printed must not start a program: only what a browser or a mail program opens.
    if !["https://", "http://", "mailto:"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(IpcError::invalid(format!("{url:?} is not a web or mail address")));
    }
    (outside.open_link)(&url).map_err(|error| IpcError::invalid(error.to_string()))
}

/// A native folder chooser; null when dismissed.
#[tauri::command]
#[specta::specta]
pub async fn folder_choose(outside: State<'_, Outside>) -> Result<Option<String>, IpcError> {
    let (sender, receiver) = oneshot::channel();
    (outside.choose_folder)(sender);
    let chosen = receiver.await.unwrap_or(None);
    Ok(chosen.and_then(|folder| folder.into_path().ok()).map(|path| path.display().to_string()))
}

/// What this build is.
#[tauri::command]
#[specta::specta]
pub async fn app_info(outside: State<'_, Outside>, engine: State<'_, Engine>) -> Result<AppInfo, IpcError> {
    Ok(AppInfo {
        version: outside.version.clone(),
        data_directory: engine.home().display().to_string(),
        platform: std::env::consts::OS.to_owned(),
    })
}
