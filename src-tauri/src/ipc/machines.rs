//! Machines of the person's accounts that no sandbox owns, and what a sandbox uses.

use courier_engine::engine::{Engine, UnownedMachine};
use serde::Serialize;
use specta::Type;
use tauri::State;

use super::error::{IpcError, id};

/// A machine that no sandbox owns: it may cost money for nothing.
#[derive(Clone, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    id: String,
    is_paused: bool,
    template: String,
    /// Since when it runs, as its provider writes times.
    since: String,
    /// Another installation of this app made it.
    is_of_another: bool,
}

impl From<UnownedMachine> for Machine {
    fn from(machine: UnownedMachine) -> Self {
        Self {
            id: machine.id,
            is_paused: machine.is_paused,
            template: machine.template,
            since: machine.since,
            is_of_another: machine.is_of_another,
        }
    }
}

/// What a sandbox uses now.
#[derive(Clone, Copy, Debug, Serialize, Type)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    cpus: u32,
    /// Of all of them together.
    cpu_percent: u32,
    memory_used: u64,
    memory_total: u64,
    disk_used: u64,
    disk_total: u64,
}

/// The machines with the app's mark that no sandbox owns.
#[tauri::command]
#[specta::specta]
pub async fn machine_list(engine: State<'_, Engine>) -> Result<Vec<Machine>, IpcError> {
    Ok(engine.machine_list().await?.into_iter().map(Machine::from).collect())
}

/// Ends one of them.
#[tauri::command]
#[specta::specta]
pub async fn machine_destroy(engine: State<'_, Engine>, machine: String) -> Result<(), IpcError> {
    Ok(engine.machine_destroy(&machine).await?)
}

/// What a sandbox uses now; null where its provider does not tell.
#[tauri::command]
#[specta::specta]
pub async fn sandbox_used(engine: State<'_, Engine>, sandbox: String) -> Result<Option<Used>, IpcError> {
    let used = engine.sandbox_used(id(&sandbox)?).await?;
    Ok(used.map(|used| Used {
        cpus: used.cpus,
        cpu_percent: used.cpu_percent,
        memory_used: used.memory.0,
        memory_total: used.memory.1,
        disk_used: used.disk.0,
        disk_total: used.disk.1,
    }))
}
