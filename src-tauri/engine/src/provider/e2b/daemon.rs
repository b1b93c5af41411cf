//! The daemon of one machine (`envd`): processes over Connect streams, files over HTTP.
//!
//! A process that is started here belongs to the daemon, not to the connection: whoever goes away does not end it, and what
//! it prints while nobody listens is lost. That is why turns write to a spool, and this is only the way there.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    account::DAEMON_PORT,
    api::{again, encoded, sent},
    error::Failure,
    frames::{Decoder, Frame, encode},
};
use crate::{net, secrets::Secret};

/// How long a single answer may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a part of a file may take.
const FILE_LIMIT: Duration = Duration::from_secs(120);
/// How often the daemon is asked to show that it is there, in seconds.
const PING: &str = "50";
/// A stream that shows nothing for this long is dead, whatever the connection says.
const SILENCE: Duration = Duration::from_secs(120);
/// The most of a process's input that travels at once.
const INPUT: usize = 1 << 20;
/// The most that is kept of what a short command prints.
const PRINTED: usize = 16 << 20;

/// Whose rights something is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The machine's own: what the agent may not touch.
    Root,
    /// The agent's.
    Agent,
}

impl User {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Agent => "user",
        }
    }
}

/// The daemon of a machine.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub client: Client,
    pub machine: String,
    /// Where it answers, without a slash at its end.
    pub address: String,
    pub token: Option<Secret>,
}

/// What a process does.
#[derive(Debug)]
pub(super) enum Happened {
    Started { pid: u32 },
    Out(Vec<u8>),
    Err(Vec<u8>),
    Ended(Ended),
}

/// How a process ended, as the daemon tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    #[serde(default)]
    pub exit_code: i32,
    #[serde(default)]
    pub exited: bool,
    #[serde(default)]
    pub status: String,
}

/// What a short command printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub ended: Ended,
}

impl Daemon {
    fn request(&self, method: Method, path: &str, user: User) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.address))
            .header("E2b-Sandbox-Id", &self.machine)
            .header("E2b-Sandbox-Port", DAEMON_PORT)
            .basic_auth(user.name(), Some(""));
        match &self.token {
            Some(token) => request.header("X-Access-Token", token.expose()),
            None => request,
        }
    }

    async fn call(&self, method: &str, user: User, message: &impl Serialize) -> Result<Value, Failure> {
        let body = serde_json::to_vec(message).map_err(|error| Failure::Unknown(error.to_string()))?;
        let request = self
            .request(Method::POST, &format!("/{method}"), user)
            .timeout(LIMIT)
            .header("Connect-Protocol-Version", "1")
            .header("Content-Type", "application/json")
            .body(body);
        let response = request.send().await.map_err(|error| Failure::of(&error))?;
        let status = response.status();
        let (body, _) = net::body(response, 1 << 20).await.map_err(|error| Failure::of(&error))?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| Failure::Unknown("the daemon's answer is none".to_owned()));
        }
        // The daemon's own words have a code that is one; somebody's in between have a number, or none.
        match serde_json::from_slice::<Value>(&body) {
            Ok(told) if told["code"].is_string() => {
                let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
                Err(super::frames::ConnectError { code: text("code"), message: text("message") }.into())
            }
            _ => Err(Failure::answered(status.as_u16(), None, &body)),
        }
    }

    /// Whether it answers.
    pub(super) async fn is_healthy(&self) -> Result<(), Failure> {
        sent(self.request(Method::GET, "/health", User::Root).timeout(LIMIT)).await.map(drop)
    }

    /// Starts a process. It is not ended by a deadline, nor by our going away.
    pub(super) async fn start(&self, user: User, argv: &[&str], has_input: bool) -> Result<Events, Failure> {
        let [program, arguments @ ..] = argv else { return Err(Failure::Unknown("no program was named".to_owned())) };
        let message = json!({
            "process": { "cmd": program, "args": arguments },
            "stdin": has_input,
        });
        let body = encode(message.to_string().as_bytes());
        let request = self
            .request(Method::POST, "/process.Process/Start", user)
            .header("Connect-Protocol-Version", "1")
            .header("Content-Type", "application/connect+json")
            .header("Keepalive-Ping-Interval", PING)
            .body(body);
        let response = timeout(LIMIT, sent(request)).await.map_err(|_| no_answer())??;
        Ok(Events { response, decoder: Decoder::default(), has_ended: false })
    }

    /// What a process reads; all of it, and then its end.
    pub(super) async fn feed(&self, user: User, pid: u32, bytes: &[u8]) -> Result<(), Failure> {
        let process = json!({ "pid": pid });
        for part in bytes.chunks(INPUT) {
            let message = json!({ "process": process, "input": { "stdin": BASE64_STANDARD.encode(part) } });
            self.call("process.Process/SendInput", user, &message).await?;
        }
        self.call("process.Process/CloseStdin", user, &json!({ "process": process })).await.map(drop)
    }

    /// Runs a short command to its end, and again where that could not be heard: it must do no harm twice.
    pub(super) async fn run_again(&self, user: User, argv: &[&str], limit: Duration) -> Result<Printed, Failure> {
        again(|| self.run(user, argv, limit)).await
    }

    async fn run(&self, user: User, argv: &[&str], limit: Duration) -> Result<Printed, Failure> {
        let running = async {
            let mut events = self.start(user, argv, false).await?;
            let (mut out, mut err) = (Vec::new(), Vec::new());
            loop {
                match events.next().await? {
                    Some(Happened::Started { .. }) => {}
                    Some(Happened::Out(bytes)) => keep(&mut out, &bytes),
                    Some(Happened::Err(bytes)) => keep(&mut err, &bytes),
                    Some(Happened::Ended(ended)) => return Ok(Printed { out, err, ended }),
                    None => return Err(Failure::Unknown("its stream ended before the command did".to_owned())),
                }
            }
        };
        timeout(limit, running).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Whether something lies at a path, and how long it is.
    pub(super) async fn stat(&self, path: &str) -> Result<Option<u64>, Failure> {
        let asked = json!({ "path": path });
        match again(|| self.call("filesystem.Filesystem/Stat", User::Root, &asked)).await {
            Ok(found) => {
                let size = &found["entry"]["size"];
                // 64-bit numbers are texts in this codec; a daemon may leave zeroes out.
                let size = size.as_u64().or_else(|| size.as_str()?.parse().ok());
                Ok(Some(size.unwrap_or(0)))
            }
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Writes a file, whole.
    pub(super) async fn write(&self, user: User, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        const BOUNDARY: &str = "courier-8f6b1c";
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"part\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        let body = [head.as_bytes(), bytes, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
        let at = format!("/files?path={}&username={}", encoded(path), user.name());
        again(|| {
            let request = self.request(Method::POST, &at, user).timeout(FILE_LIMIT);
            let kind = format!("multipart/form-data; boundary={BOUNDARY}");
            let writing = sent(request.header("Content-Type", kind).body(body.clone()));
            async move { writing.await.map(drop) }
        })
        .await
    }

    /// A file's contents, as they come.
    pub(super) async fn read(&self, user: User, path: &str) -> Result<Response, Failure> {
        let at = format!("/files?path={}&username={}", encoded(path), user.name());
        timeout(LIMIT, sent(self.request(Method::GET, &at, user))).await.map_err(|_| no_answer())?
    }

    /// A short file's contents.
    pub(super) async fn read_short(&self, path: &str) -> Result<Vec<u8>, Failure> {
        again(|| async {
            let response = self.read(User::Root, path).await?;
            let (bytes, _) = net::body(response, 1 << 20).await.map_err(|error| Failure::of(&error))?;
            Ok(bytes)
        })
        .await
    }
}

/// What a process does, as it is told.
#[derive(Debug)]
pub(super) struct Events {
    response: Response,
    decoder: Decoder,
    has_ended: bool,
}

impl Events {
    /// The next; `None`: it has ended, and that was told. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Happened>, Failure> {
        loop {
            while let Some(frame) = self.decoder.next()? {
                match frame {
                    Frame::End if self.has_ended => return Ok(None),
                    Frame::End => return Err(Failure::Unknown("its stream ended too early".to_owned())),
                    Frame::Message(json) => {
                        if let Some(happened) = happened(&json)? {
                            self.has_ended |= matches!(happened, Happened::Ended(_));
                            return Ok(Some(happened));
                        }
                    }
                }
            }
            match timeout(SILENCE, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.decoder.push(&bytes),
                Ok(Ok(None)) if self.has_ended => return Ok(None),
                Ok(Ok(None)) => return Err(Failure::Unknown("its stream was cut".to_owned())),
                Ok(Err(error)) => return Err(Failure::of(&error)),
                Err(_) => return Err(Failure::Unknown("its stream fell silent".to_owned())),
            }
        }
    }
}

/// One event; `None` for what means nothing here.
fn happened(json: &[u8]) -> Result<Option<Happened>, Failure> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        event: Event,
    }
    #[derive(Default, Deserialize)]
    struct Event {
        start: Option<Start>,
        data: Option<Data>,
        end: Option<Ended>,
    }
    #[derive(Deserialize)]
    struct Start {
        #[serde(default)]
        pid: u32,
    }
    #[derive(Deserialize)]
    struct Data {
        stdout: Option<String>,
        stderr: Option<String>,
    }
    let garbled = || Failure::Unknown("an event of its stream is none".to_owned());
    let Message { event } = serde_json::from_slice(json).map_err(|_| garbled())?;
    let bytes = |text: String| BASE64_STANDARD.decode(text).map_err(|_| garbled());
    Ok(match event {
        Event { start: Some(start), .. } => Some(Happened::Started { pid: start.pid }),
        Event { end: Some(ended), .. } => Some(Happened::Ended(ended)),
        Event { data: Some(Data { stdout: Some(text), .. }), .. } => Some(Happened::Out(bytes(text)?)),
        Event { data: Some(Data { stderr: Some(text), .. }), .. } => Some(Happened::Err(bytes(text)?)),
        Event { .. } => None,
    })
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = PRINTED.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn no_answer() -> Failure {
    Failure::Unknown("no answer in time".to_owned())
}
