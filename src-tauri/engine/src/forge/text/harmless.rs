//! Makes text from a conversation fit to be published: nobody is pinged, no issue is touched, nothing private is told.
//!
//! A zero-width space parts what GitHub would take for a mention or a reference; one sees no difference. It stands in code
//! too, although GitHub links nothing there: where code ends is the writer's word, and the writer may lie.

use courier_keeper::redact::Patterns;

use crate::{
    net,
    secrets::{Secret, looks_secret},
};

const PART: char = '\u{200b}';

const SECRET: &str = "[redacted]";
const PATH: &str = "[local path]";
const ADDRESS: &str = "[local address]";
const ID: &str = "[id]";

/// How paths of a machine begin; none is anybody's business.
const PLACES: [&str; 9] =
    ["/home/", "/Users/", "/root/", "/tmp/", "/var/folders/", "/private/", "/run/user/", "C:\\Users\\", "c:\\users\\"];

/// Hosts that are this machine or its neighbours.
const LOCAL: [&str; 7] = ["localhost", "127.", "0.0.0.0", "[::1]", "192.168.", "10.", "169.254."];

pub(super) struct Harmless {
    secrets: Patterns,
    workspace: String,
    private: Vec<String>,
}

impl Harmless {
    pub(super) fn new(workspace: &str, private: &[String], secrets: &[Secret]) -> Self {
        // A short one would take letters out of every word.
        let mut private: Vec<String> = private.iter().filter(|text| text.len() >= 4).cloned().collect();
        private.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self {
            secrets: Patterns::new(secrets.iter().map(Secret::expose)),
            workspace: workspace.trim_end_matches('/').to_owned(),
            private,
        }
    }

    /// Markdown of somebody else, at most `longest` characters.
    pub(super) fn markdown(&self, text: &str, longest: usize) -> String {
        let text = self.plain(text);
        let text = text.trim();
        let cut: String = text.chars().take(longest).collect();
        let is_cut = cut.len() < text.len();
        let mut markdown = without_markup(cut.trim_end());
        if is_cut {
            markdown.push_str("\n\n…");
        }
        markdown
    }

    /// One line of somebody else.
    pub(super) fn line(&self, text: &str) -> String {
        let text = self.plain(text);
        without_markup(&text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Without secrets, private things, comments, mentions and references.
    pub(super) fn plain(&self, text: &str) -> String {
        let text = net::without_sequences(text);
        let text = without_comments(&text);
        let text = String::from_utf8_lossy(&self.secrets.redact(text.as_bytes())).into_owned();
        let text = without_key_blocks(&text);
        let mut text = self.without_workspace(&text);
        for private in &self.private {
            text = text.replace(private.as_str(), ID);
        }
        // What only becomes a mention once something else is gone is still one.
        parted(&without_private_words(&text))
    }

    fn without_workspace(&self, text: &str) -> String {
        if self.workspace.len() < 2 {
            return text.to_owned();
        }
        text.replace(&format!("{}/", self.workspace), "").replace(&self.workspace, ".")
    }
}

/// Comments are not seen, and so are a place to hide things. One that does not end hides the rest.
fn without_comments(text: &str) -> String {
    let mut kept = text.to_owned();
    // Taking one out may make another.
    while let Some(start) = kept.find("<!--") {
        let end = kept[start..].find("-->").map_or(kept.len(), |end| start + end + 3);
        kept.replace_range(start..end, "");
    }
    kept
}

/// Private keys stand in blocks.
fn without_key_blocks(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_key = false;
    for line in text.split_inclusive('\n') {
        let is_begin = line.contains("-----BEGIN ") && line.contains("PRIVATE KEY");
        if is_begin && !is_key {
            kept.push_str(SECRET);
            kept.push('\n');
        }
        is_key |= is_begin;
        if !is_key {
            kept.push_str(line);
        }
        is_key &= !(line.contains("-----END ") && line.contains("PRIVATE KEY"));
    }
    kept
}

/// Word by word: secrets by their shape, paths, local addresses, ids.
fn without_private_words(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let is_begin = before.is_none_or(|before: char| !before.is_alphanumeric() && !"-_./".contains(before));
        let replaced = is_begin.then(|| private_word(rest)).flatten();
        let taken = match replaced {
            Some((length, with)) => {
                kept.push_str(with);
                length
            }
            None => {
                kept.push(first);
                first.len_utf8()
            }
        };
        before = rest[..taken].chars().next_back();
        rest = &rest[taken..];
    }
    kept
}

/// The private word a text begins with: its length, and what stands in its place.
fn private_word(text: &str) -> Option<(usize, &'static str)> {
    let until = |is_end: fn(char) -> bool| text.find(is_end).unwrap_or(text.len());
    let is_path_end = |c: char| c.is_whitespace() || "\"'`()<>,;:|*".contains(c);
    if PLACES.iter().any(|place| text.starts_with(place)) {
        let from = if text.starts_with(['C', 'c']) { 2 } else { 0 };
        let length = text[from..].find(is_path_end).map_or(text.len(), |length| from + length);
        return Some((length, PATH));
    }
    let is_end_of_address = |c: char| c.is_whitespace() || "\"'`)<>|".contains(c);
    if text.starts_with("file://") {
        return Some((until(is_end_of_address), PATH));
    }
    if let Some(host) = ["http://", "https://", "ws://", "wss://"].iter().find_map(|scheme| text.strip_prefix(scheme))
        && LOCAL.iter().any(|local| host.starts_with(local))
    {
        return Some((until(is_end_of_address), ADDRESS));
    }
    let word = &text[..until(|c| !c.is_ascii_alphanumeric() && !"-_.".contains(c))];
    let word = word.trim_end_matches('.');
    if looks_secret(word) {
        return Some((word.len(), SECRET));
    }
    is_id(word).then_some((36, ID))
}

/// Whether a word is, or begins with, a UUID.
fn is_id(word: &str) -> bool {
    let Some(id) = word.as_bytes().get(..36) else { return false };
    let is_over = !word.as_bytes().get(36).is_some_and(u8::is_ascii_alphanumeric);
    is_over
        && id.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Parts what would be a mention, a reference to an issue, or a character in disguise.
fn parted(text: &str) -> String {
    let mut parted = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let next = after.chars().next();
        let is_word = before.is_some_and(char::is_alphanumeric);
        parted.push(first);
        let is_part = match first {
            '@' => !is_word && next.is_some_and(|c| c.is_alphanumeric()),
            '#' => next.is_some_and(|c| c.is_ascii_digit()),
            // `&#64;` is an @ to whoever reads the page.
            '&' => next.is_some_and(|c| c == '#' || c.is_ascii_alphabetic()),
            // GH-12, and the addresses of issues.
            '-' => next.is_some_and(|c| c.is_ascii_digit()) && ends_with_gh(&parted),
            '/' => ["issues/", "pull/", "pulls/", "discussions/", "commit/"]
                .iter()
                .any(|place| after.get(..place.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(place))),
            _ => false,
        };
        if is_part {
            parted.push(PART);
        }
        before = Some(first);
        rest = after;
    }
    parted
}

/// Whether a text ends with `GH-` and not with a longer word.
fn ends_with_gh(text: &str) -> bool {
    let mut back = text.chars().rev();
    let is_gh = back.by_ref().take(3).map(|c| c.to_ascii_lowercase()).eq("-hg".chars());
    is_gh && !back.next().is_some_and(char::is_alphanumeric)
}

/// Markdown without tags and pictures, in which every fence is closed. Code stays as it is.
fn without_markup(text: &str) -> String {
    let mut kept = Vec::new();
    let mut fence: Option<(char, usize)> = None;
    for line in text.lines() {
        let mark = fence_of(line);
        match (fence, mark) {
            (None, Some((character, length, _))) => fence = Some((character, length)),
            (Some((character, length)), Some((its, its_length, true))) if its == character && its_length >= length => {
                fence = None;
            }
            _ => {}
        }
        let is_code = fence.is_some() || mark.is_some();
        kept.push(if is_code { line.to_owned() } else { without_tags(line) });
    }
    if let Some((character, length)) = fence {
        kept.push(character.to_string().repeat(length));
    }
    kept.join("\n")
}

/// The fence a line is: its character, its length, and whether nothing follows, so that it may close one.
fn fence_of(line: &str) -> Option<(char, usize, bool)> {
    let text = line.trim_start_matches(' ');
    let character = text.chars().next().filter(|c| "`~".contains(*c))?;
    let length = text.chars().take_while(|c| *c == character).count();
    let after = text[length..].trim();
    // A line of inline code is none.
    let is_fence = length >= 3 && line.len() - text.len() <= 3 && !(character == '`' && after.contains('`'));
    is_fence.then_some((character, length, after.is_empty()))
}

/// A line without tags and pictures outside its spans of code.
fn without_tags(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if first == '`' {
            let length = rest.chars().take_while(|c| *c == '`').count();
            let (run, after) = rest.split_at(length);
            let end = closing(after, length).unwrap_or(0);
            kept.push_str(run);
            kept.push_str(&after[..end]);
            rest = &after[end..];
            continue;
        }
        let after = &rest[first.len_utf8()..];
        let next = after.chars().next();
        match first {
            '<' if next.is_some_and(|c| c.is_ascii_alphabetic() || "/!?".contains(c)) => kept.push_str("&lt;"),
            '!' if next == Some('[') => {}
            other => kept.push(other),
        }
        rest = after;
    }
    kept
}

/// Where, after a run of backticks, the run that closes it has ended.
fn closing(text: &str, length: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].chars().take_while(|c| *c == '`').count();
        at = start + run;
        if run == length {
            return Some(at);
        }
    }
    None
}
