//! Heads of requests and responses: what is read of them, and how they go on. Pure.
//!
//! A head goes on only as it was understood: it is written anew from its parts, so that nobody behind us can understand
//! another one. What could mean two things is refused.

use std::time::Duration;

use super::body::Framing;
use crate::upstream::{Upstream, leads_elsewhere};

/// The longest a limit is believed to last, in seconds: two weeks.
const LONGEST_LIMIT: u64 = 14 * 24 * 3600;

/// The longest head, of either side.
pub(super) const LIMIT: usize = 64 << 10;

/// The most headers in one.
const MOST_HEADERS: usize = 200;

/// What may be asked. Others are not needed by any model's API, and TRACE would answer with the key.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Between two neighbours only (RFC 9110, 7.6.1), in either direction.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    // Written anew.
    "content-length",
];

/// What an agent says that is not for the model: its keys, who it is, and who it thinks it speaks to.
const FROM_AGENT: &[&str] =
    &["authorization", "x-api-key", "cookie", "cookie2", "host", "expect", "forwarded", "via", "x-real-ip"];

/// What a model's endpoint says that is not for the agent.
const FROM_UPSTREAM: &[&str] = &["set-cookie", "set-cookie2"];

/// An agent's request.
#[derive(Debug)]
pub(super) struct Request {
    pub method: String,
    target: String,
    pub framing: Framing,
    /// It waits for a word before it sends its body.
    pub expects_continue: bool,
    /// What it shows as its key: whatever it has put where a key stands.
    pub tokens: Vec<Vec<u8>>,
    /// What goes on.
    headers: Vec<(String, Vec<u8>)>,
}

/// A head that may not go on, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

/// A response's head as it goes to the agent.
#[derive(Debug)]
pub(super) struct Response {
    /// Its own, to be sent.
    pub head: Vec<u8>,
    pub framing: Framing,
    /// Whether what follows goes on in chunks.
    pub is_chunked: bool,
    pub limit: Limit,
}

/// What an answer says of the limits a model's maker sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Nothing: it is another error.
    Unsaid,
    /// It answers: there is none now.
    Open,
    /// Too much was asked (429); it may be asked again after so long (`Retry-After`, RFC 9110, 10.2.3, in seconds: what
    /// the makers say), where it said so.
    Reached(Option<Duration>),
}

impl Limit {
    fn of(code: u16, headers: &[httparse::Header<'_>]) -> Self {
        match code {
            200..=399 => Self::Open,
            429 => {
                let said = headers.iter().find(|header| header.name.eq_ignore_ascii_case("retry-after"));
                let seconds = said.and_then(|header| str::from_utf8(header.value).ok()?.trim().parse().ok());
                Self::Reached(seconds.filter(|seconds| *seconds <= LONGEST_LIMIT).map(Duration::from_secs))
            }
            _ => Self::Unsaid,
        }
    }
}

/// Where the head ends that begins here; `searched`: so much was looked through before.
pub(super) fn end(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    bytes.get(from..)?.windows(4).position(|window| window == b"\r\n\r\n").map(|at| from + at + 4)
}

/// Lines end with CR LF and nothing else, none is empty, and none goes on in the next.
fn is_clean(head: &[u8]) -> bool {
    let Some(lines) = head.strip_suffix(b"\r\n\r\n") else { return false };
    let mut is_at_its_beginning = true;
    let mut bytes = lines.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' if !is_at_its_beginning && bytes.next_if_eq(&&b'\n').is_some() => is_at_its_beginning = true,
            b'\r' | b'\n' | 0 => return false,
            b' ' | b'\t' if is_at_its_beginning => return false,
            _ => is_at_its_beginning = false,
        }
    }
    !is_at_its_beginning
}

impl Request {
    /// Reads a whole head.
    pub(super) fn parse(head: &[u8]) -> Result<Self, Malformed> {
        if !is_clean(head) {
            return Err(Malformed("the request's head is not lines that end with CR LF"));
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Malformed("the request has too many headers")),
            Ok(_) | Err(_) => return Err(Malformed("this is no HTTP request")),
        }
        let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Malformed("the gateway speaks HTTP/1.1"));
        };
        if !METHODS.contains(&method) {
            return Err(Malformed("the gateway does not pass this method on"));
        }
        check(target)?;
        let framing = framing(parsed.headers)?.unwrap_or(Framing::None);
        let named = named_by_connection(parsed.headers);
        let mut expects_continue = false;
        let (mut tokens, mut kept) = (Vec::new(), Vec::new());
        for header in parsed.headers.iter() {
            let name = header.name.to_ascii_lowercase();
            match name.as_str() {
                "x-api-key" => tokens.push(header.value.to_vec()),
                "authorization" => tokens.extend(bearer(header.value)),
                "expect" if header.value.eq_ignore_ascii_case(b"100-continue") => expects_continue = true,
                "expect" => return Err(Malformed("nothing but 100-continue can be expected")),
                _ => {}
            }
            let is_dropped = HOP_BY_HOP.contains(&name.as_str())
                || FROM_AGENT.contains(&name.as_str())
                || ["proxy-", "x-forwarded"].iter().any(|prefix| name.starts_with(prefix))
                || named.contains(&name);
            if !is_dropped {
                kept.push((header.name.to_owned(), header.value.to_vec()));
            }
        }
        let (method, target) = (method.to_owned(), target.to_owned());
        Ok(Self { method, target, framing, expects_continue, tokens, headers: kept })
    }

    /// As it goes to `upstream`, with the header that carries the key.
    pub(super) fn forwarded(&self, upstream: &Upstream, key: (&str, &str)) -> Vec<u8> {
        let mut head = format!("{} {}{} HTTP/1.1\r\n", self.method, upstream.path, self.target).into_bytes();
        add(&mut head, "Host", upstream.authority().as_bytes());
        self.headers.iter().for_each(|(name, value)| add(&mut head, name, value));
        add(&mut head, key.0, key.1.as_bytes());
        match self.framing {
            Framing::Length(length) => add(&mut head, "Content-Length", length.to_string().as_bytes()),
            Framing::Chunked => add(&mut head, "Transfer-Encoding", b"chunked"),
            Framing::None | Framing::UntilClose => {}
        }
        add(&mut head, "Connection", b"close");
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// A target is a path below the upstream's own, with a query perhaps.
fn check(target: &str) -> Result<(), Malformed> {
    if !target.starts_with('/') {
        return Err(Malformed("the request's target is no path"));
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) || target.contains('#') {
        return Err(Malformed("there are characters in the request's target that belong into no path"));
    }
    let path = target.split('?').next().unwrap_or(target);
    if leads_elsewhere(path) {
        return Err(Malformed("the path holds the segment . or .."));
    }
    Ok(())
}

fn bearer(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii().to_vec())
}

fn add(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

/// Headers this side calls its own.
fn named_by_connection(headers: &[httparse::Header<'_>]) -> Vec<String> {
    let own = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("connection"));
    own.flat_map(|header| header.value.split(|&byte| byte == b','))
        .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
        .collect()
}

/// Where the headers say that the body ends; `None`: they say nothing.
fn framing(headers: &[httparse::Header<'_>]) -> Result<Option<Framing>, Malformed> {
    let all = |name: &str| {
        let found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value).collect::<Vec<_>>()
    };
    match (all("transfer-encoding").as_slice(), all("content-length").as_slice()) {
        ([], []) => Ok(None),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
        ([_, ..], []) => Err(Malformed("no transfer coding but chunked is understood")),
        ([], [length]) => {
            let text = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            match text.and_then(|text| text.parse().ok()) {
                Some(length) => Ok(Some(Framing::Length(length))),
                None => Err(Malformed("the length of the body is no number")),
            }
        }
        ([], _) => Err(Malformed("the length of the body is said twice")),
        (_, _) => Err(Malformed("the body is framed in two ways")),
    }
}

impl Response {
    /// Reads a whole head, the answer to `method`. `None`: it is an interim one, and another follows.
    pub(super) fn parse(head: &[u8], method: &str) -> Result<Option<Self>, Malformed> {
        if !is_clean(head) {
            return Err(Malformed("its head is not lines that end with CR LF"));
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        if !matches!(parsed.parse(head), Ok(httparse::Status::Complete(length)) if length == head.len()) {
            return Err(Malformed("it does not speak HTTP/1.1"));
        }
        let (Some(code), reason) = (parsed.code, parsed.reason.unwrap_or_default()) else {
            return Err(Malformed("it does not speak HTTP/1.1"));
        };
        match code {
            101 => return Err(Malformed("it changed the protocol unasked")),
            100..=199 => return Ok(None),
            200..=599 => {}
            _ => return Err(Malformed("its status is none")),
        }
        let said = framing(parsed.headers)?;
        let is_bodiless = method == "HEAD" || matches!(code, 204 | 304);
        let framing = if is_bodiless { Framing::None } else { said.unwrap_or(Framing::UntilClose) };
        // Only in chunks an agent can tell an end from a connection that broke.
        let is_chunked = matches!(framing, Framing::Chunked | Framing::UntilClose);
        let named = named_by_connection(parsed.headers);
        let mut head = format!("HTTP/1.1 {code:03} {reason}\r\n").into_bytes();
        for header in parsed.headers.iter() {
            let name = header.name.to_ascii_lowercase();
            let is_dropped = HOP_BY_HOP.contains(&name.as_str())
                || FROM_UPSTREAM.contains(&name.as_str())
                || name.starts_with("proxy-")
                || named.contains(&name);
            if !is_dropped {
                add(&mut head, header.name, header.value);
            }
        }
        match (said, is_chunked) {
            (_, true) => add(&mut head, "Transfer-Encoding", b"chunked"),
            // Also where no body follows: it says how long it would be.
            (Some(Framing::Length(length)), false) if code != 204 => {
                add(&mut head, "Content-Length", length.to_string().as_bytes());
            }
            _ => {}
        }
        add(&mut head, "Connection", b"close");
        head.extend_from_slice(b"\r\n");
        Ok(Some(Self { head, framing, is_chunked, limit: Limit::of(code, parsed.headers) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &str) -> Result<Request, Malformed> {
        Request::parse(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes())
    }

    fn response(lines: &str, method: &str) -> Result<Option<Response>, Malformed> {
        Response::parse(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes(), method)
    }

    #[test]
    fn a_request_goes_on_with_the_key_in_the_place_of_what_the_agent_showed() {
        let asked = "POST /v1/messages?beta=true HTTP/1.1\nHost: 127.0.0.1:17982\nX-API-Key: worthless\n\
                     Authorization: Bearer other\nanthropic-version: 2023-06-01\nCookie: a=b\nContent-Length: 12\n\
                     Connection: keep-alive, X-Mine\nx-mine: gone\nProxy-Connection: x\nX-Forwarded-For: 1.2.3.4\n\
                     Forwarded: for=1\nExpect: 100-continue\nTE: trailers\nAccept: */*";
        let asked = request(asked).unwrap();
        assert_eq!(asked.tokens, [b"worthless".to_vec(), b"other".to_vec()]);
        assert!(asked.expects_continue);
        let upstream = "https://api.example/base".parse().unwrap();
        let forwarded = String::from_utf8(asked.forwarded(&upstream, ("x-api-key", "real"))).unwrap();
        assert_eq!(
            forwarded,
            "POST /base/v1/messages?beta=true HTTP/1.1\r\nHost: api.example\r\nanthropic-version: 2023-06-01\r\n\
             Accept: */*\r\nx-api-key: real\r\nContent-Length: 12\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn what_could_be_understood_in_two_ways_is_refused() {
        for bad in [
            "POST / HTTP/1.1\nContent-Length: 1\nContent-Length: 1",
            "POST / HTTP/1.1\nContent-Length: 1\nContent-Length: 2",
            "POST / HTTP/1.1\nContent-Length: 1, 1",
            "POST / HTTP/1.1\nContent-Length: +1",
            "POST / HTTP/1.1\nContent-Length: 0x1",
            "POST / HTTP/1.1\nContent-Length: 99999999999999999999",
            "POST / HTTP/1.1\nContent-Length:",
            "POST / HTTP/1.1\nContent-Length: 1\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\nTransfer-Encoding: gzip, chunked",
            "POST / HTTP/1.1\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\nTransfer-Encoding: xchunked",
            "POST / HTTP/1.1\nTransfer-Encoding:\u{b}chunked",
            "POST / HTTP/1.1\nTransfer-Encoding : chunked",
            "POST / HTTP/1.1\nA: b\n folded",
            "POST / HTTP/1.1\n A: b",
            "POST / HTTP/1.1\nA: b\n\tTransfer-Encoding: chunked",
            "POST / HTTP/1.1\nA\0: b",
            "POST / HTTP/1.1\nno colon",
            "POST / HTTP/1.1\nExpect: something",
            "POST / HTTP/1.0",
            "POST / HTTP/2",
            "POST  / HTTP/1.1",
            "POST /a b HTTP/1.1",
            "POST http://elsewhere/ HTTP/1.1",
            "POST elsewhere HTTP/1.1",
            "POST * HTTP/1.1",
            "CONNECT elsewhere:443 HTTP/1.1",
            "TRACE / HTTP/1.1",
            "get / HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /\u{e4} HTTP/1.1",
            "GET /../x HTTP/1.1",
            "GET /a/%2e%2e/x HTTP/1.1",
            "GET /a/..%2fx HTTP/1.1",
            "\nGET / HTTP/1.1",
        ] {
            assert!(request(bad).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1{}", "\nA: b".repeat(MOST_HEADERS + 1));
        assert_eq!(request(&many).unwrap_err(), Malformed("the request has too many headers"));
    }

    #[test]
    fn a_line_ends_with_both_of_its_characters() {
        for bad in [
            "GET / HTTP/1.1\nA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\n\nGET /other HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\r\n\r\n",
        ] {
            assert!(Request::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Request::parse(b"GET / HTTP/1.1\r\n\r\n").is_ok());
    }

    #[test]
    fn a_body_is_told_by_its_headers() {
        let framing = |lines| request(lines).unwrap().framing;
        assert_eq!(framing("POST / HTTP/1.1\nContent-Length: 7"), Framing::Length(7));
        assert_eq!(framing("POST / HTTP/1.1\nTransfer-Encoding: Chunked"), Framing::Chunked);
        assert_eq!(framing("HEAD / HTTP/1.1"), Framing::None);
        // It is not for the other side to say which headers frame.
        assert_eq!(framing("POST / HTTP/1.1\nConnection: content-length\nContent-Length: 7"), Framing::Length(7));
    }

    #[test]
    fn a_query_may_hold_what_a_path_may_not() {
        assert!(request("GET /v1/x?path=../y&z=%2e%2e HTTP/1.1").is_ok());
    }

    #[test]
    fn a_head_is_found_however_it_comes() {
        let text = b"GET / HTTP/1.1\r\nA: b\r\n\r\nbody";
        for cut in 0..text.len() {
            let found = end(&text[..cut], 0);
            assert_eq!(found.or_else(|| end(text, cut)), Some(24), "cut at {cut}");
        }
    }

    #[test]
    fn a_response_goes_on_unchanged_but_for_what_concerns_the_connection() {
        let said = "HTTP/1.1 429 Too Many Requests\nContent-Type: application/json\nRetry-After: 7\n\
                    Connection: keep-alive, x-own\nX-Own: 1\nKeep-Alive: timeout=5\nSet-Cookie: a=b\n\
                    request-id: req_1\nContent-Length: 12";
        let response = response(said, "POST").unwrap().unwrap();
        assert_eq!((response.framing, response.is_chunked), (Framing::Length(12), false));
        assert_eq!(
            String::from_utf8(response.head).unwrap(),
            "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\nrequest-id: req_1\r\n\
             Content-Length: 12\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_response_says_where_it_ends() {
        let of = |lines, method| response(lines, method).unwrap().map(|it| (it.framing, it.is_chunked));
        let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked";
        assert_eq!(of(chunked, "GET"), Some((Framing::Chunked, true)));
        assert_eq!(of("HTTP/1.1 200 OK", "GET"), Some((Framing::UntilClose, true)));
        assert_eq!(of("HTTP/1.0 200", "GET"), Some((Framing::UntilClose, true)));
        assert_eq!(of("HTTP/1.1 204 No Content", "DELETE"), Some((Framing::None, false)));
        assert_eq!(of("HTTP/1.1 100 Continue", "POST"), None);
        assert_eq!(of("HTTP/1.1 103 Early Hints\nLink: x", "POST"), None);
        assert_eq!(of("HTTP/1.1 200 OK\nContent-Length: 9", "HEAD"), Some((Framing::None, false)));
        let head = response("HTTP/1.1 200 OK\nContent-Length: 9", "HEAD").unwrap().unwrap().head;
        assert!(String::from_utf8(head).unwrap().contains("Content-Length: 9"));
    }

    #[test]
    fn a_response_that_could_be_read_in_two_ways_is_refused() {
        for bad in [
            "HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2",
            "HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip",
            "HTTP/1.1 101 Switching Protocols\nUpgrade: x",
            "HTTP/1.1 200 OK\nA: b\n folded",
            "HTTP/1.1 999 What",
            "SSH-2.0-OpenSSH",
        ] {
            assert!(response(bad, "GET").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_says_whether_too_much_was_asked_and_for_how_long() {
        let said = |status: &str, lines: &str| {
            let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: 0\r\n\r\n");
            Response::parse(head.as_bytes(), "POST").unwrap().unwrap().limit
        };
        let reached = |seconds| Limit::Reached(Some(Duration::from_secs(seconds)));
        assert_eq!(said("429 Too Many Requests", "Retry-After: 3600\r\n"), reached(3600));
        assert_eq!(said("429 Too Many Requests", "retry-after:  7 \r\n"), reached(7));
        for nothing in ["", "retry-after: soon\r\n", "retry-after: -1\r\n", "retry-after: 99999999999\r\n"] {
            assert_eq!(said("429 Too Many Requests", nothing), Limit::Reached(None), "{nothing}");
        }
        assert_eq!(said("200 OK", "retry-after: 7\r\n"), Limit::Open);
        assert_eq!(said("529 Overloaded", "retry-after: 7\r\n"), Limit::Unsaid);
    }
}
