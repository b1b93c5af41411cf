//! The scripted model server, for a person: point an agent's base URL at it and watch what it asks.
#![expect(clippy::print_stdout, reason = "a program for people: its address is its output")]

use std::time::Duration;

use clap::Parser;
use courier_test_support::models::{ModelServer, Options};

/// A model that follows a script, speaking Anthropic's Messages API on 127.0.0.1.
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
    println!("listening: ANTHROPIC_BASE_URL={}/s/happy", server.url());
    server.wait();
    Ok(())
}
