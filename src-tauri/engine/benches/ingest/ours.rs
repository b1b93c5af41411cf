//! Our side: the whole engine over one sandbox whose agent prints the recording.

use std::{
    io::{Write, stdout},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use courier_engine::{
    engine::{Config, Engine, NewSandbox, Transcript},
    host::{Host, Person},
    model::{AgentKind, Item, SandboxId, SystemClock},
    secrets::{CredentialKind, Secret, Secrets, SessionOnly},
    store::TranscriptBatch,
};
use courier_keeper::spool;
use tokio::sync::{broadcast::error::RecvError, watch};

use crate::{
    peak_memory, program,
    recorded::{Printing, Recorded, Started, end},
    recording, writer,
};

/// How long the whole measurement may take.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    engine: Engine,
    sandbox: SandboxId,
    started: watch::Receiver<Option<Started>>,
    transcript: Transcript,
}

/// A running sandbox whose conversation is open, before its first turn has started.
async fn world(home: &Path, printing: Printing) -> World {
    let bin = home.join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let claude = bin.join("claude");
    std::fs::write(&claude, "#!/bin/sh\necho '2.1.332 (Claude Code)'\n").expect("a script");
    std::fs::set_permissions(&claude, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let keys = SessionOnly::default();
    let key =
        "sk-ant-api03-AAAAbbbbCCCCddddEEEEffffGGGGhhhhIIIIjjjjKKKKllllMMMMnnnnOOOOppppQQQQrrrrSSSStttt-uuuu_vvvvwwww";
    keys.set(CredentialKind::AnthropicKey, &Secret::new(key)).expect("memory");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let person = Person { home: home.to_owned(), shell: None, path: Some(path) };
    let data = home.join("data");
    let (provider, started) = Recorded::new(&data, printing);
    let host = Host::new(data, Arc::new(keys), person);
    let config = Config { host, clock: Arc::new(SystemClock), providers: vec![Arc::new(provider)] };
    let engine = Engine::open(config).await.expect("an engine");
    let project = engine.project_sample().await.expect("a project").id;
    let new = NewSandbox::of(project, AgentKind::Claude, "Explain yourself at length.");
    let sandbox = engine.sandbox_create(new).await.expect("a sandbox").id;
    // It is open long before the sandbox is made and the turn starts.
    let transcript = engine.transcript_open(sandbox).await.expect("a conversation");
    World { engine, sandbox, started, transcript }
}

impl World {
    /// Takes every batch, as a window does, until the turn has ended. `heard` gets each of them.
    async fn read(&mut self, mut heard: impl FnMut(&TranscriptBatch)) {
        loop {
            match self.transcript.batches.recv().await {
                Ok(batch) => {
                    heard(&batch);
                    if batch.rows.iter().any(|row| matches!(row.item, Item::Ended { .. })) {
                        return;
                    }
                }
                // Too slow: open again, as the window does.
                Err(RecvError::Lagged(_)) => {
                    self.transcript = self.engine.transcript_open(self.sandbox).await.expect("a conversation");
                    if self.transcript.rows.iter().any(|row| matches!(row.item, Item::Ended { .. })) {
                        return;
                    }
                }
                Err(RecvError::Closed) => panic!("the engine ended"),
            }
        }
    }

    /// The turn, once it has started.
    async fn started(&mut self) -> Started {
        let started = self.started.wait_for(Option::is_some).await.expect("the engine has the provider");
        started.clone().expect("it was waited for")
    }

    /// What was stored is what was printed.
    async fn check(&self, printed: u64) {
        let row = self.engine.sandbox_get(self.sandbox).await.expect("a sandbox");
        assert!(row.error.is_none() && !row.is_working, "{row:?}");
        let (mut length, mut cursor) = (0, 0);
        loop {
            let page = self.engine.log_read(self.sandbox, Some(cursor)).await.expect("a page");
            if page.bytes.is_empty() {
                break;
            }
            (length, cursor) = (length + page.bytes.len() as u64, page.next);
        }
        assert_eq!(length, printed, "every byte is in the raw log");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// Takes in the whole recording.
pub fn run(folder: &Path) {
    runtime().block_on(async {
        let home = tempfile::tempdir_in(folder).expect("a temporary folder");
        let file = folder.join(recording::NAME);
        let printed = std::fs::metadata(&file).expect("the recording").len();
        let mut world = world(home.path(), Printing::Whole(file)).await;
        tokio::time::timeout(PATIENCE, world.read(|_| {})).await.expect("the turn ends");
        let seconds = world.started().await.at.elapsed().as_secs_f64();
        let memory = peak_memory();
        world.check(printed).await;
        writeln!(stdout(), "seconds {seconds}\nmemory {memory}").expect("somebody reads the figures");
        world.engine.shutdown().await;
    });
}

/// Follows what another process prints.
pub fn follow(folder: &Path) {
    runtime().block_on(async {
        let home = tempfile::tempdir_in(folder).expect("a temporary folder");
        let mut world = world(home.path(), Printing::Later).await;
        let place = world.started().await.place;
        let spool = place.join(spool::OUT);
        let begin = Instant::now();
        let (from, to) = (folder.join(recording::NAME), spool.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let status = program().arg("write").args([from, to]).status().expect("this program can be started again");
            assert!(status.success(), "the writer failed");
            let seconds = begin.elapsed().as_secs_f64();
            end(&place).expect("a record of the end");
            seconds
        });
        let mut lags = Vec::new();
        let mut last = begin;
        let hear = |batch: &TranscriptBatch| {
            for row in &batch.rows {
                if let Item::Unknown { raw } = &row.item
                    && let Some(at) = raw.strip_prefix(writer::MARK).and_then(|at| at.strip_suffix("\"}"))
                {
                    let at: u128 = at.parse().expect("a time");
                    lags.push((writer::now() - at) as f64 / 1e6);
                    last = Instant::now();
                }
            }
        };
        tokio::time::timeout(PATIENCE, world.read(hear)).await.expect("the turn ends");
        let wrote = writing.await.expect("the writer ends");
        let memory = peak_memory();
        let printed = std::fs::metadata(&spool).expect("the spool").len();
        world.check(printed).await;
        let end_lag = *lags.last().expect("something was heard");
        lags.sort_by(f64::total_cmp);
        let p95 = lags[lags.len() * 95 / 100];
        let rate = |seconds: f64| printed as f64 / 1e6 / seconds;
        let figures = format!(
            "rate {}\nwritten {}\nlag_p95 {p95}\nlag_end {end_lag}\nmemory {memory}",
            rate((last - begin).as_secs_f64()),
            rate(wrote)
        );
        writeln!(stdout(), "{figures}").expect("somebody reads the figures");
        world.engine.shutdown().await;
    });
}
