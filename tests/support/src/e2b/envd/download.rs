//! `GET /files`: a file or a part of it, piece by piece.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header},
    response::Response,
};
use futures_util::stream;

use super::{empty, header as given, plain_error, query, users::User};

/// How much is read at once.
const PIECE: u64 = 64 << 10;

pub(super) fn answer(request: &Request) -> Response {
    let user = match User::named(query(request, "username").as_deref()) {
        Ok(user) => user,
        Err(refusal) => return plain_error(401, &refusal.message),
    };
    let path = user.path(&query(request, "path").unwrap_or_default());
    let found = match std::fs::metadata(&path) {
        Ok(found) => found,
        Err(_) => return plain_error(404, &format!("path '{}' does not exist", path.display())),
    };
    if found.is_dir() {
        return plain_error(400, &format!("path '{}' is a directory", path.display()));
    }
    if !found.is_file() {
        return plain_error(400, &format!("path '{}' is not a regular file", path.display()));
    }
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => return plain_error(500, &format!("error opening file '{}': {error}", path.display())),
    };
    let whole = found.len();
    let part = part(request.headers(), whole);
    let (from, to) = match part {
        Part::Whole => (0, whole),
        Part::Of(from, to) => (from, to),
        Part::Nothing => {
            let mut response = empty(axum::http::StatusCode::RANGE_NOT_SATISFIABLE);
            put(&mut response, header::CONTENT_RANGE, &format!("bytes */{whole}"));
            return response;
        }
    };
    if let Err(error) = file.seek(SeekFrom::Start(from)) {
        return plain_error(500, &format!("error reading file '{}': {error}", path.display()));
    }
    let body = if request.method() == Method::HEAD { Body::empty() } else { pieces(file, to - from) };
    let mut response = Response::new(body);
    if part != Part::Whole {
        *response.status_mut() = axum::http::StatusCode::PARTIAL_CONTENT;
        put(&mut response, header::CONTENT_RANGE, &format!("bytes {from}-{}/{whole}", to - 1));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    put(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    put(&mut response, header::CONTENT_DISPOSITION, &format!("inline; filename={name}"));
    put(&mut response, header::ACCEPT_RANGES, "bytes");
    put(&mut response, header::CONTENT_LENGTH, &(to - from).to_string());
    response
}

/// Headers that cannot be written are left out: a name may hold anything.
fn put(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// What of a file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// From here to before there.
    Of(u64, u64),
    /// Something beyond its end.
    Nothing,
}

/// One range of bytes; of what is stranger, the whole is sent, as one may.
fn part(headers: &HeaderMap, whole: u64) -> Part {
    let asked = given(headers, "range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    match asked.map(|(from, to)| (from.parse::<u64>().ok(), to.parse::<u64>().ok(), to.is_empty())) {
        Some((Some(from), to, is_open)) if is_open || to.is_some_and(|to| to >= from) => match from {
            from if from >= whole => Part::Nothing,
            from => Part::Of(from, to.map_or(whole, |to| whole.min(to.saturating_add(1)))),
        },
        Some((None, Some(last), _)) if last > 0 && whole > 0 => Part::Of(whole.saturating_sub(last), whole),
        _ => Part::Whole,
    }
}

fn pieces(file: File, length: u64) -> Body {
    Body::from_stream(stream::try_unfold((file, length), async |(mut file, left)| {
        let mut piece = Vec::new();
        (&mut file).take(left.min(PIECE)).read_to_end(&mut piece)?;
        let read = u64::try_from(piece.len()).unwrap_or(left);
        if left == 0 {
            return Ok(None);
        }
        if read == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)); // It has shrunk meanwhile.
        }
        Ok(Some((Bytes::from(piece), (file, left - read))))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood() {
        let of =
            |range: &'static str| part(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]), 10);
        assert_eq!(of("bytes=4-"), Part::Of(4, 10));
        assert_eq!(of("bytes=4-6"), Part::Of(4, 7));
        assert_eq!(of("bytes=4-600"), Part::Of(4, 10));
        assert_eq!(of("bytes=-3"), Part::Of(7, 10));
        assert_eq!(of("bytes=10-"), Part::Nothing, "as a follower asks who has read all");
        assert_eq!(of("bytes=1-2,4-5"), Part::Whole);
    }
}
