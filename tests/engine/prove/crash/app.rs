//! The app that is killed: opens the engine over a data folder and goes on with the script where the journal ends.

use std::{fmt::Write as _, fs, io::Write, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use courier_engine::{
    engine::{Config, Engine, NewSandbox, SendHow},
    host::{Host, Person},
    model::{AgentKind, SandboxId, Status, SystemClock},
    provider::local::Local,
    secrets::{CredentialKind, Secret, Secrets, SessionOnly},
    settings::Settings,
    store::{Query, SandboxRow},
};
use tokio::sync::broadcast::error::RecvError;

/// How this program is told to be the app.
pub const NAME: &str = "prove::crash::app::the_app_that_is_killed";
pub const HOME: &str = "COURIER_CRASH_HOME";
pub const SOURCE: &str = "COURIER_CRASH_SOURCE";
pub const PLAN: &str = "COURIER_CRASH_PLAN";
/// What the agent prints and nobody may read.
pub const SECRET: &str = "sk-ant-oat01-crash-canary-7c1f5e0a93-do-not-print";
/// What it announces on its standard error: a change, a line of the journal.
pub const CHANGE: u8 = b'.';
pub const STEP: u8 = b'|';
/// How many lines an agent prints for a message.
const LINES: u32 = 32;

/// How much of its token an agent prints at first.
const HALF: usize = 20;

pub fn half_of_secret() -> &'static [u8] {
    &SECRET.as_bytes()[..HALF]
}

/// What kind of life it is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// A program in place of Claude Code, which prints its own token; else the Shell agent.
    pub is_claude: bool,
    pub stops_in_mid_turn: bool,
}

impl Plan {
    pub fn code(self) -> String {
        format!("{} {}", self.is_claude, self.stops_in_mid_turn)
    }

    fn of(code: &str) -> Self {
        let (is_claude, stops_in_mid_turn) = code.split_once(' ').expect("two words");
        Self { is_claude: is_claude == "true", stops_in_mid_turn: stops_in_mid_turn == "true" }
    }

    /// The message that is known by this name.
    pub fn message(self, name: &str) -> String {
        if self.is_claude { format!("{name} ✓") } else { script(&format!("name='{name} ✓'")) }
    }

    /// What the agent prints for it, on both streams, once redacted.
    pub fn printed(self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (String::new(), String::new());
        for line in 1..=LINES {
            let _ = writeln!(out, "{name} ✓ line {line} größe 日本語 🦀");
            if line % 8 == 0 {
                let _ = writeln!(err, "{name} ✓ note {line} ✗");
            }
        }
        if self.is_claude {
            let _ = writeln!(out, "token [redacted] and on");
            let _ = writeln!(out, "{RESULT}");
        }
        out += "the end without a newline";
        (out.into_bytes(), err.into_bytes())
    }
}

const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done","session_id":"s","usage":{"input_tokens":1,"output_tokens":1}}"#;

/// Says once more in the workspace that it ran.
fn script(name: &str) -> String {
    format!(
        "{name}
echo \"$name\" >> \"$PWD/ran\"
for i in $(seq 1 {LINES}); do
  printf '%s line %d gr' \"$name\" $i
  printf 'öße 日本語 🦀\\n'
  if [ $((i % 8)) = 0 ]; then printf '%s note %d ✗\\n' \"$name\" $i >&2; sleep 0.01; fi
done
printf 'the end without a newline'"
    )
}

/// The program in place of Claude Code.
fn program() -> String {
    let body = script("name=$(cat)");
    let (lines, end) = body.rsplit_once('\n').expect("it has lines");
    format!(
        "#!/bin/bash
if [ \"$1\" = --version ]; then echo '2.1.332 (Claude Code)'; exit; fi
{lines}
token=$CLAUDE_CODE_OAUTH_TOKEN
printf 'token %s' \"${{token:0:{HALF}}}\"; sleep 0.01; printf '%s and on\\n' \"${{token:{HALF}}}\"
echo '{RESULT}'
{end}
"
    )
}

#[test]
#[ignore = "a part of the crash proof, which starts it as a process of its own"]
fn the_app_that_is_killed() {
    // By itself it has nothing to do.
    let Some(place) = std::env::var_os(HOME) else { return };
    let (source, plan) = (std::env::var(SOURCE).unwrap(), Plan::of(&std::env::var(PLAN).unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(place.as_ref(), &source, plan));
}

/// A step of a life was not possible any more: the sandbox has ended by itself.
struct Ended;

async fn live(place: &Path, source: &str, plan: Plan) {
    let journal = Journal::open(place);
    journal.write("start");
    let engine = Engine::open(config(&place.join("data"))).await.unwrap();
    let mut changes = engine.feed().changes();
    let announcing = tokio::task::spawn_blocking(move || {
        while !matches!(changes.blocking_recv(), Err(RecvError::Closed)) {
            _ = std::io::stderr().write_all(&[CHANGE]);
        }
    });
    // A sandbox that has ended leaves nothing to do.
    _ = Script { engine: &engine, journal, plan }.play(place, source).await;
    engine.shutdown().await;
    drop(engine);
    announcing.abort();
    // What announces waits for the store to close; the end of the program does not.
    std::process::exit(0);
}

fn config(home: &Path) -> Config {
    let beside = std::env::current_exe().unwrap().parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let keeper = std::env::var_os("CODECOURIER_KEEPER").map_or_else(|| beside.join("courier-keeper"), Into::into);
    let secrets = SessionOnly::default();
    secrets.set(CredentialKind::ClaudeOauthToken, &Secret::new(SECRET)).unwrap();
    let local = Local::new(keeper, Some("/usr/bin/bwrap".into()), home.to_owned());
    Config {
        host: Host::new(home.to_owned(), Arc::new(secrets), Person::default()),
        clock: Arc::new(SystemClock),
        providers: vec![Arc::new(local)],
    }
}

struct Script<'a> {
    engine: &'a Engine,
    journal: Journal,
    plan: Plan,
}

impl Script<'_> {
    async fn play(mut self, place: &Path, source: &str) -> Result<(), Ended> {
        let id = self.create(place, source).await;
        self.step("making", |_| true, id).await?;
        self.step("turn", |row| !row.is_working && row.queued == 0, id).await?;
        self.send(id, "second").await?;
        self.send(id, "third").await?;
        self.pause_and_resume(id, "pause").await?;
        self.step("turns", |row| !row.is_working && row.queued == 0, id).await?;
        self.pause_and_resume(id, "pause idle").await?;
        self.send(id, "fourth").await?;
        if !self.plan.stops_in_mid_turn {
            self.step("last turn", |row| !row.is_working && row.queued == 0, id).await?;
        }
        self.journal.write("begin stop");
        self.engine.sandbox_stop(id).await.unwrap();
        _ = self.until(id, |row| !row.lifecycle.status.is_live()).await;
        self.journal.write("done stop");
        Ok(())
    }

    async fn create(&mut self, place: &Path, source: &str) -> SandboxId {
        self.journal.write("begin create");
        if self.plan.is_claude {
            let program = place.join("bin/claude");
            // Whole or not at all: it may be killed here too.
            let draft = place.join("bin/draft");
            fs::create_dir_all(place.join("bin")).unwrap();
            if !program.exists() {
                fs::write(&draft, self::program()).unwrap();
                fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
                fs::rename(&draft, &program).unwrap();
            }
            let settings = Settings::default().with_path(AgentKind::Claude, program.display().to_string());
            self.engine.settings_set(settings).await.unwrap();
        }
        let project = self.engine.project_add(source, None).await.unwrap().id;
        let query = Query { limit: 10, ..Query::default() };
        if let Some(known) = self.engine.sandbox_list(query).await.unwrap().rows.first() {
            return known.id;
        }
        let agent = if self.plan.is_claude { AgentKind::Claude } else { AgentKind::Shell };
        let new = NewSandbox { memory_mb: 256, ..NewSandbox::of(project, agent, &self.plan.message("first 0")) };
        let new = NewSandbox { title: Some("first".to_owned()), ..new };
        self.journal.write("ask first 0");
        let id = self.engine.sandbox_create(new).await.unwrap().id;
        self.journal.write("ok first 0");
        id
    }

    /// Waits until it is so, once in a life.
    async fn step(&mut self, name: &str, wanted: impl Fn(&SandboxRow) -> bool, id: SandboxId) -> Result<(), Ended> {
        if self.journal.says(&format!("done {name}")) {
            return Ok(());
        }
        self.journal.write(&format!("begin {name}"));
        self.until(id, |row| row.lifecycle.status != Status::Creating && wanted(row)).await?;
        self.journal.write(&format!("done {name}"));
        Ok(())
    }

    /// Sends a message once. One that was asked for and not answered may be there or not: it is sent again under another
    /// name.
    async fn send(&mut self, id: SandboxId, name: &str) -> Result<(), Ended> {
        if self.journal.says_begin(&format!("ok {name}")) {
            return Ok(());
        }
        let name = format!("{name} {}", self.journal.count(&format!("ask {name}")));
        self.journal.write(&format!("ask {name}"));
        match self.engine.sandbox_send(id, &self.plan.message(&name), SendHow::Queue).await {
            Ok(_) => self.journal.write(&format!("ok {name}")),
            Err(error) => return self.refused(id, &error).await,
        }
        Ok(())
    }

    /// Only a sandbox that has ended may refuse.
    async fn refused(&mut self, id: SandboxId, error: &courier_engine::engine::Error) -> Result<(), Ended> {
        let row = self.engine.sandbox_get(id).await.unwrap();
        assert!(!row.lifecycle.status.is_live(), "{error:?} while {row:?}");
        Err(Ended)
    }

    async fn pause_and_resume(&mut self, id: SandboxId, name: &str) -> Result<(), Ended> {
        if self.journal.says(&format!("done {name}")) {
            return Ok(());
        }
        self.journal.write(&format!("begin {name}"));
        if let Err(error) = self.engine.sandbox_pause(id).await {
            // It may be resuming since an earlier life.
            self.until(id, |row| row.lifecycle.activity == courier_engine::model::Activity::None).await?;
            if self.engine.sandbox_pause(id).await.is_err() {
                return self.refused(id, &error).await;
            }
        }
        self.until_settled(id, Status::Paused).await?;
        self.journal.write(&format!("begin {name}, resume"));
        if let Err(error) = self.engine.sandbox_resume(id).await {
            return self.refused(id, &error).await;
        }
        self.until_settled(id, Status::Running).await?;
        self.journal.write(&format!("done {name}"));
        Ok(())
    }

    async fn until_settled(&self, id: SandboxId, status: Status) -> Result<(), Ended> {
        self.until(id, |row| {
            row.lifecycle.activity == courier_engine::model::Activity::None && row.lifecycle.status == status
        })
        .await
    }

    /// Waits until it is so, or the sandbox has ended.
    async fn until(&self, id: SandboxId, wanted: impl Fn(&SandboxRow) -> bool) -> Result<(), Ended> {
        let mut changes = self.engine.feed().changes();
        loop {
            let row = self.engine.sandbox_get(id).await.unwrap();
            if wanted(&row) {
                return Ok(());
            }
            if !row.lifecycle.status.is_live() {
                return Err(Ended);
            }
            // Lagging behind only means looking again.
            _ = changes.recv().await;
        }
    }
}

/// What was asked for and what was answered, line by line.
struct Journal {
    file: fs::File,
    lines: Vec<String>,
}

impl Journal {
    fn open(place: &Path) -> Self {
        let path = place.join("journal");
        let lines = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
        Self { file: fs::File::options().create(true).append(true).open(path).unwrap(), lines }
    }

    fn write(&self, line: &str) {
        // One write: a line is there whole or not at all.
        (&self.file).write_all(format!("{line}\n").as_bytes()).unwrap();
        // Whoever kills counts.
        _ = std::io::stderr().write_all(&[STEP]);
    }

    /// Whether an earlier life wrote it.
    fn says(&self, line: &str) -> bool {
        self.lines.iter().any(|known| known == line)
    }

    fn says_begin(&self, begin: &str) -> bool {
        self.count(begin) > 0
    }

    fn count(&self, begin: &str) -> usize {
        self.lines.iter().filter(|known| known.starts_with(begin)).count()
    }
}
