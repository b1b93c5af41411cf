//! A machine's folder, and bubblewrap around what runs in it.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{io::AsyncReadExt, process::ChildStdout};

use super::{
    envd::Settings,
    freeze::{self, Namespace},
    options::Template,
    pidfd::PidFd,
};
use crate::serving::held;

/// How long a machine may take to come up, on a busy host too.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the daemon's program is within.
const ENVD: &str = "/e2b-envd";
/// The number of the ordinary user, within.
const USER: u32 = 1000;

/// What can be written within: its name in the machine's folder, its path within, and its mode.
const WRITABLE: [(&str, &str, u32); 8] = [
    ("home", "/home", 0o755),
    // What is shown at its own path may lie in root's home: it must be passable.
    ("root", "/root", 0o711),
    ("tmp", "/tmp", 0o1777),
    ("var", "/var", 0o755),
    ("opt", "/opt", 0o755),
    ("srv", "/srv", 0o755),
    ("run", "/run", 0o755),
    ("usr-local", "/usr/local", 0o755),
];

/// What of the host's `/etc` is seen within, where there is any.
const ETC: [&str; 13] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
];

/// And what stands there instead of the host's.
const OWN_ETC: [(&str, &str); 4] = [
    ("passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"),
    ("group", "root:x:0:\ntty:x:5:\nuser:x:1000:\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("profile", "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"),
];

/// A machine's processes.
#[derive(Debug)]
pub(super) struct Process {
    /// Bubblewrap, outside; it waits for the machine's first process.
    monitor: Mutex<Child>,
    first: PidFd,
    pub(super) namespace: Namespace,
}

impl Process {
    /// Starts a machine in its folder. Whoever calls must be on a thread that lives as long as the server.
    pub(super) async fn start(
        folder: &Path,
        template: &Template,
        envd: &Path,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        prepare(folder, template).context("could not make the machine's folder")?;
        let log = fs::File::create(folder.join("bubblewrap.log"))?;
        #[expect(clippy::disallowed_methods, reason = "a stand-in's machine; the product's programs start elsewhere")]
        let mut command = Command::new("bwrap");
        command
            .args(arguments(folder, template, envd)?)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut monitor = command.spawn().context("could not start bubblewrap")?;
        let begun = begin(&mut monitor, settings).await;
        let held = begun.and_then(|()| {
            let first = freeze::only_child(monitor.id())?;
            Ok((PidFd::open(first)?, Namespace::of(first)?))
        });
        match held {
            Ok((first, namespace)) => Ok(Process { monitor: Mutex::new(monitor), first, namespace }),
            Err(error) => {
                _ = monitor.kill(); // It takes the machine along.
                _ = monitor.wait();
                let said = fs::read_to_string(folder.join("bubblewrap.log")).unwrap_or_default();
                Err(error.context(format!("the machine did not come up: {said}")))
            }
        }
    }

    /// Kills everything within; on return nothing of it runs.
    pub(super) fn kill(&self) {
        self.first.signal(libc::SIGKILL);
        // Bubblewrap may have been killed before: its own end says nothing of the namespace's.
        self.first.wait(PATIENCE);
        _ = held(&self.monitor).wait(); // It has nothing left to wait for.
    }

    /// Waits until nothing runs within any more.
    pub(super) async fn ended(&self) {
        if self.first.ended().await.is_err() {
            std::future::pending::<()>().await; // It cannot be watched: nobody says that it has ended.
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells the daemon its settings, and waits until it listens.
async fn begin(monitor: &mut Child, settings: &Settings) -> anyhow::Result<()> {
    let mut input = monitor.stdin.take().context("its input is piped")?;
    let mut line = serde_json::to_vec(settings)?;
    line.push(b'\n');
    input.write_all(&line).context("it does not take its settings")?;
    drop(input);
    let mut output = ChildStdout::from_std(monitor.stdout.take().context("its output is piped")?)?;
    let mut ready = [0];
    match tokio::time::timeout(PATIENCE, output.read(&mut ready)).await {
        Ok(Ok(1)) => Ok(()),
        Ok(Ok(_)) => bail!("it ended"),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => bail!("it said nothing for {PATIENCE:?}"),
    }
}

/// Makes what every machine of a server shares.
pub(super) fn prepare_root(root: &Path) -> io::Result<()> {
    let etc = root.join("etc");
    fs::create_dir_all(&etc)?;
    OWN_ETC.iter().try_for_each(|(name, text)| fs::write(etc.join(name), text))
}

fn prepare(folder: &Path, template: &Template) -> io::Result<()> {
    let make = |path: PathBuf, mode| {
        fs::create_dir_all(&path)?;
        // The mask of this process may have narrowed it.
        fs::set_permissions(&path, Permissions::from_mode(mode))
    };
    make(folder.to_owned(), 0o755)?;
    WRITABLE.iter().try_for_each(|(name, _, mode)| make(folder.join(name), *mode))?;
    for within in ["usr-local/bin", "usr-local/lib", "var/lib", "var/cache", "var/log", "home/user"] {
        make(folder.join(within), 0o755)?;
    }
    make(folder.join("var/tmp"), 0o1777)?;
    if is_root() {
        chown(folder.join("home/user"), Some(USER), Some(USER))?;
    }
    for (name, program) in &template.programs {
        let real = program.canonicalize()?;
        if is_seen(&real, template) {
            symlink(real, folder.join("usr-local/bin").join(name))?;
        }
    }
    Ok(())
}

fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether a path is the same within as outside.
fn is_seen(path: &Path, template: &Template) -> bool {
    template.read_only.iter().any(|shown| path.starts_with(shown))
        || path.starts_with("/usr") && !path.starts_with("/usr/local")
}

fn arguments(folder: &Path, template: &Template, envd: &Path) -> anyhow::Result<Vec<String>> {
    let mut arguments = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    let text = |path: &Path| path.to_str().map(str::to_owned).with_context(|| format!("{} is no text", path.display()));
    add(&["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "e2b", "--die-with-parent"]);
    if !is_root() {
        add(&["--unshare-user", "--uid", "1000", "--gid", "1000"]);
    }
    add(&["--ro-bind", "/usr", "/usr"]);
    for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        match fs::read_link(name) {
            Ok(target) => add(&["--symlink", &text(&target)?, name]),
            Err(_) => add(&["--ro-bind-try", name, name]),
        }
    }
    for (name, within, _) in WRITABLE {
        add(&["--bind", &text(&folder.join(name))?, within]);
    }
    // Folders that bubblewrap makes on its own are closed to all but root.
    add(&["--dir", "/etc"]);
    for name in ETC {
        let path = format!("/etc/{name}");
        add(&["--ro-bind-try", &path, &path]);
    }
    let own = folder.parent().context("a machine's folder lies in the server's")?.join("etc");
    for (name, _) in OWN_ETC {
        add(&["--ro-bind", &text(&own.join(name))?, &format!("/etc/{name}")]);
    }
    add(&["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]);
    add(&["--ro-bind", &text(envd)?, ENVD]);
    for shown in &template.read_only {
        for above in shown.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev().skip(1) {
            add(&["--dir", &text(above)?]);
        }
        let shown = text(shown)?;
        add(&["--ro-bind", &shown, &shown]);
    }
    for (name, program) in &template.programs {
        let real = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
        if !is_seen(&real, template) {
            add(&["--ro-bind", &text(&real)?, &format!("/usr/local/bin/{name}")]);
        }
    }
    add(&["--chdir", "/", "--", ENVD, "/run"]);
    Ok(arguments)
}
