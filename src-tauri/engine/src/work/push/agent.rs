//! Whether the person's SSH agent answers, and how many keys it has: libssh2 says of all that only "refused".

/// How many keys the agent has; `None` where none answers.
///
/// The agent is the one libssh2 asks: that of this process's own environment.
#[cfg(unix)]
pub(super) fn keys() -> Option<u32> {
    let socket = std::env::var_os("SSH_AUTH_SOCK")?;
    ask(std::path::Path::new(&socket)).ok().flatten()
}

/// Elsewhere an agent is no socket; one is taken to be there.
#[cfg(not(unix))]
pub(super) fn keys() -> Option<u32> {
    Some(1)
}

/// The request for its identities, and the count the answer begins with.
#[cfg(unix)]
fn ask(socket: &std::path::Path) -> std::io::Result<Option<u32>> {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        time::Duration,
    };
    const LIMIT: Duration = Duration::from_secs(5);
    const REQUEST_IDENTITIES: u8 = 11;
    const IDENTITIES: u8 = 12;
    let mut agent = UnixStream::connect(socket)?;
    agent.set_read_timeout(Some(LIMIT))?;
    agent.set_write_timeout(Some(LIMIT))?;
    agent.write_all(&[0, 0, 0, 1, REQUEST_IDENTITIES])?;
    let mut answer = [0; 9];
    agent.read_exact(&mut answer)?;
    let [_, _, _, _, kind, count @ ..] = answer;
    Ok((kind == IDENTITIES).then(|| u32::from_be_bytes(count)))
}
