//! One program: whether it can be used, and what of the file system it needs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{Problem, Version};
use crate::agent::Cli;

/// How much of a file is read to tell a script from a binary, in bytes.
const BEGINNING: u64 = 256;

/// A program that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What to start: the real file, since a link to it may not be visible in a sandbox.
    pub path: PathBuf,
    pub version: Version,
    /// What a sandbox must be able to read at its real path: the npm package's folder; for a program that is alone
    /// among strangers (`~/.local/bin`) only the file; the folder of its interpreter.
    pub read_only: Vec<PathBuf>,
}

/// Whether the program at `path` can be used.
pub(super) fn check(
    path: &Path,
    cli: &Cli,
    home: &Path,
    login_path: Option<&str>,
    version: &mut impl FnMut(&Path, &str) -> io::Result<String>,
) -> Result<Program, Problem> {
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(_) if path.is_symlink() => return Err(Problem::DanglingLink),
        Err(_) => return Err(Problem::Missing),
    };
    if !real.is_file() {
        return Err(Problem::NotAFile);
    }
    if !is_executable(&real) {
        return Err(Problem::NotExecutable);
    }
    let mut read_only = vec![folder_of(&real, home)];
    if let Some(interpreter) = interpreter_of(&real) {
        let found = find_interpreter(&interpreter, path, login_path)
            .ok_or_else(|| Problem::NoInterpreter { interpreter: interpreter.clone() })?;
        read_only.push(found);
    }
    let printed =
        version(&real, cli.version_argument).map_err(|error| Problem::NoVersion { reason: error.to_string() })?;
    let found = parse_version(&printed).ok_or_else(|| Problem::NoVersion {
        reason: format!("it printed {:?}", printed.chars().take(80).collect::<String>()),
    })?;
    if found < cli.minimum_version {
        return Err(Problem::TooOld { found, needed: cli.minimum_version });
    }
    Ok(Program { path: real, version: found, read_only })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_path: &Path) -> bool {
    true // The name's ending decides there, and starting it will tell.
}

/// The package's folder for a program out of an npm package, else the file itself.
///
/// The search for the package goes up a few folders at most, and never as far as the home folder.
fn folder_of(real: &Path, home: &Path) -> PathBuf {
    let package = real
        .ancestors()
        .skip(1)
        .take(5)
        .take_while(|folder| *folder != home && folder.parent().is_some())
        .find(|folder| folder.join("package.json").is_file());
    package.unwrap_or(real).to_owned()
}

/// What a script asks to be run by: "node" of `#!/usr/bin/env node`, or a path. `None` for a binary.
fn interpreter_of(path: &Path) -> Option<String> {
    let mut beginning = Vec::new();
    File::open(path).ok()?.take(BEGINNING).read_to_end(&mut beginning).ok()?;
    let line = beginning.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let asked = if Path::new(first).file_name()? == "env" {
        words.find(|word| !word.starts_with('-') && !word.contains('='))?
    } else {
        first
    };
    Some(asked.to_owned())
}

/// Where an interpreter is: beside the script (version managers put both into one folder), or on the PATH.
fn find_interpreter(name: &str, script: &Path, login_path: Option<&str>) -> Option<PathBuf> {
    let beside = script.parent().map(Path::to_owned);
    let folders = beside.into_iter().chain(login_path.into_iter().flat_map(std::env::split_paths));
    let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    // Joining an absolute path gives that path.
    let mut places = folders.chain(system).map(|folder| folder.join(name));
    places.find(|place| place.is_file() && is_executable(place)).and_then(|place| fs::canonicalize(place).ok())
}

/// The first `major.minor.patch` in what a program printed.
fn parse_version(printed: &str) -> Option<Version> {
    printed.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut numbers = word.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}
