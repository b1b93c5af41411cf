//! What this machine offers the engine: its folders, its keychain, and the programs that are installed.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::sync::OnceCell;

use crate::{
    agent::{
        Agent, Cli,
        discovery::{self, Discovery, VERSION_DEADLINE},
    },
    folder::{MARKER, Upkeep},
    forge::Forge,
    model::{AgentKind, ProjectId},
    process,
    secrets::{self, CredentialKind, Secret, Secrets, SessionOnly},
    settings::Settings,
    store::SandboxError,
    work::{self, Checkouts, Checkpoints, Mirror, Vault, Worker, WorkerError, checkpoint::Limits, push::Token},
};

/// How long the person's login shell may take to say its PATH.
const LOGIN_SHELL: Duration = Duration::from_secs(5);
/// What is shown to a model server of the person's own that no key was stored for.
pub(crate) const NO_KEY: &str = "no-key-is-stored";
/// Stands around the PATH in what the login shell prints, since profiles print things too.
const BOUNDARY: &str = "__courier_path__";

/// Whose machine it is: where programs are looked for.
#[derive(Clone, Debug, Default)]
pub struct Person {
    /// The person's home folder.
    pub home: PathBuf,
    /// The login shell, if it is known.
    pub shell: Option<PathBuf>,
    /// The PATH the app was started with: what is used where the shell does not answer.
    pub path: Option<String>,
}

/// The machine.
#[derive(Debug)]
pub struct Host {
    home: PathBuf,
    keychain: Arc<dyn Secrets>,
    session: Arc<SessionOnly>,
    person: Person,
    login_path: OnceCell<Option<String>>,
    found: Mutex<HashMap<AgentKind, Known>>,
    mirrors: Mutex<HashMap<ProjectId, Mirror>>,
    vaults: Mutex<HashMap<ProjectId, Vault>>,
    checkpointer: Option<(PathBuf, Option<PathBuf>)>,
    worker: OnceCell<Worker>,
    pub(crate) upkeep: Upkeep,
}

/// An agent's program, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct InstalledCli {
    pub program: PathBuf,
    /// What a jail must show for it to run.
    pub read_only: Vec<PathBuf>,
    pub version: Option<String>,
    /// What runs it, where it is a script.
    pub interpreter: Option<PathBuf>,
}

/// A program that was found, and how its file looked then.
#[derive(Clone, Debug)]
struct Known {
    manual: Option<String>,
    modified: Option<SystemTime>,
    cli: InstalledCli,
}

/// A key that is stored.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub secret: Secret,
    pub is_session_only: bool,
}

impl Host {
    /// `home` is the app's data folder.
    pub fn new(home: PathBuf, keychain: Arc<dyn Secrets>, person: Person) -> Self {
        Self {
            home,
            keychain,
            session: Arc::default(),
            person,
            login_path: OnceCell::new(),
            found: Mutex::default(),
            mirrors: Mutex::default(),
            vaults: Mutex::default(),
            checkpointer: None,
            worker: OnceCell::new(),
            upkeep: Upkeep::default(),
        }
    }

    /// The app's data folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn mirror(&self, project: ProjectId) -> Mirror {
        let mut mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        let path = || self.home.join("projects").join(project.to_string()).join("mirror.git");
        mirrors.entry(project).or_insert_with(|| Mirror::at(path())).clone()
    }

    /// The vault of a project, which borrows its mirror's objects.
    pub(crate) fn vault(&self, project: ProjectId) -> Vault {
        let mirror = self.mirror(project);
        let mut vaults = self.vaults.lock().unwrap_or_else(PoisonError::into_inner);
        let path = || self.home.join("projects").join(project.to_string()).join("vault.git");
        vaults.entry(project).or_insert_with(|| Vault::at(path(), mirror)).clone()
    }

    /// With the program that takes checkpoints, and what makes it a jail.
    #[must_use]
    pub fn with_checkpoints(self, program: PathBuf, bubblewrap: Option<PathBuf>) -> Self {
        Self { checkpointer: Some((program, bubblewrap)), ..self }
    }

    /// What takes checkpoints into a project's vault; what it remembers of each workspace is kept in `private`.
    ///
    /// # Errors
    /// `Worker` where the program is missing, `Io` where it cannot be copied.
    pub(crate) async fn checkpoints(&self, project: ProjectId, private: PathBuf) -> Result<Checkpoints, work::Error> {
        let worker = self.worker.get_or_try_init(|| async {
            let (program, bubblewrap) = self.checkpointer.clone().ok_or_else(WorkerError::missing)?;
            let copies = self.home.join("workers");
            let installing = tokio::task::spawn_blocking(move || Worker::install(&program, &copies, bubblewrap));
            installing.await.map_err(|_| WorkerError::missing())?
        });
        let worker = worker.await?.clone();
        Ok(Checkpoints { worker, vault: self.vault(project), private, limits: Limits::default() })
    }

    /// Copies of checkpoints that were opened in an editor.
    pub(crate) fn checkouts(&self) -> Checkouts {
        Checkouts::at(self.home.join("checkouts"))
    }

    /// The keys of hosts that the person knows, for SSH.
    pub(crate) fn known_hosts(&self) -> Option<PathBuf> {
        let file = self.person.home.join(".ssh/known_hosts");
        file.is_file().then_some(file)
    }

    // ── programs ──

    /// The agent's program. What was found once is taken again while its file is the same.
    ///
    /// # Errors
    /// `missing_cli`, with what is wrong and the fix.
    pub(crate) async fn find_cli(
        &self,
        agent: &'static dyn Agent,
        settings: &Settings,
    ) -> Result<InstalledCli, SandboxError> {
        let Some(cli) = agent.cli() else {
            return Ok(InstalledCli {
                program: PathBuf::new(),
                read_only: Vec::new(),
                version: None,
                interpreter: None,
            });
        };
        let manual = settings.path_of(agent.kind());
        if let Some(known) = self.known(agent.kind(), manual.as_deref()) {
            return Ok(known);
        }
        let discovery = self.discover(cli, manual.as_deref()).await;
        match discovery.program {
            Some(program) => {
                let (major, minor, patch) = program.version;
                let found = InstalledCli {
                    program: program.path,
                    read_only: program.read_only,
                    version: Some(format!("{major}.{minor}.{patch}")),
                    interpreter: program.interpreter,
                };
                let modified = modified(&found.program);
                let known = Known { manual, modified, cli: found.clone() };
                self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(agent.kind(), known);
                Ok(found)
            }
            None => Err(SandboxError {
                kind: "missing_cli".to_owned(),
                message: format!("{} was not found", agent.name()),
                remedy: discovery.fix.unwrap_or_default(),
            }),
        }
    }

    fn known(&self, agent: AgentKind, manual: Option<&str>) -> Option<InstalledCli> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(&agent).cloned()?;
        let is_same = known.manual.as_deref() == manual && known.modified == modified(&known.cli.program);
        // A version manager may have removed what runs it.
        let is_run = known.cli.interpreter.as_deref().is_none_or(Path::is_file);
        (is_same && is_run && known.modified.is_some()).then_some(known.cli)
    }

    /// Looks for a program everywhere, and says where.
    pub(crate) async fn discover(&self, cli: &'static Cli, manual: Option<&str>) -> Discovery {
        let login_path = self.login_path().await;
        let (home, manual) = (self.person.home.clone(), manual.map(PathBuf::from));
        let runtime = tokio::runtime::Handle::current();
        let looking = tokio::task::spawn_blocking(move || {
            discovery::find(cli, manual.as_deref(), &home, login_path.as_deref(), |program, argument| {
                runtime.block_on(version(program, argument, login_path.as_deref()))
            })
        });
        looking.await.unwrap_or_else(|_| Discovery {
            program: None,
            looked: Vec::new(),
            fix: Some("The search was broken off; run it again.".to_owned()),
        })
    }

    /// The PATH of the person's login shell, asked once.
    pub(crate) async fn login_path(&self) -> Option<String> {
        let asked = self.login_path.get_or_init(|| async {
            let from_shell = match &self.person.shell {
                Some(shell) => ask_login_shell(shell).await,
                None => None,
            };
            from_shell.or_else(|| self.person.path.clone())
        });
        asked.await.clone()
    }

    // ── keys ──

    /// Every key that is stored for an agent.
    pub(crate) async fn secrets_of(&self, agent: &'static dyn Agent) -> Vec<Secret> {
        let mut secrets = Vec::new();
        for kind in agent.credentials() {
            // One that cannot be read is not given either, and named where one is needed.
            secrets.extend(self.stored(*kind).await.ok().flatten().map(|stored| stored.secret));
        }
        secrets
    }

    /// The key an agent would use for this model: the first of those that open it that is stored. A model server at an
    /// address of the person's own may need none.
    ///
    /// # Errors
    /// `missing_key` where it needs one and none is stored.
    pub(crate) async fn credential_for(
        &self,
        agent: &'static dyn Agent,
        model: Option<&str>,
        settings: &Settings,
    ) -> Result<Option<(CredentialKind, Secret)>, SandboxError> {
        let mut problem = None;
        for kind in agent.credentials_for(model) {
            let is_own_server = *kind == CredentialKind::CompatibleKey && settings.base_url_of(*kind).is_some();
            match self.stored(*kind).await {
                Ok(Some(stored)) => return Ok(Some((*kind, stored.secret))),
                Ok(None) if is_own_server => return Ok(Some((*kind, Secret::new(NO_KEY)))),
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
        if agent.credentials().is_empty() {
            return Ok(None);
        }
        Err(SandboxError {
            kind: "missing_key".to_owned(),
            message: match problem {
                Some(error) => format!("the key of {} could not be read: {error}", agent.name()),
                None => {
                    let names: Vec<_> = agent.credentials_for(model).iter().map(|kind| kind.name()).collect();
                    format!("there is no key for {} ({})", agent.name(), names.join(" or "))
                }
            },
            remedy: "Set it in Settings, under Keys.".to_owned(),
        })
    }

    /// A stored key; this session's own goes first.
    pub(crate) async fn stored(&self, kind: CredentialKind) -> Result<Option<Stored>, secrets::Error> {
        if let Ok(secret) = self.session.get(kind) {
            return Ok(Some(Stored { secret, is_session_only: true }));
        }
        match self.in_keychain(move |keychain| keychain.get(kind)).await {
            Ok(secret) => Ok(Some(Stored { secret, is_session_only: false })),
            Err(secrets::Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The token for where an address leads, if one is known and stored: for fetching, for pushing, for pull requests.
    pub(crate) async fn token_for(&self, address: &str, settings: &Settings) -> Result<Option<Token>, secrets::Error> {
        let forge = Forge::of(address, settings.github_enterprise().as_ref());
        let Some((kind, host)) = forge.credential() else { return Ok(None) };
        let stored = self.stored(kind).await?;
        Ok(stored.map(|stored| Token { host: host.to_owned(), secret: stored.secret }))
    }

    pub(crate) async fn store_credential(
        &self,
        kind: CredentialKind,
        secret: Secret,
        session_only: bool,
    ) -> Result<(), secrets::Error> {
        if session_only {
            return self.session.set(kind, &secret);
        }
        self.in_keychain(move |keychain| keychain.set(kind, &secret)).await?;
        // The one of this session would hide it.
        self.session.remove(kind)
    }

    pub(crate) async fn remove_credential(&self, kind: CredentialKind) -> Result<(), secrets::Error> {
        let was_session_only = self.session.get(kind).is_ok();
        self.session.remove(kind)?;
        match self.in_keychain(move |keychain| keychain.remove(kind)).await {
            // Without a keychain this session's own was all there was.
            Err(secrets::Error::NoKeychain { .. }) if was_session_only => Ok(()),
            other => other,
        }
    }

    /// Keychains block, and may ask the person.
    async fn in_keychain<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Secrets) -> Result<T, secrets::Error> + Send + 'static,
    ) -> Result<T, secrets::Error> {
        let keychain = self.keychain.clone();
        let asked = tokio::task::spawn_blocking(move || work(keychain.as_ref()));
        asked.await.unwrap_or_else(|_| Err(secrets::Error::Failed("it was broken off".to_owned())))
    }
}

/// Makes a sandbox's folder, with the marker that allows its removal later.
pub(crate) fn make_sandbox_directory(path: &Path) -> io::Result<()> {
    make_private_directory(path)?;
    std::fs::write(path.join(MARKER), "")
}

/// Makes a folder that nobody but this user can enter, or closes the one that is there. What an agent leaves belongs to
/// this user, and may be a program that runs as its owner whoever starts it.
pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
        builder.mode(0o700).create(path)?;
        let found = path.metadata()?;
        // SAFETY: a system call without arguments that cannot fail.
        let is_own = found.uid() == unsafe { libc::geteuid() };
        // Somebody may have chosen a folder that is everybody's, as `/tmp` is: that stays so.
        let is_everybodys = found.mode() & 0o1002 != 0;
        if is_own && !is_everybodys && found.mode() & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
    }
    #[cfg(not(unix))]
    builder.create(path)?;
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}

async fn version(program: &Path, argument: &str, path: Option<&str>) -> io::Result<String> {
    let mut command = process::helper(program);
    command.arg(argument);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    match tokio::time::timeout(VERSION_DEADLINE, command.output()).await {
        Ok(output) => Ok(String::from_utf8_lossy(&output?.stdout).into_owned()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A desktop app starts with a bare PATH; the person's is made by their shell's profile.
async fn ask_login_shell(shell: &Path) -> Option<String> {
    let script = format!("printf '{BOUNDARY}%s{BOUNDARY}' \"$PATH\"");
    let mut command = process::helper(shell);
    command.args(["-lic", &script]);
    let output = tokio::time::timeout(LOGIN_SHELL, command.output()).await.ok()?.ok()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = printed.split(BOUNDARY).nth(1)?;
    (!path.is_empty()).then(|| path.to_owned())
}
