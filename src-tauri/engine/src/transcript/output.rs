//! What a program printed, in pieces of a size a window can redraw.

use super::Items;
use crate::model::{Delta, Item, Stream};

/// The longest text of one piece, in bytes. While a piece grows the window makes its text anew with every picture, and a
/// browser is slow to let go of what it was before: short pieces keep that small.
const MAX_PIECE: usize = 1024;

/// Cuts the two streams of a program into `Output` items.
///
/// What arrives is shown at once, a line without its end too. A piece is as long as it can be: it ends with the last
/// line that fits, or, where one line alone is longer, between two characters of it. The finished pieces depend only on
/// the bytes and on where the streams alternate, not on chunks. Bytes that are not UTF-8 become U+FFFD; the beginning
/// of a character waits for its rest.
#[derive(Debug, Default)]
pub(crate) struct OutputText {
    open: Option<Piece>,
    /// The first bytes of a character whose rest has not come, per stream.
    held: [Vec<u8>; 2],
}

/// The piece that still grows.
#[derive(Debug)]
struct Piece {
    at: u32,
    stream: Stream,
    text: String,
    /// Where its last, unfinished line begins.
    line: usize,
}

impl OutputText {
    /// Reads the next bytes of one stream.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], items: &mut Items, deltas: &mut Vec<Delta>) {
        let held = &mut self.held[stream as usize];
        let joined;
        let bytes = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            joined = std::mem::take(held);
            &joined
        };
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && may_become_a_character(invalid) {
                self.held[stream as usize] = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.write(stream, &text, items, deltas);
    }

    /// Both streams have ended: what waits for its rest will not get it.
    pub fn finish(&mut self, items: &mut Items, deltas: &mut Vec<Delta>) {
        for stream in [Stream::Out, Stream::Err] {
            if !std::mem::take(&mut self.held[stream as usize]).is_empty() {
                self.write(stream, "\u{FFFD}", items, deltas);
            }
        }
    }

    /// What comes next begins a new piece, because another item stands between.
    pub fn close(&mut self) {
        self.open = None;
    }

    fn write(&mut self, stream: Stream, mut text: &str, items: &mut Items, deltas: &mut Vec<Delta>) {
        while !text.is_empty() {
            let Some(piece) = self.open.as_mut().filter(|piece| piece.stream == stream) else {
                let at = items.add(Item::Output { text: String::new(), stream }, deltas);
                self.open = Some(Piece { at, stream, text: String::new(), line: 0 });
                continue;
            };
            let room = text.floor_char_boundary(MAX_PIECE - piece.text.len());
            let fits = text[..room].rfind('\n').map_or(0, |end| end + 1);
            // Whole lines that fit; or all there is; or, of a line that fills the piece alone, what fits.
            let taken = if room == text.len() {
                room
            } else if fits > 0 || piece.line > 0 {
                fits
            } else {
                room
            };
            if taken > 0 {
                let (now, rest) = text.split_at(taken);
                text = rest;
                if let Some(end) = now.rfind('\n') {
                    piece.line = piece.text.len() + end + 1;
                }
                piece.text.push_str(now);
                deltas.push(Delta::Append { at: piece.at, text: now.to_owned() });
            }
            if !text.is_empty() {
                self.cut(items, deltas);
            }
        }
    }

    /// Ends the open piece; the unfinished line at its end moves to the next one.
    fn cut(&mut self, items: &mut Items, deltas: &mut Vec<Delta>) {
        let Some(mut piece) = self.open.take() else { return };
        let line = if piece.line > 0 { piece.text.split_off(piece.line) } else { String::new() };
        if line.is_empty() {
            return;
        }
        deltas.push(Delta::Put { at: piece.at, item: Item::Output { text: piece.text, stream: piece.stream } });
        let at = items.add(Item::Output { text: line.clone(), stream: piece.stream }, deltas);
        self.open = Some(Piece { at, stream: piece.stream, text: line, line: 0 });
    }
}

/// Whether these bytes, which are not UTF-8, are the beginning of a character.
fn may_become_a_character(bytes: &[u8]) -> bool {
    // An error without a length means that the input ended too early, not that it is wrong.
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transcript::fold;

    fn pieces(chunks: &[(Stream, &[u8])]) -> Vec<(Stream, String)> {
        let (mut output, mut items, mut folded) = (OutputText::default(), Items::default(), Vec::new());
        let mut deltas = Vec::new();
        for (stream, bytes) in chunks {
            output.push(*stream, bytes, &mut items, &mut deltas);
        }
        output.finish(&mut items, &mut deltas);
        fold(&mut folded, deltas);
        folded
            .into_iter()
            .map(|item| match item {
                Item::Output { text, stream } => (stream, text),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_piece_ends_with_a_line_and_a_long_line_with_a_character() {
        let lines = format!("{}\n", "x".repeat(99)).repeat(100);
        let cut = pieces(&[(Stream::Out, lines.as_bytes())]);
        assert_eq!(cut.iter().map(|(_, text)| text.len()).collect::<Vec<_>>(), [1000; 10]);
        let long = format!("short\n{}\nend", "ü".repeat(3000));
        let cut = pieces(&[(Stream::Out, long.as_bytes())]);
        assert_eq!(cut.iter().map(|(_, text)| text.len()).collect::<Vec<_>>(), [6, 1024, 1024, 1024, 1024, 1024, 884]);
        assert_eq!(cut.concat_text(), long);
    }

    #[test]
    fn streams_alternate_as_they_came_and_half_a_character_waits() {
        let cut = pieces(&[
            (Stream::Out, b"a\xf0\x9f"),
            (Stream::Err, b"oops\n"),
            (Stream::Out, b"\x91\xa9b\xff\xfe"),
            (Stream::Out, b"\xe2\x9c"),
        ]);
        let expected = [(Stream::Out, "a"), (Stream::Err, "oops\n"), (Stream::Out, "👩b\u{FFFD}\u{FFFD}\u{FFFD}")];
        assert_eq!(cut, expected.map(|(stream, text)| (stream, text.to_owned())));
    }

    trait Concat {
        fn concat_text(&self) -> String;
    }
    impl Concat for Vec<(Stream, String)> {
        fn concat_text(&self) -> String {
            self.iter().map(|(_, text)| text.as_str()).collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn pieces_do_not_depend_on_chunks(
            bytes in proptest::collection::vec(prop_oneof![8 => Just(b'a'), 1 => Just(b'\n'), 1 => any::<u8>()], 0..20_000),
            cuts in proptest::collection::vec(0usize..20_000, 0..20),
        ) {
            let whole = pieces(&[(Stream::Out, &bytes)]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut chunks, mut from) = (Vec::new(), 0);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                chunks.push((Stream::Out, &bytes[from..cut]));
                from = cut;
            }
            prop_assert_eq!(pieces(&chunks), whole.clone());
            prop_assert_eq!(whole.concat_text(), String::from_utf8_lossy(&bytes));
            prop_assert!(whole.iter().all(|(_, text)| !text.is_empty() && text.len() <= MAX_PIECE));
        }
    }
}
