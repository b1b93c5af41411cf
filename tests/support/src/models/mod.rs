//! A model that follows a script: it speaks the model APIs that agents speak, on loopback, and remembers every request.
//!
//! | API | Where | Base URL for an agent |
//! | --- | --- | --- |
//! | Anthropic's Messages | `/v1/messages` | `http://127.0.0.1:PORT/s/happy` |
//! | OpenAI's Responses | `/v1/responses` | `http://127.0.0.1:PORT/s/happy/v1` |
//! | OpenAI's chat completions | `/v1/chat/completions` | `http://127.0.0.1:PORT/s/happy/v1` |
//!
//! The scenario is the first part of the path (`/s/happy`), or a tag in the newest message (`[[scenario:NAME]]`), which
//! wins. The tools of an answer are chosen among those that the request offers, never by who asks.
//!
//! - **It works**: `happy` (writes a file, commits it), `tour` (plans, writes, reads, searches, edits, commits), `bash_ls`,
//!   `text`, `thinking`, `fanout` (two calls at once), `toolerr` (a command that fails), `ansi`, `longout` (a command
//!   prints 2 MB), `longtext` (the model says 2 MB), `sleep` and `sleepN` (N seconds in the shell), `slow`, `slowtext` and
//!   `slowtextN` (N seconds of words).
//! - **It is refused**: `e401` (the key), `e403`, `equota`, `e400ctx` (too long), `e429` (with retry-after: 1),
//!   `e429bare` (without), `e429hdr` (retry-after: 3600), `limit` (used up, with the time it ends) and `limitN` (ends N
//!   seconds after the first request, then `happy`), `e500`, `e503`, `e529`, `overload` (503 or 529, as the API has it),
//!   `flaky` (two requests overloaded, then `happy`).
//! - **It breaks**: `drop` (inside a text), `droptool` (inside a tool's arguments), `hang` (headers, then silence),
//!   `sse_error` and `sse_ctx` (an overload, and a conversation too long, told inside a good answer).
//!
//! A scenario is a list of steps (`scenario.rs`), put into beats (`answer.rs`), which each API writes as its own events
//! (`anthropic.rs`, `responses.rs`, `chat.rs`). A server runs on a thread of its own and ends when its value is dropped.

mod answer;
mod anthropic;
mod api;
mod chat;
mod conversation;
mod memory;
mod responses;
mod scenario;
mod server;
mod tools;

pub use api::Api;
pub use memory::{KeySeen, RequestSeen};
pub use scenario::{UsageServed, WRITTEN_CONTENT, WRITTEN_FILE};
pub use server::{ModelServer, Options};
