//! Temporary git repositories, made with git itself, without anybody's own configuration.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail};
use tempfile::TempDir;

/// A folder with a repository in it, or with what is mistaken for one.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    path: PathBuf,
}

impl Repository {
    /// Three commits on `main`, a branch `topic`, a folder, a file that is ignored, and names that are not plain.
    pub fn ordinary() -> anyhow::Result<Self> {
        let repository = Repository::empty()?;
        repository.write("README.md", "# Sample\n\nA small repository.\n")?;
        repository.write(".gitignore", "ignored.txt\n")?;
        repository.commit("Begin")?;
        repository.write("src/main.sh", "#!/bin/sh\necho hello\n")?;
        repository.commit("Add a script")?;
        repository.write("src/größe ✓.txt", "a name that is not ASCII\n")?;
        repository.commit("Add a name that is not ASCII")?;
        repository.git(&["branch", "topic"])?;
        repository.write("ignored.txt", "never committed\n")?;
        Ok(repository)
    }

    /// A repository without a commit.
    pub fn empty() -> anyhow::Result<Self> {
        let repository = Repository::folder("repository")?;
        repository.git(&["init", "--quiet", "--initial-branch=main"])?;
        Ok(repository)
    }

    /// A bare one, with the history of an ordinary one.
    pub fn bare() -> anyhow::Result<Self> {
        let repository = Repository::folder("bare.git")?;
        let origin = Repository::ordinary()?;
        let origin = origin.path().to_string_lossy().into_owned();
        repository.git(&["clone", "--quiet", "--bare", &origin, "."])?;
        Ok(repository)
    }

    /// `count` files in folders of a hundred, in one commit.
    pub fn with_files(count: usize) -> anyhow::Result<Self> {
        let repository = Repository::empty()?;
        for number in 0..count {
            let name = format!("folder{:03}/file{number:05}.txt", number / 100);
            repository.write(&name, &format!("file {number}\n").repeat(20))?;
        }
        repository.commit("Add many files")?;
        Ok(repository)
    }

    /// A folder with files and no repository.
    pub fn not_a_repository() -> anyhow::Result<Self> {
        let folder = Repository::folder("plain")?;
        folder.write("notes.txt", "nothing to do with git\n")?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as a person would type it.
    pub fn source(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub fn write(&self, name: &str, content: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))
    }

    /// Commits everything there is.
    pub fn commit(&self, message: &str) -> anyhow::Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])?;
        Ok(())
    }

    /// Runs git in the folder; hands over what it printed, without the last line's end.
    pub fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        git(&self.path, arguments)
    }

    fn folder(name: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("courier-repository-").tempdir()?;
        let path = folder.path().canonicalize()?.join(name);
        fs::create_dir(&path)?;
        Ok(Repository { folder, path })
    }

    /// Takes the folder away, as a person may: the path vanishes.
    pub fn vanish(self) -> anyhow::Result<PathBuf> {
        self.folder.close()?;
        Ok(self.path)
    }
}

/// Git with a fixed author and date, and no configuration but the repository's.
pub fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let printed = git_with_input(folder, arguments, b"")?;
    Ok(String::from_utf8_lossy(&printed).trim_end().to_owned())
}

/// Git that is given something to read; hands over what it printed, byte for byte.
pub fn git_with_input(folder: &Path, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    run(folder, &[&["git"], arguments].concat(), input)
}

/// A program that uses git, in the same surroundings.
pub fn run(folder: &Path, command: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (program, arguments) = command.split_first().context("a program has a name")?;
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that runs git")]
    let mut command = Command::new(program);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let author = [("NAME", "A Person"), ("EMAIL", "person@example.org"), ("DATE", "2026-01-01T12:00:00Z")];
    for role in ["AUTHOR", "COMMITTER"] {
        command.envs(author.map(|(what, value)| (format!("GIT_{role}_{what}"), value)));
    }
    let command = command.env("GIT_CONFIG_GLOBAL", null_file()).env("GIT_CONFIG_NOSYSTEM", "1");
    command.current_dir(folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().with_context(|| format!("could not start {program}"))?;
    let mut to = running.stdin.take().context("it reads")?;
    let output = thread::scope(|scope| {
        // It may end without having read all: what it printed says why.
        scope.spawn(move || _ = to.write_all(input));
        running.wait_with_output()
    })?;
    if !output.status.success() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

fn null_file() -> &'static str {
    if cfg!(windows) { "NUL" } else { "/dev/null" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repository_is_what_it_is_called() {
        let ordinary = Repository::ordinary().unwrap();
        assert_eq!(ordinary.git(&["rev-list", "--count", "main"]).unwrap(), "3");
        assert_eq!(ordinary.git(&["status", "--porcelain"]).unwrap(), "", "what is not committed is ignored");
        assert!(Repository::empty().unwrap().git(&["rev-parse", "HEAD"]).is_err(), "nothing was committed");
        assert_eq!(Repository::bare().unwrap().git(&["rev-parse", "--is-bare-repository"]).unwrap(), "true");
        let many = Repository::with_files(250).unwrap();
        assert_eq!(many.git(&["ls-files"]).unwrap().lines().count(), 250);
        let plain = Repository::not_a_repository().unwrap();
        assert!(plain.git(&["rev-parse", "--git-dir"]).is_err());
        assert!(!plain.vanish().unwrap().exists());
    }
}
