//! Bodies: where one ends, and how it goes on. What arrives is taken out of its framing and framed anew, so that no
//! ambiguity of the one side reaches the other. Pure.

/// The longest line that only frames: a chunk's size with its extensions.
const LINE_LIMIT: usize = 4 << 10;

/// The most there may be of trailers, which are dropped.
const TRAILER_LIMIT: usize = 16 << 10;

/// How a body says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// By chunks.
    Chunked,
    /// With the connection. For responses only.
    UntilClose,
}

/// The framing is broken, or its end is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Takes content out of its framing, however it is cut.
#[derive(Debug)]
pub(super) struct Decoder(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Over,
    Length(u64),
    UntilClose,
    /// In the number that begins a chunk; `length`: of the line so far.
    Size {
        value: u64,
        digits: usize,
    },
    Extension {
        value: u64,
        length: usize,
    },
    SizeEnd {
        value: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    /// At the beginning of a line behind the last chunk, or in it.
    Trailer {
        length: usize,
        is_empty: bool,
    },
    TrailerLf {
        length: usize,
        is_empty: bool,
    },
}

const NEW_CHUNK: State = State::Size { value: 0, digits: 0 };

impl Decoder {
    pub(super) fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::None | Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => NEW_CHUNK,
            Framing::UntilClose => State::UntilClose,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.0 == State::Over
    }

    /// The stream has ended: whether the body had.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        match self.0 {
            State::Over | State::UntilClose => {
                self.0 = State::Over;
                Ok(())
            }
            _ => Err(Broken),
        }
    }

    /// Reads the next bytes, and adds what of them is content. What follows the body is left alone.
    pub(super) fn read(&mut self, mut input: &[u8], content: &mut Vec<u8>) -> Result<(), Broken> {
        while let Some(&byte) = input.first() {
            match &mut self.0 {
                State::Over => return Ok(()),
                State::UntilClose => {
                    content.extend_from_slice(input);
                    return Ok(());
                }
                State::Length(left) | State::Data(left) => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    content.extend_from_slice(&input[..most]);
                    input = &input[most..];
                    *left -= most as u64;
                    self.0 = match self.0 {
                        State::Length(0) => State::Over,
                        State::Data(0) => State::DataCr,
                        same => same,
                    };
                    continue;
                }
                _ => self.0 = self.0.after(byte)?,
            }
            input = &input[1..];
        }
        Ok(())
    }
}

impl State {
    /// One byte that is framing.
    fn after(self, byte: u8) -> Result<Self, Broken> {
        Ok(match (self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(Broken)?;
                Self::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err(Broken),
            (Self::Size { value, .. }, b'\r') => Self::SizeEnd { value },
            (Self::Size { value, .. }, b';' | b' ' | b'\t') => Self::Extension { value, length: 0 },
            (Self::Extension { value, .. }, b'\r') => Self::SizeEnd { value },
            (Self::Extension { value, length }, _) if is_text(byte) && length < LINE_LIMIT => {
                Self::Extension { value, length: length + 1 }
            }
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Trailer { length: 0, is_empty: true },
            (Self::SizeEnd { value }, b'\n') => Self::Data(value),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => NEW_CHUNK,
            (Self::Trailer { length, is_empty }, b'\r') => Self::TrailerLf { length, is_empty },
            (Self::Trailer { length, .. }, _) if is_text(byte) && length < TRAILER_LIMIT => {
                Self::Trailer { length: length + 1, is_empty: false }
            }
            (Self::TrailerLf { is_empty: true, .. }, b'\n') => Self::Over,
            (Self::TrailerLf { length, .. }, b'\n') => Self::Trailer { length, is_empty: true },
            _ => return Err(Broken),
        })
    }
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Adds content as it goes on: in a chunk, or as it is.
pub(super) fn frame(is_chunked: bool, content: &[u8], out: &mut Vec<u8>) {
    if content.is_empty() {
        return; // An empty chunk would be the end.
    }
    if is_chunked {
        out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
    }
    out.extend_from_slice(content);
    if is_chunked {
        out.extend_from_slice(b"\r\n");
    }
}

/// What says that everything was said.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(framing: Framing, input: &[u8], size: usize) -> (Result<Vec<u8>, Broken>, bool) {
        let (mut decoder, mut content) = (Decoder::new(framing), Vec::new());
        for part in input.chunks(size) {
            if decoder.read(part, &mut content).is_err() {
                return (Err(Broken), false);
            }
        }
        (Ok(content), decoder.is_over())
    }

    #[test]
    fn chunks_come_out_whole_however_they_are_cut() {
        let input = b"5\r\nhello\r\n00A ; name=\"x\"\r\n, and more\r\n0\r\nTrailer: dropped\r\nX: y\r\n\r\nleft alone";
        for size in 1..input.len() {
            let (content, is_over) = decoded(Framing::Chunked, input, size);
            assert_eq!(content.unwrap(), b"hello, and more", "in pieces of {size}");
            assert!(is_over);
        }
    }

    #[test]
    fn a_length_is_kept() {
        assert_eq!(decoded(Framing::Length(5), b"hello, and more", 2), (Ok(b"hello".to_vec()), true));
        assert_eq!(decoded(Framing::Length(5), b"hell", 2), (Ok(b"hell".to_vec()), false));
        assert_eq!(decoded(Framing::None, b"x", 1), (Ok(Vec::new()), true));
    }

    #[test]
    fn only_a_body_that_ends_with_its_connection_may_end_so() {
        assert_eq!(Decoder::new(Framing::UntilClose).end(), Ok(()));
        assert_eq!(Decoder::new(Framing::None).end(), Ok(()));
        assert_eq!(Decoder::new(Framing::Length(1)).end(), Err(Broken));
        assert_eq!(Decoder::new(Framing::Chunked).end(), Err(Broken));
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        let long = format!("1;{}\r\n", "x".repeat(LINE_LIMIT + 1));
        for bad in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1\nA",
            "1\r\nAB",
            "1\r\nA\n",
            "1\r\nA\rB",
            "1;a\nb",
            "10000000000000000\r\n",
            "0\r\n\n",
            "0\r\nA\n\r\n",
            "0\r\nA: \0\r\n\r\n",
            "1;\0\r\n",
            &long,
        ] {
            assert_eq!(decoded(Framing::Chunked, bad.as_bytes(), 3).0, Err(Broken), "{bad:?}");
        }
    }

    #[test]
    fn what_is_framed_comes_back() {
        let mut out = Vec::new();
        frame(true, b"", &mut out);
        frame(true, b"hello", &mut out);
        frame(true, &[b'x'; 300], &mut out);
        out.extend_from_slice(LAST_CHUNK);
        let (content, is_over) = decoded(Framing::Chunked, &out, 7);
        assert!(is_over && content.unwrap().len() == 305);
        let mut plain = Vec::new();
        frame(false, b"hello", &mut plain);
        assert_eq!(plain, b"hello");
    }
}
