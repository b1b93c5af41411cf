//! The server: routes, pacing, and the memory of what was asked.

use std::{
    io::Read,
    net::SocketAddr,
    sync::Arc,
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
use serde_json::{Value, json};

use super::{
    answer::{Answer, Piece},
    api::Api,
    memory::{KeySeen, Memory, RequestSeen},
    scenario::{self, UsageServed},
};
use crate::serving::Serving;

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

/// A running server.
#[derive(Debug)]
pub struct ModelServer {
    serving: Serving,
    served: Arc<Served>,
}

#[derive(Debug)]
struct Served {
    memory: Memory,
    /// The pause after each streamed event.
    delay: Duration,
}

impl ModelServer {
    /// Starts a server on loopback with a free port.
    pub fn start() -> anyhow::Result<Self> {
        ModelServer::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> anyhow::Result<Self> {
        let served = Arc::new(Served { memory: Memory::new(options.echo), delay: options.delay });
        let router = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&served));
        Ok(ModelServer { serving: Serving::start("scripted-models", options.port, |_| router)?, served })
    }

    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// The base URL for an agent that speaks Anthropic's API; OpenAI's begin at `/v1` below it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The base URL with which every request follows `scenario`, unless a message names another.
    pub fn url_of(&self, scenario: &str) -> String {
        format!("{}/s/{scenario}", self.url())
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RequestSeen> {
        self.served.memory.requests()
    }

    /// The requests in which the agent asked the model to work.
    pub fn work(&self) -> Vec<RequestSeen> {
        self.requests().into_iter().filter(RequestSeen::is_work).collect()
    }

    /// The tokens that the agent's work was told to have consumed, in the answers that came to their end.
    pub fn usage_served(&self) -> UsageServed {
        self.work().into_iter().filter(|request| request.is_answered).filter_map(|request| request.usage).sum()
    }

    /// Waits until the server ends, that is for ever: for the program.
    pub fn wait(self) {
        self.serving.wait();
    }
}

async fn answer(
    State(served): State<Arc<Served>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = unpacked(&headers, &body);
    let (named, path) = split_scenario(uri.path());
    let api = Api::of_path(path).filter(|_| method == Method::POST);
    let conversation = api.map(|api| api.read(&body)).unwrap_or_default();
    let mut scenario = conversation.tag().or(named).unwrap_or("happy").to_owned();
    let seen = RequestSeen {
        number: 0,
        method: method.to_string(),
        path: uri.path().to_owned(),
        api,
        scenario: scenario.clone(),
        key: key_in(&headers),
        model: body["model"].as_str().map(str::to_owned),
        effort: api.and_then(|api| api.effort(&body)).map(str::to_owned),
        step: conversation.step,
        tools: conversation.tools.keys().cloned().collect(),
        said: conversation.said.clone(),
        messages: api.map_or(Value::Null, |api| api.turns(&body).clone()),
        usage: None,
        status: 200,
        is_answered: false,
    };
    let Some(api) = api else {
        let (status, value) = aside(&method, path);
        served.memory.remember(seen, |seen| seen.status = status);
        return json_response(status, &value, HeaderMap::new());
    };

    let is_work = seen.is_work();
    let earlier = served.memory.earlier(&format!("{} {scenario} {is_work}", named.unwrap_or_default()));
    if let Some(refusal) = scenario::refusal(&scenario, earlier, body["stream"] == true) {
        let status = refusal.status.unwrap_or_else(|| api.status(refusal.cause));
        served.memory.remember(seen, |seen| seen.status = status);
        let (value, headers) = api.refuse(&refusal, unix_seconds());
        return json_response(status, &value, headers);
    }
    // Side requests are not what a scenario is about: what is answered at all is answered at once, and well.
    if !is_work {
        scenario = "text".to_owned();
    }
    let tells_usage = api.tells_usage(&body);
    let seen = served.memory.remember(seen, |seen| {
        seen.usage = tells_usage.then(|| UsageServed::of_request(seen.number));
    });

    let steps = scenario::steps(&scenario);
    let step = &steps[conversation.step.min(steps.len() - 1)];
    let usage = UsageServed::of_request(seen.number);
    let (piece, pause) = if is_work { scenario::pace(&scenario, served.delay) } else { (12, Duration::ZERO) };
    let answer =
        Answer::new(&conversation, step, scenario::ending(&scenario), usage).to(api, &body).in_pieces_of(piece);
    if body["stream"] != true {
        served.memory.answered(seen.number);
        return json_response(200, &api.whole(&answer), HeaderMap::new());
    }
    let has_end = answer.has_end();
    let ended = move || {
        if has_end {
            served.memory.answered(seen.number)
        }
    };
    let mut response = streamed(api.stream(&answer), pause, ended);
    let (name, value) = api.request_id();
    response.headers_mut().insert(name, value);
    response
}

/// What is asked beside questions to the model.
fn aside(method: &Method, path: &str) -> (u16, Value) {
    if path.ends_with("/models") {
        // One list for all: what one API does not know of it overlooks.
        let model = json!({
            "id": "mock-model", "type": "model", "object": "model", "display_name": "Mock", "owned_by": "mock",
            "created": 1_735_689_600, "created_at": "2025-01-01T00:00:00Z",
        });
        return (200, json!({"object": "list", "data": [model], "models": [], "has_more": false}));
    }
    if method == Method::HEAD || path.ends_with("/count_tokens") {
        return (200, json!({"input_tokens": 1234}));
    }
    if method == Method::GET && path.ends_with("/responses") {
        // Codex asks for a WebSocket first, unless its settings say that there is none. This answer spares its attempts.
        let error = json!({"type": "invalid_request_error", "message": "mock: no WebSocket here", "code": null});
        return (426, json!({"error": error}));
    }
    let error = json!({"type": "not_found_error", "message": "mock: no such path", "param": null, "code": null});
    (404, json!({"type": "error", "error": error}))
}

/// Sends the pieces one by one, with a pause after each, and says when the last one goes.
fn streamed(pieces: Vec<Piece>, pause: Duration, ended: impl Fn() + Send + 'static) -> Response {
    let stream = stream::unfold((pieces.into_iter(), ended, false), move |(mut pieces, ended, is_begun)| async move {
        if is_begun && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let item: Result<Bytes, std::io::Error> = match pieces.next()? {
            Piece::Bytes(bytes) => Ok(bytes.into()),
            Piece::Break => Err(std::io::ErrorKind::ConnectionReset.into()),
            Piece::Silence => std::future::pending().await,
        };
        if pieces.len() == 0 {
            ended();
        }
        Some((item, (pieces, ended, true)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
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

/// The end of a limit is a date, and so is an answer's beginning.
pub(super) fn unix_seconds() -> u64 {
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
        assert_eq!(server.usage_served(), UsageServed::default(), "what was not answered told no usage");
        drop(server);
        let mut rest = Vec::new();
        _ = client.read_to_end(&mut rest); // It ends, by a reset or an end of file.
    }
}
