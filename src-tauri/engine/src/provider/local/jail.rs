//! Whether this machine can make a jail; if not, why, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::super::Error;
use crate::process;

/// How long a trial may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What makes jails here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jail {
    /// Where it is.
    pub program: PathBuf,
    /// Its version.
    pub version: (u32, u32),
}

/// Tries to make a jail. `bubblewrap` is where it was found, if it was.
pub async fn probe(bubblewrap: Option<&Path>) -> Result<Jail, Error> {
    if cfg!(target_os = "linux") {
        probe_bubblewrap(bubblewrap).await
    } else if cfg!(target_os = "macos") {
        let program = PathBuf::from("/usr/bin/sandbox-exec");
        if program.exists() { Ok(Jail { program, version: (0, 0) }) } else { Err(Error::Unsupported) }
    } else {
        Err(Error::Unsupported)
    }
}

async fn probe_bubblewrap(program: Option<&Path>) -> Result<Jail, Error> {
    let Some(program) = program else {
        return Err(no_jail(
            "bubblewrap is not installed",
            "Install it with `sudo apt install bubblewrap` (Debian, Ubuntu), `sudo dnf install bubblewrap` (Fedora) or \
             `sudo pacman -S bubblewrap` (Arch).",
        ));
    };
    let said = trial(program, &["--version"]).await?;
    let Some(version) = version(&said.out) else {
        return Err(no_jail(
            format!("{} is not bubblewrap, or is broken: {}", program.display(), said.error()),
            "Install bubblewrap anew from your distribution.",
        ));
    };
    let mut words = vec!["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"];
    if version >= (0, 8) {
        words.push("--disable-userns");
    }
    words.extend(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"]);
    let said = trial(program, &words).await?;
    if said.is_success {
        return Ok(Jail { program: program.to_owned(), version });
    }
    Err(explain(&said.error(), |setting| std::fs::read_to_string(setting).ok().map(|text| text.trim().to_owned())))
}

/// From what bubblewrap said and how the kernel is set to cause and remedy.
fn explain(said: &str, setting: impl Fn(&str) -> Option<String>) -> Error {
    let is = |name: &str, value: &str| setting(name).as_deref() == Some(value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return no_jail(
            format!("Ubuntu restricts user namespaces, which bubblewrap needs ({said})"),
            "Allow bubblewrap to use them: write\n\
             \n\
             abi <abi/4.0>,\n\
             include <tunables/global>\n\
             profile bwrap /usr/bin/bwrap flags=(unconfined) {\n  userns,\n}\n\
             \n\
             to /etc/apparmor.d/bwrap as root, then run `sudo systemctl reload apparmor`.",
        );
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return no_jail(
            format!("this system forbids user namespaces, which bubblewrap needs ({said})"),
            "Allow them with `sudo sysctl -w kernel.unprivileged_userns_clone=1`, and for good with that setting in \
             /etc/sysctl.d/60-userns.conf.",
        );
    }
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return no_jail(
            format!("this system allows no user namespaces, which bubblewrap needs ({said})"),
            "Allow them with `sudo sysctl -w user.max_user_namespaces=15000`, and for good with that setting in \
             /etc/sysctl.d/60-userns.conf.",
        );
    }
    no_jail(
        format!("bubblewrap cannot make a sandbox here: {said}"),
        "If this is itself a container, it must allow user namespaces; otherwise use Docker or E2B for sandboxes.",
    )
}

struct Said {
    is_success: bool,
    out: String,
    err: String,
}

impl Said {
    /// Its last line is the reason.
    fn error(&self) -> String {
        self.err.trim().lines().last().unwrap_or("it said nothing").to_owned()
    }
}

async fn trial(program: &Path, words: &[&str]) -> Result<Said, Error> {
    let running = process::helper(program).args(words).output();
    let output = match tokio::time::timeout(LIMIT, running).await {
        Err(_) => return Err(Error::Deadline { what: "trying bubblewrap", limit: LIMIT }),
        Ok(Ok(output)) => output,
        Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Err(no_jail(
                format!("{} cannot be run: {error}", program.display()),
                "Install bubblewrap anew from your distribution, or correct its path in the settings.",
            ));
        }
        Ok(Err(source)) => return Err(Error::Io { what: program.display().to_string(), source }),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { is_success: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) })
}

fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.trim().strip_prefix("bubblewrap ")?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn no_jail(cause: impl Into<String>, remedy: &str) -> Error {
    Error::NoJail { cause: cause.into(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        assert_eq!(version("bubblewrap 0.11.0\n"), Some((0, 11)));
        assert_eq!(version("something else"), None);
    }

    #[test]
    fn each_restriction_has_its_own_remedy() {
        let with = |name: &'static str, value: &'static str| match explain("said", move |setting| {
            (setting == name).then(|| value.to_owned())
        }) {
            Error::NoJail { remedy, .. } => remedy,
            other => panic!("{other:?}"),
        };
        assert!(with("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1").contains("/etc/apparmor.d/bwrap"));
        assert!(with("/proc/sys/kernel/unprivileged_userns_clone", "0").contains("unprivileged_userns_clone=1"));
        assert!(with("/proc/sys/user/max_user_namespaces", "0").contains("max_user_namespaces"));
        assert!(with("/proc/sys/user/max_user_namespaces", "9").contains("container"));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_is_missing_is_told_from_what_is_broken() {
        assert!(matches!(probe(None).await, Err(Error::NoJail { cause, .. }) if cause.contains("not installed")));
        let missing = probe(Some(Path::new("/no/such/bwrap"))).await;
        assert!(matches!(missing, Err(Error::NoJail { cause, .. }) if cause.contains("cannot be run")));
        let another = probe(Some(Path::new("/bin/echo"))).await;
        assert!(matches!(another, Err(Error::NoJail { cause, .. }) if cause.contains("is not bubblewrap")));
    }
}
