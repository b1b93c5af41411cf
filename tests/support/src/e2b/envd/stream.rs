//! Framing of streams: one byte of flags, the length in four, JSON.

use std::{collections::VecDeque, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{process::Event, refusal::Refusal};

/// What marks the last frame of a stream.
pub(in crate::e2b) const END: u8 = 0x02;
/// What precedes a frame's JSON.
pub(in crate::e2b) const HEAD: usize = 5;
/// A message is no file.
const LARGEST: usize = 4 << 20;

pub(super) fn frame(flags: u8, value: &Value) -> Bytes {
    let text = value.to_string();
    let mut bytes = Vec::with_capacity(HEAD + text.len());
    bytes.push(flags);
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// The message of a request that opens a stream: a single frame.
pub(super) async fn message(request: Request) -> Result<Value, Refusal> {
    let body = axum::body::to_bytes(request.into_body(), LARGEST).await;
    let body = body.map_err(|_| Refusal::new("resource_exhausted", "the message is too large"))?;
    let Some((head, rest)) = body.split_first_chunk::<HEAD>() else {
        return Err(Refusal::invalid("protocol error: incomplete envelope"));
    };
    let [flags, length @ ..] = *head;
    if flags & 1 != 0 {
        return Err(Refusal::new("unimplemented", "compressed messages are not supported"));
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let text = rest.get(..length).ok_or_else(|| Refusal::invalid("protocol error: promised more than was sent"))?;
    serde_json::from_slice(text).map_err(|error| Refusal::invalid(format!("unmarshal message: {error}")))
}

/// How an answer's stream is paced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long it may be silent before a sign of life.
    pub(super) keepalive: Duration,
    /// When it ends, whatever comes.
    pub(super) deadline: Option<Instant>,
}

/// A stream that is refused: the protocol says so in its last frame.
pub(super) fn refused(refusal: &Refusal) -> Response {
    response(Body::from(frame(END, &json!({ "error": refusal.value() }))))
}

struct Following {
    events: mpsc::Receiver<Event>,
    /// What goes out before the next event.
    ready: VecDeque<Bytes>,
    is_over: bool,
    pace: Pace,
}

/// The stream of a process's events.
pub(super) fn events(pid: u32, events: mpsc::Receiver<Event>, pace: Pace) -> Response {
    let start = frame(0, &json!({ "event": { "start": { "pid": pid } } }));
    let following = Following { events, ready: VecDeque::from([start]), is_over: false, pace };
    let frames = stream::unfold(following, async |mut following| {
        let next = following.next().await?;
        Some((Ok::<_, std::convert::Infallible>(next), following))
    });
    response(Body::from_stream(frames))
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.ready.pop_front() {
            return Some(frame);
        }
        if self.is_over {
            return None;
        }
        let keepalive = tokio::time::sleep(self.pace.keepalive);
        let deadline = async {
            match self.pace.deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.events.recv() => Some(self.told(event)),
            () = deadline => Some(self.over(&json!({ "error": Refusal::new("deadline_exceeded", "context deadline exceeded").value() }))),
            () = keepalive => Some(frame(0, &json!({ "event": { "keepalive": {} } }))),
        }
    }

    fn told(&mut self, event: Option<Event>) -> Bytes {
        match event {
            Some(Event::Data(kind, bytes)) => {
                frame(0, &json!({ "event": { "data": { kind.name(): STANDARD.encode(bytes) } } }))
            }
            Some(Event::End(end)) => {
                let over = self.over(&json!({}));
                self.ready.push_back(over);
                frame(0, &json!({ "event": { "end": end.value() } }))
            }
            // We were too slow, and have been left behind.
            None => {
                self.over(&json!({ "error": Refusal::new("resource_exhausted", "the stream was not read").value() }))
            }
        }
    }

    fn over(&mut self, end: &Value) -> Bytes {
        self.is_over = true;
        frame(END, end)
    }
}

fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
