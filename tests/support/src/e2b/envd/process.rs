//! The processes of a machine: started, followed, written to, signalled, and remembered for a while.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::Instant,
};
use tokio_util::task::TaskTracker;

use super::{
    refusal::Refusal,
    users::{self, User},
};
use crate::serving::held;

/// How long an exit can still be asked for.
const REMEMBERED: Duration = Duration::from_secs(30);
/// How long a process waits for who follows it and does not read. Then it goes on without them.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many pieces of output wait for a follower.
const WAITING: usize = 64;
/// The largest piece of output.
const PIECE: usize = 16 << 10;

/// What is to be run. What the protocol leaves out when it is empty is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    cmd: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

/// A request to start.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Start {
    process: Config,
    tag: Option<String>,
    /// Absent means a pipe.
    stdin: Option<bool>,
    pty: Option<Value>,
}

/// Which of a process's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stdout,
    Stderr,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Stdout => "stdout",
            Kind::Stderr => "stderr",
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End(ExitStatus);

impl End {
    /// In the words of the language the service is written in.
    pub(super) fn value(self) -> Value {
        match (self.0.code(), self.0.signal()) {
            (Some(0), _) => json!({ "exited": true, "status": "exit status 0" }),
            (Some(code), _) => {
                let status = format!("exit status {code}");
                json!({ "exitCode": code, "exited": true, "status": status, "error": status })
            }
            (None, signal) => {
                let dumped = if self.0.core_dumped() { " (core dumped)" } else { "" };
                let status = format!("signal: {}{dumped}", signal_name(signal.unwrap_or_default()));
                json!({ "exitCode": -1, "status": status, "error": status })
            }
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGABRT => "aborted",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// What who follows a process is told.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Data(Kind, Bytes),
    End(End),
}

/// Every process that was started and is not forgotten.
#[derive(Debug)]
pub(super) struct Processes {
    envs: BTreeMap<String, String>,
    known: Mutex<BTreeMap<u32, Arc<Running>>>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    tag: Option<String>,
    config: Config,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    followers: Mutex<Followers>,
}

#[derive(Debug, Default)]
struct Followers {
    channels: Vec<mpsc::Sender<Event>>,
    end: Option<End>,
}

impl Running {
    fn follow(&self) -> mpsc::Receiver<Event> {
        let (send, receive) = mpsc::channel(WAITING);
        let mut followers = held(&self.followers);
        match followers.end {
            Some(end) => send.try_send(Event::End(end)).expect("the channel is new"),
            None => followers.channels.push(send),
        }
        receive
    }

    fn is_over(&self) -> bool {
        held(&self.followers).end.is_some()
    }

    /// Tells who follows. Who went, or does not read, follows no longer; where nobody does, it is lost.
    async fn tell(&self, event: Event) {
        let channels = held(&self.followers).channels.clone();
        for channel in channels {
            if !matches!(tokio::time::timeout(PATIENCE, channel.send(event.clone())).await, Ok(Ok(()))) {
                held(&self.followers).channels.retain(|other| !other.same_channel(&channel));
            }
        }
    }

    /// Reads to the end, whoever listens.
    async fn read(&self, kind: Kind, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; PIECE];
        loop {
            match pipe.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(length) => self.tell(Event::Data(kind, Bytes::copy_from_slice(&buffer[..length]))).await,
            }
        }
    }

    /// Lives as long as the process does.
    async fn attend(&self, mut child: Child, deadline: Option<Instant>) {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let is_killed = {
            let whole = async { tokio::join!(self.read(Kind::Stdout, out), self.read(Kind::Stderr, err)) };
            tokio::pin!(whole);
            tokio::select! {
                _ = &mut whole => false,
                () = passed(deadline) => {
                    _ = child.start_kill(); // It may have ended by itself.
                    whole.await;
                    true
                }
            }
        };
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = passed(deadline), if !is_killed => {
                _ = child.start_kill();
                child.wait().await
            }
        };
        let end = End(ended.unwrap_or_default());
        let channels = {
            let mut followers = held(&self.followers);
            followers.end = Some(end);
            std::mem::take(&mut followers.channels)
        };
        for channel in channels {
            _ = tokio::time::timeout(PATIENCE, channel.send(Event::End(end))).await; // Who does not read misses it.
        }
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Processes {
    pub(super) fn new(envs: BTreeMap<String, String>) -> Arc<Self> {
        Arc::new(Processes { envs, known: Mutex::default(), tasks: TaskTracker::new() })
    }

    /// Starts a process, which is killed at the deadline, and follows it from its first byte.
    pub(super) fn start(
        self: &Arc<Self>,
        start: Start,
        user: User,
        deadline: Option<Instant>,
    ) -> Result<(u32, mpsc::Receiver<Event>), Refusal> {
        if start.pty.is_some() {
            return Err(Refusal::new("unimplemented", "there are no terminals here"));
        }
        let mut child = self.spawn(&start, user)?;
        let pid = child.id().ok_or_else(|| Refusal::new("internal", "the process has no number"))?;
        let running = Arc::new(Running {
            pid,
            tag: start.tag,
            config: start.process,
            stdin: tokio::sync::Mutex::new(child.stdin.take()),
            followers: Mutex::default(),
        });
        let events = running.follow();
        held(&self.known).insert(pid, Arc::clone(&running));
        let processes = Arc::clone(self);
        self.tasks.spawn(async move {
            running.attend(child, deadline).await;
            tokio::time::sleep(REMEMBERED).await;
            let mut known = held(&processes.known);
            // Its number may be another's by now.
            if known.get(&pid).is_some_and(|now| Arc::ptr_eq(now, &running)) {
                known.remove(&pid);
            }
        });
        Ok((pid, events))
    }

    fn spawn(&self, start: &Start, user: User) -> Result<Child, Refusal> {
        let config = &start.process;
        let folder = user.path(config.cwd.as_deref().unwrap_or_default());
        if !folder.is_dir() {
            return Err(Refusal::invalid(format!("cwd '{}' does not exist", folder.display())));
        }
        #[expect(clippy::disallowed_methods, reason = "the machine's processes; the product's are elsewhere")]
        let mut command = Command::new(&config.cmd);
        command.args(&config.args).current_dir(&folder).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", user.home).env("USER", user.name).env("LOGNAME", user.name);
        command.envs(&self.envs).envs(&config.envs);
        command.stdin(if start.stdin == Some(false) { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if users::has_users() {
            command.uid(user.id).gid(user.id);
        }
        // SAFETY: setsid is async-signal-safe and touches no memory of ours.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        command.spawn().map_err(|error| {
            Refusal::invalid(format!("error starting process: fork/exec {}: {error}", Path::new(&config.cmd).display()))
        })
    }

    /// Those that run.
    pub(super) fn list(&self) -> Value {
        let known = held(&self.known);
        let running = known.values().filter(|running| !running.is_over());
        let listed = running.map(|running| {
            let mut value = json!({ "config": running.config, "pid": running.pid });
            if let Some(tag) = &running.tag {
                value["tag"] = json!(tag);
            }
            value
        });
        json!({ "processes": listed.collect::<Vec<_>>() })
    }

    /// Follows a process from now on; of one that ended a moment ago, the end.
    pub(super) fn follow(&self, selector: &Value) -> Result<(u32, mpsc::Receiver<Event>), Refusal> {
        let running = self.find(selector, true)?;
        Ok((running.pid, running.follow()))
    }

    pub(super) async fn write(&self, selector: &Value, bytes: &[u8]) -> Result<(), Refusal> {
        let running = self.find(selector, false)?;
        let mut stdin = running.stdin.lock().await;
        let refused = |words: String| Refusal::new("internal", format!("error writing to stdin: {words}"));
        let Some(pipe) = stdin.as_mut() else { return Err(refused("stdin not enabled or closed".to_owned())) };
        pipe.write_all(bytes).await.map_err(|error| refused(error.to_string()))
    }

    pub(super) async fn close(&self, selector: &Value) -> Result<(), Refusal> {
        let running = self.find(selector, false)?;
        let closed = running.stdin.lock().await.take();
        closed.map(drop).ok_or_else(|| Refusal::new("internal", "error closing stdin: stdin not enabled or closed"))
    }

    /// Signals the one process, none of its children.
    pub(super) fn signal(&self, selector: &Value, signal: i32) -> Result<(), Refusal> {
        let running = self.find(selector, false)?;
        let pid = i32::try_from(running.pid).map_err(|_| Refusal::invalid("no such number"))?;
        // SAFETY: kill takes numbers. The child is ours and not reaped: its end would be known.
        match unsafe { libc::kill(pid, signal) } {
            0 => Ok(()),
            _ => Err(Refusal::of(&std::io::Error::last_os_error(), "error sending signal")),
        }
    }

    fn find(&self, selector: &Value, even_ended: bool) -> Result<Arc<Running>, Refusal> {
        let known = held(&self.known);
        let is_meant = |running: &&Arc<Running>| even_ended || !running.is_over();
        let (found, name) = if let Some(tag) = selector["tag"].as_str() {
            let mut tagged = known.values().filter(|running| running.tag.as_deref() == Some(tag));
            (tagged.rfind(is_meant), format!("tag {tag}"))
        } else {
            let pid = selector["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            let pid = pid.ok_or_else(|| Refusal::invalid("no process was selected"))?;
            (known.get(&pid).filter(is_meant), format!("pid {pid}"))
        };
        found.cloned().ok_or_else(|| Refusal::not_found(format!("process with {name} not found")))
    }
}
