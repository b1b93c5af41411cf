//! The calls of the Connect protocol, with JSON.

use std::{sync::Arc, time::Duration};

use axum::{extract::Request, http::HeaderMap, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    filesystem, header, plain_error,
    process::{Processes, Start},
    refusal::Refusal,
    stream::{self, Pace},
    users::User,
};
use crate::e2b::answers;

/// What a single request may weigh: input for a process, above all.
const LARGEST: usize = 64 << 20;
/// How often a silent stream gives a sign of life where nobody says how often.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// A call of `process.Process`.
pub(super) async fn process(processes: &Arc<Processes>, name: &str, request: Request) -> Response {
    if matches!(name, "Start" | "Connect") {
        return if header(request.headers(), "content-type") == Some("application/connect+json") {
            follow(processes, name == "Start", request).await
        } else {
            plain_error(415, "unsupported media type")
        };
    }
    let done = async {
        let message = message(request).await?;
        let selector = &message["process"];
        match name {
            "List" => return Ok(processes.list()),
            "SendInput" => processes.write(selector, &input(&message["input"])?).await?,
            "CloseStdin" => processes.close(selector).await?,
            "SendSignal" => processes.signal(selector, signal(&message["signal"])?)?,
            "Update" => return Err(Refusal::new("unimplemented", "there are no terminals here")),
            _ => return Err(Refusal::new("unimplemented", format!("there is no call {name}"))),
        }
        Ok(json!({}))
    };
    answered(done.await)
}

/// A call of `filesystem.Filesystem`.
pub(super) async fn filesystem(name: &str, request: Request) -> Response {
    if name == "WatchDir" {
        return stream::refused(&Refusal::new("unimplemented", "folders are not watched here"));
    }
    let done = async {
        let user = User::of(request.headers())?;
        let message = message(request).await?;
        let path = |field: &str| message[field].as_str().map(|path| user.path(path));
        let given = |field: &str| path(field).ok_or_else(|| Refusal::invalid(format!("{field} is required")));
        match name {
            "Stat" => filesystem::stat(&given("path")?),
            "ListDir" => {
                // Numbers may come as text; a depth of none is one.
                let depth = &message["depth"];
                let depth = depth.as_u64().or_else(|| depth.as_str()?.parse().ok()).unwrap_or(1).max(1);
                filesystem::list(&path("path").unwrap_or_else(|| user.path("")), depth)
            }
            "MakeDir" => filesystem::make(&given("path")?, user),
            "Move" => filesystem::rename(&given("source")?, &given("destination")?, user),
            "Remove" => filesystem::remove(&given("path")?),
            _ => Err(Refusal::new("unimplemented", format!("there is no call {name}"))),
        }
    };
    answered(done.await)
}

fn answered(done: Result<Value, Refusal>) -> Response {
    match done {
        Ok(value) => answers::json(200, &value),
        Err(refusal) => refusal.unary(),
    }
}

async fn message(request: Request) -> Result<Value, Refusal> {
    let body = axum::body::to_bytes(request.into_body(), LARGEST).await;
    let body = body.map_err(|_| Refusal::new("resource_exhausted", "the message is too large"))?;
    serde_json::from_slice(&body).map_err(|error| Refusal::invalid(format!("unmarshal message: {error}")))
}

async fn follow(processes: &Arc<Processes>, is_start: bool, request: Request) -> Response {
    let pace = pace(request.headers());
    let begun = async {
        let user = User::of(request.headers())?;
        let message = stream::message(request).await?;
        if is_start {
            let start = serde_json::from_value::<Start>(message);
            let start = start.map_err(|error| Refusal::invalid(format!("unmarshal message: {error}")))?;
            processes.start(start, user, pace.deadline)
        } else {
            processes.follow(&message["process"])
        }
    };
    match begun.await {
        Ok((pid, events)) => stream::events(pid, events, pace),
        Err(refusal) => stream::refused(&refusal),
    }
}

fn pace(headers: &HeaderMap) -> Pace {
    let number = |name: &str| header(headers, name)?.parse::<u64>().ok().filter(|number| *number > 0);
    let keepalive = number("keepalive-ping-interval").map_or(KEEPALIVE, Duration::from_secs);
    let deadline = number("connect-timeout-ms").and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
    Pace { keepalive, deadline }
}

fn input(input: &Value) -> Result<Vec<u8>, Refusal> {
    let text = input["stdin"].as_str().ok_or_else(|| Refusal::invalid("there is no input for stdin"))?;
    STANDARD.decode(text).map_err(|error| Refusal::invalid(format!("invalid base64: {error}")))
}

/// Enumerations come by name or by number.
fn signal(signal: &Value) -> Result<i32, Refusal> {
    match (signal.as_str(), signal.as_i64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Ok(libc::SIGKILL),
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Ok(libc::SIGTERM),
        _ => Err(Refusal::invalid(format!("invalid signal: {signal}"))),
    }
}
