//! One request to the model and its answer, byte for byte as they come, until one side is done or gone.
//!
//! One thread waits for both connections. Neither side is read faster than the other takes it.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use super::{
    body::{self, Broken, Decoder},
    head::{self, Limit, Malformed, Request, Response},
    refusal::Refusal,
    wire::Wire,
};
use crate::sys;

/// How much is read at once, and the most that waits to be taken.
const BUFFER: usize = 32 << 10;

/// What is said of a model that took the request and left.
const HUNG_UP: &str = "connection closed before it answered";

/// A peer that is gone, not only silent. Elsewhere a read finds out.
#[cfg(target_os = "linux")]
const HANG_UP: i16 = libc::POLLRDHUP;
#[cfg(not(target_os = "linux"))]
const HANG_UP: i16 = 0;

/// How long things may take, and how much may pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Until who answers has shown who it is.
    pub handshake: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    pub request: u64,
    pub response: u64,
}

/// How an exchange ended that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The agent has the whole answer.
    Answered,
    /// The same, and it may still be sending its request.
    AnsweredEarly,
    /// Nothing of an answer has gone to the agent: it is to get this one.
    Refused(Refusal),
    /// The agent has gone, or cannot be told any more what happened: its connection just ends.
    Broken,
}

/// What takes content from one framing to the next.
#[derive(Debug)]
struct Passage {
    decoder: Decoder,
    is_chunked: bool,
    /// The last chunk was said, or there is none.
    is_ended: bool,
    content: Vec<u8>,
    passed: u64,
    limit: u64,
}

/// More came than may pass.
#[derive(Debug, PartialEq, Eq)]
enum NoPassage {
    Broken,
    TooMuch,
}

impl From<Broken> for NoPassage {
    fn from(Broken: Broken) -> Self {
        Self::Broken
    }
}

impl Passage {
    fn new(decoder: Decoder, is_chunked: bool, limit: u64) -> Self {
        Self { decoder, is_chunked, is_ended: false, content: Vec::new(), passed: 0, limit }
    }

    /// What was read goes to `out`.
    fn pass(&mut self, read: &[u8], out: &mut Outgoing) -> Result<(), NoPassage> {
        self.content.clear();
        self.decoder.read(read, &mut self.content)?;
        self.passed += self.content.len() as u64;
        if self.passed > self.limit {
            return Err(NoPassage::TooMuch);
        }
        body::frame(self.is_chunked, &self.content, &mut out.bytes);
        self.end_if_over(out);
        Ok(())
    }

    fn end_if_over(&mut self, out: &mut Outgoing) {
        if self.decoder.is_over() && !self.is_ended {
            self.is_ended = true;
            if self.is_chunked {
                out.bytes.extend_from_slice(body::LAST_CHUNK);
            }
        }
    }
}

/// What waits to be taken.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    fn has_room(&self) -> bool {
        self.bytes.len() - self.sent < BUFFER
    }

    /// Sends what is taken without waiting, and says whether any was.
    fn send(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        let before = self.sent;
        while !self.is_empty() {
            match write(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_soon(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let has_moved = self.sent > before;
        // What was sent goes, also where something always waits: or all that ever passed would stay.
        if self.is_empty() || self.sent >= BUFFER {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(has_moved)
    }

    fn drop_all(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }
}

fn is_soon(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What has come of the answer.
#[derive(Debug)]
enum Answer {
    /// Its head, as far as it is there.
    Head(Vec<u8>),
    Body(Passage),
}

/// A request on its way.
pub(super) struct Exchange<'a> {
    client: &'a TcpStream,
    /// Is told what the answer says of limits.
    told: &'a dyn Fn(Limit),
    wire: Wire,
    /// Host and port, for words.
    place: String,
    method: String,
    limits: Limits,
    request: Passage,
    to_model: Outgoing,
    /// The model takes no more of the request.
    is_cut: bool,
    answer: Answer,
    to_agent: Outgoing,
    began: Instant,
    moved: Instant,
}

impl<'a> Exchange<'a> {
    /// `head` is what is said to the model; `rest` what has come of the agent's body.
    pub(super) fn new(
        (client, told): (&'a TcpStream, &'a dyn Fn(Limit)),
        wire: Wire,
        place: String,
        limits: Limits,
        request: &Request,
        head: Vec<u8>,
    ) -> Self {
        let is_chunked = request.framing == body::Framing::Chunked;
        let now = Instant::now();
        Self {
            client,
            told,
            wire,
            place,
            method: request.method.clone(),
            limits,
            request: Passage::new(Decoder::new(request.framing), is_chunked, limits.request),
            to_model: Outgoing { bytes: head, sent: 0 },
            is_cut: false,
            answer: Answer::Head(Vec::new()),
            to_agent: Outgoing::default(),
            began: now,
            moved: now,
        }
    }

    /// Serves until it is over.
    pub(super) fn run(mut self, rest: &[u8]) -> io::Result<End> {
        self.client.set_nonblocking(true)?;
        let end = match self.hear_agent(rest) {
            Some(end) => end,
            None => self.go_on()?,
        };
        if matches!(end, End::Answered | End::AnsweredEarly) {
            self.wire.close();
        }
        Ok(end)
    }

    fn go_on(&mut self) -> io::Result<End> {
        let mut room = vec![0; BUFFER];
        loop {
            if let Some(end) = self.read_agent(&mut room).or_else(|| self.read_model(&mut room)) {
                return Ok(end);
            }
            let was_listening = self.listens_to_model();
            if let Some(end) = self.write() {
                return Ok(end);
            }
            if !was_listening && self.listens_to_model() {
                // What TLS has deciphered already, no socket will announce.
                continue;
            }
            let is_said = matches!(&self.answer, Answer::Body(passage) if passage.is_ended);
            if is_said && self.to_agent.is_empty() {
                let is_heard = self.request.decoder.is_over();
                return Ok(if is_heard { End::Answered } else { End::AnsweredEarly });
            }
            match self.wait()? {
                None => {}
                Some(end) => return Ok(end),
            }
        }
    }

    /// Reads what the agent says. Behind its request nothing is of interest but that it hangs up.
    fn read_agent(&mut self, room: &mut [u8]) -> Option<End> {
        if !self.listens_to_agent() {
            return None;
        }
        match (&*self.client).read(room) {
            // A client that closes its half of the connection cannot be told from one that is gone, and none that
            // waits for an answer does so.
            Ok(0) => Some(End::Broken),
            Ok(count) => self.hear_agent(&room[..count]),
            Err(error) if is_soon(&error) => None,
            Err(_) => Some(End::Broken),
        }
    }

    fn listens_to_agent(&self) -> bool {
        self.request.decoder.is_over() || self.is_cut || self.to_model.has_room()
    }

    fn hear_agent(&mut self, read: &[u8]) -> Option<End> {
        self.moved = Instant::now();
        let passed = match self.is_cut {
            // Still read, for its end.
            true => self.request.pass(read, &mut Outgoing::default()),
            false => self.request.pass(read, &mut self.to_model),
        };
        match passed {
            Ok(()) => None,
            Err(NoPassage::TooMuch) => Some(self.refused(Refusal::BodyTooLong)),
            Err(NoPassage::Broken) => Some(self.refused(Refusal::Malformed("its body is not framed as it says"))),
        }
    }

    /// Reads what the model says.
    fn read_model(&mut self, room: &mut [u8]) -> Option<End> {
        while self.listens_to_model() {
            let count = match self.wire.read(room) {
                Ok(0) => return self.model_is_done(),
                Ok(count) => count,
                Err(error) if is_soon(&error) => return None,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Some(self.lost(HUNG_UP.to_owned())),
                Err(error) => return Some(self.lost(error.to_string())),
            };
            self.moved = Instant::now();
            if let Some(end) = self.hear_model(&room[..count]) {
                return Some(end);
            }
        }
        None
    }

    fn listens_to_model(&self) -> bool {
        let is_said = matches!(&self.answer, Answer::Body(passage) if passage.is_ended);
        !is_said && self.to_agent.has_room()
    }

    fn hear_model(&mut self, read: &[u8]) -> Option<End> {
        let passed = match &mut self.answer {
            Answer::Body(passage) => passage.pass(read, &mut self.to_agent),
            Answer::Head(so_far) => {
                let searched = so_far.len();
                so_far.extend_from_slice(read);
                let so_far = std::mem::take(so_far);
                match self.read_head(so_far, searched) {
                    Ok(passed) => passed,
                    Err(Malformed(why)) => return Some(self.lost(why.to_owned())),
                }
            }
        };
        match passed {
            Ok(()) => None,
            Err(NoPassage::Broken | NoPassage::TooMuch) => Some(self.lost("its answer cannot be read".to_owned())),
        }
    }

    /// Looks for the answer's head in what there is, past those that only announce it.
    fn read_head(&mut self, mut bytes: Vec<u8>, mut searched: usize) -> Result<Result<(), NoPassage>, Malformed> {
        while let Some(end) = head::end(&bytes, searched) {
            let rest = bytes.split_off(end);
            if end > head::LIMIT {
                break;
            }
            if let Some(Response { head, framing, is_chunked, limit }) = Response::parse(&bytes, &self.method)? {
                (self.told)(limit);
                let mut passage = Passage::new(Decoder::new(framing), is_chunked, self.limits.response);
                self.to_agent.bytes.extend_from_slice(&head);
                let passed = passage.pass(&rest, &mut self.to_agent);
                self.answer = Answer::Body(passage);
                return Ok(passed);
            }
            (bytes, searched) = (rest, 0);
        }
        if bytes.len() > head::LIMIT {
            return Err(Malformed("the head of its answer is too long"));
        }
        self.answer = Answer::Head(bytes);
        Ok(Ok(()))
    }

    /// The model has said that it says no more.
    fn model_is_done(&mut self) -> Option<End> {
        match &mut self.answer {
            Answer::Body(passage) => {
                if passage.decoder.end().is_err() {
                    return Some(self.lost(String::new()));
                }
                passage.end_if_over(&mut self.to_agent);
                None
            }
            Answer::Head(_) => Some(self.lost(HUNG_UP.to_owned())),
        }
    }

    /// The model is gone, or makes no sense. What has come of its answer goes on, and then the agent's connection ends
    /// where it should not.
    fn lost(&mut self, cause: String) -> End {
        if matches!(self.answer, Answer::Head(_)) {
            return End::Refused(Refusal::Unreachable { place: self.place.clone(), cause });
        }
        let mut client = self.client;
        _ = self.to_agent.send(|bytes| client.write(bytes));
        End::Broken
    }

    fn refused(&self, refusal: Refusal) -> End {
        match (&self.answer, self.to_agent.is_empty()) {
            (Answer::Head(_), true) => End::Refused(refusal),
            _ => End::Broken,
        }
    }

    fn write(&mut self) -> Option<End> {
        if !self.is_cut {
            let wire = &mut self.wire;
            let sent = self.to_model.send(|bytes| wire.write(bytes)).and_then(|sent| wire.flush().map(|()| sent));
            match sent {
                Ok(true) => self.moved = Instant::now(),
                Ok(false) => {}
                // It may have answered before it stopped listening: an error it saw in the head.
                Err(_) => {
                    self.is_cut = true;
                    self.to_model.drop_all();
                }
            }
        }
        let mut client = self.client;
        match self.to_agent.send(|bytes| client.write(bytes)) {
            Ok(true) => self.moved = Instant::now(),
            Ok(false) => {}
            Err(_) => return Some(End::Broken),
        }
        None
    }

    /// Waits until something can be done.
    fn wait(&mut self) -> io::Result<Option<End>> {
        let now = Instant::now();
        let deadline = match self.wire.is_handshaking() {
            true => self.began + self.limits.handshake,
            false => self.moved + self.limits.idle,
        };
        if deadline <= now {
            return Ok(Some(self.too_slow()));
        }
        let events = |reads, writes| (if reads { libc::POLLIN } else { 0 }) | (if writes { libc::POLLOUT } else { 0 });
        let agent = events(self.listens_to_agent(), !self.to_agent.is_empty()) | HANG_UP;
        let wants_out = !self.is_cut && self.wire.wants_out(!self.to_model.is_empty());
        let model = events(self.listens_to_model(), wants_out);
        let mut entries = [
            sys::interest(self.client.as_raw_fd(), agent),
            // A hang-up would be reported without being asked for, again and again.
            if model == 0 { sys::interest(-1, 0) } else { sys::interest(self.wire.as_raw_fd(), model) },
        ];
        sys::poll(&mut entries, Some(deadline - now))?;
        let is_gone = entries[0].revents & (HANG_UP | libc::POLLHUP | libc::POLLERR) != 0;
        Ok(is_gone.then_some(End::Broken))
    }

    fn too_slow(&self) -> End {
        let place = self.place.clone();
        match (&self.answer, self.wire.is_handshaking()) {
            (Answer::Body(_), _) => End::Broken,
            (Answer::Head(_), true) => {
                End::Refused(Refusal::Unreachable { place, cause: "no TLS handshake within its time".to_owned() })
            }
            (Answer::Head(_), false) => End::Refused(Refusal::Silent { place, limit: self.limits.idle }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_always_has_something_waiting_keeps_no_more_than_that() {
        let mut out = Outgoing::default();
        for _ in 0..100 {
            out.bytes.extend_from_slice(&[b'x'; BUFFER]);
            let mut taken = 0;
            // The peer takes as much as came, less a byte the first time: it is never done.
            let most = if out.bytes.len() > BUFFER { BUFFER } else { BUFFER - 1 };
            out.send(|bytes| match most - taken {
                0 => Err(ErrorKind::WouldBlock.into()),
                room => {
                    let count = room.min(bytes.len());
                    taken += count;
                    Ok(count)
                }
            })
            .unwrap();
            assert!(!out.is_empty() && out.bytes.len() <= 2 * BUFFER, "{}", out.bytes.len());
        }
    }
}
