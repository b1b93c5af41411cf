//! What a machine uses: real numbers, of its processes and its folder.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{clock, options::Options, vm::Vm};
use crate::serving::held;

/// Clock ticks of a second, as programs are told.
const TICKS: f64 = 100.0;
const PAGE: u64 = 4096;

/// One sample, since the last one.
pub(super) fn sample(vm: &Vm, options: &Options) -> Value {
    let members = vm.process.namespace.members();
    let ticks: u64 = members.iter().map(|member| member.ticks).sum();
    let memory: u64 = members.iter().map(|member| member.pages * PAGE).sum();
    let now = Instant::now();
    let (before, ticks_before) = std::mem::replace(&mut *held(&vm.measured), (now, ticks));
    let seconds = now.duration_since(before).as_secs_f64().max(0.01);
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let used = ticks.saturating_sub(ticks_before) as f64 / TICKS / seconds * 100.0;
    let time = clock::now();
    json!({
        "timestamp": clock::text(time),
        "timestampUnix": time / 1000,
        "cpuCount": options.cpu_count,
        "cpuUsedPct": (used * 100.0).round() / 100.0,
        "memUsed": memory,
        "memTotal": options.memory_megabytes << 20,
        "memCache": 0,
        "diskUsed": size(&vm.folder),
        "diskTotal": options.disk_megabytes << 20,
    })
}

/// What a folder takes on the disk.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        Some(if found.is_dir() { size(&entry.path()) } else { found.blocks() * 512 })
    });
    sizes.sum()
}
