//! Answers that go wrong on their way: cut after so many bytes or frames.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, Bytes},
    response::Response,
};
use bytes::BytesMut;
use futures_util::{StreamExt, stream};

use super::{
    envd::{END, HEAD},
    fault::{Call, What},
    wire::Wire,
};

/// What was sent must be on its way before the connection is reset.
const ON_ITS_WAY: Duration = Duration::from_millis(30);

/// What happens once enough has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Reset,
    Stall,
    End,
    /// Half of the next frame, and the end.
    HalfAFrame,
    /// Nothing, but the last frame is left out.
    NoLast,
}

struct Spoiled {
    body: BodyDataStream,
    held: BytesMut,
    /// How much still comes: frames or bytes.
    left: usize,
    in_frames: bool,
    then: Then,
    is_over: bool,
    wire: Wire,
}

/// The answer as this fault leaves it; `None` if it is none of those that befall an answer's body.
pub(super) fn spoiled(response: Response, call: Call, what: &What, wire: &Wire) -> Response {
    let (left, in_frames, then) = match *what {
        What::ResetAfter(bytes) => (bytes, false, Then::Reset),
        What::StallAfter(some) => (some, call.is_stream(), Then::Stall),
        What::TruncatedAfter(frames) => (frames, true, Then::HalfAFrame),
        What::EndsAfter(frames) => (frames, true, Then::End),
        What::NoEndFrame => (usize::MAX, true, Then::NoLast),
        _ => return response,
    };
    let (head, body) = response.into_parts();
    let body = body.into_data_stream();
    let spoiled = Spoiled { body, held: BytesMut::new(), left, in_frames, then, is_over: false, wire: wire.clone() };
    let pieces = stream::unfold(spoiled, async |mut spoiled| {
        let next = spoiled.next().await?;
        Some((next, spoiled))
    });
    Response::from_parts(head, Body::from_stream(pieces))
}

impl Spoiled {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            if self.is_over {
                return None;
            }
            if self.left == 0 && self.then != Then::HalfAFrame {
                return self.over().await;
            }
            if let Some(piece) = self.ready() {
                return Some(Ok(piece));
            }
            if self.is_over {
                return None;
            }
            match self.body.next().await? {
                Ok(more) => self.held.extend_from_slice(&more),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    async fn over(&mut self) -> Option<Result<Bytes, axum::Error>> {
        match self.then {
            Then::Reset => {
                tokio::time::sleep(ON_ITS_WAY).await;
                self.wire.reset_here().await
            }
            Then::Stall => std::future::pending().await,
            Then::End | Then::HalfAFrame | Then::NoLast => None,
        }
    }

    /// The next that is to be passed on, if enough is held.
    fn ready(&mut self) -> Option<Bytes> {
        if !self.in_frames {
            let length = self.left.min(self.held.len());
            self.left -= length;
            return (length > 0).then(|| self.held.split_to(length).freeze());
        }
        let (head, _) = self.held.split_first_chunk::<HEAD>()?;
        let [flags, length @ ..] = *head;
        let length = HEAD + usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX - HEAD);
        if self.held.len() < length {
            return None;
        }
        if self.left == 0 {
            self.is_over = true;
            return Some(self.held.split_to(length / 2).freeze());
        }
        if self.then == Then::NoLast && flags & END != 0 {
            self.is_over = true;
            return None;
        }
        self.left -= 1;
        Some(self.held.split_to(length).freeze())
    }
}
