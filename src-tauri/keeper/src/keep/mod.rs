//! The keeper: one process per sandbox, outside the jail. It outlives the app and dies with the sandbox, and the
//! sandbox with it.
//!
//! One thread owns everything that changes ([`sandbox`]); it hears requests ([`server`]), what init says, and what the
//! turns' threads ([`turn`], each copying one agent's output to its spool) have finished.

mod lifetime;
mod sandbox;
mod server;
mod stream;
pub(crate) mod turn;
mod waker;

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    identity::Identity,
    platform::{self, Jail},
    protocol::{KeeperRecord, Readiness, StartSpec, VERSION},
    proxy::{self, gateway::Gateway},
    socket, spool, sys,
};

/// How long a lock is tried that somebody may only have looked at.
const LOCK_LIMIT: Duration = Duration::from_millis(500);

/// How a turn's leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Leader {
    /// It returned this.
    Code(i32),
    /// This killed it.
    Signal(i32),
}

/// What happens inside, as the jail tells it.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A turn's leader has ended.
    Exited { turn: String, leader: Leader },
    /// The jail is gone, and with it everything inside.
    #[cfg_attr(
        target_os = "macos",
        expect(dead_code, reason = "a jail without a pid 1 of its own cannot go by itself")
    )]
    Gone,
}

/// What a turn runs.
#[derive(Debug)]
pub(crate) struct TurnProgram {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub directory: String,
}

/// The agent's ends of a turn's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub stdin: OwnedFd,
    pub out: OwnedFd,
    pub err: OwnedFd,
}

/// Keeps the sandbox described on standard input, until it is over. Says on standard output whether it is there.
pub fn run() -> io::Result<()> {
    let began = Instant::now();
    sys::close_from(3);
    // Whoever leads a group already has been given one of its own; then this fails, and nothing is missing.
    // SAFETY: system calls without pointers.
    unsafe {
        libc::setsid();
        libc::umask(0o077);
    }
    // Keys are in this memory: should it ever fall over, they are not to lie in a file.
    sys::limit(libc::RLIMIT_CORE, sys::NO_CORE)?;
    sys::block(sandbox::LEAVE_SIGNALS)?;
    std::env::set_current_dir("/")?;
    let made = read_spec().and_then(|spec| match hold_lock(&spec.directory)? {
        // The lock is the keeper's life: it is let go when the process ends, and not before.
        Some(lock) => Ok(Some(make(spec, lock)?)),
        None => Ok(None),
    });
    match made {
        Ok(Some(sandbox)) => {
            let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            say(&Readiness::Ready { millis });
            sandbox.keep()
        }
        Ok(None) => {
            say(&Readiness::AlreadyKept);
            Ok(())
        }
        Err(error) => {
            say(&Readiness::Failed { cause: error.to_string() });
            Err(error)
        }
    }
}

/// Says it once; then standard output leads to the log, and whoever reads finds the end.
fn say(readiness: &Readiness) {
    use std::io::Write;
    let line = serde_json::to_string(readiness).expect("plain words");
    let mut stdout = io::stdout();
    // Whoever started us may be gone already; the sandbox is there all the same.
    _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    // SAFETY: both are open, and standard output has no other owner that minds.
    unsafe { libc::dup2(2, 1) };
}

fn read_spec() -> io::Result<StartSpec> {
    let spec: StartSpec = serde_json::from_reader(io::stdin().lock())?;
    if spec.version != VERSION {
        let message = format!("the app speaks version {} of the protocol, the keeper {VERSION}", spec.version);
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    Ok(spec)
}

fn hold_lock(directory: &Path) -> io::Result<Option<fs::File>> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match spool::lock(directory)? {
            Some(lock) => return Ok(Some(lock)),
            None if Instant::now() > deadline => return Ok(None),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Makes the sandbox, and everything that serves it.
fn make(spec: StartSpec, lock: fs::File) -> io::Result<sandbox::Sandbox> {
    let directory = spec.directory.clone();
    spool::prepare(&directory)?;
    spool::settle_orphans(&directory)?;
    match fs::remove_file(directory.join(spool::ENDED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(&spec.home)?;
    let (events, inbox) = channel();
    let heard = events.clone();
    let jail = Jail::start(&spec, move |news| _ = heard.send(sandbox::Event::Heard(news)))?;
    let listeners = jail.listen(&proxy::PORTS)?;
    let [http, socks, model] = addresses(&listeners)?;
    let variables = variables(&spec, http, socks, model);
    let gateway = Arc::new(Gateway::default());
    proxy::serve(&spec, listeners, &gateway)?;
    let record = KeeperRecord { version: VERSION, keeper: Identity::own()?, init: jail.init().cloned() };
    spool::write_at_once(&directory, spool::RECORD, &serde_json::to_vec(&record)?)?;
    let server = server::start(socket::bind(&directory)?, events.clone())?;
    let surroundings = sandbox::Surroundings { lock, variables, server, gateway, gateway_port: model.port() };
    sandbox::Sandbox::new(spec, jail, surroundings, (events, inbox))
}

fn addresses<const N: usize>(listeners: &[TcpListener]) -> io::Result<[SocketAddr; N]> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
    addresses.try_into().map_err(|_| io::Error::other("there is not a socket for each door"))
}

/// The shell of who lives inside: agents run their commands in it, and write them for bash.
pub(crate) fn shell() -> &'static str {
    if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}

/// What every turn finds in its environment.
fn variables(spec: &StartSpec, http: SocketAddr, socks: SocketAddr, model: SocketAddr) -> HashMap<String, String> {
    let mut variables = platform::base_variables(&spec.home);
    let mut set = |name: &str, value: &str| _ = variables.insert(name.to_owned(), value.to_owned());
    for (name, value) in [("USER", "courier"), ("LOGNAME", "courier"), ("SHELL", shell())] {
        set(name, value);
    }
    for (name, value) in [("LANG", "C.UTF-8"), ("TERM", "dumb"), ("NODE_USE_ENV_PROXY", "1")] {
        set(name, value);
    }
    let (http, socks) = (format!("http://{http}"), format!("socks5h://{socks}"));
    let direct = reached_directly(&spec.allowed_hosts, model);
    for (name, value) in [("HTTP_PROXY", &http), ("HTTPS_PROXY", &http), ("ALL_PROXY", &socks), ("NO_PROXY", &direct)] {
        set(name, value);
        set(&name.to_lowercase(), value);
    }
    variables.extend(spec.variables.iter().cloned());
    variables
}

/// What is not asked of the proxy: the sandbox's own loopback, with the gateway and whatever servers an agent starts. A
/// name of it that the list opens means the machine's, which only the proxy reaches; the gateway stays.
fn reached_directly(listed: &[String], model: SocketAddr) -> String {
    let own = [IpAddr::from(Ipv4Addr::LOCALHOST).to_string(), "localhost".into(), Ipv6Addr::LOCALHOST.to_string()];
    let means = |entry: &str, name: &str| {
        let entry = entry.trim();
        let bracketed = format!("[{name}]");
        [name, &bracketed].iter().any(|host| {
            let rest = entry.get(..host.len()).filter(|start| start.eq_ignore_ascii_case(host));
            rest.is_some_and(|_| entry.len() == host.len() || entry[host.len()..].starts_with(':') && *host != "::1")
        })
    };
    let mut direct = vec![model.to_string()];
    direct.extend(own.into_iter().filter(|name| !listed.iter().any(|entry| means(entry, name))));
    direct.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandboxs_own_loopback_is_not_asked_of_the_proxy_unless_the_list_means_the_machines() {
        let direct = |listed: &[&str]| {
            let listed: Vec<String> = listed.iter().map(|&entry| entry.to_owned()).collect();
            reached_directly(&listed, ([127, 0, 0, 1], 17982).into())
        };
        let everything = "127.0.0.1:17982,127.0.0.1,localhost,::1";
        assert_eq!(direct(&[]), everything);
        assert_eq!(direct(&["example.com", "127.0.0.10", "localhost.example", "*.localhost"]), everything);
        assert_eq!(direct(&["127.0.0.1:8080", "LocalHost"]), "127.0.0.1:17982,::1");
        assert_eq!(direct(&["[::1]:80"]), "127.0.0.1:17982,127.0.0.1,localhost");
        assert_eq!(direct(&["::1"]), "127.0.0.1:17982,127.0.0.1,localhost");
    }
}
