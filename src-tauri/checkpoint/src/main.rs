//! The worker: one request on standard input, one answer on standard output.

use std::{
    io::{self, Read, Write},
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use courier_checkpoint::{
    bring, limits,
    request::{Answer, Cause, Failure, Request},
};

/// No request is longer.
const LONGEST: u64 = 16 << 20;

fn main() -> ExitCode {
    limits::apply();
    bring::isolate();
    let answer = read().map_or_else(Answer::Failed, answer);
    match write(&answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // Nobody listens.
    }
}

fn read() -> Result<Request, Failure> {
    let mut text = Vec::new();
    let bad = |what: String| Failure::new(Cause::BadRequest, what);
    io::stdin().take(LONGEST + 1).read_to_end(&mut text).map_err(|error| bad(format!("read the request: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| bad(format!("read the request: {error}")))
}

/// A panic is an answer too: the reason goes to standard error.
fn answer(request: Request) -> Answer {
    panic::catch_unwind(AssertUnwindSafe(|| request.answer()))
        .unwrap_or_else(|_| Answer::Failed(Failure::new(Cause::Defect, "go on: the worker has a defect")))
}

fn write(answer: &Answer) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.flush()
}
