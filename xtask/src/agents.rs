//! The real agents that tests drive: pinned, and installed into the cache, so that a fresh clone finds them there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{command::Run, place::Place};

const CLAUDE_PACKAGE: &str = "@anthropic-ai/claude-code";
const CLAUDE_VERSION: &str = "2.1.332";

/// Where tests are told to find it.
pub const CLAUDE_VARIABLE: &str = "CODECOURIER_TEST_CLAUDE";

/// The program of the pinned Claude Code; installs it where it is missing.
pub fn claude(place: &Place) -> anyhow::Result<PathBuf> {
    let agents = place.cache.join("agents");
    let folder = agents.join(format!("claude-{CLAUDE_VERSION}"));
    let inside = PathBuf::from("node_modules").join(CLAUDE_PACKAGE).join("bin").join("claude.exe");
    let program = folder.join(&inside);
    if program.is_file() {
        return Ok(program);
    }
    println!("installing Claude Code {CLAUDE_VERSION} for the tests");
    // Made aside and renamed when whole: whoever else looks sees all of it or nothing.
    let making = agents.join(format!(".claude-{CLAUDE_VERSION}-{}", std::process::id()));
    fs::create_dir_all(&making).with_context(|| format!("could not make {}", making.display()))?;
    let made = install(place, &making).and_then(|()| prove(&making.join(&inside)));
    if made.is_ok() && fs::rename(&making, &folder).is_err() && !program.is_file() {
        bail!("could not put Claude Code at {}", folder.display());
    }
    _ = fs::remove_dir_all(&making); // There only after a failure, or if another installation was first.
    made.map(|()| program)
}

fn install(place: &Place, folder: &Path) -> anyhow::Result<()> {
    fs::write(folder.join("package.json"), "{\"private\":true}\n")?;
    let package = format!("{CLAUDE_PACKAGE}@{CLAUDE_VERSION}");
    place
        .npm()
        .args(["install", "--no-save", "--no-fund", "--no-audit", "--loglevel=error", &package])
        .in_folder(folder)
        .run()
}

/// Runs it once. Where npm did not run the package's script that puts the program in place, this does.
fn prove(program: &Path) -> anyhow::Result<()> {
    let is_whole = || Run::new(program).arg("--version").succeeds();
    if !is_whole() {
        let package = program.parent().and_then(|bin| bin.parent()).context("the program lies in its package")?;
        Run::new("node").arg("install.cjs").in_folder(package).run()?;
        if !is_whole() {
            bail!("Claude Code was installed but does not run");
        }
    }
    Ok(())
}
