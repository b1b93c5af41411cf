//! The server, as a test holds it.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::runtime::Handle;

pub use super::serve::RequestSeen;
use super::{
    bubblewrap,
    fault::{Fault, Faults},
    fleet::Fleet,
    options::Options,
    serve::Served,
    vm::Machine,
    wire,
};
use crate::serving::{Serving, held};

/// Names the daemon's program, if it is not beside our own.
const ENVD_VARIABLE: &str = "CODECOURIER_TEST_ENVD";

/// A running server. With it end its machines, and their folders go.
#[derive(Debug)]
pub struct E2bServer {
    /// First to go: what it has begun ends with it.
    serving: Option<Serving>,
    runtime: Handle,
    served: Arc<Served>,
    root: PathBuf,
    /// The folder we made, if none was given.
    _own: Option<TempDir>,
}

impl E2bServer {
    /// Starts a server on loopback.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let envd = options.envd.clone().map_or_else(find_envd, Ok)?;
        let own = if options.root.is_none() { Some(tempfile::tempdir()?) } else { None };
        let root = match (&options.root, &own) {
            (Some(root), _) => root.clone(),
            (None, own) => own.as_ref().context("there is a folder")?.path().to_owned(),
        };
        bubblewrap::prepare_root(&root).context("could not make the folder of the machines")?;
        let root = root.canonicalize()?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        let key = options.key.clone();
        let key = key.unwrap_or_else(|| format!("e2b_{}{:08x}", uuid::Uuid::new_v4().simple(), std::process::id()));
        let port = options.port;
        let served = Arc::new(Served {
            key,
            fleet: Fleet::new(options, root.clone(), envd),
            faults: Faults::default(),
            requests: Default::default(),
        });
        let (answering, (tell, told)) = (Arc::clone(&served), mpsc::channel());
        let serving = Serving::run("e2b", port, move |listener| async move {
            _ = tell.send(Handle::current()); // Whoever started us waits for it.
            wire::serve(listener, move |wire, request| Arc::clone(&answering).answer(wire, request)).await;
        })?;
        let runtime = told.recv().context("the server did not start")?;
        Ok(E2bServer { serving: Some(serving), runtime, served, root, _own: own })
    }

    /// The base of both the control plane and the machines: `E2B_API_URL` and `E2B_SANDBOX_URL`.
    pub fn url(&self) -> String {
        self.serving.as_ref().map(|serving| format!("http://{}", serving.address())).unwrap_or_default()
    }

    /// The key that is let in.
    pub fn key(&self) -> &str {
        &self.served.key
    }

    /// Where the machines' folders lie, those of killed ones too.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The machines that live.
    pub fn machines(&self) -> Vec<Machine> {
        self.served.fleet.machines()
    }

    /// How many machines were ever made.
    pub fn created(&self) -> usize {
        self.served.fleet.created()
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RequestSeen> {
        held(&self.served.requests).clone()
    }

    /// From now on this goes wrong.
    pub fn inject(&self, fault: Fault) {
        self.served.faults.add(fault);
    }

    /// Nothing goes wrong any more that has not yet.
    pub fn clear_faults(&self) {
        self.served.faults.clear();
    }

    /// Kills a machine without a word, as a provider does whose hardware fails.
    pub fn lose(&self, id: &str) {
        let (fleet, id) = (Arc::clone(&self.served.fleet), id.to_owned());
        self.there(async move { fleet.lose(&id) });
    }

    /// Pauses a machine, as somebody does in the provider's own window; says whether it was running.
    pub fn pause_outside(&self, id: &str) -> bool {
        let (fleet, id) = (Arc::clone(&self.served.fleet), id.to_owned());
        let paused = self.there(async move {
            match fleet.get(&id) {
                Some(vm) => fleet.pause(&vm).await.is_ok(),
                None => false,
            }
        });
        paused.unwrap_or(false)
    }

    /// Does something on the server's thread, and waits for it.
    fn there<T: Send + 'static>(&self, what: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (tell, told) = mpsc::channel();
        self.runtime.spawn(async move {
            _ = tell.send(what.await); // Whoever asked waits for it.
        });
        told.recv().ok()
    }
}

impl Drop for E2bServer {
    fn drop(&mut self) {
        // What is being made ends with its task, on the server's thread, and bubblewrap dies with the thread.
        self.serving = None;
        self.served.fleet.end();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let is_machine = entry.path().join("usr-local").is_dir() || entry.file_name() == "etc";
            if is_machine {
                _ = fs::remove_dir_all(entry.path()); // The folder may be somebody's: the rest stays.
            }
        }
    }
}

/// The daemon's program: named, or beside our own; tests lie one folder deeper.
fn find_envd() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(ENVD_VARIABLE) {
        return Ok(named.into());
    }
    let own = env::current_exe()?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("e2b-envd")).find(|path| path.is_file());
    ensure!(found.is_some(), "there is no e2b-envd beside {}, and {ENVD_VARIABLE} names none", own.display());
    found.context("it was found")
}

/// Templates from words: `name` or `name=program,program`, where a program is a path, or `called:path`.
pub fn templates_of(words: &[String]) -> anyhow::Result<BTreeMap<String, super::Template>> {
    let read = |word: &String| {
        let (name, programs) = word.split_once('=').unwrap_or((word, ""));
        let mut template = super::Template::default();
        for program in programs.split(',').filter(|program| !program.is_empty()) {
            let (called, path) = program.split_once(':').unwrap_or(("", program));
            let path = Path::new(path).canonicalize().with_context(|| format!("there is no {path}"))?;
            let called = if called.is_empty() {
                Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned()
            } else {
                called.to_owned()
            };
            // A program is seldom alone: its folder comes along, of an npm package all the packages.
            let folder = path.ancestors().find(|folder| folder.ends_with("node_modules")).or(path.parent());
            template.read_only.extend(folder.filter(|folder| !folder.starts_with("/usr")).map(Path::to_owned));
            template.programs.push((called, path));
        }
        Ok((name.to_owned(), template))
    };
    words.iter().map(read).collect()
}
