//! The app's log: a file in the data folder, for whoever has to find out at midnight.

use std::{fs::File, path::Path, sync::Mutex};

use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Beyond this the log begins anew, in bytes; the one before is kept beside it.
const LONGEST: u64 = 4 << 20;
const FILTER: &str = "CODECOURIER_LOG";

/// Begins to log. Without a place to write to, the app goes on without a log.
pub(crate) fn start(home: &Path) {
    let folder = home.join("logs");
    let path = folder.join("app.log");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() > LONGEST) {
        _ = std::fs::rename(&path, folder.join("app.before.log"));
    }
    let opened = std::fs::create_dir_all(&folder).and_then(|()| File::options().create(true).append(true).open(&path));
    let Ok(file) = opened else { return };
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("info"));
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
    // A second start in one process (tests) keeps the first one's log.
    _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
}
