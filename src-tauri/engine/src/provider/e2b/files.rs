//! Files on their way into a machine, and out of one.

use std::path::Path;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    daemon::{Daemon, User},
    error::{Failure, Refusal},
};
use crate::provider::{Error, Progress};

/// How much travels at once: what breaks is sent again, and only that.
const PART: usize = 8 << 20;
/// How long nothing may come.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// How long putting the parts together may take.
const JOIN: std::time::Duration = std::time::Duration::from_secs(300);

/// Sends a file in parts, which are put together at its place. `sent` is told how many bytes have arrived.
pub(super) async fn send(daemon: &Daemon, from: &Path, to: &str, sent: &Progress<'_>) -> Result<(), Error> {
    let unreadable = |source| Error::Io { what: from.display().to_string(), source };
    let mut file = tokio::fs::File::open(from).await.map_err(unreadable)?;
    let (mut number, mut total, mut part) = (0_u32, 0_u64, Vec::with_capacity(PART));
    loop {
        part.clear();
        (&mut file).take(PART as u64).read_to_end(&mut part).await.map_err(unreadable)?;
        if part.is_empty() && number > 0 {
            break;
        }
        daemon.write(User::Agent, &format!("{to}.parts/{number:06}"), &part).await?;
        number += 1;
        total += part.len() as u64;
        sent(total);
        if part.len() < PART {
            break;
        }
    }
    // Run again, since its answer was lost, it finds its own work.
    let script = r#"set -e; if [ -d "$1.parts" ]; then cat -- "$1".parts/* >"$1.new"; mv -- "$1.new" "$1"; rm -rf -- "$1.parts"; fi"#;
    let joined = daemon.run_again(User::Agent, &["/bin/sh", "-c", script, "join", to], JOIN).await?;
    if joined.ended.exited && joined.ended.exit_code == 0 && daemon.stat(to).await? == Some(total) {
        return Ok(());
    }
    let words = crate::net::plain(&String::from_utf8_lossy(&joined.err), None, 300);
    Err(Error::Keeper(format!("a file did not arrive whole: {words}")))
}

/// Fetches a file that is at most so long.
pub(super) async fn fetch(daemon: &Daemon, from: &str, to: &Path, most: u64) -> Result<(), Failure> {
    let refused = |cause: String| Failure::Refused(Refusal { kind: "provider", cause, remedy: "Run again." });
    let io = |error: std::io::Error| refused(format!("{}: {error}", to.display()));
    let mut response = daemon.read(User::Agent, from).await?;
    let (mut file, mut length) = (tokio::fs::File::create(to).await.map_err(io)?, 0);
    let expected = response.content_length();
    let silent = |_| Failure::Unknown("no answer in time".to_owned());
    while let Some(bytes) =
        timeout(SILENCE, response.chunk()).await.map_err(silent)?.map_err(|error| Failure::of(&error))?
    {
        length += bytes.len() as u64;
        if length > most {
            return Err(refused(format!("what the sandbox gives is larger than {} MB", most >> 20)));
        }
        file.write_all(&bytes).await.map_err(io)?;
    }
    file.flush().await.map_err(io)?;
    match expected {
        Some(expected) if expected != length => Err(Failure::Unknown("the file was cut".to_owned())),
        _ => Ok(()),
    }
}
