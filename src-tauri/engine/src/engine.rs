//! `Engine`: open, commands, watch, shutdown. All the shell and the command line ever see.

use std::{
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent,
    delivery::Deliverer,
    host::{Host, make_private_directory},
    model::{AgentKind, Clock, MessageId, NetworkMode, OnTimeout, ProjectId, ProviderKind, SandboxId, Status, Usage},
    provider::Provider,
    sandbox::{Clocks, Hindrances, Occasion, Request, Saving, Supervisor, Surroundings},
    settings::Settings,
    store::{
        self, Feed, ItemRow, LogPage, MessageRow, NewSandboxRow, Page, ProjectRow, Query, SandboxRow, Store,
        TranscriptBatch, TransitionRow, items, log, messages, projects, sandboxes, turns,
    },
    work::{self as git, Source},
};

mod continuing;
mod doctor;
mod error;
mod jobs;
mod keys;
mod machines;
mod requests;
mod trash;
mod work;

pub use doctor::{Check, CheckState, Report};
pub use error::{Code, Error};
pub use keys::{AgentInfo, CredentialInfo};
pub use machines::UnownedMachine;
pub use requests::{NewSandbox, SendHow};
pub use trash::{PurgeFacts, Storage, StorageEntry};
pub use work::{DeliverOptions, DeliveryState, PullRequestDraft};

pub(crate) use jobs::again;

use requests::{check_message, title_of};

/// How long shutting down may take before what is left is dropped.
pub const SHUTDOWN: Duration = Duration::from_secs(5);
/// How long the data folder may still be held by one that has just let go of it.
const LEAVING: Duration = Duration::from_millis(500);
/// How long saving open turns' files may hold up the quitting.
const QUIT_SAVES: Duration = Duration::from_secs(3);

/// What the engine is opened with. It reads no environment of its own.
#[derive(Debug)]
pub struct Config {
    pub host: Host,
    pub clock: Arc<dyn Clock>,
    pub providers: Vec<Arc<dyn Provider>>,
}

/// The engine. Cloning it gives another handle to the same one.
#[derive(Clone, Debug)]
pub struct Engine {
    around: Surroundings,
    supervisor: Supervisor,
    /// Held for as long as the engine lives, so that two never share a data folder. The system lets go of it when the
    /// process dies, however it dies: a stale lock cannot be.
    _lock: Arc<File>,
}

/// Everything that is shown beside a sandbox's conversation.
#[derive(Clone, Debug)]
pub struct Details {
    pub sandbox: SandboxRow,
    pub running: Duration,
    /// Time between its start and its end, or now, in which it did not run.
    pub paused: Duration,
    /// Read before the rows, so that they are at least as new.
    pub revision: u64,
    pub turns: u32,
    pub usage: Usage,
    /// Whether some turn's consumption is missing.
    pub is_usage_incomplete: bool,
    pub queue: Vec<MessageRow>,
    pub transitions: Vec<TransitionRow>,
    /// Where its files are, on this machine.
    pub workspace: std::path::PathBuf,
}

/// What a new sandbox of a project gets when nothing else is said.
#[derive(Clone, Debug)]
pub struct Defaults {
    pub agent: AgentKind,
    pub timeout: Duration,
    pub memory_mb: u32,
    pub cpus: u32,
    pub host_cpus: u32,
    pub network: NetworkMode,
    pub on_timeout: OnTimeout,
    pub base_branch: String,
    pub branches: Vec<String>,
}

/// A transcript that is open: what is there, and what comes.
#[derive(Debug)]
pub struct Transcript {
    /// The revision of the rows; every batch to come is newer.
    pub revision: u64,
    /// The newest page, oldest first.
    pub rows: Vec<ItemRow>,
    pub has_older: bool,
    pub log_end: i64,
    pub queue: Vec<MessageRow>,
    /// Lagging behind means opening again.
    pub batches: tokio::sync::broadcast::Receiver<Arc<TranscriptBatch>>,
}

impl Engine {
    /// Opens the data folder and takes up every sandbox that is alive.
    ///
    /// # Errors
    /// `AlreadyOpen` where another program holds the folder; what the database says where it cannot be opened.
    pub async fn open(config: Config) -> Result<Self, Error> {
        git::isolate_git();
        let home = config.host.home().to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let io = |source| Error::from(store::Error::Io { path: home.clone(), source });
            make_private_directory(&home).map_err(io)?;
            let lock = File::options().create(true).append(true).open(home.join("lock")).map_err(io)?;
            let begun = Instant::now();
            loop {
                match lock.try_lock() {
                    Ok(()) => break,
                    // A program that the last holder was just starting holds it too, until it has become that program.
                    Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < LEAVING => {
                        std::thread::sleep(LEAVING / 20);
                    }
                    Err(std::fs::TryLockError::WouldBlock) => return Err(Error::already_open(&home)),
                    Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
                }
            }
            Ok((lock, Store::open(&home.join("courier.db"))?))
        });
        let (lock, store) = opened.await.map_err(|_| Error::from(store::Error::Closed))??;
        // Only what is wrong is written: the folder opens also while another program holds the database.
        if !store.read(projects::miscounted).await?.is_empty() {
            for (project, stored, counted) in store.write(projects::recount).await? {
                tracing::error!(%project, stored, counted, "the counter of active sandboxes was wrong; mended");
            }
        }
        let around = Surroundings {
            clocks: Clocks::open(&store, config.clock.clone()).await?,
            hindrances: Hindrances::default(),
            saving: Saving::default(),
            deliverer: Deliverer::default(),
            store,
            clock: config.clock,
            host: Arc::new(config.host),
            providers: config.providers,
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        };
        // Without an account its sandboxes are looked for later; everything else opens all the same.
        if let Err(error) = machines::sign_in(&around).await {
            tracing::warn!(%error, "the account of a provider could not be used");
        }
        let supervisor = Supervisor::start(around.clone()).await?;
        jobs::start(&around, &supervisor);
        machines::watch(&around, &supervisor);
        let reconciled = around.clone();
        around.tasks.spawn(async move {
            let shutdown = reconciled.shutdown.clone();
            if let Some(Err(error)) = shutdown.run_until_cancelled(machines::reconcile(&reconciled)).await {
                tracing::info!(%error, "machines without a sandbox could not be looked for");
            }
        });
        Ok(Self { around, supervisor, _lock: Arc::new(lock) })
    }

    /// Lets go of everything: what was read is stored, and what runs goes on without us.
    pub async fn shutdown(&self) {
        self.save_open_turns().await;
        self.around.shutdown.cancel();
        self.around.tasks.close();
        if tokio::time::timeout(SHUTDOWN, self.around.tasks.wait()).await.is_err() {
            tracing::warn!("some work did not end in time; it is taken up again at the next start");
        }
    }

    /// Saves the files of every sandbox whose agent is at work: it goes on without us, but not through a power cut.
    async fn save_open_turns(&self) {
        let Ok(rows) = self.around.store.read(sandboxes::live).await else { return };
        let at_work = rows.into_iter().filter(|row| row.is_working && row.lifecycle.status == Status::Running);
        let mut saves = tokio::task::JoinSet::new();
        for row in at_work {
            let supervisor = self.supervisor.clone();
            saves.spawn(async move { supervisor.ask(row.id, |reply| Request::Save(Occasion::Quit, reply)).await });
        }
        if tokio::time::timeout(QUIT_SAVES, saves.join_all()).await.is_err() {
            tracing::warn!("not everything was saved before the app was quit; the agents work on");
        }
    }

    /// Committed changes, under one revision.
    pub fn feed(&self) -> &Feed {
        self.around.store.feed()
    }

    // ── projects ──

    /// Adds a project from a folder or an address; one that is there already is returned as it is.
    ///
    /// # Errors
    /// Says what is wrong with the source.
    pub async fn project_add(&self, source: &str, name: Option<&str>) -> Result<ProjectRow, Error> {
        self.add_project(source, name, false).await
    }

    /// Makes the sample project, or finds it.
    ///
    /// # Errors
    /// Where its folder cannot be written.
    pub async fn project_sample(&self) -> Result<ProjectRow, Error> {
        let path = self.around.host.home().join("sample").join("sample-notes");
        let made = path.clone();
        blocking(move || git::create_sample(&made)).await?;
        self.add_project(&path.display().to_string(), None, true).await
    }

    async fn add_project(&self, source: &str, name: Option<&str>, is_sample: bool) -> Result<ProjectRow, Error> {
        let text = source.to_owned();
        let source = blocking(move || Source::parse(&text)).await?;
        let address = source.address();
        let found = address.clone();
        if let Some(known) = self.around.store.read(move |c| projects::by_source(c, &found)).await? {
            return Ok(known);
        }
        let id = ProjectId::fresh();
        let mirror = self.around.host.mirror(id);
        let asked = source.clone();
        let token = self.around.host.token_for(&address, &self.settings().await?).await.ok().flatten();
        let (branches, remote_url) =
            blocking(move || Ok((mirror.update(&asked, token.as_ref())?, asked.remote_url()))).await?;
        let name = name.map(str::trim).filter(|name| !name.is_empty()).map_or_else(|| source.name(), str::to_owned);
        let row = ProjectRow {
            id,
            name: requests::check_name(&name)?,
            source: address,
            remote_url,
            default_branch: branches.default,
            is_sample,
            active_sandboxes: 0,
            sandboxes: 0,
            created_at: self.around.clock.now(),
        };
        let stored = row.clone();
        self.around.store.write(move |tx| projects::insert(tx, &stored)).await?;
        Ok(row)
    }

    /// Every project, by name.
    ///
    /// # Errors
    /// What the database says.
    pub async fn project_list(&self) -> Result<Vec<ProjectRow>, Error> {
        Ok(self.around.store.read(projects::all).await?)
    }

    /// One project.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn project_get(&self, id: ProjectId) -> Result<ProjectRow, Error> {
        Ok(self.around.store.read(move |c| projects::get(c, id)).await?)
    }

    /// What a new sandbox of a project gets when nothing else is said.
    ///
    /// # Errors
    /// `NotFound`, or what git says of the mirror.
    pub async fn project_defaults(&self, id: ProjectId) -> Result<Defaults, Error> {
        let project = self.project_get(id).await?;
        let (mirror, default) = (self.around.host.mirror(id), project.default_branch.clone());
        let branches = blocking(move || mirror.branches(Some(&default))).await?;
        let host_cpus = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
        let agent = if project.is_sample { AgentKind::Shell } else { AgentKind::Claude };
        Ok(Defaults {
            agent,
            timeout: requests::DEFAULT_TIMEOUT,
            memory_mb: requests::memory_of(agent),
            cpus: requests::DEFAULT_CPUS.min(host_cpus),
            host_cpus,
            network: NetworkMode::Open,
            on_timeout: OnTimeout::Kill,
            base_branch: branches.default,
            branches: branches.all,
        })
    }

    // ── sandboxes ──

    /// Records a sandbox and its first message, and begins to make it.
    ///
    /// # Errors
    /// `Invalid` with what is wrong; nothing was stored then.
    pub async fn sandbox_create(&self, new: NewSandbox) -> Result<SandboxRow, Error> {
        let new = new.checked()?;
        let project = self.project_get(new.project).await?;
        if self.around.provider(new.provider).is_none() {
            return Err(Error::unsupported(new.provider));
        }
        if agent::agent(new.agent).is_none() {
            return Err(Error::invalid(format!("the agent {} is not there yet", new.agent)));
        }
        let id = SandboxId::fresh();
        let title = new.title.clone().unwrap_or_else(|| title_of(&new.prompt));
        let row = NewSandboxRow {
            id,
            project: project.id,
            branch: new.branch.clone().unwrap_or_else(|| git::branch_name(&title, id)),
            title,
            provider: new.provider,
            agent: new.agent,
            model: new.model,
            timeout: new.timeout,
            on_timeout: new.on_timeout,
            memory_mb: new.memory_mb,
            cpus: new.cpus,
            network: new.network,
            allowed_hosts: new.allowed_hosts,
            variables: new.variables,
            setup_script: new.setup_script,
            parent: new.parent,
            repository: project.source,
            base_branch: new.base_branch.unwrap_or(project.default_branch),
            begin: new.begin,
            includes_uncommitted: new.includes_uncommitted,
            issue: new.issue,
            created_at: self.around.clock.now(),
        };
        let prompt = new.prompt;
        let stored = self
            .around
            .store
            .write(move |tx| {
                sandboxes::insert(tx, &row)?;
                messages::enqueue(tx, id, &prompt, messages::Place::Last, row.created_at)?;
                sandboxes::get(tx, id)
            })
            .await?;
        self.supervisor.adopt(stored.clone());
        Ok(stored)
    }

    /// One page of sandboxes, newest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sandbox_list(&self, query: Query) -> Result<Page, Error> {
        let mut page = self.around.store.read(move |c| sandboxes::list(c, &query)).await?;
        page.rows = page.rows.into_iter().map(|row| self.around.hindrances.shown(row)).collect();
        Ok(page)
    }

    /// One sandbox.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_get(&self, id: SandboxId) -> Result<SandboxRow, Error> {
        let row = self.around.store.read(move |c| sandboxes::get(c, id)).await?;
        Ok(self.around.hindrances.shown(row))
    }

    /// One sandbox with everything that is shown beside its conversation.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_details(&self, id: SandboxId) -> Result<Details, Error> {
        let (now, workspace) = (self.around.clock.now(), self.around.directory(id).join("workspace"));
        let revision = self.feed().revision();
        let hindrances = self.around.hindrances.clone();
        self.around
            .store
            .read(move |c| {
                let (usage, is_usage_incomplete) = turns::usage(c, id)?;
                let (sandbox, running) = (sandboxes::get(c, id)?, sandboxes::running_time(c, id, now)?);
                let lived =
                    sandbox.started_at.map_or(Duration::ZERO, |from| sandbox.ended_at.unwrap_or(now).since(from));
                Ok(Details {
                    sandbox: hindrances.shown(sandbox),
                    running,
                    paused: lived.saturating_sub(running),
                    revision,
                    turns: u32::try_from(turns::all(c, id)?.len()).unwrap_or(u32::MAX),
                    usage,
                    is_usage_incomplete,
                    queue: messages::queue(c, id)?,
                    transitions: sandboxes::transitions(c, id)?,
                    workspace,
                })
            })
            .await
    }

    /// Gives a message to a sandbox: after what waits already, or at once by ending the turn that runs.
    ///
    /// # Errors
    /// `IllegalState` where the sandbox has ended or is ending, `WorkflowSandbox` where it takes no messages.
    pub async fn sandbox_send(&self, id: SandboxId, content: &str, how: SendHow) -> Result<MessageRow, Error> {
        let content = check_message(content)?;
        let now = self.around.clock.now();
        let message = self
            .around
            .store
            .write(move |tx| {
                let sandbox = sandboxes::get(tx, id)?;
                if sandbox.origin == "run" {
                    return Err(Error::workflow_sandbox());
                }
                let is_ending = sandbox.lifecycle.activity == crate::model::Activity::Stopping;
                if !sandbox.lifecycle.status.is_live() || is_ending {
                    return Err(Error::illegal_state(
                        &sandbox.lifecycle,
                        "takes no more messages",
                        "Run it again instead.",
                    ));
                }
                let place = match how {
                    // Before the first turn there is nothing to interrupt, and the first message goes first.
                    SendHow::Interrupt if sandbox.lifecycle.status != Status::Creating => messages::Place::First,
                    SendHow::Queue | SendHow::Interrupt => messages::Place::Last,
                };
                Ok(messages::enqueue(tx, id, &content, place, now)?)
            })
            .await?;
        if how == SendHow::Interrupt {
            // It may be the open turn by now.
            let sparing = Some(message.id);
            if let Err(error) = self.ask(id, |reply| Request::Interrupt { sparing, reply }).await {
                // The message is accepted all the same, and is next.
                tracing::warn!(sandbox = %id, %error, "the turn could not be interrupted for a message");
            }
        }
        self.supervisor.tell(id, Request::LookAtQueue).await;
        Ok(message)
    }

    /// Changes a message that still waits.
    ///
    /// # Errors
    /// `IllegalState` where the agent has it already.
    pub async fn message_edit(&self, id: MessageId, content: &str) -> Result<(), Error> {
        let content = check_message(content)?;
        let waited = self.around.store.write(move |tx| messages::edit(tx, id, &content)).await?;
        if waited { Ok(()) } else { Err(Error::delivered()) }
    }

    /// Takes a message that still waits out of the queue.
    ///
    /// # Errors
    /// `IllegalState` where the agent has it already.
    pub async fn message_cancel(&self, id: MessageId) -> Result<(), Error> {
        let waited = self.around.store.write(move |tx| messages::cancel(tx, id)).await?;
        if waited { Ok(()) } else { Err(Error::delivered()) }
    }

    /// Ends the turn that runs; without one this changes nothing.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_interrupt(&self, id: SandboxId) -> Result<(), Error> {
        self.ask(id, |reply| Request::Interrupt { sparing: None, reply }).await
    }

    /// Suspends a sandbox. Returns once that is recorded; the feed tells when it is done.
    ///
    /// # Errors
    /// `IllegalState`, `NotFound`.
    pub async fn sandbox_pause(&self, id: SandboxId) -> Result<(), Error> {
        self.ask(id, Request::Pause).await
    }

    /// Lets a paused sandbox go on. Returns once that is recorded; the feed tells when it is done.
    ///
    /// # Errors
    /// `IllegalState`, `NotFound`.
    pub async fn sandbox_resume(&self, id: SandboxId) -> Result<(), Error> {
        self.ask(id, Request::Resume).await
    }

    /// Ends a sandbox. Always possible; returns once that is recorded. Asked twice, it does not wait for the agent.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_stop(&self, id: SandboxId) -> Result<(), Error> {
        match self.ask(id, Request::Stop).await {
            // It ended while it was asked to.
            Err(error) if error.code() == Code::IllegalState => {
                let is_live = self.sandbox_get(id).await?.lifecycle.status.is_live();
                if is_live { Err(error) } else { Ok(()) }
            }
            answer => answer,
        }
    }

    /// Gives up on a sandbox that is stopping while its provider does not answer: it is `killed` (abandoned) now, and a
    /// durable job destroys what may still run.
    ///
    /// # Errors
    /// `IllegalState` where it is not stopping, `NotFound`.
    pub async fn sandbox_give_up(&self, id: SandboxId) -> Result<(), Error> {
        self.ask(id, Request::GiveUp).await
    }

    /// Gives a sandbox more running time.
    ///
    /// # Errors
    /// `Invalid` where that is nothing or too much, `IllegalState` where it has ended.
    pub async fn sandbox_extend(&self, id: SandboxId, by: Duration) -> Result<(), Error> {
        if by.is_zero() || by > requests::LONGEST_TIMEOUT {
            return Err(Error::invalid("the time to add must be between a moment and 7 days".to_owned()));
        }
        self.ask(id, |reply| Request::Extend(by, reply)).await
    }

    /// Asks a sandbox's owner. One that has ended has none; one whose owner stopped gets another.
    async fn ask(
        &self,
        id: SandboxId,
        request: impl Fn(tokio::sync::oneshot::Sender<Result<(), Error>>) -> Request,
    ) -> Result<(), Error> {
        if let Some(answer) = self.supervisor.ask(id, &request).await {
            return answer;
        }
        if self.around.shutdown.is_cancelled() {
            return Err(Error::shutting_down());
        }
        let sandbox = self.sandbox_get(id).await?;
        let lifecycle = sandbox.lifecycle;
        if lifecycle.status.is_live() {
            self.supervisor.adopt(sandbox);
            if let Some(answer) = self.supervisor.ask(id, &request).await {
                return answer;
            }
        }
        Err(Error::illegal_state(&lifecycle, "takes no orders", "Run it again instead."))
    }

    /// Waits until a sandbox that was made has no work in hand.
    ///
    /// # Errors
    /// `NotFound`; `ShuttingDown`.
    pub async fn sandbox_settled(&self, id: SandboxId) -> Result<SandboxRow, Error> {
        let mut changes = self.feed().changes();
        loop {
            let row = self.sandbox_get(id).await?;
            let is_settled = row.lifecycle.activity == crate::model::Activity::None;
            if is_settled && row.lifecycle.status != Status::Creating {
                return Ok(row);
            }
            // Lagging behind only means looking again.
            if let Err(tokio::sync::broadcast::error::RecvError::Closed) = changes.recv().await {
                return Err(Error::shutting_down());
            }
        }
    }

    // ── one open sandbox ──

    /// The newest page of a conversation, and everything that is added to it from there on, without a gap.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn transcript_open(&self, id: SandboxId) -> Result<Transcript, Error> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (rows, log_end, queue) = self
            .around
            .store
            .read_in_order(move |tx| {
                sandboxes::get(tx, id)?;
                // The asker may be gone.
                tx.after_commit(move |feed| _ = sender.send((feed.revision(), feed.follow_transcript(id))));
                Ok::<_, store::Error>((items::page(tx, id, None)?, log::end(tx, id)?, messages::queue(tx, id)?))
            })
            .await?;
        let (revision, batches) = receiver.await.map_err(|_| Error::shutting_down())?;
        let has_older = rows.first().is_some_and(|row| row.seq > 1);
        Ok(Transcript { revision, rows, has_older, log_end, queue, batches })
    }

    /// A page of rows before row `before`, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn transcript_before(&self, id: SandboxId, before: i64) -> Result<Vec<ItemRow>, Error> {
        Ok(self.around.store.read(move |c| items::page(c, id, Some(before))).await?)
    }

    /// What follows `cursor` in the raw log; without one, the newest page.
    ///
    /// # Errors
    /// What the database says.
    pub async fn log_read(&self, id: SandboxId, cursor: Option<i64>) -> Result<LogPage, Error> {
        Ok(self.around.store.read(move |c| log::page(c, id, cursor)).await?)
    }

    // ── settings ──

    /// The person's settings.
    ///
    /// # Errors
    /// What the database says.
    pub async fn settings(&self) -> Result<Settings, Error> {
        Ok(Settings::load(&self.around.store).await?)
    }

    /// Changes the person's settings.
    ///
    /// # Errors
    /// `Invalid` with what cannot be.
    pub async fn settings_set(&self, settings: Settings) -> Result<(), Error> {
        let settings = settings.checked().map_err(|error| Error::invalid(error.to_string()))?;
        settings.save(&self.around.store).await?;
        machines::sign_in(&self.around).await
    }

    /// The app's data folder.
    pub fn home(&self) -> &std::path::Path {
        self.around.host.home()
    }

    /// Which providers this build and machine have.
    pub fn providers(&self) -> Vec<ProviderKind> {
        self.around.providers.iter().map(|provider| provider.kind()).collect()
    }
}

/// Runs blocking git work where waiting is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, git::Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::shutting_down()),
    }
}
