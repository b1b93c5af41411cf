//! The real keeper with the real bubblewrap. On other systems than Linux there is nothing here to run.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails, and its helpers are tests too")]

mod gateway;
mod isolation;
mod kernel;
mod leftovers;
mod lives;
mod model;
mod network;
mod proof;
mod reach;
mod spools;
mod support;
mod turns;
