//! What a sandbox on E2B costs on this side.
//!
//! - `e2b/life`: seconds for one that is made, runs `true`, prints 10 MB that are followed, and is ended; against the official
//!   JavaScript SDK doing the same on the same server, in turn; `ratio` required ≤ 0.8. `e2b/life_processor`: seconds of our
//!   processor time, required ≤ 0.3.
//! - `e2b/many_*`: 200 sandboxes that print 20 lines a second each: memory of this process in MB (required ≤ 250), its share
//!   of a core (≤ 0.6), lost lines (none), how long an end from outside takes to be seen (≤ 1 s), and what each costs against
//!   what each of 20 costs (≤ 1.2).

#[path = "figures/mod.rs"]
mod figures;

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use courier_engine::{
    agent::Process,
    engine::{Config, Engine, NewSandbox, SendHow},
    host::{Host, Person},
    model::{AgentKind, NetworkMode, OnTimeout, ProviderKind, SandboxId, Status, SystemClock, TurnId},
    provider::{
        Offsets, Provider, ProviderId, Provision, SpoolEvent, TurnSpec,
        e2b::{Account, E2b},
    },
    secrets::{CredentialKind, Secret, SessionOnly},
    settings::Settings,
};
use courier_test_support::{judges, processes, repositories::Repository};
use serde_json::Value;

type Failure = Box<dyn std::error::Error>;

/// How often each side lives; the median counts.
const LIVES: usize = 9;
/// 10 MB in lines.
const OUTPUT: &str = "head -c 7500000 /dev/zero | base64 -w 76";
/// How many print at once, and how few for comparison.
const MANY: usize = 200;
const FEW: usize = 20;
/// For how long they are watched.
const WATCHED: Duration = Duration::from_secs(20);
/// 20 lines a second, without a program for each.
const PRINTS: &str =
    "exec {never}<> <(:); for i in $(seq 1200); do echo line $i; read -t 0.05 -u $never; done; echo made > made.txt";
const LINES: u32 = 1200;

/// A server in a process of its own, so that nothing of it counts as ours.
struct Server {
    child: Child,
    url: String,
    key: String,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "benches start programs; the product does so elsewhere")]
    fn start() -> Result<Self, Failure> {
        let envd = std::env::var_os("CODECOURIER_TEST_ENVD").ok_or("cargo xtask bench says where the server is")?;
        let program = Path::new(&envd).with_file_name("e2b-server");
        let mut child = Command::new(program)
            .args(["--template", "base", "--removes-folders"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        Ok(Self { child, url: text("url"), key: text("key") })
    }

    /// As somebody would in the provider's own window.
    fn kill(&self, machine: &str) -> Result<(), Failure> {
        let address = self.url.replace("http://", "");
        let mut stream = std::net::TcpStream::connect(&address)?;
        write!(
            stream,
            "DELETE /sandboxes/{machine} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {}\r\nConnection: close\r\n\r\n",
            self.key
        )?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends with its standard input.
        _ = self.child.wait();
    }
}

/// The official SDK, which lives once for each line it is given.
struct Official {
    child: Child,
    ask: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Official {
    #[expect(clippy::disallowed_methods, reason = "benches start programs; the product does so elsewhere")]
    fn start(server: &Server) -> Result<Self, Failure> {
        let mut child = Command::new(judges::node())
            .arg(judges::e2b("life.mjs")?)
            .env("E2B_API_URL", &server.url)
            .env("E2B_SANDBOX_URL", &server.url)
            .env("E2B_API_KEY", &server.key)
            .env("OUTPUT", OUTPUT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (ask, told) = (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        Ok(Self { child, ask, told: BufReader::new(told) })
    }

    fn live(&mut self) -> Result<(f64, f64, u64), Failure> {
        writeln!(self.ask, "again")?;
        let mut line = String::new();
        self.told.read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let number = |name: &str| told[name].as_f64().unwrap_or(f64::NAN);
        Ok((number("wall"), number("cpu"), told["bytes"].as_u64().unwrap_or(0)))
    }
}

impl Drop for Official {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    // What goes wrong meanwhile is seen.
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    lives().await?;
    let few = many(FEW, "few").await?;
    let many = many(MANY, "many").await?;
    figures::print("e2b/cost_of_one", many, "% of a core", Some(few));
    Ok(())
}

async fn lives() -> Result<(), Failure> {
    let server = Server::start()?;
    let e2b = E2b::new(keeper());
    let account =
        Account::new(Secret::new(&server.key), None, Some(&server.url), Some(&server.url), "bench".to_owned())?;
    e2b.sign_in(Some(account))?;
    let mut official = Official::start(&server)?;
    let (mut ours, mut theirs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..LIVES {
        let (begin, before) = (Instant::now(), own_processor_time()?);
        let bytes = live(&e2b).await?;
        ours[0].push(begin.elapsed().as_secs_f64());
        ours[1].push((own_processor_time()? - before).as_secs_f64());
        let (wall, processor, their_bytes) = official.live()?;
        theirs[0].push(wall);
        theirs[1].push(processor);
        assert_eq!(bytes, their_bytes, "both read the same");
    }
    figures::print("e2b/life", median(&mut ours[0]), "s", Some(median(&mut theirs[0])));
    figures::print("e2b/life_processor", median(&mut ours[1]), "s", Some(median(&mut theirs[1])));
    Ok(())
}

/// One life by our provider; the bytes that were followed.
async fn live(e2b: &E2b) -> Result<u64, Failure> {
    let id = e2b.provision(&spec()).await?;
    e2b.run(&id, "true", &script("true"), Duration::from_secs(60)).await?;
    let turn = TurnSpec { turn: TurnId::fresh(), process: script(OUTPUT), redact: Vec::new(), gateway: None };
    e2b.start_turn(&id, &turn).await?;
    let bytes = read(e2b, &id, turn.turn).await?;
    e2b.destroy(&id).await?;
    Ok(bytes)
}

async fn read(e2b: &E2b, id: &ProviderId, turn: TurnId) -> Result<u64, Failure> {
    let (mut follower, mut length) = (e2b.follow(id, turn, Offsets::default()).await?, 0);
    loop {
        match follower.next().await? {
            SpoolEvent::Bytes { bytes, .. } => length += bytes.len() as u64,
            SpoolEvent::Ended(_) => return Ok(length),
        }
    }
}

/// So many at once: what each costs, as a share of a core.
async fn many(count: usize, name: &str) -> Result<f64, Failure> {
    let server = Server::start()?;
    let home = tempfile::tempdir()?;
    let host = Host::new(home.path().to_owned(), Arc::new(SessionOnly::default()), Person::default());
    let host =
        host.with_checkpoints(beside("CODECOURIER_CHECKPOINT", "courier-checkpoint"), Some("/usr/bin/bwrap".into()));
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(E2b::new(keeper()))];
    let engine = Engine::open(Config { host, clock: Arc::new(SystemClock), providers }).await?;
    let mut settings = Settings::default();
    settings.e2b.api_url = Some(server.url.clone());
    settings.e2b.sandbox_url = Some(server.url.clone());
    engine.settings_set(settings).await?;
    engine.credential_set(CredentialKind::E2bKey, Secret::new(&server.key), true).await?;
    let repository = Repository::with_files(20)?;
    let project = engine.project_add(&repository.path().display().to_string(), None).await?.id;
    let mut ids = Vec::new();
    for _ in 0..count {
        let new = NewSandbox { provider: ProviderKind::E2b, ..NewSandbox::of(project, AgentKind::Shell, "true") };
        ids.push(engine.sandbox_create(new).await?.id);
    }
    for id in &ids {
        until(&engine, *id, |row| row.lifecycle.status == Status::Running && !row.is_working && row.queued == 0)
            .await?;
    }
    for id in &ids {
        engine.sandbox_send(*id, PRINTS, SendHow::Queue).await?;
    }
    for id in &ids {
        until(&engine, *id, |row| row.is_working).await?;
    }
    let (begin, before) = (Instant::now(), own_processor_time()?);
    tokio::time::sleep(WATCHED).await;
    let share = (own_processor_time()? - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    let memory = processes::resident(std::process::id())? as f64 / 1e6;
    for id in &ids {
        until(&engine, *id, |row| !row.is_working && row.queued == 0).await?;
        saved(&engine, *id).await?;
    }
    let mut lost = 0;
    for id in &ids {
        let (mut bytes, mut cursor) = (Vec::new(), 0);
        loop {
            let page = engine.log_read(*id, Some(cursor)).await?;
            if page.bytes.is_empty() {
                break;
            }
            bytes.extend(page.bytes);
            cursor = page.next;
        }
        let expected: String = (1..=LINES).map(|number| format!("line {number}\n")).collect();
        lost += usize::from(bytes != expected.as_bytes());
    }
    let row = engine.sandbox_get(ids[0]).await?;
    let killed = Instant::now();
    server.kill(&row.provider_id.unwrap_or_default())?;
    until(&engine, ids[0], |row| !row.lifecycle.status.is_live()).await?;
    figures::print(&format!("e2b/{name}_memory"), memory, "MB", Some(250.0));
    figures::print(&format!("e2b/{name}_processor"), share * 100.0, "% of a core", Some(60.0));
    figures::print(&format!("e2b/{name}_lost"), lost as f64, "logs", None);
    figures::print(&format!("e2b/{name}_end_seen"), killed.elapsed().as_secs_f64(), "s", Some(1.0));
    for id in &ids {
        engine.sandbox_stop(*id).await?;
    }
    for id in &ids {
        until(&engine, *id, |row| !row.lifecycle.status.is_live()).await?;
    }
    engine.shutdown().await;
    Ok(share * 100.0 / count as f64)
}

/// Waits until what the second turn made is saved: meanwhile that is what asks the machine.
async fn saved(engine: &Engine, id: SandboxId) -> Result<(), Failure> {
    let mut changes = engine.feed().changes();
    while !engine.sandbox_checkpoints(id).await?.iter().any(|checkpoint| checkpoint.turn == Some(2)) {
        _ = changes.recv().await;
    }
    Ok(())
}

async fn until(
    engine: &Engine,
    id: SandboxId,
    wanted: impl Fn(&courier_engine::store::SandboxRow) -> bool,
) -> Result<(), Failure> {
    let mut changes = engine.feed().changes();
    loop {
        let row = engine.sandbox_get(id).await?;
        if wanted(&row) {
            return Ok(());
        }
        if let Some(error) = row.error {
            return Err(error.message.into());
        }
        // Lagging behind only means looking again.
        _ = changes.recv().await;
    }
}

fn spec() -> Provision {
    Provision {
        sandbox: SandboxId::fresh(),
        directory: "/nowhere".into(),
        workspace: "/home/user/workspace".into(),
        read_only: Vec::new(),
        network: NetworkMode::Open,
        allowed_hosts: Vec::new(),
        variables: Vec::new(),
        memory_mb: 1024,
        cpus: 2,
        lifetime: Duration::from_secs(300),
        on_timeout: OnTimeout::Kill,
        template: None,
    }
}

fn script(text: &str) -> Process {
    Process { argv: ["/bin/bash", "-c", text].map(str::to_owned).to_vec(), env: Vec::new(), stdin: Vec::new() }
}

fn keeper() -> PathBuf {
    beside("CODECOURIER_KEEPER", "courier-keeper")
}

fn beside(variable: &str, name: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| name.into(), PathBuf::from)
}

fn own_processor_time() -> std::io::Result<Duration> {
    processes::processor_time(std::process::id())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
