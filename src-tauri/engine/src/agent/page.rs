//! What the parsers of agents that print one event of JSON per line have in common: lines, standard error, tool calls that
//! are begun and completed in place, retry notices, and what the end says where the events did not.

use std::{fmt, mem};

use super::{Exit, Failure, Outcome, Parser, failure, stderr::Stderr};
use crate::{
    model::{
        Delta, ErrorKind, FileDiff, Item, NoticeLevel, ProgressEntry, Stream, Timestamp, ToolKind, ToolState, Usage,
    },
    transcript::{self, Items, LineSplitter, MAX_FIELD, cut, json, phrase},
};

/// Reads one agent's events.
pub(super) trait Events: Send + fmt::Debug {
    /// As a person knows the agent.
    fn name(&self) -> &'static str;

    /// Whether a line of its standard error tells a person nothing.
    fn is_noise(_line: &str) -> bool
    where
        Self: Sized,
    {
        false
    }

    /// Reads one line; `false`: nothing we know, and the line is shown as it came.
    fn line(&mut self, line: &str, page: &mut Page) -> bool;

    /// The last known consumption of the turn.
    fn usage(&self) -> Option<Usage>;

    /// What the whole session has consumed, where that is what the agent counts.
    fn session_usage(&self) -> Option<Usage> {
        None
    }

    /// How the agent said its turn ended; `None`: it did not say.
    fn concluded(&mut self, exit: Exit) -> Option<Result<(), Failure>>;
}

/// A parser of events, one a line.
#[derive(Debug)]
pub(super) struct LinesOf<E> {
    lines: LineSplitter,
    page: Page,
    events: E,
}

/// What a turn shows so far.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// When the line was read.
    pub now: Timestamp,
    pub session: Option<String>,
    /// What the agent does while no tool is at work.
    pub doing: Option<&'static str>,
    items: Items,
    deltas: Vec<Delta>,
    calls: Vec<Call>,
    /// The notice of the retry under way.
    retry: Option<u32>,
    progress: Option<u32>,
    stderr: Stderr,
    /// Whether any line was understood.
    has_begun: bool,
}

/// A tool call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub id: String,
    pub tool: ToolKind,
    pub name: String,
    pub summary: String,
    /// JSON text.
    pub input: String,
    at: Option<u32>,
    started: Timestamp,
}

/// How a call ended.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub has_failed: bool,
    pub result: Option<String>,
    pub exit_code: Option<i32>,
    /// Where the agent says it; else it is measured.
    pub duration_ms: Option<u64>,
    pub diff: Option<FileDiff>,
}

impl Call {
    pub fn new(id: &str, tool: ToolKind, name: &str, summary: String, input: &str) -> Self {
        let (id, name, input) = (id.to_owned(), name.to_owned(), cut(input, MAX_FIELD));
        Self { id, tool, name, summary, input, at: None, started: Timestamp::default() }
    }

    fn item(&self, state: ToolState, done: Done) -> Item {
        Item::Tool {
            call: self.id.clone(),
            tool: self.tool,
            name: self.name.clone(),
            summary: self.summary.clone(),
            input: self.input.clone(),
            state,
            result: done.result.map(|result| cut(&result, MAX_FIELD)),
            exit_code: done.exit_code,
            duration_ms: done.duration_ms,
            diff: done.diff,
        }
    }
}

impl Page {
    pub fn add(&mut self, item: Item) -> u32 {
        self.items.add(item, &mut self.deltas)
    }

    pub fn text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.add(Item::Text { text: text.to_owned() });
        }
    }

    pub fn thinking(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.add(Item::Thinking { text: text.to_owned() });
        }
    }

    /// More text at the end of an item.
    pub fn append(&mut self, at: u32, text: &str) {
        self.deltas.push(Delta::Append { at, text: text.to_owned() });
    }

    pub fn put(&mut self, at: u32, item: Item) {
        self.deltas.push(Delta::Put { at, item });
    }

    pub fn warn(&mut self, text: String) {
        self.add(Item::Notice { level: NoticeLevel::Warning, text, retry_at: None });
    }

    /// The agent tries again. One row tells of all tries, as long as nothing else happens.
    pub fn retry(&mut self, text: String, retry_at: Option<Timestamp>) {
        let item = Item::Notice { level: NoticeLevel::Warning, text, retry_at };
        match self.retry.filter(|at| self.items.is_newest(*at)) {
            Some(at) => self.put(at, item),
            None => self.retry = Some(self.add(item)),
        }
        self.doing = Some("waits to try again");
    }

    /// The agent's list of things to do: one row, replaced in place.
    pub fn progress(&mut self, entries: Vec<ProgressEntry>) {
        let item = Item::Progress { entries };
        match self.progress {
            Some(at) => self.put(at, item),
            None => self.progress = Some(self.add(item)),
        }
    }

    /// A call begins; one that is known already has changed.
    pub fn begin(&mut self, mut call: Call) {
        let known = self.calls.iter().position(|known| known.id == call.id);
        let before = known.map(|index| self.calls.remove(index));
        call.started = before.as_ref().map_or(self.now, |before| before.started);
        let item = call.item(ToolState::Running, Done::default());
        call.at = match before.and_then(|before| before.at) {
            Some(at) => {
                self.put(at, item);
                Some(at)
            }
            None => Some(self.add(item)),
        };
        self.calls.push(call);
    }

    /// A call has ended, whether or not its beginning was told.
    pub fn finish(&mut self, mut call: Call, mut done: Done) {
        if let Some(index) = self.calls.iter().position(|known| known.id == call.id) {
            let known = self.calls.remove(index);
            let took = self.now.since(known.started).as_millis();
            done.duration_ms = done.duration_ms.or_else(|| u64::try_from(took).ok());
            call.at = known.at;
        }
        let item = call.item(if done.has_failed { ToolState::Failed } else { ToolState::Done }, done);
        match call.at {
            Some(at) => self.put(at, item),
            None => _ = self.add(item),
        }
    }

    /// A call whose beginning was told.
    pub fn running(&self, id: &str) -> Option<Call> {
        self.calls.iter().find(|call| call.id == id).cloned()
    }

    /// What has not ended by now never will.
    fn give_up(&mut self) {
        for call in mem::take(&mut self.calls) {
            let done = Done { has_failed: true, result: Some("It did not finish.".to_owned()), ..Done::default() };
            if let Some(at) = call.at {
                let item = call.item(ToolState::Failed, done);
                self.put(at, item);
            }
        }
    }
}

impl<E: Events> LinesOf<E> {
    pub fn new(events: E) -> Self {
        let page = Page { stderr: Stderr::without(E::is_noise), ..Page::default() };
        Self { lines: LineSplitter::default(), page, events }
    }
}

fn line<E: Events>(events: &mut E, page: &mut Page, line: transcript::Line<'_>) {
    if line.dropped == 0 && line.bytes.trim_ascii().is_empty() {
        return;
    }
    page.stderr.show(&mut page.items, &mut page.deltas);
    let text = String::from_utf8_lossy(line.bytes);
    if line.dropped > 0 {
        page.warn(format!("A line was too long to be read: {} bytes of it were left out.", line.dropped));
    } else {
        let is_known = events.line(&text, page)
            || json::without_lone_surrogates(&text).is_some_and(|repaired| events.line(&repaired, page));
        page.has_begun |= is_known;
        if is_known {
            return;
        }
    }
    page.add(Item::Unknown { raw: cut(&text, MAX_FIELD) });
}

impl<E: Events> Parser for LinesOf<E> {
    fn read(&mut self, stream: Stream, bytes: &[u8], at: Timestamp, deltas: &mut Vec<Delta>) {
        let (page, events) = (&mut self.page, &mut self.events);
        page.now = at;
        mem::swap(&mut page.deltas, deltas);
        match stream {
            Stream::Out => self.lines.push(bytes, |read| line(events, page, read)),
            Stream::Err => page.stderr.hold(bytes, &mut page.items, &mut page.deltas),
        }
        mem::swap(&mut page.deltas, deltas);
    }

    fn session_id(&self) -> Option<&str> {
        self.page.session.as_deref()
    }

    fn usage(&self) -> Option<Usage> {
        self.events.usage()
    }

    fn headline(&self) -> Option<String> {
        let call = self.page.calls.last().map(|call| phrase(call.tool, &call.name, &call.summary));
        call.or_else(|| self.page.doing.map(str::to_owned))
    }

    fn finish(&mut self, exit: Exit, interrupted: bool, at: Timestamp, deltas: &mut Vec<Delta>) -> Outcome {
        let (page, events) = (&mut self.page, &mut self.events);
        page.now = at;
        mem::swap(&mut page.deltas, deltas);
        self.lines.finish(|read| line(events, page, read));
        page.give_up();
        let error = failure_of(events, page, exit, interrupted);
        let message = error.as_ref().map(|error| error.message.as_str());
        page.stderr.finish(message, &mut page.items, &mut page.deltas);
        if let Some(Failure { kind, message, retry_at }) = &error {
            page.add(Item::Error { error: *kind, message: message.clone(), retry_at: *retry_at });
        }
        page.doing = None;
        mem::swap(&mut page.deltas, deltas);
        Outcome {
            error,
            session_id: page.session.clone(),
            usage: events.usage(),
            session_usage: events.session_usage(),
        }
    }
}

/// Why the turn failed, if it did.
fn failure_of<E: Events>(events: &mut E, page: &mut Page, exit: Exit, interrupted: bool) -> Option<Failure> {
    match events.concluded(exit) {
        Some(Ok(())) => return None,
        Some(Err(mut failure)) => {
            if interrupted && matches!(failure.kind, ErrorKind::Other | ErrorKind::Network) {
                failure.kind = ErrorKind::Interrupted;
            }
            return Some(failure);
        }
        None => {}
    }
    let (kind, mut message) = failure::of_exit(events.name(), exit, interrupted);
    // What it complained of before it had begun is why it never did.
    let complaint = page.stderr.text();
    let explained = failure::Evidence { text: &complaint, ..failure::Evidence::default() }.kind();
    if interrupted || complaint.is_empty() || (page.has_begun && explained.is_none()) {
        return Some(Failure { kind, message, retry_at: None });
    }
    if kind == ErrorKind::Crashed {
        message = complaint;
    } else {
        message = format!("{message}: {complaint}");
    }
    Some(Failure { kind: explained.unwrap_or(kind), message, retry_at: None })
}

/// The words of a failure and its kind, as the model's endpoint or the agent told them.
pub(super) fn told(status: Option<u16>, code: &str, text: &str) -> Failure {
    let evidence = failure::Evidence { status, code, text };
    Failure { kind: evidence.kind().unwrap_or(ErrorKind::Other), message: text.to_owned(), retry_at: None }
}
