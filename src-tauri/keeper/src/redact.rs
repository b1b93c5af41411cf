//! Takes secrets out of a stream of bytes.
//!
//! A secret is found as it is and in every way JSON writes it: escaped, with `/` escaped, with non-ASCII or markup
//! characters or everything as `\u`, in either case of the hexadecimal digits, and each of these escaped once more
//! (JSON inside JSON is how tools report what they printed).
//!
//! However the stream is cut into chunks, the output is the same: the leftmost match wins, of those the longest, and a
//! byte is let go only once no continuation could make it part of a match.

use std::{collections::BTreeSet, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// What stands where a secret was.
pub const REPLACEMENT: &[u8] = b"[redacted]";

/// What to look for; made once, shared by any number of streams.
#[derive(Clone)]
pub struct Patterns(Arc<Inner>);

struct Inner {
    /// Finds whole secrets; `None`: there is nothing to look for.
    whole: Option<AhoCorasick>,
    /// Every form of every secret, sorted, for telling beginnings of secrets.
    forms: Vec<Vec<u8>>,
    longest: usize,
    begins: [bool; 256],
}

impl Patterns {
    /// Looks for these secrets; empty ones are passed over.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets {
            let secret = secret.as_ref();
            if !secret.is_empty() {
                add_forms(secret, &mut forms);
            }
        }
        let forms: Vec<Vec<u8>> = forms.into_iter().collect();
        let mut begins = [false; 256];
        forms.iter().for_each(|form| begins[usize::from(form[0])] = true);
        let whole = (!forms.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&forms)
                .expect("a secret's forms are far below the automaton's limits")
        });
        Self(Arc::new(Inner { whole, longest: forms.iter().map(Vec::len).max().unwrap_or(0), forms, begins }))
    }

    /// Whether a secret is in a text that is all there.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.0.whole.as_ref().is_some_and(|whole| whole.is_match(text))
    }

    /// Takes the secrets out of a text that is all there.
    pub fn redact(&self, text: &[u8]) -> Vec<u8> {
        let mut stream = Redactor::new(self.clone());
        let mut clean = Vec::with_capacity(text.len());
        stream.push(text, &mut clean);
        stream.finish(&mut clean);
        clean
    }

    /// Where the longest end of `text` begins that more bytes could turn into a secret; the text's length if none.
    fn undecided_from(&self, text: &[u8]) -> usize {
        let earliest = text.len().saturating_sub(self.0.longest.saturating_sub(1));
        (earliest..text.len()).find(|&at| self.can_grow(&text[at..])).unwrap_or(text.len())
    }

    /// Whether this is a beginning of a secret, but not all of it.
    fn can_grow(&self, end: &[u8]) -> bool {
        if !self.0.begins[usize::from(end[0])] {
            return false;
        }
        // In sorted order all that begin with `end` follow it directly; `end` itself is the first of them.
        let at = self.0.forms.partition_point(|form| form.as_slice() <= end);
        self.0.forms.get(at).is_some_and(|form| form.starts_with(end))
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patterns({} forms)", self.0.forms.len())
    }
}

/// Takes secrets out of one stream.
#[derive(Clone)]
pub struct Redactor {
    patterns: Patterns,
    /// What may still become a secret.
    held: Vec<u8>,
}

impl Redactor {
    /// The beginning of a stream.
    pub fn new(patterns: Patterns) -> Self {
        Self { patterns, held: Vec::new() }
    }

    /// Takes the next chunk in, and appends what is decided to `clean`.
    pub fn push(&mut self, chunk: &[u8], clean: &mut Vec<u8>) {
        if self.patterns.0.whole.is_none() {
            clean.extend_from_slice(chunk);
        } else if self.held.is_empty() {
            let decided = self.decide(chunk, clean);
            self.held.extend_from_slice(&chunk[decided..]);
        } else {
            let mut text = std::mem::take(&mut self.held);
            text.extend_from_slice(chunk);
            let decided = self.decide(&text, clean);
            text.drain(..decided);
            self.held = text;
        }
    }

    /// The stream is over: what was held back is no secret, or holds whole ones.
    pub fn finish(&mut self, clean: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.held);
        let mut from = 0;
        while let Some((start, end)) = self.next_match(&text, from) {
            clean.extend_from_slice(&text[from..start]);
            clean.extend_from_slice(REPLACEMENT);
            from = end;
        }
        clean.extend_from_slice(&text[from..]);
    }

    /// Appends what is certain, and says how much of the text that was.
    fn decide(&self, text: &[u8], clean: &mut Vec<u8>) -> usize {
        let mut from = 0;
        loop {
            let undecided = from + self.patterns.undecided_from(&text[from..]);
            match self.next_match(text, from) {
                // Nothing that begins earlier, or here and longer, can still arise: the match stands.
                Some((start, end)) if start < undecided => {
                    clean.extend_from_slice(&text[from..start]);
                    clean.extend_from_slice(REPLACEMENT);
                    from = end;
                }
                Some(_) | None => {
                    clean.extend_from_slice(&text[from..undecided]);
                    return undecided;
                }
            }
        }
    }

    fn next_match(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        let found = self.patterns.0.whole.as_ref()?.find(Input::new(text).span(from..text.len()))?;
        Some((found.start(), found.end()))
    }
}

impl fmt::Debug for Redactor {
    /// Not what is held: that may be half a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} bytes held)", self.held.len())
    }
}

/// Which characters a writer of JSON turns into `\u` although it need not.
#[derive(Clone, Copy)]
enum Unicode {
    Never,
    NonAscii,
    Markup,
    NonAsciiAndMarkup,
    Always,
}

fn add_forms(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    let mut once = BTreeSet::from([secret.to_owned()]);
    for unicode in [Unicode::Never, Unicode::NonAscii, Unicode::Markup, Unicode::NonAsciiAndMarkup, Unicode::Always] {
        for upper in [false, true] {
            for slash in [false, true] {
                once.insert(escaped(secret, unicode, upper, slash));
            }
        }
    }
    for form in once {
        for slash in [false, true] {
            forms.insert(escaped(&form, Unicode::Never, false, slash).into_bytes());
        }
        forms.insert(escaped(&form, Unicode::NonAscii, false, false).into_bytes());
        forms.insert(escaped(&form, Unicode::NonAscii, true, false).into_bytes());
        forms.insert(form.into_bytes());
    }
}

/// The text as it stands inside a JSON string.
fn escaped(text: &str, unicode: Unicode, upper: bool, slash: bool) -> String {
    let mut json = String::with_capacity(text.len());
    let code = |unit: u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
    for character in text.chars() {
        let is_markup = matches!(character, '<' | '>' | '&' | '\'' | '+' | '=' | '\u{7f}' | '\u{2028}' | '\u{2029}');
        let by_code = match unicode {
            Unicode::Never => false,
            Unicode::NonAscii => !character.is_ascii(),
            Unicode::Markup => is_markup,
            Unicode::NonAsciiAndMarkup => !character.is_ascii() || is_markup,
            Unicode::Always => true,
        };
        match character {
            _ if by_code => character.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| json += &code(unit)),
            '"' => json += "\\\"",
            '\\' => json += "\\\\",
            '/' if slash => json += "\\/",
            '\n' => json += "\\n",
            '\r' => json += "\\r",
            '\t' => json += "\\t",
            '\u{8}' => json += "\\b",
            '\u{c}' => json += "\\f",
            control if u32::from(control) < 0x20 => {
                control.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| json += &code(unit));
            }
            plain => json.push(plain),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_chunks(patterns: &Patterns, text: &[u8], size: usize) -> Vec<u8> {
        let mut stream = Redactor::new(patterns.clone());
        let mut clean = Vec::new();
        text.chunks(size).for_each(|chunk| stream.push(chunk, &mut clean));
        stream.finish(&mut clean);
        clean
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn any_chunking_gives_the_same() {
        let patterns = Patterns::new(["sk-ant-1", "sk-ant-1-longer", "nt-1-", "aab", "ab\"c/dé"]);
        let input = concat!(
            "x sk-ant-1 y sk-ant-1-longer z sk-ant-1-long sk-ant-sk-ant-1-aaab aaaab {\"a\":\"ab\\\"c/dé\"} ab\\\\\\\"c\\/d\\u00E9 ",
            "sk-ant-1-longesk-ant-1-longer sk-ant"
        );
        let whole = patterns.redact(input.as_bytes());
        for size in 1..input.len() {
            assert_eq!(text(&in_chunks(&patterns, input.as_bytes(), size)), text(&whole), "in chunks of {size}");
        }
        assert_eq!(
            text(&whole),
            concat!(
                "x [redacted] y [redacted] z [redacted]-long sk-ant-[redacted]-a[redacted] aa[redacted] {\"a\":\"[redacted]\"} ",
                "ab\\\\\\\"c\\/d\\u00E9 [redacted]-longe[redacted] sk-ant"
            )
        );
    }

    #[test]
    fn every_way_json_writes_a_secret_is_found() {
        let secret = "k\"ey/ü😀<&>\\n\n";
        let patterns = Patterns::new([secret]);
        let once = serde_json::to_string(secret).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        let mut written = vec![secret.to_owned(), once.clone(), twice];
        written.push("k\\\"ey\\/ü😀<&>\\\\n\\n".into());
        written.push("k\\\"ey/\\u00fc\\ud83d\\ude00<&>\\\\n\\n".into());
        written.push("k\\\"ey/\\u00FC\\uD83D\\uDE00<&>\\\\n\\n".into());
        written.push("k\\\"ey/ü😀\\u003c\\u0026\\u003e\\\\n\\n".into());
        written.push("k\\\\\\\"ey/\\\\u00fc\\\\ud83d\\\\ude00<&>\\\\\\\\n\\\\n".into());
        written.push(secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect());
        written.push(secret.encode_utf16().map(|unit| format!("\\\\u{unit:04X}")).collect());
        for form in written {
            let clean = patterns.redact(format!("before {form} after").as_bytes());
            assert!(text(&clean).contains("[redacted]"), "not found: {form}");
            assert!(!text(&clean).contains("ey"), "left over of {form}: {}", text(&clean));
        }
    }

    #[test]
    fn only_what_can_become_a_secret_is_held_back() {
        let mut stream = Redactor::new(Patterns::new(["secret-key"]));
        let mut clean = Vec::new();
        stream.push(b"nothing like it, secr", &mut clean);
        assert_eq!(text(&clean), "nothing like it, ");
        stream.push(b"etly", &mut clean);
        assert_eq!(text(&clean), "nothing like it, secretly");
        stream.push(b" secret-key", &mut clean);
        assert_eq!(text(&clean), "nothing like it, secretly [redacted]", "a whole secret needs no more bytes");
    }

    #[test]
    fn without_secrets_everything_passes_at_once() {
        let mut stream = Redactor::new(Patterns::new(["", ""]));
        let mut clean = Vec::new();
        stream.push(b"anything", &mut clean);
        assert_eq!(clean, b"anything");
    }
}
