//! The tray: a menu with the counts, the live sandboxes, and the way back to the window. The app is whole without it.

use std::{collections::BTreeMap, panic::AssertUnwindSafe};

use courier_engine::{
    engine::Engine,
    model::{SandboxId, Status},
    store::{Query, SandboxRow},
};
use tauri::{
    AppHandle, Manager, Runtime,
    image::Image,
    menu::{Menu, MenuBuilder, MenuItemBuilder, SubmenuBuilder},
    tray::{TrayIcon, TrayIconBuilder},
};
use tauri_specta::Event;

use crate::{ipc::Navigate, plain::plain, quit, show};

const ICON: &[u8] = include_bytes!("../../icons/tray/idle.png");
const ICON_RUNNING: &[u8] = include_bytes!("../../icons/tray/running.png");
const ICON_PAUSED: &[u8] = include_bytes!("../../icons/tray/paused.png");
const ICON_ERROR: &[u8] = include_bytes!("../../icons/tray/error.png");
/// How much of a title a menu shows, in characters.
const TITLE: usize = 40;

/// The tray icon and what it shows.
pub(crate) struct Tray<R: Runtime> {
    app: AppHandle<R>,
    icon: Option<TrayIcon<R>>,
    live: BTreeMap<SandboxId, (String, Status)>,
    /// A sandbox has failed since the menu was last used.
    has_failed: bool,
}

impl<R: Runtime> Tray<R> {
    /// Puts the icon there, where the desktop has a place for it.
    pub(crate) fn new(app: &AppHandle<R>, engine: &Engine) -> Self {
        let live =
            Query { statuses: vec![Status::Creating, Status::Running, Status::Paused], limit: 50, ..Query::default() };
        let rows = tauri::async_runtime::block_on(engine.sandbox_list(live)).map_or(Vec::new(), |page| page.rows);
        let mut tray = Self { app: app.clone(), icon: None, live: BTreeMap::new(), has_failed: false };
        for row in rows {
            tray.live.insert(row.id, (row.title, row.lifecycle.status));
        }
        // On Linux the library behind it is loaded when first needed, and a desktop without it makes that panic.
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| tray.build()));
        match made {
            Ok(Ok(icon)) => tray.icon = Some(icon),
            Ok(Err(error)) => tracing::info!(%error, "no tray"),
            Err(_) => tracing::info!("no tray: this desktop has no library for it"),
        }
        tray
    }

    fn build(&self) -> tauri::Result<TrayIcon<R>> {
        TrayIconBuilder::with_id("main")
            .icon(Image::from_bytes(ICON)?)
            .tooltip("CodeCourier")
            .menu(&self.menu()?)
            .on_menu_event(|app, event| chosen(app, event.id().as_ref()))
            .build(&self.app)
    }

    /// Shows what changed.
    pub(crate) fn sandbox_changed(&mut self, sandbox: &SandboxRow) {
        let status = sandbox.lifecycle.status;
        let before = self.live.get(&sandbox.id).map(|(_, status)| *status);
        let is_live = status.is_live() && sandbox.deleted_at.is_none();
        if (is_live && before == Some(status)) || (!is_live && before.is_none()) {
            return;
        }
        self.has_failed = status == Status::Error;
        if is_live {
            self.live.insert(sandbox.id, (sandbox.title.clone(), status));
        } else {
            self.live.remove(&sandbox.id);
        }
        let Some(icon) = self.icon.clone() else { return };
        let (menu, image) = (self.menu(), Image::from_bytes(self.image()));
        if let (Ok(menu), Ok(image)) = (menu, image) {
            // A tray that cannot be changed shows what it showed.
            _ = icon.set_menu(Some(menu));
            _ = icon.set_icon(Some(image));
        }
    }

    fn image(&self) -> &'static [u8] {
        let has = |wanted| self.live.values().any(|(_, status)| *status == wanted);
        if self.has_failed {
            ICON_ERROR
        } else if has(Status::Running) || has(Status::Creating) {
            ICON_RUNNING
        } else if has(Status::Paused) {
            ICON_PAUSED
        } else {
            ICON
        }
    }

    fn menu(&self) -> tauri::Result<Menu<R>> {
        let count = |wanted: &[Status]| self.live.values().filter(|(_, status)| wanted.contains(status)).count();
        let counts =
            format!("{} running, {} paused", count(&[Status::Creating, Status::Running]), count(&[Status::Paused]));
        let counts = MenuItemBuilder::with_id("counts", counts).enabled(false).build(&self.app)?;
        let mut menu = MenuBuilder::new(&self.app).item(&counts).separator();
        for (id, (title, status)) in self.live.iter().rev() {
            // A menu takes an ampersand for the mark of a key.
            let title: String = plain(title).chars().take(TITLE).collect::<String>().replace('&', "&&");
            let sandbox = SubmenuBuilder::new(&self.app, format!("{title} ({status})"))
                .text(format!("open:{id}"), "Open")
                .text(format!("stop:{id}"), "Stop")
                .build()?;
            menu = menu.item(&sandbox);
        }
        menu.separator()
            .text("new", "New sandbox")
            .text("show", "Open CodeCourier")
            .separator()
            .text("quit", "Quit")
            .build()
    }
}

/// A menu entry was chosen.
fn chosen<R: Runtime>(app: &AppHandle<R>, entry: &str) {
    let navigate = |to: Navigate| {
        show(app);
        if let Err(error) = to.emit(app) {
            tracing::warn!(%error, "the window did not hear where to go");
        }
    };
    match entry.split_once(':') {
        Some(("open", id)) => navigate(Navigate::Sandbox { id: id.to_owned() }),
        Some(("stop", id)) => {
            let (Ok(id), Some(engine)) = (id.parse(), app.try_state::<Engine>()) else { return };
            let engine = engine.inner().clone();
            tauri::async_runtime::spawn(async move {
                if let Err(error) = engine.sandbox_stop(id).await {
                    tracing::warn!(%error, "a sandbox was not stopped");
                }
            });
        }
        _ => match entry {
            "new" => navigate(Navigate::NewSandbox),
            "show" => show(app),
            "quit" => quit::quit(app),
            _ => {}
        },
    }
}
