//! A model's endpoint that does what a test says, on this machine: plain, or over TLS with an authority of its own.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use courier_keeper::protocol::{Gateway, KeyHeader};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

use crate::support::DEADLINE;

/// The real key.
pub const KEY: &str = "sk-real-0123456789-do-not-show";

/// What the agent has instead.
pub const TOKEN: &str = "worthless-token-of-this-sandbox";

/// A connection, of either kind.
pub trait Connection: Read + Write {
    /// Ends it at once, without a farewell.
    fn cut(&mut self);

    /// Says farewell, where there is a word for it.
    fn end(&mut self) {}

    /// Whether the other side hangs up within the tests' patience.
    fn is_hung_up(&mut self) -> bool {
        matches!(self.read(&mut [0; 64]), Ok(0) | Err(_))
    }
}

impl Connection for TcpStream {
    fn cut(&mut self) {
        _ = self.shutdown(std::net::Shutdown::Both);
    }
}

impl Connection for StreamOwned<ServerConnection, TcpStream> {
    fn cut(&mut self) {
        self.sock.cut();
    }

    fn end(&mut self) {
        self.conn.send_close_notify();
        _ = self.flush();
    }
}

/// What the model does with a request: its head and its content as it came.
type Answer = dyn Fn(&Request, &mut dyn Connection) + Send + Sync;

/// A request as the model got it.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    /// The values of every header of this name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

/// The endpoint.
pub struct Model {
    pub port: u16,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<Mutex<usize>>,
}

impl Model {
    pub fn start(answer: impl Fn(&Request, &mut dyn Connection) + Send + Sync + 'static) -> Self {
        Self::serve("http", Arc::new(answer), |stream| Box::new(stream))
    }

    /// Over TLS, known as `localhost`. Whoever trusts what is written to `authority` trusts it.
    pub fn start_with_tls(
        authority: &Path,
        answer: impl Fn(&Request, &mut dyn Connection) + Send + Sync + 'static,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(authority, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let config = Arc::new(config);
        Self::serve("https", Arc::new(answer), move |stream| {
            Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream))
        })
    }

    fn serve(
        scheme: &'static str,
        answer: Arc<Answer>,
        speak: impl Fn(TcpStream) -> Box<dyn Connection + Send> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let model = Self { port, scheme, requests: Arc::default(), connections: Arc::default() };
        let (requests, connections) = (Arc::clone(&model.requests), Arc::clone(&model.connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                *connections.lock().unwrap() += 1;
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                let mut connection = speak(stream);
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                std::thread::spawn(move || {
                    // What is no request is none to answer.
                    let Ok(request) = read(&mut *connection) else { return };
                    requests.lock().unwrap().push(request.clone());
                    answer(&request, &mut *connection);
                });
            }
        });
        model
    }

    pub fn url(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.port)
    }

    /// The way to it for a sandbox.
    pub fn gateway(&self) -> Gateway {
        Gateway { upstream: self.url(), header: KeyHeader::XApiKey, key: KEY.into(), token: TOKEN.into() }
    }

    pub fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// Reads a head, and a body by its length or its chunks, undone.
fn read(connection: &mut dyn Connection) -> io::Result<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        more(connection, &mut bytes)?;
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut request = Request { head, body: bytes.split_off(end) };
    if let Some(length) = request.all("content-length").first().map(|length| length.parse::<usize>().unwrap()) {
        while request.body.len() < length {
            more(connection, &mut request.body)?;
        }
    } else if request.all("transfer-encoding") == ["chunked"] {
        while !request.body.ends_with(b"0\r\n\r\n") {
            more(connection, &mut request.body)?;
        }
        request.body = unchunked(&request.body);
    }
    Ok(request)
}

fn more(connection: &mut dyn Connection, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut room = [0; 65_536];
    let count = connection.read(&mut room)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.extend_from_slice(&room[..count]);
    Ok(())
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let at = bytes.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap(), 16).unwrap();
        if length == 0 {
            return content;
        }
        content.extend_from_slice(&bytes[at + 2..at + 2 + length]);
        bytes = &bytes[at + 2 + length + 2..];
    }
}

/// Answers with this, whole.
pub fn say(connection: &mut dyn Connection, status: &str, headers: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    _ = connection.write_all(head.as_bytes());
    _ = connection.flush();
}
