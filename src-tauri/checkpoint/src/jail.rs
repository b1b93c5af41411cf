//! The jail the worker runs in, where there is bubblewrap: it sees its own program, the system's libraries, and what the
//! request is about. There is no shell in it, no network, no home, no `/etc`, no `/proc` and no `/dev`.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// What a request is about.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

/// Where the worker lies within.
const PROGRAM: &str = "/courier-checkpoint";

/// Where systems have their libraries.
const LIBRARIES: &[&str] =
    &["/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/local/lib", "/lib", "/lib32", "/lib64", "/libx32"];

/// All that bubblewrap is told, the program to run included. Every path is where it is outside.
pub fn arguments(program: &Path, sight: &Sight) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    words.extend(["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"].map(OsString::from));
    words.extend(["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv"].map(OsString::from));
    let mut add = |option: &str, from: &Path, to: &Path| words.extend([option.into(), from.into(), to.into()]);
    for place in LIBRARIES.iter().map(Path::new) {
        match fs::read_link(place) {
            Ok(target) => add("--symlink", &target, place),
            Err(_) if place.is_dir() => add("--ro-bind", place, place),
            Err(_) => {}
        }
    }
    let cache = Path::new("/etc/ld.so.cache");
    add("--ro-bind-try", cache, cache);
    add("--ro-bind", program, Path::new(PROGRAM));
    for place in &sight.read {
        add("--ro-bind", place, place);
    }
    for place in &sight.write {
        add("--bind", place, place);
    }
    words.extend(["--remount-ro", "/", "--chdir", "/", "--", PROGRAM].map(OsString::from));
    words
}
