//! The engine's only `Command::new`.
//!
//! A program gets a clean environment: what is listed here, and what its caller adds. A desktop app inherits keys and
//! tokens that are nobody's business.

use std::path::Path;

use tokio::process::Command;

/// What every program may know: who the person is, where things are, which language they speak.
const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    // To ask the person's own systemd for a cgroup.
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    // Whom the person trusts, where the system's list is not it: for the way to the model.
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// A short command that helps the engine: in a group of its own, and gone with whoever waits for it.
pub(crate) fn helper(program: &Path) -> Command {
    let mut command = clean(program);
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    command
}

/// A program that outlives the engine. It makes a session of its own as its first act, which the leader of a group
/// could not do.
pub(crate) fn outliving(program: &Path) -> Command {
    let mut command = clean(program);
    command.kill_on_drop(false);
    command
}

#[expect(clippy::disallowed_methods, reason = "this is the one place: see the module")]
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(inherited);
    command
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_helper_sees_nothing_that_is_not_listed() {
        let output = helper(Path::new("/usr/bin/env")).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            let name = line.split('=').next().unwrap();
            assert!(INHERITED.contains(&name), "{name}");
        }
    }
}
