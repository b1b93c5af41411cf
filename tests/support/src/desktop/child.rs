//! Programs that must not outlive a test: each leads a process group, dies with the thread that started it, and is
//! killed with its whole group when its value is dropped.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, bail};

/// A running program.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    name: String,
}

/// A program about to be started, with nothing of our own environment but what is given.
#[derive(Debug)]
pub struct Start<'a> {
    command: Command,
    name: &'a str,
}

impl<'a> Start<'a> {
    pub fn new(program: &'a str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place of this crate that starts a guarded process")]
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Start { command, name: program }
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Self {
        self.command.envs(variables);
        self
    }

    /// Everything it prints goes to the end of this file.
    pub fn log_to(mut self, file: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(file)?;
        self.command.stdout(file.try_clone()?).stderr(file);
        Ok(self)
    }

    /// Its complaints go to the end of this file.
    pub fn complain_to(mut self, file: &Path) -> anyhow::Result<Self> {
        self.command.stderr(File::options().create(true).append(true).open(file)?);
        Ok(self)
    }

    /// It reads this and then the end of its input.
    pub fn input(mut self, text: &str) -> anyhow::Result<Self> {
        let mut file = tempfile::tempfile()?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        std::io::Seek::rewind(&mut file)?;
        self.command.stdin(file);
        Ok(self)
    }

    pub fn start(mut self) -> anyhow::Result<Guarded> {
        self.command.process_group(0);
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        unsafe {
            self.command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = self.command.spawn().with_context(|| format!("could not start {}", self.name))?;
        Ok(Guarded { child, name: self.name.to_owned() })
    }

    /// Starts it and hands over the first line it prints: an address, a number.
    pub fn start_and_read(mut self, deadline: Duration) -> anyhow::Result<(Guarded, String)> {
        self.command.stdout(Stdio::piped());
        let mut guarded = self.start()?;
        let out = guarded.child.stdout.take().context("standard output is piped")?;
        let line =
            first_line(out, deadline).with_context(|| format!("{} did not say that it is ready", guarded.name))?;
        Ok((guarded, line))
    }
}

impl Guarded {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let group = -i32::try_from(self.child.id()).unwrap_or(0);
        if group < -1 && matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: kill takes numbers. The group is our child's own, and the child has not been reaped yet.
            unsafe { libc::kill(group, libc::SIGKILL) };
        }
        _ = self.child.wait(); // It has been killed; there is nobody to tell how it ended.
    }
}

/// Reads in a thread, which goes on draining: a full pipe would stop the program.
fn first_line(mut out: ChildStdout, deadline: Duration) -> anyhow::Result<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).is_ok_and(|count| count == 1) {
            if byte[0] == b'\n' {
                break;
            }
            line.push(byte[0]);
        }
        _ = send.send(String::from_utf8_lossy(&line).into_owned()); // The reader may have given up.
        _ = std::io::copy(&mut out, &mut std::io::sink());
    });
    match receive.recv_timeout(deadline) {
        Ok(line) if !line.is_empty() => Ok(line),
        Ok(_) => bail!("it ended"),
        Err(_) => bail!("nothing came within {deadline:?}"),
    }
}
