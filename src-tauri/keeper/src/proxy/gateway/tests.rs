//! Time limits, and what is not seen from inside a jail. Everything else is told by the tests that have one.

use std::{
    net::{TcpListener, TcpStream},
    thread,
};

use super::*;

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn given(upstream: &str) -> protocol::Gateway {
    protocol::Gateway {
        upstream: upstream.to_owned(),
        header: KeyHeader::Bearer,
        key: "sk-real".into(),
        token: "worthless".into(),
    }
}

/// Serves a request whose head was read, and whose agent waits, at a model that does this.
fn exchange(idle: Duration, asked: &str, model: impl FnOnce(TcpStream) + Send) -> (End, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream: Upstream = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (mut agent, client) = connected();
    let end = thread::scope(|scope| {
        scope.spawn(|| model(listener.accept().unwrap().0));
        let request = Request::parse(asked.as_bytes()).unwrap();
        let wire = Wire::open(&upstream, &Trust::default(), CONNECT_LIMIT).unwrap();
        let limits = Limits { handshake: CONNECT_LIMIT, idle, request: 100, response: 100 };
        let head = request.forwarded(&upstream, ("x-api-key", "k"));
        Exchange::new((&client, &|_| {}), wire, "model".into(), limits, &request, head).run(b"").unwrap()
    });
    drop(client);
    let mut heard = String::new();
    _ = agent.read_to_string(&mut heard);
    (end, heard)
}

const ASKED: &str = "GET / HTTP/1.1\r\n\r\n";
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// Reads until the other side hangs up.
fn listen(mut model: &TcpStream) {
    _ = model.read_to_end(&mut Vec::new());
}

#[test]
fn a_model_that_says_nothing_is_given_up_with_words() {
    let (end, _) = exchange(SHORT, ASKED, |model| listen(&model));
    assert_eq!(end, End::Refused(Refusal::Silent { place: "model".into(), limit: SHORT }));
}

#[test]
fn a_model_that_falls_silent_is_given_up_without_an_end() {
    let (end, heard) = exchange(SHORT, ASKED, |mut model| {
        model.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").unwrap();
        listen(&model);
    });
    assert_eq!(end, End::Broken);
    assert!(heard.ends_with("\r\n\r\n5\r\nhello\r\n"), "{heard}");
}

#[test]
fn an_answer_that_is_too_long_ends_without_an_end() {
    let (end, heard) = exchange(LONG, ASKED, |mut model| {
        model.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
        model.write_all(&[b'x'; 101]).unwrap();
        listen(&model);
    });
    assert!(end == End::Broken && !heard.ends_with("0\r\n\r\n"), "{end:?}: {heard}");
}

#[test]
fn an_answer_that_comes_before_the_request_is_whole_is_heard() {
    let asked = "POST / HTTP/1.1\r\nContent-Length: 50\r\n\r\n";
    let (end, heard) = exchange(LONG, asked, |mut model| {
        model.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!").unwrap();
        listen(&model);
    });
    assert_eq!(end, End::AnsweredEarly);
    assert!(heard.starts_with("HTTP/1.1 413 Too Large\r\n") && heard.ends_with("\r\n\r\nno!"), "{heard}");
}

#[test]
fn an_answer_that_is_none_is_told_as_a_network_that_failed() {
    let said = |answer: &'static [u8]| {
        exchange(LONG, ASKED, move |mut model| {
            model.write_all(answer).unwrap();
            if answer.is_empty() {
                return;
            }
            listen(&model);
        })
        .0
    };
    let nonsense = b"SSH-2.0-OpenSSH_9\r\n\r\n";
    for answer in [&b""[..], nonsense, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"] {
        assert!(matches!(said(answer), End::Refused(Refusal::Unreachable { .. })), "{answer:?}");
    }
}

#[test]
fn a_way_that_is_none_is_refused_and_no_secret_is_shown() {
    for upstream in ["http://api.example", "https://u:p@api.example", "https://api.example/../x", "nonsense"] {
        assert!(check(given(upstream)).is_err(), "{upstream}");
    }
    for value in ["", "a b", "a\r\nX-Evil: 1", "ü"] {
        let with_key = check(protocol::Gateway { key: value.into(), ..given("https://a") });
        let with_token = check(protocol::Gateway { token: value.into(), ..given("https://a") });
        for refused in [with_key, with_token] {
            let text = refused.unwrap_err();
            assert!(!text.to_string().contains("Evil"), "{text}");
        }
    }
    let gateway = Gateway::default();
    gateway.set(Some(check(given("https://api.example")).unwrap()));
    let shown = format!("{gateway:?}");
    assert!(shown.contains("api.example") && !shown.contains("sk-real") && !shown.contains("worthless"), "{shown}");
}
