//! The scripted model server, for a person: point an agent's base URL at it and watch what it asks.
//!
//! ```text
//! cargo run -p courier-test-support --bin scripted-models -- --port 18080
//! ```
//!
//! The scenario is part of the path, and [`courier_test_support::models`] lists them: for Anthropic's API
//! `http://127.0.0.1:18080/s/happy`, for both of OpenAI's `http://127.0.0.1:18080/s/happy/v1`. A message that contains
//! `[[scenario:e401]]` overrules the path. Each request is printed to standard error as a line of JSON, with what it
//! offered and what it was told to have consumed, and another line when its answer has gone out whole.
#![expect(clippy::print_stdout, reason = "a program for people: its address is its output")]

use std::time::Duration;

use clap::Parser;
use courier_test_support::models::{ModelServer, Options};

/// A model that follows a script, speaking Anthropic's Messages and OpenAI's Responses and chat completions on 127.0.0.1.
#[derive(Parser, Debug)]
struct Arguments {
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 18080)]
    port: u16,
    /// Milliseconds between streamed events.
    #[arg(long, default_value_t = 4)]
    delay: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let delay = Duration::from_millis(arguments.delay);
    let server = ModelServer::start_with(Options { port: arguments.port, delay, echo: true })?;
    println!("listening: Anthropic's API at {0}, OpenAI's at {0}/v1", server.url_of("happy"));
    server.wait();
    Ok(())
}
