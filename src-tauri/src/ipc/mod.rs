//! Everything the window can ask for, and everything it is told. One file per topic; this file only lists them.

mod app;
mod changes;
mod error;
mod keys;
mod projects;
mod sandboxes;
mod settings;
mod transcript;

pub use changes::{Changed, Navigate};
pub use error::IpcError;
pub(crate) use app::Outside;
pub(crate) use changes::forward;
pub(crate) use transcript::Subscriptions;

use tauri_specta::{Builder, collect_commands, collect_events};

/// The whole surface, in one readable list.
pub fn surface<R: tauri::Runtime>() -> Builder<R> {
    Builder::<R>::new()
        .commands(collect_commands![
            projects::project_list,
            projects::project_add,
            projects::project_sample,
            projects::project_defaults,
            sandboxes::sandbox_list,
            sandboxes::sandbox_get,
            sandboxes::sandbox_create,
            sandboxes::sandbox_send,
            sandboxes::sandbox_interrupt,
            sandboxes::sandbox_pause,
            sandboxes::sandbox_resume,
            sandboxes::sandbox_stop,
            sandboxes::sandbox_extend,
            sandboxes::message_edit,
            sandboxes::message_cancel,
            transcript::transcript_open,
            transcript::transcript_acknowledge,
            transcript::transcript_close,
            transcript::transcript_before,
            transcript::log_read,
            keys::agent_list,
            keys::credential_list,
            keys::credential_set,
            keys::credential_remove,
            settings::settings_get,
            settings::settings_set,
            app::doctor_run,
            app::link_open,
            app::folder_choose,
            app::app_info,
        ])
        .events(collect_events![Changed, Navigate])
}

/// Times as the window has them: Unix milliseconds.
fn millis(at: courier_engine::model::Timestamp) -> f64 {
    number(u64::try_from(at.millis()).unwrap_or(0))
}

/// A duration in milliseconds.
fn duration(duration: std::time::Duration) -> f64 {
    number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A count as the window has it. Exact below 2^53, which no count here reaches.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}
