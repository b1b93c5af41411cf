//! What the gateway adds to a request: the same client asks the same model directly, and from inside a sandbox through
//! the gateway; plain and over TLS. Prints a line of JSON per figure.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails; figures are its output"
)]

#[path = "../tests/keeper/model.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod model;
#[path = "../tests/keeper/support.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use courier_keeper::protocol::Network;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject},
};

use model::{Model, TOKEN, say};
use support::Draft;

/// Requests per measurement, after some that do not count.
const REQUESTS: usize = 500;
const WARMING: usize = 20;

/// About what an agent sends after a few steps.
const BODY: usize = 64 << 10;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, asking, port] = words.as_slice()
        && asking == "ask"
    {
        println!("{}", micros(&measured(port.parse().unwrap(), None)));
        return;
    }
    let mut draft = Draft::new();
    draft.spec.network = Network::None;
    let own = draft.place().join("bench");
    std::fs::copy(std::env::current_exe().unwrap(), &own).unwrap();
    draft.spec.read_only = vec![own.clone()];
    let authority = draft.place().join("authority.pem");
    let answer =
        |_: &model::Request, connection: &mut dyn model::Connection| say(connection, "200 OK", "", "{\"ok\":1}");
    let (plain, secured) = (Model::start(answer), Model::start_with_tls(&authority, answer));
    draft.trust(authority.clone());
    let sandbox = draft.start();
    for (name, model, trust) in [("plain", &plain, None), ("tls", &secured, Some(authority))] {
        let direct = micros(&measured(model.port, trust));
        let script = format!("{} ask 17982", own.display());
        let ended = sandbox.end(&sandbox.begin_at_model(&script, &[], &[], Some(model.gateway())));
        let through: f64 = ended.out.trim().parse().unwrap_or_else(|_| panic!("{ended:?}"));
        let line = serde_json::json!({
            "name": format!("gateway/{name}"), "value": through.round(), "unit": "µs", "against": direct.round(),
            "ratio": (through / direct * 100.0).round() / 100.0,
        });
        println!("{line}");
    }
}

/// The median in microseconds.
fn micros(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// How long each request took, from connecting to the answer's end.
fn measured(port: u16, trust: Option<PathBuf>) -> Vec<Duration> {
    let config = trust.map(|authority| client(&authority));
    let once = || {
        let began = Instant::now();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        match &config {
            None => ask(stream),
            Some(config) => {
                let connection = ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
                ask(StreamOwned::new(connection, stream));
            }
        }
        began.elapsed()
    };
    (0..WARMING).for_each(|_| _ = once());
    (0..REQUESTS).map(|_| once()).collect()
}

fn ask(mut connection: impl Read + Write) {
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\nContent-Length: {BODY}\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&[b'x'; BODY]).unwrap();
    connection.flush().unwrap();
    let mut heard = Vec::new();
    let mut room = [0; 4096];
    while !heard.ends_with(b"{\"ok\":1}") {
        let count = connection.read(&mut room).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&room[..count]);
    }
}

/// One that takes up its earlier sessions, as the gateway does.
fn client(authority: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(versions.with_root_certificates(roots).with_no_client_auth())
}
