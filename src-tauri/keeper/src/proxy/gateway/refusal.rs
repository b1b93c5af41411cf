//! What the gateway itself answers, in the shape in which the models' APIs tell errors: one that Anthropic's clients and
//! OpenAI's both read.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use super::head::Malformed;

/// How long an agent that still sends may take to hear that it need not: closed at once, the answer would be lost.
const FAREWELL: Duration = Duration::from_secs(3);

/// Why a request did not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed(&'static str),
    HeadTooLong,
    BodyTooLong,
    /// The agent's token is missing or wrong.
    Unauthorized,
    /// There is no model for this sandbox now.
    Closed,
    /// Nobody answers at `place`, or not in words that are understood.
    Unreachable {
        place: String,
        cause: String,
    },
    /// It took the request and was silent.
    Silent {
        place: String,
        limit: Duration,
    },
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.0)
    }
}

impl fmt::Display for Refusal {
    /// The words of the last two are known to the engine, which tells by them that the network failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "CodeCourier does not pass this request on: {what}"),
            Self::HeadTooLong => f.write_str("CodeCourier does not pass this request on: its head is too long"),
            Self::BodyTooLong => {
                write!(
                    f,
                    "CodeCourier does not pass this request on: it is larger than {} MiB",
                    super::BODY_LIMIT >> 20
                )
            }
            Self::Unauthorized => f.write_str("this is not the token of this sandbox's agent"),
            Self::Closed => f.write_str("this sandbox has no model: its agent needs none, or has its key itself"),
            Self::Unreachable { place, cause } => write!(f, "CodeCourier could not reach {place}: {cause}"),
            Self::Silent { place, limit } => {
                write!(
                    f,
                    "CodeCourier could not reach {place}: it did not answer within {} minutes",
                    limit.as_secs() / 60
                )
            }
        }
    }
}

impl Refusal {
    /// The whole answer.
    pub(super) fn response(&self) -> Vec<u8> {
        let (status, kind) = match self {
            Self::Malformed(_) => ("400 Bad Request", "invalid_request_error"),
            Self::HeadTooLong => ("431 Request Header Fields Too Large", "invalid_request_error"),
            Self::BodyTooLong => ("413 Content Too Large", "request_too_large"),
            Self::Unauthorized => ("401 Unauthorized", "authentication_error"),
            Self::Closed => ("403 Forbidden", "permission_error"),
            Self::Unreachable { .. } => ("502 Bad Gateway", "api_error"),
            Self::Silent { .. } => ("504 Gateway Timeout", "timeout_error"),
        };
        let error = serde_json::json!({"type": kind, "message": self.to_string(), "code": null, "param": null});
        let body = serde_json::json!({"type": "error", "error": error}).to_string();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        format!("{head}Connection: close\r\n\r\n{body}").into_bytes()
    }
}

/// Answers, and lets the agent finish its sentence.
pub(super) fn refuse(mut client: &TcpStream, refusal: &Refusal) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.write_all(&refusal.response())?;
    farewell(client)
}

/// Closes the connection of an agent that may still send.
pub(super) fn farewell(mut client: &TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + FAREWELL;
    let mut room = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        if client.read(&mut room)? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_shape_of_both_apis() {
        let refusal = Refusal::Unreachable { place: "api.example".into(), cause: "connection \"refused\"\r\n".into() };
        let text = String::from_utf8(refusal.response()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((body["type"].as_str(), body["error"]["type"].as_str()), (Some("error"), Some("api_error")));
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!(message, "CodeCourier could not reach api.example: connection \"refused\"\r\n");
    }
}
