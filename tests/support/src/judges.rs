//! Programs nobody here wrote that judge what is here: folders with a `package.json`, installed by `npm ci`,
//! and an environment of Python's.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::ensure;

/// Where E2B's folder is, if not at its place in the repository.
pub const E2B_VARIABLE: &str = "CODECOURIER_TEST_E2B";
/// Where GitHub's folder is, if not at its place in the repository.
pub const GITHUB_VARIABLE: &str = "CODECOURIER_TEST_GITHUB";
/// Where the models' folder is, if not at its place in the repository.
pub const MODELS_VARIABLE: &str = "CODECOURIER_TEST_MODELS";
/// The Node that runs them, if not the one on the PATH.
const NODE_VARIABLE: &str = "CODECOURIER_TEST_NODE";
/// The Python that has E2B's client.
const PYTHON_VARIABLE: &str = "CODECOURIER_TEST_PYTHON";

/// The path of a script that judges the E2B-compatible server.
pub fn e2b(name: &str) -> anyhow::Result<PathBuf> {
    script("e2b-conformance", E2B_VARIABLE, &["e2b"], name)
}

/// The path of a script that judges the stand-ins of GitHub.
pub fn github(name: &str) -> anyhow::Result<PathBuf> {
    script("github-conformance", GITHUB_VARIABLE, &["@octokit/openapi", "ssh2"], name)
}

/// The path of a script that judges the scripted models.
pub fn models(name: &str) -> anyhow::Result<PathBuf> {
    script("models-conformance", MODELS_VARIABLE, &["openai"], name)
}

/// What runs the scripts.
pub fn node() -> OsString {
    std::env::var_os(NODE_VARIABLE).unwrap_or_else(|| "node".into())
}

/// What runs those of them that are written in Python, where it was installed.
pub fn python() -> Option<OsString> {
    std::env::var_os(PYTHON_VARIABLE)
}

fn script(folder: &str, variable: &str, packages: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let folder = std::env::var_os(variable).map_or(usual, PathBuf::from);
    for package in packages {
        let is_installed = folder.join("node_modules").join(package).is_dir();
        ensure!(is_installed, "{package} is not installed: run `npm ci` in {}", folder.display());
    }
    Ok(folder.join(name))
}
