//! What the scripted model does: a scenario is a list of steps, and a step is a text with tool calls.
//!
//! The server keeps no conversation. Which step it is at follows from the request alone: it is the number of tool calls
//! since the newest message a person wrote. So an agent may be killed and continued at any moment.

use std::time::Duration;

/// One answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Shown where the request asks for thoughts.
    pub(super) thought: Option<&'static str>,
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
    Write {
        path: &'static str,
        content: &'static str,
    },
    Read(&'static str),
    /// A line that is replaced by another.
    Edit {
        path: &'static str,
        old: &'static str,
        new: &'static str,
    },
    Search(&'static str),
    /// A list of things to do, the first of them done. Left out where an agent keeps none.
    Plan(&'static [&'static str]),
    Bash(String),
}

/// Tokens said to be used: different in every column of every request, so that one that is lost, doubled or put into the
/// wrong column shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UsageServed {
    /// Neither written to the cache nor read from it. OpenAI's APIs say all three in one.
    pub input: u64,
    pub cache_write: u64,
    pub cache_read: u64,
    /// Thoughts included.
    pub output: u64,
    pub reasoning: u64,
}

impl UsageServed {
    /// What the request with this number says, 1 being the first.
    pub(super) fn of_request(number: usize) -> Self {
        let number = number as u64;
        UsageServed {
            input: 1000 + 107 * number,
            cache_write: 300 + 31 * number,
            cache_read: 500 + 213 * number,
            output: 50 + 11 * number,
            reasoning: 3 + number,
        }
    }

    /// All that goes in, as OpenAI's APIs count it.
    pub fn all_input(self) -> u64 {
        self.input + self.cache_write + self.cache_read
    }
}

impl std::iter::Sum for UsageServed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(UsageServed::default(), |sum, one| UsageServed {
            input: sum.input + one.input,
            cache_write: sum.cache_write + one.cache_write,
            cache_read: sum.cache_read + one.cache_read,
            output: sum.output + one.output,
            reasoning: sum.reasoning + one.reasoning,
        })
    }
}

/// Why a model does not answer. Each API has its own words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Key,
    Permission,
    TooLong,
    RateLimit,
    /// What the subscription allows is used up.
    UsageLimit,
    Quota,
    Overload,
    Fault,
}

/// An answer that is an error of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) cause: Cause,
    /// `None` is what the API itself gives for the cause.
    pub(super) status: Option<u16>,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
}

/// How far an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The connection breaks.
    BreaksInText,
    BreaksInCall,
    /// An error follows what was good so far.
    Fails(Cause),
    /// Headers, and then nothing.
    Silent,
}

/// Colours, cursor movements, a title, a bell, a control character and bytes that are not UTF-8.
const ANSI_COMMAND: &str = r"printf '\033[31mred\033[0m \033[1;32mbold green\033[0m\r\nunicode: \xe2\x9c\x93 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\nbell:\a tab:\t nul-adjacent:\001 bad-utf8:\xff\xfe end\n\033]0;title\007\033[2K\033[1G done\n'";
const ANSI_TEXT: &str =
    "Printing colours \u{1b}[35mmagenta\u{1b}[0m ✓ 日本語 👩\u{200d}💻 and \"quotes\" \\ back\u{2028}slash.";
const COMMIT_COMMAND: &str = "git add -A && git commit -q -m \"Add hello.txt\" && git log --oneline | head -3";

const WARMER: &str = "A warm welcome from the mock model";
const LONG_THOUGHT: &str = "**Weighing the task**\n\nFirst I look at what is asked: ✓ 日本語.\nThen I answer.";
const LONG_TEXT_BYTES: usize = 2 << 20;

/// The file the model writes in the scenario `happy`.
pub const WRITTEN_FILE: &str = "hello.txt";
/// What is in it.
pub const WRITTEN_CONTENT: &str = "Hello from the mock model\nüñí ✓\n";

/// The answers of a scenario in order; the last one holds for every step after it.
pub(super) fn steps(scenario: &str) -> Vec<Step> {
    let write = Call::Write { path: WRITTEN_FILE, content: WRITTEN_CONTENT };
    let bash = |command: &str| Call::Bash(command.to_owned());
    let closing = Step { thought: None, text: Text::Closing, calls: vec![] };
    let say = |text: &str, calls: Vec<Call>| {
        let thought = (!calls.is_empty()).then_some("Let me think about the task.");
        Step { thought, text: Text::Said(text.to_owned()), calls }
    };
    let (name, number) = split_number(scenario);
    match (name, number) {
        ("happy" | "flaky" | "limit", _) => vec![
            say("I'll create hello.txt now.", vec![write]),
            say("Now I'll commit it.", vec![bash(COMMIT_COMMAND)]),
            closing,
        ],
        ("tour", _) => vec![
            say("I'll make a plan and write a file.", vec![Call::Plan(&["Write a greeting", "Improve it"]), write]),
            say("I'll look at what is there.", vec![Call::Read(WRITTEN_FILE), Call::Search("mock model")]),
            say(
                "It can be warmer.",
                vec![Call::Edit { path: WRITTEN_FILE, old: "Hello from the mock model", new: WARMER }],
            ),
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
        ("thinking", _) => vec![Step { thought: Some(LONG_THOUGHT), ..closing }],
        ("longtext", _) => vec![say(&words(LONG_TEXT_BYTES / 8), vec![])],
        ("slow", _) => vec![say(&words(120), vec![])],
        ("slowtext", _) => vec![say(&words(slow_text_seconds(scenario) as usize * WORDS_A_SECOND), vec![])],
        _ => vec![closing],
    }
}

/// How the answer is paced: the size of a piece in characters, and the pause after each event.
pub(super) fn pace(scenario: &str, ordinary: Duration) -> (usize, Duration) {
    match split_number(scenario).0 {
        "longtext" => (4096, Duration::ZERO),
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
        Ok(number) if matches!(name, "sleep" | "slowtext" | "limit") => (name, Some(number)),
        _ => (scenario, None),
    }
}

/// The error a scenario answers with, if it is one that refuses. `earlier` is how often and since when it was asked.
pub(super) fn refusal(scenario: &str, earlier: Earlier, is_stream: bool) -> Option<Refusal> {
    use Cause as C;
    if let Ending::Fails(cause) = ending(scenario)
        && !is_stream
    {
        // There is no stream to tell it in.
        return Some(Refusal { cause, status: None, retry_after: None });
    }
    let plain = |status: u16, cause| Some(Refusal { cause, status: Some(status), retry_after: None });
    let limited = |seconds, cause| Some(Refusal { cause, status: Some(429), retry_after: Some(seconds) });
    match split_number(scenario) {
        ("e401", _) => plain(401, C::Key),
        ("e403", _) => plain(403, C::Permission),
        ("e400ctx", _) => plain(400, C::TooLong),
        ("e429", _) => limited(1, C::RateLimit),
        ("e429bare", _) => plain(429, C::RateLimit),
        ("e429hdr", _) => limited(3600, C::RateLimit),
        ("limit", seconds) => {
            let left = Duration::from_secs(seconds.unwrap_or(3600)).saturating_sub(earlier.since);
            // Rounded up: who comes back when told to finds the limit gone.
            (!left.is_zero()).then(|| left.as_millis().div_ceil(1000) as u64).and_then(|s| limited(s, C::UsageLimit))
        }
        ("equota", _) => Some(Refusal { cause: C::Quota, status: None, retry_after: None }),
        ("e500", _) => plain(500, C::Fault),
        ("e503", _) => plain(503, C::Overload),
        ("e529", _) => plain(529, C::Overload),
        ("overload", _) => Some(Refusal { cause: C::Overload, status: None, retry_after: None }),
        ("flaky", _) if earlier.times < 2 => Some(Refusal { cause: C::Overload, status: None, retry_after: None }),
        _ => None,
    }
}

/// What was asked before under the same scenario.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Earlier {
    pub(super) times: usize,
    /// How long ago the first of them was.
    pub(super) since: Duration,
}

/// How far a scenario's answers come.
pub(super) fn ending(scenario: &str) -> Ending {
    match scenario {
        "drop" => Ending::BreaksInText,
        "droptool" => Ending::BreaksInCall,
        "sse_error" => Ending::Fails(Cause::Overload),
        "sse_ctx" => Ending::Fails(Cause::TooLong),
        "hang" => Ending::Silent,
        _ => Ending::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_belong_to_the_scenarios_that_take_one() {
        assert_eq!(split_number("slowtext5"), ("slowtext", Some(5)));
        assert_eq!(split_number("sleep5"), ("sleep", Some(5)));
        assert_eq!(split_number("e401"), ("e401", None));
        assert!(refusal("e401", Earlier::default(), true).is_some(), "an error keeps its digits");
    }

    #[test]
    fn a_limit_with_an_end_is_over_when_it_said_it_would_be() {
        let at = |milliseconds| {
            let since = Duration::from_millis(milliseconds);
            refusal("limit5", Earlier { times: 1, since }, true).map(|refusal| refusal.retry_after)
        };
        assert_eq!((at(0), at(3100), at(4999)), (Some(Some(5)), Some(Some(2)), Some(Some(1))));
        assert_eq!(at(5000), None);
    }

    #[test]
    fn no_two_requests_say_the_same_in_any_column() {
        let columns =
            |usage: UsageServed| [usage.input, usage.cache_write, usage.cache_read, usage.output, usage.reasoning];
        let all: Vec<[u64; 5]> = (1..20).map(|number| columns(UsageServed::of_request(number))).collect();
        for (index, one) in all.iter().enumerate() {
            let differs = |other: &[u64; 5]| one.iter().zip(other).all(|(a, b)| a != b);
            assert!(all[..index].iter().all(differs), "{one:?}");
        }
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
