//! The words of a pull request: what was asked, what was done, how it was checked, what it cost. Pure.
//!
//! Everything that comes from the conversation is hostile or private until [`harmless`] has seen it: an agent can be made
//! to ping strangers, to close their issues, or to publish what it read on this machine.

mod checks;
mod harmless;

use std::fmt::Write as _;

pub use checks::{Check, checks, final_words};

use self::harmless::Harmless;
use crate::{model::Usage, secrets::Secret};

/// How much of each part is shown, in characters, lines or entries.
const TITLE: usize = 100;
const MESSAGE: usize = 1_500;
const MESSAGES: usize = 10;
const WORDS: usize = 10_000;
const FILES: usize = 50;
const CHECKS: usize = 20;
const LINE: usize = 200;

/// A file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    pub path: String,
    pub added: u32,
    pub removed: u32,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    /// The sandbox's title.
    pub title: &'a str,
    /// What the person wrote, oldest first.
    pub asked: &'a [String],
    /// The agent's last words, in Markdown: see [`final_words`].
    pub answer: Option<&'a str>,
    pub files: &'a [ChangedFile],
    /// See [`checks`].
    pub checks: &'a [Check],
    pub agent: &'a str,
    pub model: Option<&'a str>,
    pub turns: u32,
    pub usage: Usage,
    /// In nano-dollars; `None` where a rate is unknown.
    pub cost: Option<u64>,
    /// The issue the sandbox was made from.
    pub issue: Option<u64>,
    /// The workspace's path inside the sandbox: paths beneath it are shown from there on.
    pub workspace: &'a str,
    /// What else must not be told: ids of sessions and sandboxes, names of folders.
    pub private: &'a [String],
    /// The secrets that are known here.
    pub secrets: &'a [Secret],
}

/// A title and a body, in Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub title: String,
    pub body: String,
}

/// The words for a conversation.
pub fn write(of: &Conversation<'_>) -> Text {
    let harmless = Harmless::new(of.workspace, of.private, of.secrets);
    Text { title: title(of, &harmless), body: body(of, &harmless) }
}

fn title(of: &Conversation<'_>, harmless: &Harmless) -> String {
    let first = of.asked.first().map_or("", String::as_str);
    let line = |text: &str| {
        let clean = harmless.plain(text);
        let line = clean.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let words: Vec<&str> = line.trim_start_matches(['#', '>', '-', '*', ' ']).split_whitespace().collect();
        words.join(" ")
    };
    let title = [line(of.title), line(first)].into_iter().find(|title| !title.is_empty());
    at_word(&title.unwrap_or_else(|| "Work of an agent".to_owned()), TITLE)
}

fn body(of: &Conversation<'_>, harmless: &Harmless) -> String {
    let mut body = String::new();
    let mut section = |name: &str, text: &str| {
        if !text.is_empty() {
            // Writing to a string cannot fail.
            _ = write!(body, "## {name}\n\n{text}\n\n");
        }
    };
    section("Asked", &asked(of, harmless));
    section("Done", &of.answer.map(|words| harmless.markdown(words, WORDS)).unwrap_or_default());
    section(&format!("Changed files ({})", of.files.len()), &files(of, harmless));
    section("Checked", &checked(of, harmless));
    if let Some(issue) = of.issue {
        _ = write!(body, "Closes #{issue}\n\n");
    }
    body.push_str(&footer(of, harmless));
    body
}

/// Each message as a quotation: nothing in it is a heading, a list or a command of ours.
fn asked(of: &Conversation<'_>, harmless: &Harmless) -> String {
    let mut quoted = Vec::new();
    for message in of.asked.iter().take(MESSAGES) {
        let text = harmless.markdown(message, MESSAGE);
        if !text.is_empty() {
            quoted.push(
                text.lines().map(|line| format!("> {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n"),
            );
        }
    }
    if of.asked.len() > MESSAGES {
        quoted.push(format!("and {} more messages", of.asked.len() - MESSAGES));
    }
    quoted.join("\n\n")
}

fn files(of: &Conversation<'_>, harmless: &Harmless) -> String {
    let mut lines: Vec<String> = (of.files.iter().take(FILES))
        .map(|file| format!("- {} +{} −{}", code(&harmless.plain(&file.path)), file.added, file.removed))
        .collect();
    if of.files.len() > FILES {
        lines.push(format!("- and {} more", of.files.len() - FILES));
    }
    lines.join("\n")
}

fn checked(of: &Conversation<'_>, harmless: &Harmless) -> String {
    if of.checks.is_empty() {
        return "No test or build command was seen.".to_owned();
    }
    let line = |check: &Check| {
        let command = code(&harmless.plain(&check.command));
        match (check.has_passed, check.exit_code) {
            (Some(true), _) => format!("- {command} passed"),
            (Some(false), Some(status)) => format!("- {command} **failed** (status {status})"),
            (Some(false), None) => format!("- {command} **failed**"),
            (None, _) => format!("- {command} did not end"),
        }
    };
    let from = of.checks.len().saturating_sub(CHECKS);
    of.checks[from..].iter().map(line).collect::<Vec<_>>().join("\n")
}

fn footer(of: &Conversation<'_>, harmless: &Harmless) -> String {
    let mut parts = vec![match of.model {
        Some(model) => format!("{} ({})", harmless.line(of.agent), harmless.line(model)),
        None => harmless.line(of.agent),
    }];
    parts.push(match of.turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    });
    // They are what an agent said of itself.
    let input = [of.usage.cache_read, of.usage.cache_write].into_iter().fold(of.usage.input, u64::saturating_add);
    if input > 0 || of.usage.output > 0 {
        parts.push(format!("{} tokens in, {} out", grouped(input), grouped(of.usage.output)));
    }
    parts.extend(of.cost.map(dollars));
    format!("---\nMade with CodeCourier by {}.\n", parts.join(", "))
}

fn dollars(nano: u64) -> String {
    const CENT: u64 = 10_000_000;
    match (nano + CENT / 2) / CENT {
        0 if nano > 0 => "less than $0.01".to_owned(),
        cents => format!("${}.{:02}", cents / 100, cents % 100),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A span of code that nothing in it can end.
fn code(text: &str) -> String {
    let text = at_word(&text.split_whitespace().collect::<Vec<_>>().join(" "), LINE);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest > 0 { format!("{fence} {text} {fence}") } else { format!("{fence}{text}{fence}") }
}

/// At most so many characters, cut between words where there is a place for it.
fn at_word(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let cut: String = text.chars().take(longest - 1).collect();
    let kept =
        cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| if kept.len() * 2 > cut.len() { kept } else { &cut });
    format!("{}…", kept.trim_end_matches([',', '.', ':', ';', ' ']))
}

#[cfg(test)]
mod tests;
