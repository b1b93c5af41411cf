//! The daemon within a machine: processes and files over HTTP, on a unix socket that the server connects to.
//!
//! It runs on one thread and holds no pool: a machine shall cost little. Whoever starts it writes one line of JSON to its
//! standard input ([`Settings`]) and reads one byte from its standard output once it listens.

mod download;
mod filesystem;
mod multipart;
mod process;
mod refusal;
mod rpc;
mod stream;
mod upload;
mod users;

use std::{
    collections::BTreeMap,
    io::{BufRead, Write},
    path::Path,
    sync::Arc,
};

use anyhow::Context;
use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

pub(super) use self::stream::{END, HEAD};
use self::{process::Processes, refusal::Refusal};

/// Where the daemon listens, within the machine's `/run`.
pub(super) const SOCKET: &str = "envd.sock";

/// What the daemon is told when it starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Settings {
    /// What every request must bring as `X-Access-Token`.
    pub(super) token: String,
    /// What every process finds in its environment.
    pub(super) envs: BTreeMap<String, String>,
}

/// The daemon's state.
struct Daemon {
    token: String,
    processes: Arc<Processes>,
}

/// Serves on the socket of this folder until the machine is killed: the program `e2b-envd`.
pub fn run(folder: &Path) -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let settings: Settings = serde_json::from_str(&line).context("the first line is no settings")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = UnixListener::bind(folder.join(SOCKET)).context("could not listen")?;
        let mut out = std::io::stdout().lock();
        out.write_all(b"\n").and_then(|()| out.flush())?;
        drop(out);
        let daemon = Arc::new(Daemon { token: settings.token, processes: Processes::new(settings.envs) });
        let answer = move |request| {
            let daemon = Arc::clone(&daemon);
            async move { daemon.answer(request).await }
        };
        axum::serve(listener, Router::new().fallback(answer).layer(DefaultBodyLimit::disable())).await?;
        Ok(())
    })
}

impl Daemon {
    async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        if path == "/health" {
            return empty(StatusCode::NO_CONTENT);
        }
        if header(request.headers(), "x-access-token") != Some(&self.token) {
            return plain_error(401, "unauthorized access, please provide a valid access token");
        }
        if path == "/files" {
            return match request.method().as_str() {
                "GET" | "HEAD" => download::answer(&request),
                "POST" => upload::answer(request).await,
                _ => plain_error(405, "method not allowed"),
            };
        }
        if let Some(name) = path.strip_prefix("/process.Process/") {
            return rpc::process(&self.processes, name, request).await;
        }
        if let Some(name) = path.strip_prefix("/filesystem.Filesystem/") {
            return rpc::filesystem(name, request).await;
        }
        plain_error(404, "404 page not found")
    }
}

/// A header's text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The value of a query's field.
fn query(request: &Request, name: &str) -> Option<String> {
    let fields = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    fields.into_iter().find(|(field, _)| field == name).map(|(_, value)| value.into_owned())
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An error as plain HTTP tells it, for files.
fn plain_error(status: u16, message: &str) -> Response {
    let value = serde_json::json!({ "code": status, "message": message });
    super::answers::json(status, &value)
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        refusal.unary()
    }
}
