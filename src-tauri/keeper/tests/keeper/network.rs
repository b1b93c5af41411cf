//! The proxy from inside, against servers on this machine.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    time::Duration,
};

use courier_keeper::protocol::Network;

use crate::support::{Draft, Sandbox, as_both_users};

/// A server that answers every request with the request itself.
struct Echo {
    port: u16,
}

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let mut request = Vec::new();
                let mut room = [0; 4096];
                while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                    match stream.read(&mut room) {
                        Ok(count) if count > 0 => request.extend_from_slice(&room[..count]),
                        _ => break,
                    }
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", request.len());
                _ = stream.write_all(&[head.as_bytes(), &request].concat());
            }
        });
        Self { port }
    }
}

fn sandbox(network: Network, allowed: &[String]) -> Sandbox {
    let mut draft = Draft::new();
    (draft.spec.network, draft.spec.allowed_hosts) = (network, allowed.to_vec());
    draft.start()
}

fn refusals(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.directory.join("refused.log")).unwrap_or_default()
}

/// Bash speaks to the proxy by itself: the tests need no HTTP client inside.
fn through_http(request: &str) -> String {
    format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{HTTP_PROXY##*:}}; printf \"{request}\" >&3; timeout 10 cat <&3'")
}

#[test]
fn a_listed_place_on_this_machine_is_reached_by_every_way() {
    let echo = Echo::start();
    let place = format!("127.0.0.1:{}", echo.port);
    for mut draft in as_both_users() {
        (draft.spec.network, draft.spec.allowed_hosts) = (Network::Listed, vec![place.clone()]);
        let sandbox = draft.start();
        let plain = sandbox.run(&through_http(&format!("GET http://{place}/path?q HTTP/1.1\\r\\nA: b\\r\\n\\r\\n")));
        assert!(plain.out.contains(&format!("GET /path?q HTTP/1.1\r\nHost: {place}\r\nA: b\r\n")), "{plain:?}");
        let tunnel = sandbox
            .run(&through_http(&format!("CONNECT {place} HTTP/1.1\\r\\n\\r\\nGET /tunnel HTTP/1.1\\r\\n\\r\\n")));
        assert!(tunnel.out.starts_with("HTTP/1.1 200") && tunnel.out.contains("GET /tunnel HTTP/1.1"), "{tunnel:?}");
        let [high, low] = echo.port.to_be_bytes();
        let socks = sandbox.run(&format!(
            "bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{ALL_PROXY##*:}}
              printf \"\\5\\1\\0\\5\\1\\0\\1\\177\\0\\0\\1\\{high:03o}\\{low:03o}GET /socks HTTP/1.1\\r\\n\\r\\n\" >&3
              timeout 10 cat <&3 | tail -c +13'"
        ));
        assert!(socks.out.contains("GET /socks HTTP/1.1"), "{socks:?}");
        assert_eq!(refusals(&sandbox), "");
    }
}

#[test]
fn curl_finds_the_proxy_by_the_usual_variables() {
    let echo = Echo::start();
    let place = format!("localhost:{}", echo.port);
    let sandbox = sandbox(Network::Open, std::slice::from_ref(&place));
    if sandbox.run("command -v curl").exit.code != Some(0) {
        return;
    }
    let ended = sandbox.run(&format!("curl -sS http://{place}/hello; curl -sS -x $ALL_PROXY http://{place}/socks"));
    assert!(ended.out.contains("GET /hello ") && ended.out.contains("GET /socks "), "{ended:?}");
}

#[test]
fn what_is_not_listed_is_refused_in_words_and_recorded() {
    let echo = Echo::start();
    let place = format!("127.0.0.1:{}", echo.port);
    for (network, reason) in [
        (Network::Open, "private or this machine"),
        (Network::Listed, "not on this sandbox"),
        (Network::None, "no network"),
    ] {
        let sandbox = sandbox(network, &["other.example".into()]);
        for request in [format!("GET http://{place}/ HTTP/1.1"), format!("CONNECT {place} HTTP/1.1")] {
            let ended = sandbox.run(&through_http(&format!("{request}\\r\\n\\r\\n")));
            assert!(ended.out.starts_with("HTTP/1.1 403 "), "{network:?}: {ended:?}");
            assert!(ended.out.contains(reason) && ended.out.contains(&place), "{network:?}: {ended:?}");
        }
        let record = refusals(&sandbox);
        assert_eq!(record.lines().count(), 2, "{record}");
        let line: serde_json::Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
        assert_eq!((line["host"].as_str(), line["port"].as_u64()), (Some("127.0.0.1"), Some(echo.port.into())));
    }
}

#[test]
fn no_other_spelling_of_this_machine_helps() {
    let echo = Echo::start();
    let sandbox = sandbox(Network::Open, &[]);
    for host in [
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "127.0.0.1.",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
        "[64:ff9b::7f00:1]",
    ] {
        let ended = sandbox.run(&through_http(&format!("CONNECT {host}:{} HTTP/1.1\\r\\n\\r\\n", echo.port)));
        assert!(ended.out.starts_with("HTTP/1.1 403 ") || ended.out.starts_with("HTTP/1.1 502 "), "{host}: {ended:?}");
    }
}

#[test]
fn a_request_that_is_none_gets_an_answer_and_a_long_one_an_end() {
    let sandbox = sandbox(Network::Open, &[]);
    assert!(sandbox.run(&through_http("hello\\r\\n\\r\\n")).out.starts_with("HTTP/1.1 400 "));
    let long = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; head -c 40000 /dev/zero >&3; timeout 10 head -c 12 <&3'";
    assert_eq!(sandbox.run(long).out, "HTTP/1.1 431");
}
