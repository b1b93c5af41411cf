//! The window's own build: packages by the lock file, then Vite. Both are skipped while their inputs are unchanged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::place::{Place, fingerprint};

/// Installs the packages of `ui/package-lock.json`, if that file changed since they were installed.
pub fn install(place: &Place) -> anyhow::Result<()> {
    let ui = place.ui();
    let wanted = fingerprint(&[ui.join("package-lock.json"), ui.join("package.json")], &[])?;
    let stamp = stamp(place, "packages");
    if is_stamped(&stamp, &wanted) {
        return Ok(());
    }
    println!("installing the window's packages");
    place.npm().args(["ci", "--no-fund", "--no-audit"]).run()?;
    write_stamp(&stamp, &wanted)
}

/// Builds `ui/dist`, if anything it is made from changed. An unchanged one keeps its times, so that cargo rests too.
pub fn build(place: &Place) -> anyhow::Result<()> {
    let ui = place.ui();
    let wanted = fingerprint(std::slice::from_ref(&ui), &["node_modules", "dist", "paraglide", "tests"])?;
    let stamp = stamp(place, "dist");
    if is_stamped(&stamp, &wanted) && ui.join("dist").join("index.html").is_file() {
        return Ok(());
    }
    println!("building the window");
    place.npm().args(["run", "build"]).run()?;
    write_stamp(&stamp, &wanted)
}

/// Stamps lie in `node_modules`, so that they go when the packages go.
fn stamp(place: &Place, name: &str) -> PathBuf {
    place.ui().join("node_modules").join(".codecourier").join(name)
}

fn is_stamped(stamp: &Path, wanted: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|found| found == wanted)
}

fn write_stamp(stamp: &Path, value: &str) -> anyhow::Result<()> {
    let folder = stamp.parent().context("a stamp lies in a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(stamp, value))
        .with_context(|| format!("could not write {}", stamp.display()))
}
