//! A desktop of one's own: a display nobody sees, a bus, an unlocked keychain, and a driver for the window.
//!
//! Everything lives in one temporary folder and ends with the value, whatever the test does: the programs started here
//! are guarded (see `child`), and what the app left running in the background (the keepers of its sandboxes) is found by
//! the folder's name and killed.
//!
//! A `Desktop` must be made, and its drivers started, on a thread that lives as long as they shall: the test's own.

mod child;

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tempfile::TempDir;

pub use child::{Guarded, Start};

use crate::processes;

/// How long a helper program may take until it is ready.
const READY: Duration = Duration::from_secs(20);
/// Everything outside the window's own reach: windows, driver and app fit on it.
const SCREEN: &str = "1920x1200x24";

/// A display, a bus and a keychain.
#[derive(Debug)]
pub struct Desktop {
    // Dropped in this order: programs first, their folder last.
    programs: Vec<Guarded>,
    variables: Vec<(OsString, OsString)>,
    folder: TempDir,
}

/// A WebKitWebDriver: it starts the app and speaks WebDriver.
#[derive(Debug)]
pub struct Driver {
    program: Guarded,
    address: SocketAddr,
    log: PathBuf,
}

impl Desktop {
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("courier-").tempdir()?;
        for name in ["home", "run", "data"] {
            std::fs::DirBuilder::new().mode(0o700).create(folder.path().join(name))?;
        }
        let log = folder.path().join("desktop.log");
        let mut desktop = Desktop { programs: vec![], variables: plain_environment(folder.path()), folder };

        // Xvfb takes the first free number and says which.
        let display = ["-displayfd", "1", "-screen", "0", SCREEN, "-nolisten", "tcp", "-ac"];
        let display = desktop.program("Xvfb").args(display).complain_to(&log)?.start_and_read(READY)?;
        desktop.keep("DISPLAY", format!(":{}", display.1.trim()), display.0);

        // A bus that starts nothing by itself: no portal, no accessibility, no second keychain.
        let configuration = desktop.folder().join("bus.conf");
        std::fs::write(&configuration, bus_configuration(&desktop.folder().join("run").join("bus")))?;
        let bus = desktop.program("dbus-daemon").args(["--nofork", "--print-address=1"]);
        let bus = bus
            .args([format!("--config-file={}", configuration.display())])
            .complain_to(&log)?
            .start_and_read(READY)?;
        desktop.keep("DBUS_SESSION_BUS_ADDRESS", bus.1, bus.0);

        let keychain =
            desktop.program("gnome-keyring-daemon").args(["--foreground", "--unlock", "--components=secrets"]);
        let keychain = keychain.input("password of a test")?.log_to(&log)?.start()?;
        desktop.programs.push(keychain);
        desktop.wait_for_keychain().with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
        Ok(desktop)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The app's data folder.
    pub fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// What a program on this desktop finds in its environment.
    pub fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    /// A program about to be started on this desktop.
    pub fn program<'a>(&self, program: &'a str) -> Start<'a> {
        Start::new(program).envs(self.variables.iter().map(|(name, value)| (name, value)))
    }

    /// A driver for one launch of the app. `more` is added to the environment, which the app inherits.
    pub fn driver(&self, more: &[(&str, &str)]) -> anyhow::Result<Driver> {
        let port = free_port()?;
        let log = self.folder().join("app.log");
        let driver = self.program("WebKitWebDriver").args([format!("--port={port}"), "--host=127.0.0.1".to_owned()]);
        let automation = [("TAURI_AUTOMATION", "true"), ("TAURI_WEBVIEW_AUTOMATION", "true")];
        let program = driver.envs(automation).envs(more.iter().copied()).log_to(&log)?.start()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut driver = Driver { program, address, log };
        until(READY, || {
            if !driver.program.is_running() {
                bail!("WebKitWebDriver ended: {}", driver.log());
            }
            Ok(TcpStream::connect(address).is_ok())
        })
        .context("WebKitWebDriver does not answer")?;
        Ok(driver)
    }

    /// What the app left running: keepers, and what is in their sandboxes.
    pub fn survivors(&self) -> Vec<processes::Process> {
        let mut survivors = processes::mentioning(&self.folder().to_string_lossy());
        survivors.retain(|process| process.pid != std::process::id());
        survivors
    }

    fn keep(&mut self, name: &str, value: String, program: Guarded) {
        self.variables.push((name.into(), value.into()));
        self.programs.push(program);
    }

    fn wait_for_keychain(&mut self) -> anyhow::Result<()> {
        let ask = ["--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"];
        let about = ["org.freedesktop.DBus.GetNameOwner", "string:org.freedesktop.secrets"];
        until(READY, || {
            if !self.programs.last_mut().is_some_and(Guarded::is_running) {
                bail!("gnome-keyring-daemon ended");
            }
            Ok(self.program("dbus-send").args(ask).args(about).start_and_read(READY).is_ok())
        })
        .context("the keychain does not answer on the bus")
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        self.programs.clear();
        processes::kill_all(|| self.survivors());
    }
}

impl Driver {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// What the driver and the app it started printed so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

fn plain_environment(folder: &Path) -> Vec<(OsString, OsString)> {
    let at = |name: &str| folder.join(name).into_os_string();
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    vec![
        ("PATH".into(), path),
        ("HOME".into(), at("home")),
        ("XDG_RUNTIME_DIR".into(), at("run")),
        ("CODECOURIER_HOME".into(), at("data")),
        ("LANG".into(), "C.UTF-8".into()),
        ("TZ".into(), "UTC".into()),
        ("XDG_CURRENT_DESKTOP".into(), "courier-test".into()),
        ("GDK_BACKEND".into(), "x11".into()),
        ("GSETTINGS_BACKEND".into(), "memory".into()),
        ("GIO_USE_VFS".into(), "local".into()),
        ("NO_AT_BRIDGE".into(), "1".into()),
        ("LIBGL_ALWAYS_SOFTWARE".into(), "1".into()),
        ("RUST_BACKTRACE".into(), "1".into()),
    ]
}

fn bus_configuration(socket: &Path) -> String {
    format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={}</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#,
        socket.display()
    )
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Asks again and again until it holds, fails or the deadline passes.
pub fn until(deadline: Duration, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > deadline {
            bail!("it did not happen within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
