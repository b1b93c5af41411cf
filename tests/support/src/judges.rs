//! Programs nobody here wrote that judge what is here: `github-conformance/`, installed by `npm ci`.

use std::path::{Path, PathBuf};

use anyhow::ensure;

/// Where the folder is, if not at its place in the repository.
pub const VARIABLE: &str = "CODECOURIER_TEST_GITHUB";

/// The path of one of its scripts.
pub fn script(name: &str) -> anyhow::Result<PathBuf> {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("github-conformance");
    let folder = std::env::var_os(VARIABLE).map_or(usual, PathBuf::from);
    let is_installed =
        folder.join("node_modules/@octokit/openapi").is_dir() && folder.join("node_modules/ssh2").is_dir();
    ensure!(is_installed, "GitHub's client is not installed: run `npm ci` in {}", folder.display());
    Ok(folder.join(name))
}
