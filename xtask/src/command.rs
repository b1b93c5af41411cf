//! Running other programs: the one place that starts a process.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, ExitCode, ExitStatus, Stdio},
};

use anyhow::{Context, bail};

/// A program about to be run, in words fit for an error.
#[derive(Debug)]
pub struct Run {
    command: Command,
    name: String,
}

impl Run {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        #[expect(clippy::disallowed_methods, reason = "the one place of this crate that starts a process")]
        let command = Command::new(program);
        Run { command, name }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn in_folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it in the person's own terminal; a failure is an error.
    pub fn run(mut self) -> anyhow::Result<()> {
        let status = self.command.status().with_context(|| format!("could not start {}", self.name))?;
        self.must_be_good(status)
    }

    /// Runs it in the person's own terminal and ends as it ended.
    pub fn code(mut self) -> anyhow::Result<ExitCode> {
        let status = self.command.status().with_context(|| format!("could not start {}", self.name))?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }

    /// Runs it and hands over what it printed.
    pub fn output(mut self) -> anyhow::Result<String> {
        let output =
            self.command.stderr(Stdio::inherit()).output().with_context(|| format!("could not start {}", self.name))?;
        self.must_be_good(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether it can be run and ends well; says nothing.
    pub fn succeeds(mut self) -> bool {
        let silent = self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    }

    /// Runs it, shows every line of its standard output at once and hands each to `see`.
    pub fn watched(self, see: impl FnMut(&str)) -> anyhow::Result<ExitStatus> {
        self.lines(true, see)
    }

    /// The same for output that is not meant for people.
    pub fn read(self, see: impl FnMut(&str)) -> anyhow::Result<ExitStatus> {
        self.lines(false, see)
    }

    /// Reads its lines and whether it ended well, without a word of its own.
    pub fn silent_lines(mut self, see: impl FnMut(&str)) -> bool {
        self.command.stdin(Stdio::null()).stderr(Stdio::null());
        self.read(see).is_ok_and(|status| status.success())
    }

    fn lines(mut self, is_shown: bool, mut see: impl FnMut(&str)) -> anyhow::Result<ExitStatus> {
        let command = self.command.stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start {}", self.name))?;
        let mut lines = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut bytes = Vec::new();
        while lines.read_until(b'\n', &mut bytes)? > 0 {
            let line = String::from_utf8_lossy(&bytes);
            if is_shown {
                let mut out = std::io::stdout().lock();
                out.write_all(line.as_bytes())?;
                out.flush()?;
            }
            see(line.trim_end());
            bytes.clear();
        }
        child.wait().with_context(|| format!("could not wait for {}", self.name))
    }

    fn must_be_good(&self, status: ExitStatus) -> anyhow::Result<()> {
        if !status.success() {
            bail!("{} failed ({status})", self.name);
        }
        Ok(())
    }
}
