//! Text cut to what a screen and a database row can hold.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("aüü", 2), "a\n… 4 more bytes");
    }

    #[test]
    fn a_summary_is_one_line() {
        assert_eq!(one_line("\n  cargo test\t-q\nls"), "cargo test -q …");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"ü".repeat(500)).chars().count(), MAX_SUMMARY + 2);
    }
}
