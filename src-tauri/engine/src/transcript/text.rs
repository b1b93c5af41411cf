//! Text cut to what a screen and a database row can hold.

use std::borrow::Cow;

/// The longest tool input and tool result that is kept, in bytes.
pub(crate) const MAX_FIELD: usize = 32 * 1024;

/// The longest one-line summary, in characters.
const MAX_SUMMARY: usize = 160;

/// `text`, or its first `limit` bytes (at a character) and a note saying how much is missing.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit);
    format!("{}\n… {} more bytes", &text[..end], text.len() - end)
}

/// The first line that is not blank, without control characters and cut at a length a row can show.
pub(crate) fn one_line(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (first, more) = (lines().next().unwrap_or_default(), lines().nth(1).is_some());
    let mut line: String = first.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SUMMARY).collect();
    if more || first.chars().nth(MAX_SUMMARY).is_some() {
        line.push_str(" …");
    }
    line
}

/// `text` without the sequences that colour a terminal.
pub(crate) fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, sequence)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = match sequence.strip_prefix('[') {
            // Parameters, then one character that says what they are for.
            Some(inner) => inner.split_once(|c: char| ('@'..='~').contains(&c)).map_or("", |(_, after)| after),
            None => {
                let mut rest = sequence.chars();
                rest.next();
                rest.as_str()
            }
        };
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("aüü", 2), "a\n… 4 more bytes");
    }

    #[test]
    fn colours_are_left_out() {
        assert_eq!(without_escapes("\u{1b}[91m\u{1b}[1mError: \u{1b}[0mno ü"), "Error: no ü");
        assert_eq!(without_escapes("plain"), "plain");
        assert_eq!(without_escapes("cut \u{1b}[9"), "cut ");
        assert_eq!(without_escapes("one \u{1b}ctwo\u{1b}"), "one two");
    }

    #[test]
    fn a_summary_is_one_line() {
        assert_eq!(one_line("\n  cargo test\t-q\nls"), "cargo test -q …");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"ü".repeat(500)).chars().count(), MAX_SUMMARY + 2);
    }
}
