//! The gateway: the model's endpoint as the agent sees it. The agent shows a token that is worth nothing anywhere else;
//! the keeper puts the real key in its place and asks the model, over TLS.
//!
//! It is open in every network mode, and asks nobody but the endpoint a person has set: the network's rules are not for
//! it. One request per connection, on both sides: nothing can hide behind a request, and the end of one side is the end
//! of the other. What arrives is understood ([`head`], [`body`]) and written anew, then carried byte by byte
//! ([`exchange`]): nothing is gathered, nothing is held back.
//!
//! What the model answers is passed on as it is: an endpoint that repeats the key would hand it to the agent. None of
//! the makers' does; a person who sets another address trusts it with the key in any case.

mod body;
mod exchange;
mod head;
mod refusal;
mod wire;

use std::{
    fmt,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime},
};

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use self::{
    body::Framing,
    exchange::{End, Exchange, Limits},
    head::{Limit, Request},
    refusal::{Refusal, farewell, refuse},
    wire::{Trust, Wire},
};
use crate::{
    protocol::{self, KeyHeader},
    upstream::{self, Upstream},
};

/// The largest body of a request. The makers' own limits are below it.
const BODY_LIMIT: u64 = 64 << 20;

/// The largest body of an answer.
const ANSWER_LIMIT: u64 = 1 << 30;

/// How long a request's head may take to be there, once its connection is.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// How long it may take to be connected, and again to know with whom.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// How long nothing may happen: a model may think for minutes before its first word.
const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The way to the model, while there is one.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    open: Mutex<Option<Arc<Open>>>,
    trust: Trust,
    /// Until when the model's maker takes no more, where its last answer said so.
    limited_until: Mutex<Option<SystemTime>>,
}

/// Where the model is, and what opens it.
struct Open {
    upstream: Upstream,
    header: KeyHeader,
    key: Zeroizing<String>,
    token: Zeroizing<String>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// A way to a model that was found to be one.
#[derive(Debug)]
pub(crate) struct Checked(Arc<Open>);

/// Why a way to a model is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWay {
    Address(upstream::Invalid),
    /// The key or the token, which stand in a header, hold what none may hold.
    Header(&'static str),
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => write!(f, "the model's address: {why}"),
            Self::Header(what) => write!(f, "the {what} of the model holds characters that no key has"),
        }
    }
}

/// Checks a way to a model.
pub(crate) fn check(given: protocol::Gateway) -> Result<Checked, NoWay> {
    let protocol::Gateway { upstream, header, key, token } = given;
    let (key, token) = (Zeroizing::new(key), Zeroizing::new(token));
    let upstream = upstream.parse().map_err(NoWay::Address)?;
    for (what, value) in [("key", &key), ("token", &token)] {
        // Whatever it is, it stands in a header: no line may end in it.
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NoWay::Header(what));
        }
    }
    Ok(Checked(Arc::new(Open { upstream, header, key, token })))
}

impl Gateway {
    /// From now on this is the way to the model; `None`: there is none. What is under way goes on.
    pub(crate) fn set(&self, way: Option<Checked>) {
        *self.open.lock().expect("nobody panics while holding it") = way.map(|Checked(open)| open);
        *self.limit() = None;
    }

    /// Until when the model's maker takes no more, where its last answer said so.
    pub(crate) fn limited_until(&self) -> Option<SystemTime> {
        *self.limit()
    }

    fn limit(&self) -> MutexGuard<'_, Option<SystemTime>> {
        self.limited_until.lock().expect("nobody panics while holding it")
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a limit ends by the wall clock; the engine's rule is not the keeper's"
    )]
    /// Takes in what an answer says of limits: agents tell a limit, and few of them its end.
    fn take(&self, said: Limit) {
        match said {
            Limit::Unsaid | Limit::Reached(None) => {}
            Limit::Open => *self.limit() = None,
            Limit::Reached(Some(after)) => *self.limit() = Some(SystemTime::now() + after),
        }
    }

    fn open(&self) -> Option<Arc<Open>> {
        self.open.lock().expect("nobody panics while holding it").clone()
    }

    /// Serves one connection.
    pub(super) fn serve(&self, client: &TcpStream) -> io::Result<()> {
        match self.answer(client) {
            Ok(End::Refused(refusal)) => refuse(client, &refusal),
            Ok(End::AnsweredEarly) => farewell(client),
            Ok(End::Answered | End::Broken) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, mut client: &TcpStream) -> io::Result<End> {
        let mut received = Vec::new();
        let Some(length) = read_head(client, &mut received)? else { return Ok(End::Refused(Refusal::HeadTooLong)) };
        let (head, rest) = received.split_at(length);
        let request = match Request::parse(head) {
            Ok(request) => request,
            Err(malformed) => return Ok(End::Refused(malformed.into())),
        };
        let Some(open) = self.open() else { return Ok(End::Refused(Refusal::Closed)) };
        if !open.is_shown_in(&request) {
            return Ok(End::Refused(Refusal::Unauthorized));
        }
        if matches!(request.framing, Framing::Length(length) if length > BODY_LIMIT) {
            return Ok(End::Refused(Refusal::BodyTooLong));
        }
        let place = open.upstream.authority();
        let wire = match Wire::open(&open.upstream, &self.trust, CONNECT_LIMIT) {
            Ok(wire) => wire,
            Err(error) => return Ok(End::Refused(Refusal::Unreachable { place, cause: error.to_string() })),
        };
        if request.expects_continue && rest.is_empty() {
            client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let limits = Limits { handshake: CONNECT_LIMIT, idle: IDLE_LIMIT, request: BODY_LIMIT, response: ANSWER_LIMIT };
        let head = open.forwarded(&request);
        let told = |limit| self.take(limit);
        Exchange::new((client, &told), wire, place, limits, &request, head).run(rest)
    }
}

impl Open {
    /// Whether the request shows the token. How long that takes says nothing about it but its length.
    fn is_shown_in(&self, request: &Request) -> bool {
        let own = self.token.as_bytes();
        let is_shown = request.tokens.iter().fold(Choice::from(0), |found, shown| found | own.ct_eq(shown));
        is_shown.into()
    }

    /// The request's head as the model gets it, with the key.
    fn forwarded(&self, request: &Request) -> Vec<u8> {
        match self.header {
            KeyHeader::XApiKey => request.forwarded(&self.upstream, ("x-api-key", &self.key)),
            KeyHeader::Bearer => {
                let value = Zeroizing::new(format!("Bearer {}", *self.key));
                request.forwarded(&self.upstream, ("Authorization", &value))
            }
        }
    }
}

/// Reads until the head is there, and says how long it is; `None`: it is too long.
fn read_head(mut client: &TcpStream, received: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let deadline = Instant::now() + HEAD_TIME;
    let mut room = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let searched = received.len();
        let count = client.read(&mut room)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&room[..count]);
        match head::end(received, searched) {
            Some(length) => return Ok((length <= head::LIMIT).then_some(length)),
            None if received.len() > head::LIMIT => return Ok(None),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
