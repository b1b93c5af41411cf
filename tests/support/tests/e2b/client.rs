//! A client that hides nothing: every byte, every broken connection.

use std::time::Duration;

use axum::body::{Body, Bytes};
use base64::{Engine, engine::general_purpose::STANDARD};
use courier_test_support::e2b::E2bServer;
use futures_util::StreamExt;
use hyper::{HeaderMap, Request, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

/// How long an answer may take that is to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer is waited for that is not to come.
const SILENCE: Duration = Duration::from_millis(400);

/// An answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

/// How an answer's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Broken,
    Silent,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The whole frames that came, and how many bytes of another.
    pub(crate) fn frames(&self) -> (Vec<(u8, Value)>, usize) {
        let (mut frames, mut rest) = (Vec::new(), &self.body[..]);
        while let Some(([flags, length @ ..], more)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(text) = more.get(..length) else { break };
            frames.push((*flags, serde_json::from_slice(text).expect("a frame holds JSON")));
            rest = &more[length..];
        }
        (frames, rest.len())
    }

    /// What a process printed.
    pub(crate) fn printed(&self) -> String {
        let pieces = self.frames().0.into_iter().filter_map(|(_, value)| {
            let data = value["event"]["data"].as_object()?.values().next()?.as_str()?.to_owned();
            STANDARD.decode(data).ok()
        });
        String::from_utf8(pieces.flatten().collect()).expect("it prints text")
    }
}

/// A machine's id and what opens it.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) token: String,
}

/// Speaks to one server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) key: String,
}

/// A request's headers.
type Headers<'a> = &'a [(&'a str, &'a str)];

impl Client {
    pub(crate) fn of(server: &E2bServer) -> Self {
        Client { address: server.url().trim_start_matches("http://").to_owned(), key: server.key().to_owned() }
    }

    /// Sends one request on a connection of its own.
    async fn open(
        &self,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: Body,
    ) -> anyhow::Result<hyper::Response<Incoming>> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        TaskTracker::new().spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", &self.address);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Ok(sender.send_request(request.body(body)?).await?)
    }

    /// The answer, or that there was none: the connection broke, or (`None`) nothing came.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: impl Into<Body>,
        silence: Duration,
    ) -> anyhow::Result<Option<Answer>> {
        let Ok(opened) = tokio::time::timeout(silence, self.open(method, path, headers, body.into())).await else {
            return Ok(None);
        };
        let (head, body) = opened?.into_parts();
        let mut pieces = Body::new(body).into_data_stream();
        let mut answer = Answer { status: head.status.as_u16(), headers: head.headers, body: vec![], end: End::Whole };
        loop {
            match tokio::time::timeout(silence, pieces.next()).await {
                Ok(Some(Ok(piece))) => {
                    answer.body.extend_from_slice(&piece);
                    continue;
                }
                Ok(Some(Err(_))) => answer.end = End::Broken,
                Err(_) => answer.end = End::Silent,
                Ok(None) => {}
            }
            return Ok(Some(answer));
        }
    }

    /// A request of the control plane.
    pub(crate) async fn control(&self, method: &str, path: &str, body: Value) -> anyhow::Result<Answer> {
        self.control_with(method, path, &[], body).await
    }

    pub(crate) async fn control_with(
        &self,
        method: &str,
        path: &str,
        more: Headers<'_>,
        body: Value,
    ) -> anyhow::Result<Answer> {
        let headers = [&[("x-api-key", self.key.as_str()), ("content-type", "application/json")], more].concat();
        let answer = self.ask(method, path, &headers, body.to_string(), PATIENCE).await?;
        answer.ok_or_else(|| anyhow::anyhow!("there was no answer"))
    }

    pub(crate) async fn create(&self) -> Sandbox {
        self.create_with(json!({ "templateID": "base", "timeout": 300 })).await
    }

    pub(crate) async fn create_with(&self, body: Value) -> Sandbox {
        let answer = self.control("POST", "/v2/sandboxes", body).await.expect("the server answers");
        assert_eq!(answer.status, 201, "{}", answer.json());
        Sandbox::of(&answer.json())
    }

    pub(crate) async fn state(&self, sandbox: &Sandbox) -> Option<String> {
        let answer =
            self.control("GET", &format!("/sandboxes/{}", sandbox.id), Value::Null).await.expect("the server answers");
        answer.json()["state"].as_str().map(str::to_owned)
    }

    /// A request to a machine.
    pub(crate) async fn within(
        &self,
        sandbox: &Sandbox,
        method: &str,
        path: &str,
        more: Headers<'_>,
        body: impl Into<Body>,
        silence: Duration,
    ) -> anyhow::Result<Option<Answer>> {
        let own =
            [("e2b-sandbox-id", &*sandbox.id), ("e2b-sandbox-port", "49983"), ("x-access-token", &*sandbox.token)];
        self.ask(method, path, &[&own[..], more].concat(), body, silence).await
    }

    /// A single call of the daemon.
    pub(crate) async fn call(&self, sandbox: &Sandbox, path: &str, message: Value) -> anyhow::Result<Answer> {
        let kind = [("content-type", "application/json")];
        let answer = self.within(sandbox, "POST", path, &kind, message.to_string(), PATIENCE).await?;
        answer.ok_or_else(|| anyhow::anyhow!("there was no answer"))
    }

    /// A call that is answered by a stream, read until it ends or falls silent.
    pub(crate) async fn stream(
        &self,
        sandbox: &Sandbox,
        call: &str,
        more: Headers<'_>,
        message: Value,
    ) -> anyhow::Result<Answer> {
        self.patient_stream(sandbox, call, more, message, SILENCE).await
    }

    /// The same with another idea of silence.
    pub(crate) async fn patient_stream(
        &self,
        sandbox: &Sandbox,
        call: &str,
        more: Headers<'_>,
        message: Value,
        silence: Duration,
    ) -> anyhow::Result<Answer> {
        let headers = [&[("content-type", "application/connect+json")], more].concat();
        let path = format!("/process.Process/{call}");
        let answer = self.within(sandbox, "POST", &path, &headers, framed(&message), silence).await?;
        answer.ok_or_else(|| anyhow::anyhow!("there was no answer"))
    }

    /// Runs a line of shell, as long as it says something now and then.
    pub(crate) async fn run(&self, sandbox: &Sandbox, line: &str) -> anyhow::Result<Answer> {
        self.stream(sandbox, "Start", &[], shell(line)).await
    }
}

impl Sandbox {
    pub(crate) fn of(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().expect("a sandbox has it").to_owned();
        Sandbox { id: text("sandboxID"), token: text("envdAccessToken") }
    }
}

/// A line of shell as a process to start.
pub(crate) fn shell(line: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-c", line] }, "stdin": false })
}

fn framed(message: &Value) -> Bytes {
    let text = message.to_string();
    let length = u32::try_from(text.len()).expect("a message is short").to_be_bytes();
    [&[0], &length[..], text.as_bytes()].concat().into()
}
