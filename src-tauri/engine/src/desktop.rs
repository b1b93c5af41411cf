//! The usual surroundings: what the window and the command line open the engine with. The only module that reads the
//! environment, but for the list of variables that `process` hands on to programs.

use std::{env, path::PathBuf, sync::Arc};

use crate::{
    engine::Config,
    host::{Host, Person},
    model::SystemClock,
    provider::{e2b::E2b, local::Local},
    secrets::Keychain,
};

/// The engine's surroundings on this machine, with its data in `home`.
pub fn config(home: PathBuf) -> Config {
    let path = env::var("PATH").ok();
    let person = Person {
        home: env::home_dir().unwrap_or_default(),
        shell: env::var_os("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute()),
        path: path.clone(),
    };
    let bubblewrap = path.as_deref().and_then(|path| find_in(path, "bwrap"));
    let local = Local::new(beside("courier-keeper"), bubblewrap.clone(), home.clone());
    Config {
        host: Host::new(home, Arc::new(Keychain), person).with_checkpoints(beside("courier-checkpoint"), bubblewrap),
        clock: Arc::new(SystemClock),
        providers: vec![Arc::new(local), Arc::new(E2b::new(guest()))],
    }
}

/// The keeper as it runs in a machine of E2B's, which is Linux on x86-64: one that comes beside the app, or where the app
/// itself is of that kind, its own.
fn guest() -> PathBuf {
    let guest = beside("courier-keeper-x86_64-linux");
    let is_own = cfg!(all(target_os = "linux", target_arch = "x86_64"));
    if is_own && !guest.is_file() { beside("courier-keeper") } else { guest }
}

/// The data folder of the desktop app, where nothing else is said.
pub fn default_home() -> Option<PathBuf> {
    const NAME: &str = "dev.codecourier.app";
    let home = env::home_dir()?;
    let data = if cfg!(target_os = "macos") {
        home.join("Library/Application Support")
    } else if cfg!(windows) {
        PathBuf::from(env::var_os("APPDATA")?)
    } else {
        env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
            .unwrap_or_else(|| home.join(".local/share"))
    };
    Some(data.join(NAME))
}

/// What comes beside whatever program this is.
fn beside(name: &str) -> PathBuf {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let folder = env::current_exe().ok().and_then(|program| program.parent().map(std::path::Path::to_owned));
    folder.map_or_else(|| PathBuf::from(&name), |folder| folder.join(&name))
}

fn find_in(path: &str, program: &str) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}
