//! JSON read once and borrowed: nothing on the way of a line builds a tree of values.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use serde_json::value::RawValue;

/// A string borrowed from its line where it holds no escapes. (`Cow` alone is never borrowed inside an `Option`.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Str<'a>(pub Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// A value whose type may differ from one version of an agent to the next: kept raw, read where it is what we know.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Loose<'a>(#[serde(borrow)] Option<&'a RawValue>);

impl<'a> Loose<'a> {
    /// The value, if it is one of that type.
    pub fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.0?.get()).ok()
    }

    /// The value as text, if it is a string.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let raw = self.0?.get();
        simple(raw).or_else(|| self.read::<Str<'a>>().map(|text| text.0))
    }

    /// The value as it was printed.
    pub fn raw(self) -> Option<&'a str> {
        self.0.map(RawValue::get)
    }
}

/// The text of a JSON string that holds no escapes but those of one character: what programs print is full of line
/// ends, and this reads it several times faster than a reader that is ready for everything.
fn simple(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = memchr::memchr(b'\\', inner.as_bytes()) else { return Some(Cow::Borrowed(inner)) };
    let mut text = String::with_capacity(inner.len());
    let (mut kept, mut next) = (0, Some(first));
    while let Some(at) = next {
        text.push_str(&inner[kept..at]);
        text.push(match inner.as_bytes().get(at + 1)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            same @ (b'"' | b'\\' | b'/') => char::from(*same),
            _ => return None,
        });
        kept = at + 2;
        next = memchr::memchr(b'\\', &inner.as_bytes()[kept..]).map(|found| kept + found);
    }
    text.push_str(&inner[kept..]);
    Some(Cow::Owned(text))
}

/// Replaces halves of surrogate pairs (`\ud83d` without its partner) by `\ufffd`; `None` where there are none.
///
/// JavaScript's strings may hold them: text cut in the middle of an emoji is printed so, and no JSON parser that
/// gives Unicode takes it.
pub(crate) fn without_lone_surrogates(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let escape = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut repaired, mut kept, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match escape(at) {
            Some(0xD800..=0xDBFF) if matches!(escape(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                repaired.push_str(&line[kept..at]);
                repaired.push_str("\\ufffd");
                at += 6;
                kept = at;
            }
            _ => at += 2, // Another escape: its second character is not the beginning of one.
        }
    }
    if kept == 0 {
        return None;
    }
    repaired.push_str(&line[kept..]);
    Some(repaired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_nothing_else() {
        let fixed = |text: &str| without_lone_surrogates(text);
        assert_eq!(fixed(r#""cut \ud83d""#).as_deref(), Some(r#""cut \ufffd""#));
        assert_eq!(fixed(r#""\udcbb\ud83d\udcbb""#).as_deref(), Some(r#""\ufffd\ud83d\udcbb""#));
        assert_eq!(fixed(r#""a backslash: \\ud83d""#), None, "an escaped backslash, not an escape");
        assert_eq!(fixed("\"é\\"), None);
        assert_eq!(fixed("\\ud83"), None);
    }

    #[test]
    fn strings_without_escapes_are_borrowed_also_inside_options() {
        let plain: Option<Str<'_>> = serde_json::from_str("\"plain\"").unwrap();
        assert!(matches!(plain, Some(Str(Cow::Borrowed("plain")))));
        let escaped: Option<Str<'_>> = serde_json::from_str(r#""es\ncaped""#).unwrap();
        assert_eq!(escaped.as_deref(), Some("es\ncaped"));
    }

    #[test]
    fn text_with_simple_escapes_reads_like_any_other() {
        for text in ["", "plain ü", "a\nb\tc\r\u{8}\u{c}\"\\/", "\\", "ends\n", "\u{1}", "👩\n\u{2028}"] {
            let json = serde_json::to_string(text).unwrap();
            let raw: &RawValue = serde_json::from_str(&json).unwrap();
            assert_eq!(Loose(Some(raw)).text().as_deref(), Some(text), "{json}");
        }
        for (json, text) in [(r#""\/""#, "/"), (r#""a\u00fcb\n""#, "aüb\n"), (r#""\ud83d\ude00""#, "😀")] {
            let raw: &RawValue = serde_json::from_str(json).unwrap();
            assert_eq!(Loose(Some(raw)).text().as_deref(), Some(text), "{json}");
        }
    }

    #[test]
    fn a_loose_value_of_another_type_is_no_error() {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow, default)]
            error: Loose<'a>,
        }
        let read = |line: &'static str| serde_json::from_str::<Line<'_>>(line).unwrap().error;
        assert_eq!(read(r#"{"error":"x"}"#).text().as_deref(), Some("x"));
        assert_eq!(read(r#"{"error":{"a":1}}"#).text(), None);
        assert_eq!(read(r#"{"error":null}"#).raw(), None);
        assert_eq!(read("{}").raw(), None);
    }
}
