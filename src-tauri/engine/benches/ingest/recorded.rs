//! A provider whose turns print a recording: its spool is a real file, read by the real follower.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use courier_engine::{
    agent::{Exit, Process},
    model::{ProviderKind, TurnId},
    provider::{
        Error, Follower, Limits, Offsets, Output, Presence, Provider, ProviderId, Provision, TurnSignal, TurnSpec,
        local::Local,
    },
};
use courier_keeper::spool::{self, ExitRecord};
use tokio::sync::watch;

/// What a turn prints.
#[derive(Clone, Debug)]
pub enum Printing {
    /// All of this file, before anybody looks.
    Whole(PathBuf),
    /// Nothing yet; another process will append to it.
    Later,
}

/// The provider.
#[derive(Debug)]
pub struct Recorded {
    local: Local,
    printing: Printing,
    started: watch::Sender<Option<Started>>,
}

/// The turn that was started.
#[derive(Clone, Debug)]
pub struct Started {
    pub at: Instant,
    /// Its spool.
    pub place: PathBuf,
    /// Held while the turn prints, as its keeper holds it.
    _lock: Option<Arc<std::fs::File>>,
}

impl Recorded {
    /// The provider, and where its turn will be found.
    pub fn new(home: &Path, printing: Printing) -> (Self, watch::Receiver<Option<Started>>) {
        let (started, receiver) = watch::channel(None);
        (Self { local: Local::new(PathBuf::new(), None, home.to_owned()), printing, started }, receiver)
    }

    fn begin(&self, id: &ProviderId, turn: TurnId) -> std::io::Result<()> {
        let sandbox = id.0.parse().map_err(std::io::Error::other)?;
        let directory = self.local.directory(sandbox);
        spool::claim(&directory, &turn.to_string())?;
        let place = spool::turn_directory(&directory, &turn.to_string());
        std::fs::write(place.join(spool::ERR), "")?;
        match &self.printing {
            Printing::Whole(file) => {
                std::fs::hard_link(file, place.join(spool::OUT))?;
                end(&place)?;
            }
            Printing::Later => std::fs::write(place.join(spool::OUT), "")?,
        }
        let lock = spool::lock(&directory)?.map(Arc::new);
        self.started.send_replace(Some(Started { at: Instant::now(), place, _lock: lock }));
        Ok(())
    }
}

/// Records that a turn has ended and printed what is there.
pub fn end(place: &Path) -> std::io::Result<()> {
    let out_len = std::fs::metadata(place.join(spool::OUT))?.len();
    let record = ExitRecord { code: Some(0), out_len, ..ExitRecord::default() };
    spool::write_whole(place, spool::EXIT, &serde_json::to_vec(&record)?)
}

fn io(source: std::io::Error) -> Error {
    Error::Io { what: "the recording".to_owned(), source }
}

#[async_trait]
impl Provider for Recorded {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Local
    }

    fn has_gateway(&self) -> bool {
        false
    }

    async fn gateway_address(&self, _id: &ProviderId) -> Result<String, Error> {
        Err(Error::Unsupported)
    }

    async fn provision(&self, spec: &Provision) -> Result<ProviderId, Error> {
        spool::prepare(&spec.directory).map_err(io)?;
        Ok(ProviderId(spec.sandbox.to_string()))
    }

    async fn inspect(&self, _id: &ProviderId) -> Result<Presence, Error> {
        Ok(Presence::Alive)
    }

    async fn pause(&self, _id: &ProviderId) -> Result<(), Error> {
        Ok(())
    }

    async fn resume(&self, _id: &ProviderId) -> Result<(), Error> {
        Ok(())
    }

    async fn extend(&self, _id: &ProviderId, _remaining: Duration) -> Result<(), Error> {
        Ok(())
    }

    async fn destroy(&self, _id: &ProviderId) -> Result<(), Error> {
        Ok(())
    }

    async fn start_turn(&self, id: &ProviderId, turn: &TurnSpec) -> Result<(), Error> {
        self.begin(id, turn.turn).map_err(io)
    }

    async fn is_started(&self, id: &ProviderId, turn: TurnId) -> Result<bool, Error> {
        self.local.is_started(id, turn).await
    }

    async fn signal(&self, _id: &ProviderId, _turn: TurnId, _signal: TurnSignal) -> Result<(), Error> {
        Ok(())
    }

    async fn follow(&self, id: &ProviderId, turn: TurnId, from: Offsets) -> Result<Box<dyn Follower>, Error> {
        self.local.follow(id, turn, from).await
    }

    async fn run(&self, _id: &ProviderId, _name: &str, _process: &Process, _limit: Duration) -> Result<Output, Error> {
        Ok(Output { exit: Exit::Code(0), stdout: Vec::new(), stderr: Vec::new() })
    }

    async fn limits(&self, _id: &ProviderId) -> Limits {
        Limits::Advisory
    }
}
