//! The window's own build: packages by the lock file, then Vite. Both are skipped while their inputs are unchanged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::place::{Place, fingerprint};

/// Installs the packages of `ui/package-lock.json`, if that file changed since they were installed.
pub fn install(place: &Place) -> anyhow::Result<()> {
    packages(place, &place.ui(), "the window's packages")
}

/// Installs the clients and descriptions nobody here wrote, which judge our requests and our stand-ins.
pub fn install_judges(place: &Place) -> anyhow::Result<()> {
    let [e2b, github, models] = place.judges();
    packages(place, &e2b, "E2B's client, for the tests")?;
    packages(place, &github, "GitHub's client, for the tests")?;
    packages(place, &models, "OpenAI's client, for the tests")
}

fn packages(place: &Place, folder: &Path, what: &str) -> anyhow::Result<()> {
    let wanted = fingerprint(&[folder.join("package-lock.json"), folder.join("package.json")], &[])?;
    let stamp = stamp(folder, "packages");
    if is_stamped(&stamp, &wanted) {
        return Ok(());
    }
    println!("installing {what}");
    place.npm().in_folder(folder).args(["ci", "--no-fund", "--no-audit"]).run()?;
    write_stamp(&stamp, &wanted)
}

/// Builds `ui/dist`, if anything it is made from changed. An unchanged one keeps its times, so that cargo rests too.
pub fn build(place: &Place) -> anyhow::Result<()> {
    let ui = place.ui();
    let wanted = fingerprint(std::slice::from_ref(&ui), &["node_modules", "dist", "paraglide", "tests"])?;
    let stamp = stamp(&ui, "dist");
    if is_stamped(&stamp, &wanted) && ui.join("dist").join("index.html").is_file() {
        return Ok(());
    }
    println!("building the window");
    place.npm().args(["run", "build"]).run()?;
    write_stamp(&stamp, &wanted)
}

/// Stamps lie in `node_modules`, so that they go when the packages go.
fn stamp(folder: &Path, name: &str) -> PathBuf {
    folder.join("node_modules").join(".codecourier").join(name)
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
