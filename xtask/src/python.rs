//! E2B's official client for Python, which judges the E2B-compatible server: an environment of its own in the cache.
//!
//! It lies in a folder named by what it holds. What is there is never fetched again: the second time nothing needs a
//! network.

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};

use crate::{
    command::Run,
    place::{Place, fingerprint},
};

/// Where tests are told to find the Python that has the client.
pub const VARIABLE: &str = "CODECOURIER_TEST_PYTHON";

/// The environment's Python, installed where it is missing; nothing on a machine without Python.
pub fn installed(place: &Place) -> anyhow::Result<Option<PathBuf>> {
    let system = if cfg!(windows) { "python" } else { "python3" };
    if !Run::new(system).arg("--version").succeeds() {
        println!("there is no Python: what E2B's client for Python says of the E2B-compatible server is skipped");
        return Ok(None);
    }
    let [e2b, ..] = place.judges();
    let wanted = e2b.join("requirements.txt");
    let folder = place.cache.join(format!("python-{}", fingerprint(std::slice::from_ref(&wanted), &[])?));
    let within = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let (python, stamp) = (folder.join(within), folder.join(".whole"));
    if stamp.is_file() && Run::new(&python).args(["-c", "import e2b"]).succeeds() {
        return Ok(Some(python));
    }
    println!("installing E2B's client for Python for the tests, 50 MB");
    // An environment knows its own place and cannot be made aside: a stamp says that it is whole.
    let made = Run::new(system).args(["-m", "venv", "--clear"]).arg(&folder).run();
    made.context("could not make an environment (python3-venv may be missing)")?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    Run::new(&python).args(install).arg(&wanted).env("PIP_CACHE_DIR", place.cache.join("pip")).run()?;
    if !Run::new(&python).args(["-c", "import e2b"]).succeeds() {
        bail!("E2B's client for Python was installed but does not load");
    }
    fs::write(&stamp, "").with_context(|| format!("could not write {}", stamp.display()))?;
    Ok(Some(python))
}
