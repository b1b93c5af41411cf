//! The real keeper with the real bubblewrap. On other systems than Linux there is nothing here to run.

#![cfg(target_os = "linux")]

mod isolation;
mod lives;
mod network;
mod spools;
mod support;
mod turns;
