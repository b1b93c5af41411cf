//! Finds an agent's program as the person's shell would.
//!
//! A desktop application starts with a bare PATH, so the login shell's is asked for elsewhere and given in; beyond it
//! the places are looked at where installers and version managers put programs. A path set by hand wins, and if it is
//! wrong that is said rather than passed over. Everything that was looked at is part of the answer: the Doctor page
//! shows it.

mod places;
mod program;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::Cli;
pub use places::candidates;
pub use program::Program;
pub(crate) use program::parse_version;

/// How long a program may take to print its version.
pub const VERSION_DEADLINE: Duration = Duration::from_secs(10);

/// A version: major, minor, patch.
pub type Version = (u32, u32, u32);

/// Why a place was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Set by hand in the settings.
    Settings,
    /// On the PATH of the person's login shell.
    LoginPath,
    /// Where an installer or a version manager puts programs; its name.
    Installer(&'static str),
}

/// One place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub path: PathBuf,
    pub source: Source,
}

/// Why a program that was looked for cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("there is no such file")]
    Missing,
    #[error("the link leads nowhere")]
    DanglingLink,
    #[error("it is no file")]
    NotAFile,
    #[error("it is not executable (chmod +x would make it so)")]
    NotExecutable,
    #[error("it is a script for {interpreter}, which was not found")]
    NoInterpreter { interpreter: String },
    #[error("it needs Node {}.{}.{} or newer; found {}.{}.{}", needed.0, needed.1, needed.2, found.0, found.1, found.2)]
    OldNode { found: Version, needed: Version },
    #[error("it did not print its version: {reason}")]
    NoVersion { reason: String },
    #[error("version {}.{}.{} is too old: {}.{}.{} is needed", found.0, found.1, found.2, needed.0, needed.1, needed.2)]
    TooOld { found: Version, needed: Version },
}

/// What was found at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    pub candidate: Candidate,
    pub found: Result<Program, Problem>,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// What to start, if anything can be.
    pub program: Option<Program>,
    /// Every place that was looked at, in order. Places after the one that was taken are not.
    pub looked: Vec<Looked>,
    /// What to do where nothing was found; `None` where something was.
    pub fix: Option<String>,
}

/// Looks for `cli`.
///
/// `manual`: the path from the settings. `login_path`: the PATH of the login shell, if it could be asked. `version`
/// runs a program with one argument and gives what it printed; it must keep to [`VERSION_DEADLINE`] and run the
/// program in a clean environment with the given PATH.
pub fn find(
    cli: &Cli,
    manual: Option<&Path>,
    home: &Path,
    login_path: Option<&str>,
    mut version: impl FnMut(&Path, &str) -> io::Result<String>,
) -> Discovery {
    let places = match manual {
        Some(path) => vec![Candidate { path: path.to_owned(), source: Source::Settings }],
        None => candidates(cli.program, home, login_path),
    };
    let mut looked = Vec::new();
    for candidate in places {
        let found = program::check(&candidate.path, cli, home, login_path, &mut version);
        let taken = found.clone().ok();
        looked.push(Looked { candidate, found });
        if taken.is_some() {
            return Discovery { program: taken, looked, fix: None };
        }
    }
    let fix = Some(fix(cli, &looked));
    Discovery { program: None, looked, fix }
}

/// The remedy for the most telling of what went wrong: a program that is there but unusable, before one that is not.
fn fix(cli: &Cli, looked: &[Looked]) -> String {
    let telling = looked.iter().find_map(|looked| match &looked.found {
        Err(problem) if *problem != Problem::Missing || looked.candidate.source == Source::Settings => {
            Some((looked, problem))
        }
        _ => None,
    });
    let Some((looked, problem)) = telling else {
        return format!("{} is not installed. Install it with: {}", cli.program, cli.install);
    };
    let path = looked.candidate.path.display();
    match (problem, looked.candidate.source) {
        (Problem::NotExecutable, _) => format!("{path} is not executable. Run: chmod +x {path}"),
        (Problem::OldNode { .. }, _) => {
            format!("{path}: {problem}. Install a newer Node, for example: nvm install --lts")
        }
        (Problem::TooOld { .. }, _) => format!("{path}: {problem}. Update it with: {}", cli.install),
        (Problem::NoInterpreter { interpreter }, _) => {
            format!(
                "{path} needs {interpreter}, which was not found. Install {interpreter}, or install again: {}",
                cli.install
            )
        }
        (_, Source::Settings) => format!("{path}: {problem}. Correct the path in the settings, or remove it there."),
        _ => format!("{path}: {problem}. Install it again with: {}", cli.install),
    }
}

#[cfg(test)]
mod tests;
