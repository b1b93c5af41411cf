//! `courier transcript`: a recorded raw log as the items a person would read. For people who debug an agent or its
//! parser; it needs no data folder.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use courier_engine::{
    agent::{self, Exit, Outcome, Parser},
    model::{AgentKind, Delta, ErrorKind, Item, Stream, Timestamp, Usage},
    transcript::fold,
};
use serde::Serialize;

/// How much is read at a time, in bytes.
const CHUNK: usize = 64 * 1024;

/// Reads a recorded raw log and prints its transcript items as JSON lines, then the turn's outcome.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Whose log it is: claude, shell.
    agent: String,
    /// What the agent printed on standard output.
    file: PathBuf,
    /// The exit code; negative: the signal that ended it.
    #[arg(long, value_name = "CODE", default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// What the agent printed on standard error.
    #[arg(long, value_name = "FILE")]
    stderr: Option<PathBuf>,
}

/// Why no transcript was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no agent is called {name:?}; there are: {known}")]
    NoSuchAgent { name: String, known: String },
    #[error("the logs of {0} cannot be read yet")]
    NotYet(AgentKind),
    #[error("could not read {path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("could not print the transcript: {0}")]
    Unprintable(#[from] io::Error),
}

/// The last line.
#[derive(Debug, Serialize)]
struct Last<'a> {
    outcome: Summary<'a>,
}

/// How the turn ended.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    status: &'static str,
    error_kind: Option<ErrorKind>,
    session_id: Option<&'a str>,
    usage: Option<Usage>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let agent = find(&arguments.agent)?;
    let mut parser = agent.parser(None);
    let mut items = Vec::new();
    // Only durations and waiting times are counted from here, where the agent prints no times of its own.
    let at = feed(&mut *parser, Stream::Out, &arguments.file, &mut items)?;
    if let Some(file) = &arguments.stderr {
        feed(&mut *parser, Stream::Err, file, &mut items)?;
    }
    let exit = match arguments.exit {
        code @ 0.. => Exit::Code(code),
        signal => Exit::Signal(signal.saturating_neg()),
    };
    let mut deltas = Vec::new();
    let outcome = parser.finish(exit, false, at, &mut deltas);
    fold(&mut items, deltas);
    match print(&items, &outcome) {
        // Whoever reads the output has seen enough: `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

fn find(name: &str) -> Result<&'static dyn agent::Agent, Error> {
    let Some(kind) = AgentKind::from_code(name) else {
        let known = agent::agents().iter().map(|agent| agent.kind().code()).collect::<Vec<_>>().join(", ");
        return Err(Error::NoSuchAgent { name: name.to_owned(), known });
    };
    agent::agent(kind).ok_or(Error::NotYet(kind))
}

fn feed(parser: &mut dyn Parser, stream: Stream, path: &Path, items: &mut Vec<Item>) -> Result<Timestamp, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let changed = file.metadata().and_then(|metadata| metadata.modified()).map_err(unreadable)?;
    let at = changed.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    let at = Timestamp::from_millis(at);
    let (mut chunk, mut deltas) = (vec![0; CHUNK], Vec::<Delta>::new());
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => return Ok(at),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(error)),
        };
        parser.read(stream, &chunk[..read], at, &mut deltas);
        fold(items, deltas.drain(..));
    }
}

fn print(items: &[Item], outcome: &Outcome) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for item in items {
        serde_json::to_writer(&mut out, item)?;
        out.write_all(b"\n")?;
    }
    let error_kind = outcome.error.as_ref().map(|failure| failure.kind);
    let last = Last {
        outcome: Summary {
            status: if error_kind.is_some() { "error" } else { "completed" },
            error_kind,
            session_id: outcome.session_id.as_deref(),
            usage: outcome.usage,
        },
    };
    serde_json::to_writer(&mut out, &last)?;
    out.write_all(b"\n")?;
    out.flush()
}
