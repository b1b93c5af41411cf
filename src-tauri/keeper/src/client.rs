//! Asking a keeper something. Blocking: the engine calls it where blocking is allowed.

use std::{io, path::Path, time::Duration};

use crate::{
    protocol::{Request, Response, read_frame, write_frame},
    socket,
};

/// Asks the keeper of this folder, and waits for its answer as long as `limit`.
///
/// Nobody there is [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`].
pub fn ask(directory: &Path, request: &Request, body: &[u8], limit: Duration) -> io::Result<Response> {
    let mut stream = socket::connect(directory)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write_frame(&mut stream, request, body)?;
    match read_frame(&mut stream)? {
        Some((response, _)) => Ok(response),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the keeper left without an answer")),
    }
}
