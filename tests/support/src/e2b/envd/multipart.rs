//! `multipart/form-data`, read as it comes: a part is never held whole.

use axum::body::{BodyDataStream, Bytes};
use bytes::BytesMut;
use futures_util::StreamExt;
use memchr::memmem;

/// More is no head of a part.
const LARGEST_HEAD: usize = 16 << 10;

/// What a part says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) filename: Option<String>,
}

/// A body in parts.
pub(super) struct Multipart {
    body: BodyDataStream,
    held: BytesMut,
    /// The line that ends a part, with the line break before it.
    delimiter: Vec<u8>,
    is_in_part: bool,
}

impl Multipart {
    pub(super) fn new(body: BodyDataStream, boundary: &str) -> Self {
        // The first delimiter has no line break before it: it is given one.
        let (held, delimiter) = (BytesMut::from(&b"\r\n"[..]), format!("\r\n--{boundary}").into_bytes());
        // What stands before the first part is read over as if it were one.
        Multipart { body, held, delimiter, is_in_part: true }
    }

    /// The head of the next part; what is left of the last one is read over.
    pub(super) async fn next_part(&mut self) -> Result<Option<Part>, String> {
        while self.next_piece().await?.is_some() {}
        while self.held.len() < 2 {
            self.read().await?;
        }
        if self.held.starts_with(b"--") {
            while self.body.next().await.is_some_and(|piece| piece.is_ok()) {}
            return Ok(None);
        }
        let end = loop {
            if let Some(end) = memmem::find(&self.held, b"\r\n\r\n") {
                break end;
            }
            if self.held.len() > LARGEST_HEAD {
                return Err("a part's head has no end".to_owned());
            }
            self.read().await?;
        };
        let head = self.held.split_to(end + 4);
        self.is_in_part = true;
        Ok(Some(part(&String::from_utf8_lossy(&head))))
    }

    /// The next bytes of the part.
    pub(super) async fn next_piece(&mut self) -> Result<Option<Bytes>, String> {
        while self.is_in_part {
            if let Some(end) = memmem::find(&self.held, &self.delimiter) {
                let piece = self.held.split_to(end).freeze();
                _ = self.held.split_to(self.delimiter.len());
                self.is_in_part = false;
                return Ok(Some(piece));
            }
            // The last bytes may be the beginning of a delimiter.
            let sure = self.held.len().saturating_sub(self.delimiter.len() - 1);
            if sure > 0 {
                return Ok(Some(self.held.split_to(sure).freeze()));
            }
            self.read().await?;
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<(), String> {
        match self.body.next().await {
            Some(Ok(piece)) => {
                self.held.extend_from_slice(&piece);
                Ok(())
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("multipart: NextPart: EOF".to_owned()),
        }
    }
}

fn part(head: &str) -> Part {
    let mut part = Part::default();
    for line in head.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-disposition") {
            part.name = field(value, "name").unwrap_or_default();
            part.filename = field(value, "filename");
        }
    }
    part
}

/// A quoted field, in which clients write quotes and line breaks as `%22`, `%0D`, `%0A`.
fn field(value: &str, name: &str) -> Option<String> {
    let key = format!("{name}=\"");
    let (at, _) = value.match_indices(&key).find(|(at, _)| value[..*at].ends_with([' ', ';']))?;
    let quoted = value[at + key.len()..].split('"').next()?;
    Some(quoted.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::stream;

    use super::*;

    /// Whatever the pieces it comes in, it is read the same.
    #[tokio::test]
    async fn parts_are_read_however_they_are_cut() {
        let text = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b.txt\"\r\n\r\none\r\n-two\r\n--XX\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"c\"\r\n\r\n\r\n--XX--\r\n";
        for size in 1..text.len() {
            let pieces: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
                .collect();
            let body = Body::from_stream(stream::iter(pieces)).into_data_stream();
            let mut parts = Multipart::new(body, "XX");
            let mut read = Vec::new();
            while let Some(part) = parts.next_part().await.unwrap() {
                let mut whole = Vec::new();
                while let Some(piece) = parts.next_piece().await.unwrap() {
                    whole.extend_from_slice(&piece);
                }
                read.push((part.filename.unwrap(), String::from_utf8(whole).unwrap()));
            }
            let wanted = [("a/b.txt".to_owned(), "one\r\n-two".to_owned()), ("c".to_owned(), String::new())];
            assert_eq!(read, wanted, "in pieces of {size}");
        }
    }
}
