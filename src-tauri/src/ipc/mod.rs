//! Everything the window can ask for, and everything it is told. One file per topic; this file only lists them.

mod app;
mod changes;
mod error;
mod files;
mod keys;
mod machines;
mod projects;
mod sandboxes;
mod settings;
mod transcript;
mod trash;
mod work;

pub(crate) use app::Outside;
pub(crate) use changes::forward;
pub use changes::{Changed, Navigate};
pub use error::IpcError;
pub(crate) use transcript::Subscriptions;

use tauri_specta::{Builder, collect_commands, collect_events};

/// The whole surface, in one readable list.
pub fn surface<R: tauri::Runtime>() -> Builder<R> {
    // One shape per type in both directions, and integers as numbers: none here comes near 2^53.
    Builder::<R>::new()
        .disable_serde_phases()
        .dangerously_cast_bigints_to_number()
        .commands(collect_commands![
            projects::project_list,
            projects::project_add,
            projects::project_sample,
            projects::project_defaults,
            work::project_settings,
            work::project_settings_set,
            sandboxes::sandbox_list,
            sandboxes::sandbox_get,
            sandboxes::sandbox_create,
            sandboxes::sandbox_send,
            sandboxes::sandbox_interrupt,
            sandboxes::sandbox_pause,
            sandboxes::sandbox_resume,
            sandboxes::sandbox_stop,
            sandboxes::sandbox_extend,
            sandboxes::sandbox_continue_at,
            sandboxes::message_edit,
            sandboxes::message_cancel,
            work::sandbox_checkpoints,
            files::changes,
            files::changes_file,
            files::changes_patch,
            work::checkpoint_open,
            work::checkpoint_restore,
            work::delivery,
            work::delivery_draft,
            work::sandbox_deliver,
            trash::sandbox_delete,
            trash::sandbox_restore,
            trash::sandbox_purge,
            trash::purge_facts,
            trash::trash_list,
            trash::trash_empty,
            trash::storage,
            trash::storage_clean,
            transcript::transcript_open,
            transcript::transcript_acknowledge,
            transcript::transcript_close,
            transcript::transcript_before,
            transcript::log_read,
            keys::agent_list,
            keys::credential_list,
            keys::credential_set,
            keys::credential_remove,
            machines::machine_list,
            machines::machine_destroy,
            machines::sandbox_used,
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
fn millis(at: courier_engine::model::Timestamp) -> i64 {
    at.millis()
}

/// A duration in milliseconds.
fn duration(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
