//! What the scripted model does: a scenario is a list of steps, and a step is a text with tool calls.
//!
//! The server keeps no conversation. Which step it is at follows from the request alone: it is the number of tool calls
//! since the newest message a person wrote. So an agent may be killed and continued at any moment.

use std::time::Duration;

/// One answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) text: Text,
    pub(super) calls: Vec<Call>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text {
    Said(String),
    /// The closing sentence: it counts the person's messages, so that a test sees what reached the model.
    Closing,
}

/// A tool call, before it is put into the words of the agent's own tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Write { path: &'static str, content: &'static str },
    Bash(String),
}

/// Tokens said to be used: deterministic, and different in every column and step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UsageServed {
    pub input: u64,
    pub output: u64,
    pub cache_write: u64,
    pub cache_read: u64,
}

impl UsageServed {
    pub(super) fn of_step(step: usize) -> Self {
        let step = step as u64;
        UsageServed {
            input: 1000 + 100 * step,
            output: 50 + step,
            cache_write: if step == 0 { 300 } else { 0 },
            cache_read: 200 * step,
        }
    }
}

/// An answer that is an error of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) message: &'static str,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
    /// The subscription's limit is used up: the headers that say until when come along.
    pub(super) is_limit: bool,
}

/// Colours, cursor movements, a title, a bell, a control character and bytes that are not UTF-8.
const ANSI_COMMAND: &str = r"printf '\033[31mred\033[0m \033[1;32mbold green\033[0m\r\nunicode: \xe2\x9c\x93 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\nbell:\a tab:\t nul-adjacent:\001 bad-utf8:\xff\xfe end\n\033]0;title\007\033[2K\033[1G done\n'";
const ANSI_TEXT: &str =
    "Printing colours \u{1b}[35mmagenta\u{1b}[0m ✓ 日本語 👩\u{200d}💻 and \"quotes\" \\ back\u{2028}slash.";
const COMMIT_COMMAND: &str = "git add -A && git commit -q -m \"Add hello.txt\" && git log --oneline | head -3";

/// The file the model writes in the scenario `happy`.
pub const WRITTEN_FILE: &str = "hello.txt";
/// What is in it.
pub const WRITTEN_CONTENT: &str = "Hello from the mock model\nüñí ✓\n";

/// The answers of a scenario in order; the last one holds for every step after it.
pub(super) fn steps(scenario: &str) -> Vec<Step> {
    let write = Call::Write { path: WRITTEN_FILE, content: WRITTEN_CONTENT };
    let bash = |command: &str| Call::Bash(command.to_owned());
    let closing = Step { text: Text::Closing, calls: vec![] };
    let say = |text: &str, calls: Vec<Call>| Step { text: Text::Said(text.to_owned()), calls };
    let (name, number) = split_number(scenario);
    match (name, number) {
        ("happy" | "flaky", _) => vec![
            say("I'll create hello.txt now.", vec![write]),
            say("Now I'll commit it.", vec![bash(COMMIT_COMMAND)]),
            closing,
        ],
        ("bash_ls", _) => vec![say("Listing files.", vec![bash("ls -la")]), closing],
        ("fanout", _) => {
            vec![say("Two calls at once.", vec![bash("echo one; sleep 1"), bash("echo two")]), closing]
        }
        ("longout", _) => vec![say("Printing a lot.", vec![bash("seq 1 300000")]), closing],
        ("ansi", _) => vec![say(ANSI_TEXT, vec![bash(ANSI_COMMAND)]), closing],
        ("sleep", None) => vec![
            say(
                "Sleeping in the shell.",
                vec![bash("echo started > started.txt; sleep 47; echo finished > finished.txt")],
            ),
            closing,
        ],
        ("sleep", Some(seconds)) => {
            vec![say("Sleeping in the shell.", vec![bash(&format!("sleep {seconds}; echo woke"))]), closing]
        }
        ("toolerr", _) => {
            vec![say("Running a failing command.", vec![bash("echo out; echo err >&2; exit 3")]), closing]
        }
        // The connection breaks inside this text, or inside the arguments of this call.
        ("drop", _) => vec![say("This text is cut off in the mid", vec![])],
        ("droptool", _) => vec![say("I'll create hello.txt now.", vec![write])],
        ("slow", _) => vec![say(&words(120), vec![])],
        ("slowtext", _) => vec![say(&words(slow_text_seconds(scenario) as usize * WORDS_A_SECOND), vec![])],
        _ => vec![closing],
    }
}

/// How the answer is paced: the size of a piece in characters, and the pause after each event.
pub(super) fn pace(scenario: &str, ordinary: Duration) -> (usize, Duration) {
    match split_number(scenario).0 {
        "slow" => (7, Duration::from_millis(250)),
        "slowtext" => (8, Duration::from_millis(1000 / WORDS_A_SECOND as u64)),
        _ => (12, ordinary),
    }
}

const WORDS_A_SECOND: usize = 10;

/// `slowtext` streams words for 30 seconds, `slowtext5` for 5.
fn slow_text_seconds(scenario: &str) -> u64 {
    split_number(scenario).1.unwrap_or(30)
}

/// Words of eight characters with their space, numbered, so that a gap or a doubling shows.
fn words(count: usize) -> String {
    (0..count).map(|number| format!("word{number:03}")).collect::<Vec<_>>().join(" ")
}

/// `slowtext5` is `slowtext` with 5; names of errors (`e401`) are not taken apart.
fn split_number(scenario: &str) -> (&str, Option<u64>) {
    let name = scenario.trim_end_matches(|character: char| character.is_ascii_digit());
    match scenario[name.len()..].parse() {
        Ok(number) if matches!(name, "sleep" | "slowtext") => (name, Some(number)),
        _ => (scenario, None),
    }
}

/// The error a scenario answers with, if it is one that refuses.
pub(super) fn refusal(scenario: &str) -> Option<Refusal> {
    let plain = |status, kind, message| Refusal { status, kind, message, retry_after: None, is_limit: false };
    Some(match scenario {
        "e401" => plain(401, "authentication_error", "invalid x-api-key"),
        "e403" => plain(403, "permission_error", "Your organization has been disabled."),
        "e429" => Refusal {
            retry_after: Some(1),
            ..plain(429, "rate_limit_error", "This request would exceed your rate limit.")
        },
        "e429hdr" => Refusal {
            retry_after: Some(3600),
            is_limit: true,
            ..plain(429, "rate_limit_error", "This request would exceed your rate limit.")
        },
        "equota" => plain(
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        "e529" => plain(529, "overloaded_error", "Overloaded"),
        "e500" => plain(500, "api_error", "Internal server error"),
        "e400ctx" => plain(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_belong_to_the_scenarios_that_take_one() {
        assert_eq!(split_number("slowtext5"), ("slowtext", Some(5)));
        assert_eq!(split_number("sleep5"), ("sleep", Some(5)));
        assert_eq!(split_number("e401"), ("e401", None));
        assert!(refusal("e401").is_some(), "an error keeps its digits");
    }

    #[test]
    fn slow_words_fit_the_pieces_they_are_streamed_in() {
        assert_eq!(words(2), "word000 word001");
        let (piece, pause) = pace("slowtext5", Duration::ZERO);
        let Text::Said(text) = &steps("slowtext5")[0].text else { panic!("slowtext says something") };
        let pieces = text.chars().count().div_ceil(piece) as u32;
        assert_eq!(pieces * pause, Duration::from_secs(5), "the words last as long as the name says");
    }
}
