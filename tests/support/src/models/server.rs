//! The server: routes, pacing, and the memory of what was asked.

use std::{
    collections::HashMap,
    io::Read,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::Response,
};
use futures_util::stream;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    anthropic::{self, Answer, Piece},
    conversation::Conversation,
    scenario::{self, UsageServed},
};
use crate::serving::{Serving, held};

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// 0 takes a free one.
    pub port: u16,
    /// The pause after each streamed event, where the scenario has no pace of its own.
    pub delay: Duration,
    /// Prints a line of JSON per request: for a person who watches.
    pub echo: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { port: 0, delay: Duration::from_millis(4), echo: false }
    }
}

/// One request, as it came.
#[derive(Clone, Debug, Serialize)]
pub struct RequestSeen {
    pub number: usize,
    pub method: String,
    pub path: String,
    pub scenario: String,
    pub key: Option<KeySeen>,
    pub model: Option<String>,
    /// How many tool calls the agent had made since the newest message.
    pub step: usize,
    pub tools: usize,
    /// What the person wrote, oldest first.
    pub said: Vec<String>,
    /// The conversation as the agent sent it.
    pub messages: Value,
    /// The tokens the answer claims; none for an error.
    pub usage: Option<UsageServed>,
    pub status: u16,
}

impl RequestSeen {
    /// The agent's own requests for the model to work; side requests (titles, counts) bring no tools.
    pub fn is_work(&self) -> bool {
        self.tools > 0
    }
}

/// The key a request came with, and where it stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeySeen {
    pub header: String,
    pub value: String,
}

/// A running server.
#[derive(Debug)]
pub struct ModelServer {
    serving: Serving,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    options: Options,
    requests: Mutex<Vec<RequestSeen>>,
    /// Requests with tools per flaky base URL.
    flaky: Mutex<HashMap<String, usize>>,
}

impl ModelServer {
    /// Starts a server on loopback with a free port.
    pub fn start() -> anyhow::Result<Self> {
        ModelServer::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> anyhow::Result<Self> {
        let memory = Arc::new(Memory { options, requests: Mutex::default(), flaky: Mutex::default() });
        let router = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&memory));
        Ok(ModelServer { serving: Serving::start("scripted-models", options.port, |_| router)?, memory })
    }

    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// The base URL for an agent.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The base URL with which every request follows `scenario`, unless a message names another.
    pub fn url_of(&self, scenario: &str) -> String {
        format!("{}/s/{scenario}", self.url())
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RequestSeen> {
        held(&self.memory.requests).clone()
    }

    /// The requests in which the agent asked the model to work.
    pub fn work(&self) -> Vec<RequestSeen> {
        self.requests().into_iter().filter(RequestSeen::is_work).collect()
    }

    /// Waits until the server ends, that is for ever: for the program.
    pub fn wait(self) {
        self.serving.wait();
    }
}

impl Memory {
    fn remember(&self, mut request: RequestSeen) {
        let mut requests = held(&self.requests);
        request.number = requests.len() + 1;
        if self.options.echo {
            let mut line = json!(request);
            line["messages"] = request.messages.as_array().map_or(0, Vec::len).into();
            eprintln!("{line}");
        }
        requests.push(request);
    }

    /// Whether this request of a flaky model meets an overload: the first two do.
    fn is_overloaded(&self, place: &str) -> bool {
        let mut flaky = held(&self.flaky);
        let seen = flaky.entry(place.to_owned()).or_default();
        *seen += 1;
        *seen <= 2
    }
}

async fn answer(
    State(memory): State<Arc<Memory>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = unpacked(&headers, &body);
    let (named, path) = split_scenario(uri.path());
    let conversation = Conversation::read(&body);
    let mut scenario = conversation.tag().or(named).unwrap_or("happy").to_owned();
    let mut seen = RequestSeen {
        number: 0,
        method: method.to_string(),
        path: uri.path().to_owned(),
        scenario: scenario.clone(),
        key: key_in(&headers),
        model: body["model"].as_str().map(str::to_owned),
        step: conversation.step,
        tools: conversation.tools.len(),
        said: conversation.said.clone(),
        messages: body["messages"].clone(),
        usage: None,
        status: 200,
    };

    if method == Method::HEAD || path.ends_with("/count_tokens") || path.ends_with("/models") {
        memory.remember(seen);
        let model =
            json!({"id": "mock-model", "type": "model", "display_name": "Mock", "created_at": "2025-01-01T00:00:00Z"});
        let value = match path.ends_with("/models") {
            true => json!({"data": [model], "has_more": false}),
            false => json!({"input_tokens": 1234}),
        };
        return json_response(200, &value, HeaderMap::new());
    }
    if method != Method::POST || !path.ends_with("/messages") {
        seen.status = 404;
        memory.remember(seen);
        let error = json!({"type": "not_found_error", "message": "mock: no such path"});
        return json_response(404, &json!({"type": "error", "error": error}), HeaderMap::new());
    }

    let has_tools = !conversation.tools.is_empty();
    if scenario == "flaky" && has_tools && memory.is_overloaded(named.unwrap_or("flaky")) {
        scenario = "e529".to_owned();
    }
    if let Some(refusal) = scenario::refusal(&scenario) {
        seen.status = refusal.status;
        memory.remember(seen);
        let (value, headers) = anthropic::refuse(refusal, unix_seconds());
        return json_response(refusal.status, &value, headers);
    }
    let usage = UsageServed::of_step(conversation.step);
    seen.usage = Some(usage);
    memory.remember(seen);

    let steps = scenario::steps(&scenario);
    let step = &steps[conversation.step.min(steps.len() - 1)];
    let answer = Answer::new(&body, &conversation, step, usage);
    if body["stream"] != true {
        return json_response(200, &answer.whole(), HeaderMap::new());
    }
    // Side requests are not what a scenario is about: they are answered at once.
    let (piece, pause) = if has_tools { scenario::pace(&scenario, memory.options.delay) } else { (12, Duration::ZERO) };
    let pieces = match scenario.as_str() {
        "hang" if has_tools => vec![Piece::Silence],
        scenario => answer.events(if has_tools { scenario } else { "text" }, piece),
    };
    streamed(pieces, pause)
}

/// Sends the pieces one by one, with a pause after each.
fn streamed(pieces: Vec<Piece>, pause: Duration) -> Response {
    let stream = stream::unfold((pieces.into_iter(), false), move |(mut pieces, is_begun)| async move {
        if is_begun && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let item: Result<Bytes, std::io::Error> = match pieces.next()? {
            Piece::Event(name, value) => Ok(format!("event: {name}\ndata: {value}\n\n").into()),
            Piece::Drop => Err(std::io::ErrorKind::ConnectionReset.into()),
            Piece::Silence => std::future::pending().await,
        };
        Some((item, (pieces, true)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
    headers.insert("request-id", header::HeaderValue::from_static("req_mock"));
    response
}

fn json_response(status: u16, value: &Value, headers: HeaderMap) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).expect("scenarios use valid codes");
    *response.headers_mut() = headers;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// `/s/NAME/rest` is the scenario NAME and `/rest`.
fn split_scenario(path: &str) -> (Option<&str>, &str) {
    let Some((name, rest)) = path.strip_prefix("/s/").and_then(|path| path.split_once('/')) else {
        return (None, path);
    };
    (Some(name), &path[path.len() - rest.len() - 1..])
}

fn unpacked(headers: &HeaderMap, body: &Bytes) -> Value {
    let is_packed = headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let mut bytes = Vec::new();
    let read = if is_packed { flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut bytes).is_ok() } else { false };
    serde_json::from_slice(if read { &bytes } else { body }).unwrap_or(Value::Null)
}

fn key_in(headers: &HeaderMap) -> Option<KeySeen> {
    ["x-api-key", "authorization"].into_iter().find_map(|name| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(KeySeen { header: name.to_owned(), value: value.strip_prefix("Bearer ").unwrap_or(value).to_owned() })
    })
}

/// The end of a limit is a date.
fn unix_seconds() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenario_is_the_head_of_the_path() {
        assert_eq!(split_scenario("/s/happy/v1/messages"), (Some("happy"), "/v1/messages"));
        assert_eq!(split_scenario("/v1/messages"), (None, "/v1/messages"));
    }

    #[tokio::test]
    async fn a_server_starts_within_a_runtime_too() {
        let server = ModelServer::start().unwrap();
        assert!(tokio::net::TcpStream::connect(server.address()).await.is_ok());
    }

    #[test]
    fn a_server_ends_with_its_value_even_while_a_client_waits_in_silence() {
        let server = ModelServer::start().unwrap();
        let mut client = std::net::TcpStream::connect(server.address()).unwrap();
        let body =
            r#"{"stream":true,"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"[[scenario:hang]]"}]}"#;
        let head = format!("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        std::io::Write::write_all(&mut client, head.as_bytes()).unwrap();
        let mut first = [0; 12];
        client.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200", "the headers come, then nothing");
        assert_eq!(server.work()[0].scenario, "hang");
        drop(server);
        let mut rest = Vec::new();
        _ = client.read_to_end(&mut rest); // It ends, by a reset or an end of file.
    }
}
