//! Where programs are put.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Candidate, Source};

/// Folders beneath the home folder, with who uses them.
const IN_HOME: [(&str, &str); 15] = [
    (".claude/local", "Claude Code's own installer"),
    (".local/bin", "native installers, pip and pipx"),
    (".volta/bin", "Volta"),
    (".asdf/shims", "asdf"),
    (".local/share/mise/shims", "mise"),
    (".n/bin", "n"),
    ("n/bin", "n"),
    (".npm-global/bin", "npm with a prefix of its own"),
    (".npm/bin", "npm with a prefix of its own"),
    (".npm-packages/bin", "npm with a prefix of its own"),
    (".local/share/pnpm", "pnpm"),
    ("Library/pnpm", "pnpm"),
    (".bun/bin", "Bun"),
    (".yarn/bin", "Yarn"),
    (".config/yarn/global/node_modules/.bin", "Yarn"),
];

/// Folders of one version each beneath the home folder: parent, what follows the version, who uses them.
const BY_VERSION: [(&str, &str, &str); 6] = [
    (".nvm/versions/node", "bin", "nvm"),
    (".local/share/fnm/node-versions", "installation/bin", "fnm"),
    (".fnm/node-versions", "installation/bin", "fnm"),
    ("Library/Application Support/fnm/node-versions", "installation/bin", "fnm"),
    (".local/share/mise/installs/node", "bin", "mise"),
    (".asdf/installs/nodejs", "bin", "asdf"),
];

/// Folders of the whole machine.
const ON_MACHINE: [(&str, &str); 6] = [
    ("/opt/homebrew/bin", "Homebrew"),
    ("/usr/local/bin", "npm, n and Homebrew"),
    ("/home/linuxbrew/.linuxbrew/bin", "Homebrew"),
    ("/usr/bin", "the system"),
    ("/snap/bin", "Snap"),
    ("/usr/local/share/npm/bin", "npm"),
];

/// Every place where `program` may be, the likeliest first and none twice: the login shell's PATH as it is ordered,
/// then installers and version managers (of several versions the newest first), then folders of the machine.
pub fn candidates(program: &str, home: &Path, login_path: Option<&str>) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    let mut add = |folder: PathBuf, source: Source| {
        let path = folder.join(program);
        if folder.is_absolute() && !all.iter().any(|known| known.path == path) {
            all.push(Candidate { path, source });
        }
    };
    for folder in login_path.into_iter().flat_map(std::env::split_paths) {
        add(folder, Source::LoginPath);
    }
    for (folder, name) in IN_HOME {
        add(home.join(folder), Source::Installer(name));
    }
    for (parent, rest, name) in BY_VERSION {
        for version in newest_first(&home.join(parent)) {
            add(version.join(rest), Source::Installer(name));
        }
    }
    for (folder, name) in ON_MACHINE {
        add(folder.into(), Source::Installer(name));
    }
    all
}

/// The folders in `parent`, by the numbers in their names.
fn newest_first(parent: &Path) -> Vec<PathBuf> {
    let numbers = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    // A folder that is not there, or that may not be read, has no versions.
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    versions.sort_by_cached_key(|path| std::cmp::Reverse(numbers(path)));
    versions
}
