//! The daemon within a machine of the E2B-compatible server, which starts it: `e2b-envd /run`.

use std::path::PathBuf;

use clap::Parser;

/// Serves a machine's processes and files on a unix socket.
#[derive(Parser, Debug)]
struct Arguments {
    /// The folder of its socket.
    folder: PathBuf,
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    courier_test_support::e2b::envd::run(&Arguments::parse().folder)
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("there are no machines for {} on this system", Arguments::parse().folder.display())
}
