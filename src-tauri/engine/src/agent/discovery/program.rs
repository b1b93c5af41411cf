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
    /// What runs it, where it is a script.
    pub interpreter: Option<PathBuf>,
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
    let native = cli.native.filter(|_| interpreter_of(&real).is_some()).and_then(|pattern| native_of(&real, pattern));
    let real = native.unwrap_or(real);
    let package = folder_of(&real, home);
    let mut read_only = vec![if cli.node.is_some() { with_dependencies(&package) } else { package.clone() }];
    let mut interpreter = None;
    if let Some(name) = interpreter_of(&real) {
        let found = match cli.node {
            Some(needed) => find_node(needed, path, home, login_path, version)?,
            None => {
                let found = interpreters(&name, path, login_path).next();
                found.ok_or_else(|| Problem::NoInterpreter { interpreter: name.clone() })?
            }
        };
        read_only.push(found.clone());
        interpreter = Some(found);
    }
    let printed = match cli.node.and_then(|_| package_version(&package)) {
        // Started by its first line it might meet another Node.
        Some(version) => Ok(version),
        None => version(&real, cli.version_argument),
    };
    let printed = printed.map_err(|error| Problem::NoVersion { reason: error.to_string() })?;
    let found = parse_version(&printed).ok_or_else(|| Problem::NoVersion {
        reason: format!("it printed {:?}", printed.chars().take(80).collect::<String>()),
    })?;
    if found < cli.minimum_version {
        return Err(Problem::TooOld { found, needed: cli.minimum_version });
    }
    Ok(Program { path: real, version: found, read_only, interpreter })
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

/// Where an interpreter may be: beside the script (version managers put both into one folder), or on the PATH.
fn interpreters(name: &str, script: &Path, login_path: Option<&str>) -> impl Iterator<Item = PathBuf> {
    let beside = script.parent().map(Path::to_owned);
    let folders = beside.into_iter().chain(login_path.into_iter().flat_map(std::env::split_paths));
    let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    // Joining an absolute path gives that path.
    let places: Vec<_> = folders.chain(system).map(|folder| folder.join(name)).collect();
    usable(places.into_iter())
}

fn usable(places: impl Iterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    places.filter(|place| place.is_file() && is_executable(place)).filter_map(|place| fs::canonicalize(place).ok())
}

/// The first Node that is new enough, version managers' included.
fn find_node(
    needed: Version,
    script: &Path,
    home: &Path,
    login_path: Option<&str>,
    version: &mut impl FnMut(&Path, &str) -> io::Result<String>,
) -> Result<PathBuf, Problem> {
    let elsewhere = super::candidates("node", home, login_path).into_iter().map(|candidate| candidate.path);
    let mut newest = None;
    let mut seen: Vec<PathBuf> = Vec::new();
    for node in interpreters("node", script, login_path).chain(usable(elsewhere)) {
        if seen.contains(&node) {
            continue;
        }
        let found = version(&node, "--version").ok().and_then(|printed| parse_version(&printed));
        if found.is_some_and(|found| found >= needed) {
            return Ok(node);
        }
        newest = newest.max(found);
        seen.push(node);
    }
    Err(newest.map_or_else(
        || Problem::NoInterpreter { interpreter: "node".to_owned() },
        |found| Problem::OldNode { found, needed },
    ))
}

/// A package and what it depends on: within its own folder, or beside it where npm has put them there.
fn with_dependencies(package: &Path) -> PathBuf {
    let beside = package.ancestors().skip(1).take(2).find(|folder| folder.file_name() == Some("node_modules".as_ref()));
    match beside {
        Some(all) if !package.join("node_modules").is_dir() => all.to_owned(),
        _ => package.to_owned(),
    }
}

/// The version an npm package says it has.
fn package_version(package: &Path) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Package {
        version: String,
    }
    let bytes = fs::read(package.join("package.json")).ok()?;
    Some(serde_json::from_slice::<Package>(&bytes).ok()?.version)
}

/// The program a script of an npm package starts: in a package of its own, beside the script's or within it.
fn native_of(script: &Path, pattern: &str) -> Option<PathBuf> {
    let modules = script.ancestors().skip(1).take(6).flat_map(|folder| {
        let is_modules = folder.file_name().is_some_and(|name| name == "node_modules");
        [is_modules.then(|| folder.to_owned()), Some(folder.join("node_modules"))].into_iter().flatten()
    });
    let found = modules.filter(|folder| folder.is_dir()).find_map(|folder| matching(&folder, pattern));
    found.filter(|program| is_executable(program))
}

/// The first file beneath `folder` whose path is like `pattern`.
fn matching(folder: &Path, pattern: &str) -> Option<PathBuf> {
    let Some((part, rest)) = pattern.split_once('/') else {
        let file = folder.join(pattern);
        return file.is_file().then_some(file);
    };
    let Some((begin, end)) = part.split_once('*') else { return matching(&folder.join(part), rest) };
    let mut entries: Vec<_> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name()).collect();
    entries.sort();
    let like = entries.into_iter().filter(|name| {
        let name = name.to_string_lossy();
        name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
    });
    like.into_iter().find_map(|name| matching(&folder.join(name), rest))
}

/// The first `major.minor.patch` in what a program printed.
pub(crate) fn parse_version(printed: &str) -> Option<Version> {
    printed.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut numbers = word.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}
