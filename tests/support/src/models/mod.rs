//! A model that follows a script: it speaks Anthropic's Messages API on loopback and remembers every request.
//!
//! The scenario is the first part of the path (`ANTHROPIC_BASE_URL=http://127.0.0.1:PORT/s/happy`), or a tag in the
//! newest message (`[[scenario:NAME]]`), which wins. Scenarios: happy, bash_ls, text, longout, ansi, sleep, sleepN, slow,
//! slowtext, slowtextN (N seconds of words), toolerr, fanout; e401, e403, e429, e429hdr (with the time the limit ends),
//! equota, e529, e500, e400ctx; drop (the connection breaks inside a text), droptool (inside a tool's arguments), hang
//! (headers, then silence), flaky (two requests overloaded, then happy), sse_error (an error inside a good answer).
//!
//! A server runs on a thread of its own and ends when its value is dropped.

mod anthropic;
mod conversation;
mod scenario;
mod server;

pub use scenario::{UsageServed, WRITTEN_CONTENT, WRITTEN_FILE};
pub use server::{KeySeen, ModelServer, Options, RequestSeen};
