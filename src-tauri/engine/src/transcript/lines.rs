//! Bytes into lines.

use memchr::memchr;

/// The longest line that is kept whole, in bytes; of a longer one the beginning is kept.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// What is kept allocated between two lines, in bytes, so that one huge line does not cost its memory for ever.
const KEEP_CAPACITY: usize = 256 * 1024;

/// One line without its line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its first [`MAX_LINE`] bytes at most. Not necessarily UTF-8.
    pub bytes: &'a [u8],
    /// How many bytes of it were dropped because it was longer.
    pub dropped: u64,
}

/// Cuts a stream of bytes at line feeds, and only there: other separators (a carriage return, U+2028) may stand inside
/// a JSON string. Gives the same lines however the stream was chunked; holds at most one line.
#[derive(Debug, Default)]
pub struct LineSplitter {
    partial: Vec<u8>,
    dropped: u64,
}

impl LineSplitter {
    /// Reads the next bytes of the stream and hands over every line they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.is_empty() && line.len() <= MAX_LINE {
                each(Line { bytes: line, dropped: 0 });
            } else {
                self.hold(line);
                self.hand_over(&mut each);
            }
        }
        self.hold(bytes);
    }

    /// The stream has ended: hands over a last line that no line feed ended.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.is_empty() {
            self.hand_over(&mut each);
        }
    }

    fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.dropped == 0
    }

    fn hold(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(MAX_LINE - self.partial.len());
        self.partial.extend_from_slice(&bytes[..fits]);
        self.dropped += (bytes.len() - fits) as u64;
    }

    fn hand_over(&mut self, each: &mut impl FnMut(Line<'_>)) {
        each(Line { bytes: &self.partial, dropped: self.dropped });
        self.dropped = 0;
        self.partial.clear();
        self.partial.shrink_to(KEEP_CAPACITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(Vec<u8>, u64)> {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk, |line| lines.push((line.bytes.to_vec(), line.dropped)));
        }
        splitter.finish(|line| lines.push((line.bytes.to_vec(), line.dropped)));
        lines
    }

    #[test]
    fn chunks_do_not_matter_and_only_line_feeds_cut() {
        let whole = "a\r\n\u{2028}b\n\nc".as_bytes();
        let expected = lines(&[whole]);
        assert_eq!(expected.len(), 4, "a, b, an empty line, and c without its line feed");
        for cut in 0..=whole.len() {
            assert_eq!(lines(&[&whole[..cut], &whole[cut..]]), expected);
        }
        assert_eq!(lines(&whole.iter().map(std::slice::from_ref).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_line_too_long_keeps_its_beginning_and_says_what_is_missing() {
        let long = vec![b'x'; MAX_LINE + 10];
        for chunks in [vec![&long[..], b"\nnext\n"], vec![&long[..7], &long[7..], b"\nnext\n"]] {
            let lines = lines(&chunks);
            assert_eq!((lines[0].0.len(), lines[0].1), (MAX_LINE, 10));
            assert_eq!(lines[1], (b"next".to_vec(), 0));
        }
    }

    #[test]
    fn memory_is_given_back_after_a_long_line() {
        let mut splitter = LineSplitter::default();
        splitter.push(&vec![b'x'; MAX_LINE], |_| {});
        splitter.push(b"\n", |_| {});
        assert!(splitter.partial.capacity() <= KEEP_CAPACITY);
    }
}
