//! Where things are: the repository, what cargo builds, and the caches outside the clone.

use std::{
    env,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::command::Run;

#[derive(Debug)]
pub struct Place {
    /// The repository's root.
    pub root: PathBuf,
    /// Survives a fresh clone: npm's cache, the agents that tests drive.
    pub cache: PathBuf,
}

impl Place {
    pub fn find() -> anyhow::Result<Self> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().context("xtask has no parent folder")?.to_owned();
        let cache = cache_folder().unwrap_or_else(|| root.join("target")).join("codecourier");
        Ok(Place { root, cache })
    }

    /// What judges the stand-ins: E2B's own clients, GitHub's own client and description, and the models' own client.
    pub fn judges(&self) -> [PathBuf; 3] {
        let names = ["e2b-conformance", "github-conformance", "models-conformance"];
        names.map(|name| self.root.join("tests/support").join(name))
    }

    pub fn ui(&self) -> PathBuf {
        self.root.join("ui")
    }

    /// What journeys leave: beside the clone's own target folder, wherever cargo builds.
    pub fn journeys(&self) -> PathBuf {
        self.root.join("target").join("journeys")
    }

    /// Cargo, in the root. It inherits the target folder in force.
    pub fn cargo(&self) -> Run {
        Run::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).in_folder(&self.root)
    }

    pub fn npm(&self) -> Run {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        Run::new(npm).in_folder(&self.ui()).env("npm_config_cache", self.cache.join("npm"))
    }
}

fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = set("XDG_CACHE_HOME") {
        return Some(cache);
    }
    if cfg!(windows) {
        return set("LOCALAPPDATA");
    }
    set("HOME").map(|home| home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }))
}

/// A number for the contents of files and folders, by which a stamp tells whether work is still to be done.
pub fn fingerprint(paths: &[PathBuf], skip: &[&str]) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        hash_path(path, skip, &mut hasher).with_context(|| format!("could not read {}", path.display()))?;
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn hash_path(path: &Path, skip: &[&str], hasher: &mut DefaultHasher) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    if skip.iter().any(|skipped| *skipped == name) {
        return Ok(());
    }
    name.hash(hasher);
    if path.is_dir() {
        let mut entries: Vec<PathBuf> =
            path.read_dir()?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
        entries.sort();
        entries.len().hash(hasher);
        entries.iter().try_for_each(|entry| hash_path(entry, skip, hasher))
    } else {
        std::fs::read(path)?.hash(hasher);
        Ok(())
    }
}
