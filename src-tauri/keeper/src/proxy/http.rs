//! An HTTP proxy: CONNECT for everything encrypted, forwarding for plain requests.
//!
//! A plain connection carries one request: it goes on with `Connection: close`, so that a second one, to another host,
//! needs another connection, and is judged by itself.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use super::{
    connect::{Failure, Outside},
    greeting::Greeting,
    relay::relay,
};

/// The longest head of a request.
const HEAD_LIMIT: usize = 32 << 10;

/// Headers between a client and its proxy, which are nobody else's business.
const OWN_HEADERS: &[&str] =
    &["connection", "proxy-connection", "proxy-authorization", "keep-alive", "host", "te", "upgrade"];

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    host: String,
    port: u16,
    /// For a plain request: the head as the server gets it. `None`: CONNECT.
    head: Option<Vec<u8>>,
}

/// Serves one connection.
pub(super) fn serve(mut client: TcpStream, outside: &Outside) -> io::Result<()> {
    let mut received = Vec::new();
    let head = read_head(&mut Greeting::new(&client, outside.limits.greeting), &mut received)?;
    let Some(length) = head else {
        return answer(&mut client, "431 Request Header Fields Too Large", "the request's head is too long");
    };
    let (head, rest) = received.split_at(length);
    let asked = match parse(head) {
        Ok(asked) => asked,
        Err(reason) => return answer(&mut client, "400 Bad Request", reason),
    };
    let mut server = match outside.connect(&asked.host, asked.port) {
        Ok(server) => server,
        Err(failure) => {
            let status = match failure {
                Failure::Denied(_) => "403 Forbidden",
                Failure::NoSuchHost(_) | Failure::Unreachable(_) => "502 Bad Gateway",
            };
            let text = format!("{}:{} cannot be reached from this sandbox: {failure}", asked.host, asked.port);
            return answer(&mut client, status, &text);
        }
    };
    server.set_nodelay(true)?;
    server.set_write_timeout(Some(outside.limits.greeting))?;
    match &asked.head {
        Some(head) => server.write_all(head)?,
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    server.write_all(rest)?;
    relay(&client, &server, outside.limits.idle)
}

/// Reads until the head is there, and says how long it is; `None`: it is too long.
fn read_head(client: &mut impl Read, received: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut room = [0; 4096];
    loop {
        let searched = received.len().saturating_sub(3);
        let count = client.read(&mut room)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&room[..count]);
        if let Some(at) = received[searched..].windows(4).position(|window| window == b"\r\n\r\n") {
            return Ok((searched + at + 4 <= HEAD_LIMIT).then_some(searched + at + 4));
        }
        if received.len() > HEAD_LIMIT {
            return Ok(None);
        }
    }
}

fn parse(head: &[u8]) -> Result<Asked, &'static str> {
    let head = std::str::from_utf8(head).map_err(|_| "the request's head is not text")?;
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("the request line is not three words");
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err("this proxy speaks HTTP/1.1");
    }
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        return Ok(Asked { host, port, head: None });
    }
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let Some(rest) = scheme.and_then(|_| target.get(7..)) else {
        return Err("this is a proxy: it takes CONNECT and http:// addresses");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    // A name and a password before the host are for the server, in a header, not for the wire.
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let (host, port) = authority(place, Some(80))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut forwarded = format!("{method} {path} {version}\r\nHost: {place}\r\n");
    for line in lines {
        let Some((name, _)) = line.split_once(':') else { return Err("a header without a colon") };
        if !OWN_HEADERS.iter().any(|own| name.trim().eq_ignore_ascii_case(own)) {
            forwarded += line;
            forwarded += "\r\n";
        }
    }
    forwarded += "Connection: close\r\n\r\n";
    Ok(Asked { host, port, head: Some(forwarded.into_bytes()) })
}

fn authority(text: &str, default: Option<u16>) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().map_err(|_| "the port is no number")?)),
        _ => (text, default),
    };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match port {
        Some(port) if port != 0 && !bare.is_empty() => Ok((bare.to_owned(), port)),
        _ => Err("the address lacks a host or a port"),
    }
}

fn answer(client: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let body = format!("CodeCourier: {text}\n");
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n");
    client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_names_host_and_port() {
        let asked = parse(b"CONNECT api.example:443 HTTP/1.1\r\nHost: other\r\n\r\n").unwrap();
        assert_eq!(asked, Asked { host: "api.example".into(), port: 443, head: None });
        assert_eq!(parse(b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n").unwrap().host, "::1");
        assert!(parse(b"CONNECT api.example HTTP/1.1\r\n\r\n").is_err(), "there is no usual port for it");
    }

    #[test]
    fn a_plain_request_goes_on_as_the_server_expects_it() {
        let head = "GET http://u:p@host.example:8080?q=1 HTTP/1.1\r\nHost: elsewhere\r\nProxy-Authorization: x\r\n\
                    Connection: keep-alive\r\nAccept: */*\r\n\r\n";
        let asked = parse(head.as_bytes()).unwrap();
        assert_eq!((asked.host.as_str(), asked.port), ("host.example", 8080));
        let forwarded = String::from_utf8(asked.head.unwrap()).unwrap();
        assert_eq!(
            forwarded,
            "GET /?q=1 HTTP/1.1\r\nHost: host.example:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn what_is_no_proxy_request_is_told_so() {
        for bad in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "GET http:/// HTTP/1.1\r\n\r\n",
            "GET http://a:x/ HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/2\r\n\r\n",
            "GET http://a/ b HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
