//! The gateway from inside: the model is reached, the key is not.

use std::{
    fs,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use courier_keeper::protocol::{Gateway, KeyHeader, Network, Refusal, Request as Ask, Response, StartTurn};

use crate::{
    model::{Connection, KEY, Model, TOKEN, say},
    support::{DEADLINE, Draft, Ended, Sandbox, as_both_users, wait_for},
};

/// Says to the gateway what is in the workspace's file `asked`, and prints its answer.
const ASK: &str = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/17982; cat asked >&3; timeout 15 cat <&3'";

/// A request as an agent makes it.
fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Starts a turn that says this to the gateway.
fn begin(sandbox: &Sandbox, gateway: Option<Gateway>, asked: &[u8]) -> String {
    fs::write(sandbox.workspace().join("asked"), asked).unwrap();
    sandbox.begin_at_model(ASK, &[], &[], gateway)
}

fn ask(sandbox: &Sandbox, gateway: Option<Gateway>, asked: &str) -> Ended {
    let turn = begin(sandbox, gateway, asked.as_bytes());
    sandbox.end(&turn)
}

fn echo() -> Model {
    Model::start(|_, connection| say(connection, "200 OK", "Content-Type: application/json\r\n", "{\"ok\":1}"))
}

#[test]
fn the_model_is_asked_with_the_real_key_and_the_sandbox_never_has_it() {
    let look = format!(
        "{ASK}; echo; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'
         cat /proc/1/environ /proc/1/mem 2>/dev/null | head -c 1 | wc -c; grep -rls sk-real . \"$HOME\" /tmp /etc /run /dev/shm"
    );
    for mut draft in as_both_users() {
        let model = echo();
        draft.spec.network = Network::None;
        let sandbox = draft.start();
        fs::write(sandbox.workspace().join("asked"), request("POST", "/v1/messages", "{\"a\":1}")).unwrap();
        // Without redaction: what is not there need not be taken out.
        let env = [("ANTHROPIC_API_KEY", TOKEN), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:17982")];
        let ended = sandbox.end(&sandbox.begin_at_model(&look, &env, &[], Some(model.gateway())));
        assert!(ended.out.starts_with("HTTP/1.1 200 OK\r\n") && ended.out.contains("{\"ok\":1}"), "{ended:?}");
        assert!(ended.out.contains(TOKEN) && !ended.out.contains(KEY), "{ended:?}");
        let requests = model.requests();
        assert!(requests[0].head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{:?}", requests[0]);
        assert_eq!(requests[0].all("x-api-key"), [KEY]);
        assert_eq!(requests[0].body, b"{\"a\":1}");
        assert!(!requests[0].head.contains(TOKEN));
        for file in ["keeper.json", "keeper.lock", "refused.log"] {
            let text = fs::read(sandbox.directory.join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(KEY), "{file}");
        }
        assert!(!sandbox.log().contains(KEY));
        for file in ["environ", "cmdline"] {
            let text = fs::read(format!("/proc/{}/{file}", sandbox.record.keeper.pid)).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(KEY), "the keeper's {file}");
        }
    }
}

#[test]
fn a_sandbox_without_network_reaches_its_model_and_nothing_else() {
    let (model, other) = (echo(), echo());
    let sandbox = Draft::new().start();
    let asked = request("GET", "/v1/models", "");
    assert!(ask(&sandbox, Some(model.gateway()), &asked).out.starts_with("HTTP/1.1 200 OK\r\n"));
    let elsewhere = format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", other.port, other.port);
    assert!(ask(&sandbox, Some(model.gateway()), &elsewhere).out.starts_with("HTTP/1.1 400 "));
    let tunnel = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n", other.port);
    assert!(ask(&sandbox, Some(model.gateway()), &tunnel).out.starts_with("HTTP/1.1 400 "));
    let host = asked.replace("Host: x", &format!("Host: localhost:{}", other.port));
    assert!(ask(&sandbox, Some(model.gateway()), &host).out.starts_with("HTTP/1.1 200 OK\r\n"));
    for port in [model.port, other.port] {
        let proxied = format!(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/17980; printf \"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n\" >&3; timeout 10 cat <&3'"
        );
        assert!(sandbox.run(&proxied).out.starts_with("HTTP/1.1 403 "));
    }
    assert_eq!(model.requests()[1].all("host"), [format!("localhost:{}", model.port)], "the agent does not choose it");
    assert_eq!((model.connections(), other.connections()), (2, 0));
}

#[test]
fn over_tls_everything_comes_as_it_is_said() {
    for mut draft in as_both_users() {
        let authority = draft.place().join("authority.pem");
        let (go_on, wait) = channel();
        let wait = Mutex::new(wait);
        let model = Model::start_with_tls(&authority, move |_, connection| stream(connection, &wait));
        draft.trust(authority);
        let sandbox = draft.start();
        streams(&sandbox, &model, &go_on);
        // A second one takes up the session of the first.
        streams(&sandbox, &model, &go_on);
        assert_eq!(model.requests()[1].all("x-api-key"), [KEY]);
    }
}

#[test]
fn a_stream_arrives_piece_by_piece() {
    let (go_on, wait) = channel();
    let wait = Mutex::new(wait);
    let model = Model::start(move |_, connection| stream(connection, &wait));
    streams(&Sandbox::start(), &model, &go_on);
}

/// A first event, and a second one only once the first was seen.
fn stream(connection: &mut dyn Connection, wait: &Mutex<Receiver<()>>) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write_all(format!("{head}10\r\ndata: the first\n\r\n").as_bytes()).unwrap();
    connection.flush().unwrap();
    wait.lock().unwrap().recv_timeout(DEADLINE).unwrap();
    connection.write_all(b"11\r\ndata: the second\n\r\n0\r\n\r\n").unwrap();
    connection.flush().unwrap();
    assert!(connection.is_hung_up());
}

fn streams(sandbox: &Sandbox, model: &Model, go_on: &Sender<()>) {
    let turn = begin(sandbox, Some(model.gateway()), request("POST", "/v1/messages", "{}").as_bytes());
    sandbox.wait_for_output(&turn, "data: the first\n");
    go_on.send(()).unwrap();
    let out = sandbox.end(&turn).out;
    let (head, body) = out.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Type: text/event-stream"), "{head}");
    assert_eq!(body, "10\r\ndata: the first\n\r\n11\r\ndata: the second\n\r\n0\r\n\r\n");
}

#[test]
fn who_cannot_show_who_it_is_gets_no_key() {
    let mut draft = Draft::new();
    let mine = draft.place().join("authority.pem");
    let model = Model::start_with_tls(&mine, |_, connection| say(connection, "200 OK", "", "{}"));
    let others = draft.place().join("other.pem");
    let _other = Model::start_with_tls(&others, |_, _| {});
    draft.trust(others);
    let sandbox = draft.start();
    let refused = ask(&sandbox, Some(model.gateway()), &request("GET", "/", ""));
    assert!(refused.out.starts_with("HTTP/1.1 502 "), "{refused:?}");
    assert!(refused.out.contains("CodeCourier could not reach localhost:"), "{refused:?}");
    assert!(refused.out.contains("invalid peer certificate"), "{refused:?}");
    assert!(model.requests().is_empty());
}

#[test]
fn a_machine_that_trusts_nobody_says_so() {
    let mut draft = Draft::new();
    let (authority, empty) = (draft.place().join("authority.pem"), draft.place().join("empty.pem"));
    let model = Model::start_with_tls(&authority, |_, _| {});
    fs::write(&empty, "").unwrap();
    draft.trust(empty);
    let refused = ask(&draft.start(), Some(model.gateway()), &request("GET", "/", ""));
    assert!(refused.out.starts_with("HTTP/1.1 502 ") && refused.out.contains("trusted certificates"), "{refused:?}");
}

#[test]
fn what_the_model_answers_arrives_unchanged() {
    for (status, headers, body) in [
        ("401 Unauthorized", "Content-Type: application/json\r\n", "{\"type\":\"error\"}"),
        (
            "429 Too Many Requests",
            "Retry-After: 17\r\nanthropic-ratelimit-unified-reset: 1\r\n",
            "{\"type\":\"error\"}",
        ),
        ("529 Overloaded", "request-id: req_1\r\n", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"),
        ("200 OK", "Content-Encoding: gzip\r\n", "\u{1}\u{2}not unpacked"),
        ("204 No Content", "", ""),
    ] {
        let model = Model::start(move |_, connection| {
            say(connection, status, &format!("{headers}Set-Cookie: a=b\r\nKeep-Alive: 5\r\n"), body);
        });
        let ended = ask(&Sandbox::start(), Some(model.gateway()), &request("POST", "/v1/messages", "{}"));
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        assert_eq!(ended.out, format!("HTTP/1.1 {status}\r\n{headers}{length}Connection: close\r\n\r\n{body}"));
    }
}

#[test]
fn heads_and_counts_pass_like_everything_else() {
    let model = echo();
    let mut gateway = model.gateway();
    (gateway.upstream, gateway.header) = (format!("{}/base/", model.url()), KeyHeader::Bearer);
    let sandbox = Sandbox::start();
    let bearer = |method: &str, path: &str| {
        request(method, path, "").replace(&format!("x-api-key: {TOKEN}"), &format!("authorization: bearer {TOKEN}"))
    };
    let head = ask(&sandbox, Some(gateway.clone()), &bearer("HEAD", "/")).out;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("Content-Length: 8\r\nConnection: close\r\n\r\n"),
        "{head}"
    );
    let counted = ask(&sandbox, Some(gateway), &bearer("POST", "/v1/messages/count_tokens?beta=true")).out;
    assert!(counted.ends_with("{\"ok\":1}"), "{counted}");
    let requests = model.requests();
    assert!(requests[0].head.starts_with("HEAD /base/ HTTP/1.1\r\n"), "{:?}", requests[0]);
    assert!(requests[1].head.starts_with("POST /base/v1/messages/count_tokens?beta=true HTTP/1.1\r\n"));
    assert_eq!(requests[1].all("authorization"), [format!("Bearer {KEY}")]);
    assert!(requests[1].all("x-api-key").is_empty());
}

#[test]
fn a_wrong_token_never_reaches_the_model() {
    let model = echo();
    let sandbox = Sandbox::start();
    let good = request("POST", "/v1/messages", "{}");
    let shown = format!("x-api-key: {TOKEN}");
    for (wrong, status) in [
        (good.replace(&format!("{shown}\r\n"), ""), "401"),
        (good.replace(TOKEN, "other"), "401"),
        (good.replace(TOKEN, &TOKEN[1..]), "401"),
        (good.replace(TOKEN, &format!("{TOKEN}x")), "401"),
        (good.replace(TOKEN, ""), "401"),
        (good.replace(TOKEN, KEY), "401"),
        (good.replace(&shown, &format!("authorization: Basic {TOKEN}")), "401"),
        (good.replace(&shown, &format!("cookie: x-api-key={TOKEN}")), "401"),
    ] {
        let out = ask(&sandbox, Some(model.gateway()), &wrong).out;
        assert!(out.starts_with(&format!("HTTP/1.1 {status} ")), "{wrong}: {out}");
        assert!(out.contains("{\"error\":{") && out.contains("\"type\":\"authentication_error\""), "{out}");
    }
    assert_eq!(model.connections(), 0);
}

#[test]
fn the_newest_turn_holds_and_one_without_a_model_closes_the_way() {
    let model = echo();
    let sandbox = Sandbox::start();
    let asked = request("POST", "/v1/messages", "{}");
    assert!(ask(&sandbox, None, &asked).out.starts_with("HTTP/1.1 403 "), "there never was one");
    assert!(ask(&sandbox, Some(model.gateway()), &asked).out.starts_with("HTTP/1.1 200 "));
    let newer = Gateway { token: "another-token".into(), key: "sk-another".into(), ..model.gateway() };
    assert!(
        ask(&sandbox, Some(newer.clone()), &asked).out.starts_with("HTTP/1.1 401 "),
        "the old token is worth nothing"
    );
    assert!(ask(&sandbox, Some(newer), &asked.replace(TOKEN, "another-token")).out.starts_with("HTTP/1.1 200 "));
    assert_eq!(model.requests()[1].all("x-api-key"), ["sk-another"]);
    let closed = ask(&sandbox, None, &asked).out;
    assert!(closed.starts_with("HTTP/1.1 403 ") && closed.contains("permission_error"), "{closed}");
    assert_eq!(model.connections(), 2);
}

#[test]
fn a_way_that_would_show_the_key_is_no_way() {
    let sandbox = Sandbox::start();
    for upstream in ["http://api.example", "https://u:p@api.example", "ftp://localhost", "http://localhost\r\nX: y"] {
        let gateway = Gateway { upstream: upstream.into(), ..echo().gateway() };
        let (argv, env, redact) = (vec!["true".into()], Vec::new(), Vec::new());
        let start = StartTurn { turn: "refused".into(), argv, env, redact, gateway: Some(gateway) };
        match sandbox.ask(&Ask::StartTurn(start)) {
            Response::Refused { refusal: Refusal::Malformed, message } => assert!(!message.contains(KEY), "{message}"),
            other => panic!("{upstream}: {other:?}"),
        }
    }
    assert!(!sandbox.turn_directory("refused").exists(), "nothing was claimed");
}

#[test]
fn what_two_servers_could_understand_in_two_ways_reaches_none() {
    let model = echo();
    let sandbox = Sandbox::start();
    let show = format!("x-api-key: {TOKEN}\r\n");
    let smuggled = format!("GET /smuggled HTTP/1.1\r\n{show}\r\n");
    for (what, bad) in [
        ("two lengths", format!("POST / HTTP/1.1\r\n{show}Content-Length: 0\r\nContent-Length: 5\r\n\r\nabcde")),
        ("one length twice", format!("POST / HTTP/1.1\r\n{show}Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde")),
        ("a list of lengths", format!("POST / HTTP/1.1\r\n{show}Content-Length: 5, 5\r\n\r\nabcde")),
        (
            "both framings",
            format!(
                "POST / HTTP/1.1\r\n{show}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
        ),
        (
            "a strange coding",
            format!("POST / HTTP/1.1\r\n{show}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        ("a hidden coding", format!("POST / HTTP/1.1\r\n{show}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{smuggled}")),
        ("a folded header", format!("POST / HTTP/1.1\r\n{show}A: b\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("a bare line feed", format!("POST / HTTP/1.1\r\n{show}A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("a head within a head", format!("GET / HTTP/1.1\n\nGET /smuggled HTTP/1.1\r\n{show}\r\n")),
        ("a bare carriage return", format!("GET / HTTP/1.1\r\n{show}A: b\rC: d\r\n\r\n")),
        ("a header in the target", format!("GET /\tx HTTP/1.1\r\n{show}\r\n")),
        ("NUL", format!("GET / HTTP/1.1\r\n{show}A: \0b\r\n\r\n")),
        ("another place", format!("GET http://localhost/ HTTP/1.1\r\n{show}\r\n")),
        ("a wish to change", format!("GET / HTTP/1.0\r\n{show}Upgrade: h2c\r\n\r\n")),
        ("an echo", format!("TRACE / HTTP/1.1\r\n{show}\r\n")),
        ("a path upwards", format!("GET /v1/../../admin HTTP/1.1\r\n{show}\r\n")),
        ("one that is encoded", format!("GET /v1/%2e%2E/admin HTTP/1.1\r\n{show}\r\n")),
        ("one that hides its slash", format!("GET /v1/..%2fadmin HTTP/1.1\r\n{show}\r\n")),
        ("one that is encoded twice", format!("GET /%252e%252e/admin HTTP/1.1\r\n{show}\r\n")),
    ] {
        let out = ask(&sandbox, Some(model.gateway()), &bad).out;
        assert!(out.starts_with("HTTP/1.1 400 ") && out.contains("invalid_request_error"), "{what}: {out}");
    }
    assert_eq!(model.connections(), 0);

    // Broken chunks are seen only when the head is on its way; then no answer may look like one to them.
    for body in ["5\nabcde\r\n0\r\n\r\n", "-1\r\n", "5;x\n\r\nabcde\r\n0\r\n\r\n"] {
        let bad = format!("POST / HTTP/1.1\r\n{show}Transfer-Encoding: chunked\r\n\r\n{body}");
        let out = ask(&sandbox, Some(model.gateway()), &bad).out;
        assert!(out.starts_with("HTTP/1.1 400 "), "{body:?}: {out}");
    }
    assert!(model.requests().is_empty(), "none was whole");

    // A second request behind the first is not passed on, whatever it is.
    let two = format!("{}{smuggled}", request("POST", "/first", "{}"));
    let out = ask(&sandbox, Some(model.gateway()), &two).out;
    assert_eq!(out.matches("HTTP/1.1 ").count(), 1, "{out}");
    let requests = model.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].head.starts_with("POST /first ") && requests[0].body == b"{}", "{:?}", requests[0]);
}

#[test]
fn a_body_in_chunks_arrives_whole() {
    let model = echo();
    let show = format!("x-api-key: {TOKEN}\r\n");
    let body = "5;extension=1\r\nhello\r\n7\r\n, world\r\n0\r\nTrailer: dropped\r\n\r\n";
    let asked = format!("POST / HTTP/1.1\r\n{show}Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    assert!(ask(&Sandbox::start(), Some(model.gateway()), &asked).out.contains("HTTP/1.1 200 OK\r\n"));
    let requests = model.requests();
    assert_eq!((requests[0].body.as_slice(), requests[0].all("trailer").len()), (&b"hello, world"[..], 0));
    assert!(requests[0].all("expect").is_empty());
}

#[test]
fn a_large_request_arrives_whole_and_one_that_is_too_large_is_told_so() {
    let model = echo();
    let sandbox = Sandbox::start();
    let body = "0123456789abcdef".repeat(1 << 17);
    assert!(ask(&sandbox, Some(model.gateway()), &request("POST", "/", &body)).out.starts_with("HTTP/1.1 200 OK"));
    assert!(model.requests()[0].body == body.as_bytes());

    let head = format!("POST / HTTP/1.1\r\nx-api-key: {TOKEN}\r\nContent-Length: {}\r\n\r\n", (64 << 20) + 1);
    let out = ask(&sandbox, Some(model.gateway()), &head).out;
    assert!(out.starts_with("HTTP/1.1 413 ") && out.contains("request_too_large"), "{out}");
    assert_eq!(model.connections(), 1, "the length alone is enough");

    // Without a length it shows only when it is there.
    let endless = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/17982; printf \"POST / HTTP/1.1\\r\\nx-api-key: {TOKEN}\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n\" >&3
           (for i in $(seq 66); do printf \"100000\\r\\n\"; head -c 1048576 /dev/zero; printf \"\\r\\n\"; done >&3) 2>/dev/null &
           timeout 15 head -n 1 <&3'"
    );
    let turn = sandbox.begin_at_model(&endless, &[], &[], Some(model.gateway()));
    assert_eq!(sandbox.end(&turn).out, "HTTP/1.1 413 Content Too Large\r\n");
    assert_eq!(model.requests().len(), 1, "the model never got it whole");

    let long = format!("GET / HTTP/1.1\r\n{}\r\n", "A: 0123456789abcdef\r\n".repeat(4000));
    assert!(ask(&sandbox, Some(model.gateway()), &long).out.starts_with("HTTP/1.1 431 "));
}

/// What TLS has taken in and not sent yet must not be what the rest waits for.
#[test]
fn a_large_request_arrives_whole_over_tls_too() {
    let mut draft = Draft::new();
    let authority = draft.place().join("authority.pem");
    let model = Model::start_with_tls(&authority, |_, connection| {
        say(connection, "200 OK", "Content-Type: application/json\r\n", "{\"ok\":1}");
    });
    draft.trust(authority);
    let sandbox = draft.start();
    let body = "0123456789abcdef".repeat(1 << 20);
    assert!(ask(&sandbox, Some(model.gateway()), &request("POST", "/", &body)).out.starts_with("HTTP/1.1 200 OK"));
    assert!(model.requests()[0].body == body.as_bytes());
}

#[test]
fn an_agent_that_hangs_up_takes_the_models_connection_with_it() {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let model = Model::start(move |_, connection| {
        connection.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").unwrap();
        tell.lock().unwrap().send(connection.is_hung_up()).unwrap();
    });
    let sandbox = Sandbox::start();
    let turn = begin(&sandbox, Some(model.gateway()), request("POST", "/", "{}").as_bytes());
    sandbox.wait_for_output(&turn, "hello");
    assert!(told.try_recv().is_err(), "it holds as long as the agent does");
    sandbox.done(&Ask::EndTurn { turn: turn.clone(), grace_ms: 0 });
    assert!(told.recv_timeout(DEADLINE).unwrap(), "the model saw it go");
    sandbox.end(&turn);
}

#[test]
fn a_model_that_hangs_up_in_the_middle_cannot_be_taken_for_one_that_has_finished() {
    let model = Model::start(|request, connection| {
        let framing =
            if request.head.contains("/length") { "Content-Length: 10" } else { "Transfer-Encoding: chunked" };
        let part = if request.head.contains("/length") { "12345" } else { "5\r\n12345\r\n" };
        _ = connection.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{part}").as_bytes());
        connection.cut();
    });
    let sandbox = Sandbox::start();
    let chunked = ask(&sandbox, Some(model.gateway()), &request("GET", "/chunked", "")).out;
    assert!(chunked.ends_with("\r\n\r\n5\r\n12345\r\n"), "no last chunk: {chunked}");
    let length = ask(&sandbox, Some(model.gateway()), &request("GET", "/length", "")).out;
    assert!(length.contains("Content-Length: 10\r\n") && length.ends_with("\r\n\r\n12345"), "{length}");
}

#[test]
fn over_tls_an_end_that_was_cut_is_told_from_one_that_was_meant() {
    let mut draft = Draft::new();
    let authority = draft.place().join("authority.pem");
    // Its answer ends with the connection, which says so, or is cut.
    let model = Model::start_with_tls(&authority, |request, connection| {
        _ = connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n12345");
        _ = connection.flush();
        if request.head.contains("/meant") {
            connection.end();
        }
        connection.cut();
    });
    draft.trust(authority);
    let sandbox = draft.start();
    let meant = ask(&sandbox, Some(model.gateway()), &request("GET", "/meant", "")).out;
    assert!(meant.ends_with("\r\n\r\n5\r\n12345\r\n0\r\n\r\n"), "{meant}");
    let cut = ask(&sandbox, Some(model.gateway()), &request("GET", "/cut", "")).out;
    assert!(cut.ends_with("\r\n\r\n5\r\n12345\r\n"), "{cut}");
}

#[test]
fn a_model_that_is_not_there_is_named_with_the_cause() {
    let sandbox = Sandbox::start();
    // Free a moment ago, and so refused.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = Gateway { upstream: format!("http://127.0.0.1:{port}"), ..echo().gateway() };
    let out = ask(&sandbox, Some(gateway), &request("GET", "/", "")).out;
    assert!(out.starts_with("HTTP/1.1 502 ") && out.contains("\"type\":\"api_error\""), "{out}");
    assert!(out.contains(&format!("CodeCourier could not reach 127.0.0.1:{port}: Connection refused")), "{out}");
}

#[test]
fn the_status_names_the_port_and_the_variables_do_not_lead_around_it() {
    let sandbox = Sandbox::start();
    assert_eq!(sandbox.status().gateway_port, 17982);
    let out = sandbox.run("echo $NO_PROXY; echo $no_proxy").out;
    assert_eq!(out, "127.0.0.1:17982,127.0.0.1,localhost,::1\n".repeat(2));
}

#[test]
fn many_requests_at_once_do_not_disturb_each_other() {
    let model = Model::start(|request, connection| {
        let path = request.head.split(' ').nth(1).unwrap().to_owned();
        say(connection, "200 OK", "", &path);
    });
    let sandbox = Sandbox::start();
    let script = format!(
        "for i in $(seq 40); do bash -c \"exec 3<>/dev/tcp/127.0.0.1/17982
           printf 'GET /number-$i- HTTP/1.1\\r\\nx-api-key: {TOKEN}\\r\\n\\r\\n' >&3; timeout 15 cat <&3 | tail -n 1; echo\" & done; wait"
    );
    let turn = sandbox.begin_at_model(&script, &[], &[], Some(model.gateway()));
    let out = sandbox.end(&turn).out;
    for number in 1..=40 {
        assert_eq!(out.matches(&format!("/number-{number}-")).count(), 1, "{out}");
    }
    wait_for("every request", || (model.requests().len() == 40).then_some(()));
}
