//! The frames of a Connect stream (<https://connectrpc.com/docs/protocol>): a byte of flags, a big-endian length, then that
//! much JSON. The last one says how the stream ended.

use serde::Deserialize;

use super::error::Failure;

/// Marks the last frame.
const END: u8 = 0x02;
/// Marks a compressed frame, which nobody was asked for.
const COMPRESSED: u8 = 0x01;
/// The longest frame: a daemon sends what a pipe holds, many times over.
const LONGEST: usize = 64 << 20;

/// One message as it is sent.
pub(super) fn encode(json: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(json.len() + 5);
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(json.len()).expect("a message is small").to_be_bytes());
    frame.extend_from_slice(json);
    frame
}

/// What comes out of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Message(Vec<u8>),
    End,
}

/// Cuts a stream into frames, however it arrives.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    held: Vec<u8>,
    begin: usize,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.begin > 0 && self.begin == self.held.len() {
            self.held.clear();
            self.begin = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Failure> {
        let garbled = |why: &str| Failure::Unknown(format!("its stream is not one: {why}"));
        let waiting = &self.held[self.begin..];
        let Some((head, rest)) = waiting.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > LONGEST {
            return Err(garbled("a frame is too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = match head[0] {
            0 => Frame::Message(body.to_vec()),
            END => end(body)?,
            flags if flags & COMPRESSED != 0 => return Err(garbled("it is compressed")),
            _ => return Err(garbled("a frame has unknown flags")),
        };
        self.begin += 5 + length;
        if self.begin > LONGEST / 64 {
            self.held.drain(..self.begin);
            self.begin = 0;
        }
        Ok(Some(frame))
    }
}

/// How a stream, or a single call, went wrong.
#[derive(Debug, Deserialize)]
pub(super) struct ConnectError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let words = crate::net::plain(&error.message, None, 300);
        match error.code.as_str() {
            "not_found" => Self::NotFound,
            "already_exists" | "failed_precondition" | "aborted" => Self::Conflict(words),
            "resource_exhausted" => Self::RateLimited(std::time::Duration::from_secs(1)),
            code => Self::Unknown(format!("{code}: {words}")),
        }
    }
}

fn end(body: &[u8]) -> Result<Frame, Failure> {
    #[derive(Deserialize)]
    struct Last {
        error: Option<ConnectError>,
    }
    match serde_json::from_slice::<Last>(body) {
        Ok(Last { error: None }) => Ok(Frame::End),
        Ok(Last { error: Some(error) }) => Err(error.into()),
        Err(_) => Err(Failure::Unknown("its stream ended with words that are none".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cuts in prop::collection::vec(1_usize..97, 1..40),
        ) {
            let mut wire: Vec<u8> = messages.iter().flat_map(|message| encode(message)).collect();
            wire.extend([END, 0, 0, 0, 2]);
            wire.extend(b"{}");
            let (mut decoder, mut found, mut rest) = (Decoder::default(), Vec::new(), wire.as_slice());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at(rest.len().min(*cut));
                decoder.push(now);
                while let Some(frame) = decoder.next().unwrap() {
                    found.push(frame);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found.pop(), Some(Frame::End));
            prop_assert_eq!(found, messages.into_iter().map(Frame::Message).collect::<Vec<_>>());
        }

        #[test]
        fn noise_is_no_frame_and_no_panic(noise in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::default();
            decoder.push(&noise);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }

    #[test]
    fn an_error_at_the_end_is_told() {
        let mut decoder = Decoder::default();
        let body = br#"{"error":{"code":"not_found","message":"process with pid 9 not found"}}"#;
        decoder.push(&[&[END, 0, 0, 0, u8::try_from(body.len()).unwrap()], body.as_slice()].concat());
        assert!(matches!(decoder.next(), Err(Failure::NotFound)));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0xff, 0xff, 0xff, 0xff, 1]);
        assert!(matches!(decoder.next(), Err(Failure::Unknown(_))), "a false length takes no memory");
    }
}
