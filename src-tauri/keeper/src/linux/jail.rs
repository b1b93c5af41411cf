//! What a sandbox sees: bubblewrap's arguments. Deny by default: what is not named here does not exist inside.

use std::{
    fs, io,
    os::fd::{AsRawFd, RawFd},
    path::{Path, PathBuf},
};

use super::passing::memory_file;
use crate::protocol::StartSpec;

/// Where init is bound inside.
pub(super) const INIT: &str = "/run/courier/courier-keeper";

/// The part of `/etc` programs cannot do without. Nothing private: `ssl/private` and `shadow` stay outside.
const ETC: &[&str] = &[
    "alternatives",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

/// Folders of the system that a distribution may have as links into `/usr`, or as folders.
const SYSTEM: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What in `/proc` only root may read, and root without capabilities too. Each is covered where the app runs as root.
const ROOTS_OWN: &[&str] = &[
    "/proc/allocinfo",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

/// What must never be bound as a toolchain, nor anything it lies in.
const NEVER: &[&str] = &["/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/tmp"];

const PASSWD: &str = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ncourier:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";
const HOSTNAME: &str = "sandbox\n";

/// Arguments, and the files in memory they name by number.
pub(super) struct Arguments {
    pub words: Vec<Vec<u8>>,
    /// To be inherited by bubblewrap, which reads and closes them.
    pub files: Vec<fs::File>,
}

impl Arguments {
    /// As it goes to `--args`.
    pub(super) fn packed(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.iter().copied().chain([0])).collect()
    }

    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.words.extend(words.map(|word| word.as_bytes().to_vec()));
    }

    fn add_path(&mut self, option: &str, from: &Path, to: &Path) {
        use std::os::unix::ffi::OsStrExt;
        self.add([option]);
        self.words.extend([from, to].map(|path| path.as_os_str().as_bytes().to_vec()));
    }

    /// One entry of `/etc`, if it is there. Files are copied and links made anew: each bind costs bubblewrap a reading
    /// of the whole mount table, and the jail is to be there in milliseconds.
    fn add_setting(&mut self, place: &Path) -> io::Result<()> {
        let Ok(real) = fs::canonicalize(place) else { return Ok(()) };
        match fs::read_link(place) {
            Ok(target) if real.starts_with("/usr") => self.add_path("--symlink", &target, place),
            _ if real.is_dir() => self.add_path("--ro-bind", &real, place),
            _ => {
                if let Ok(bytes) = fs::read(&real) {
                    self.add_file(&bytes, place)?;
                }
            }
        }
        Ok(())
    }

    /// A file with these bytes; read-only once the root is.
    fn add_file(&mut self, bytes: &[u8], to: &Path) -> io::Result<()> {
        let number = self.hold(bytes)?.to_string();
        self.add(["--perms", "0444"]);
        self.add_path("--file", Path::new(&number), to);
        Ok(())
    }

    fn hold(&mut self, bytes: &[u8]) -> io::Result<RawFd> {
        let file = memory_file(bytes)?;
        let number = file.as_raw_fd();
        self.files.push(file);
        Ok(number)
    }
}

/// Everything bubblewrap is told but the program to run. `info`: the descriptor on which it says who pid 1 is.
pub(super) fn arguments(spec: &StartSpec, own_program: &Path, info: RawFd) -> io::Result<Arguments> {
    let read_only = readable(spec)?;
    let mut jail = Arguments { words: Vec::new(), files: Vec::new() };
    jail.add(["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]);
    jail.add(["--new-session", "--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "sandbox"]);
    if spec.bwrap_version >= (0, 8) {
        jail.add(["--disable-userns"]); // Where it is too old for this the filter alone refuses them.
    }
    jail.add(["--ro-bind", "/usr", "/usr"]);
    for place in SYSTEM.iter().map(Path::new) {
        match fs::read_link(place) {
            Ok(target) => jail.add_path("--symlink", &target, place),
            Err(_) if place.is_dir() => jail.add_path("--ro-bind", place, place),
            Err(_) => {}
        }
    }
    let libraries = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path());
    for place in ETC.iter().map(|name| Path::new("/etc").join(name)).chain(libraries) {
        jail.add_setting(&place)?;
    }
    let home = spec.home.to_string_lossy();
    let shell = crate::keep::shell();
    let passwd = format!("{PASSWD}courier:x:1000:1000:courier:{home}:{shell}\n");
    jail.add_file(passwd.as_bytes(), Path::new("/etc/passwd"))?;
    jail.add_file(GROUP.as_bytes(), Path::new("/etc/group"))?;
    jail.add_file(HOSTS.as_bytes(), Path::new("/etc/hosts"))?;
    jail.add_file(HOSTNAME.as_bytes(), Path::new("/etc/hostname"))?;
    // Read-only: where the app runs as root, the agent is root to the kernel too, without capabilities, and that is
    // enough to write `/proc/sys/kernel/core_pattern` or `/proc/irq`. (Bubblewrap covers them only if the *folders*
    // can be written, which they never can.)
    jail.add(["--dev", "/dev", "--proc", "/proc"]);
    // SAFETY: a system call without arguments that cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        for place in ROOTS_OWN.iter().map(Path::new).filter(|place| place.exists()) {
            jail.add_path("--ro-bind", Path::new("/dev/null"), place);
        }
    }
    jail.add(["--remount-ro", "/proc"]);
    // `/dev` is memory too, and would take half of the machine's.
    for place in ["/dev/shm", "/tmp"] {
        if spec.bwrap_version >= (0, 7) {
            let size = (u64::from(spec.memory_mb.max(1024)) << 20).to_string();
            jail.add(["--perms", "1777", "--size", &size]);
        }
        jail.add(["--tmpfs", place]);
    }
    jail.add([
        "--remount-ro",
        "/dev",
        "--symlink",
        "../tmp",
        "/var/tmp",
        "--dir",
        "/run",
        "--symlink",
        "../run",
        "/var/run",
    ]);
    jail.add_path("--ro-bind", own_program, Path::new(INIT));
    // Parents before what lies in them, and what can be written last, so that nothing read-only covers it.
    for place in &read_only {
        jail.add_path("--ro-bind-try", place, place);
    }
    jail.add_path("--bind", &spec.workspace, &spec.workspace);
    jail.add_path("--bind", &spec.home, &spec.home);
    jail.add(["--remount-ro", "/"]);
    jail.add_path("--chdir", &spec.workspace, Path::new(""));
    jail.words.pop(); // `--chdir` takes one path.
    let filter = jail.hold(&super::filter::program())?.to_string();
    jail.add(["--seccomp", &filter, "--info-fd", &info.to_string()]);
    Ok(jail)
}

/// The read-only paths, parents first; refuses those that would open the jail.
fn readable(spec: &StartSpec) -> io::Result<Vec<PathBuf>> {
    let refuse = |path: &Path, why: &str| {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} cannot be bound: {why}", path.display())))
    };
    let mut paths = spec.read_only.clone();
    paths.push(spec.workspace.clone());
    paths.push(spec.home.clone());
    for path in &paths {
        if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
            return refuse(path, "it is not an absolute path");
        }
    }
    paths.truncate(spec.read_only.len());
    for path in &paths {
        // As given and as it really is: a link is followed by whoever binds it.
        for seen in [path.clone(), fs::canonicalize(path).unwrap_or_else(|_| path.clone())] {
            if spec.directory.starts_with(&seen) {
                return refuse(path, "the sandbox's own folder lies in it");
            }
            // The keeper's own, or the agent's: where it lies an agent could have put a link to anywhere.
            if seen.starts_with(&spec.directory) {
                return refuse(path, "it lies in the sandbox's own folder");
            }
            if NEVER.iter().any(|never| Path::new(never).starts_with(&seen)) {
                return refuse(path, "it belongs to the system");
            }
        }
    }
    paths.retain(|path| !path.starts_with("/usr"));
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Network, OnTimeout};

    fn spec(read_only: &[&str]) -> StartSpec {
        StartSpec {
            version: crate::protocol::VERSION,
            directory: "/data/sandboxes/s1".into(),
            workspace: "/data/sandboxes/s1/workspace".into(),
            home: "/data/sandboxes/s1/home".into(),
            read_only: read_only.iter().map(PathBuf::from).collect(),
            network: Network::None,
            allowed_hosts: Vec::new(),
            variables: Vec::new(),
            memory_mb: 1024,
            cpus: 1,
            lifetime_ms: 1,
            on_timeout: OnTimeout::Kill,
            bwrap: "bwrap".into(),
            bwrap_version: (0, 8),
        }
    }

    #[test]
    fn parents_are_bound_before_what_lies_in_them() {
        let paths = readable(&spec(&["/opt/node/lib", "/usr/local", "/opt/node", "/opt/node"])).unwrap();
        assert_eq!(paths, [PathBuf::from("/opt/node"), "/opt/node/lib".into()], "and /usr is there anyway");
    }

    #[test]
    fn a_toolchain_path_cannot_open_the_jail() {
        for bad in ["/", "/data", "/data/sandboxes/s1", "/etc", "/proc", "/run", "x", "/a/../etc"] {
            assert!(readable(&spec(&[bad])).is_err(), "{bad}");
        }
        for planted in ["turns", "workspace/tools", "home/.local"] {
            assert!(readable(&spec(&[&format!("/data/sandboxes/s1/{planted}")])).is_err(), "{planted}");
        }
        assert!(readable(&spec(&["/data/mirrors/p1/objects"])).is_ok());
    }

    #[test]
    fn what_can_be_written_is_bound_after_everything_else() {
        let jail = arguments(&spec(&["/opt/x"]), Path::new("/keeper"), 9).unwrap();
        let words: Vec<&str> = jail.words.iter().map(|word| std::str::from_utf8(word).unwrap()).collect();
        let last_read_only = words.iter().rposition(|word| word.starts_with("--ro-bind")).unwrap();
        let first_writable = words.iter().position(|word| *word == "--bind").unwrap();
        assert!(last_read_only < first_writable);
        assert_eq!(
            words[words.len() - 8..words.len() - 4],
            ["--remount-ro", "/", "--chdir", "/data/sandboxes/s1/workspace"]
        );
    }
}
