//! `stream_log`: the raw log, in the order it was read; compressed where that is worth it.

use rusqlite::{Connection, named_params};

use super::{Error, Tx};
use crate::model::{SandboxId, Stream, TurnId};

/// How much a page of the raw log holds at most, in bytes (one chunk more where a single chunk is larger).
pub const PAGE_BYTES: usize = 256 << 10;
/// How much one chunk holds at most, in bytes: what comes together is stored together.
pub const CHUNK_BYTES: usize = PAGE_BYTES;
/// Chunks smaller than this are not worth compressing.
const WORTH_COMPRESSING: usize = 1 << 10;
/// The fastest: most of what there is to gain, for less time than writing the rest to the disk would take.
const LEVEL: i32 = 1;

/// A page of the raw log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    pub bytes: Vec<u8>,
    /// The cursor to read on from.
    pub next: i64,
    /// The cursor of the newest chunk there is.
    pub end: i64,
    /// Whether older bytes were left out.
    pub is_truncated: bool,
}

/// What is stored as one row.
#[derive(Debug)]
pub struct Chunk {
    stream: Stream,
    bytes: Vec<u8>,
    /// Of the bytes when not compressed.
    length: usize,
    is_compressed: bool,
}

impl Chunk {
    /// What is stored of these bytes: rows of a size that can be read, compressed where that makes them smaller.
    pub fn of(stream: Stream, bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.chunks(CHUNK_BYTES).map(move |bytes| Self::new(stream, bytes))
    }

    fn new(stream: Stream, bytes: &[u8]) -> Self {
        let length = bytes.len();
        if length >= WORTH_COMPRESSING
            && let Ok(fewer) = zstd::bulk::compress(bytes, LEVEL)
            && fewer.len() < length
        {
            return Self { stream, bytes: fewer, length, is_compressed: true };
        }
        Self { stream, bytes: bytes.to_vec(), length, is_compressed: false }
    }
}

/// Adds a chunk and returns its cursor.
pub fn append(tx: &Tx<'_>, sandbox: SandboxId, turn: TurnId, chunk: &Chunk) -> Result<i64, Error> {
    tx.prepare_cached(
        "INSERT INTO stream_log (sandbox, turn, stream, bytes, length, is_compressed)
         VALUES (:sandbox, :turn, :stream, :bytes, :length, :is_compressed)",
    )?
    .execute(named_params! {
        ":sandbox": sandbox.to_string(), ":turn": turn.to_string(), ":stream": chunk.stream.code(), ":bytes": chunk.bytes,
        ":length": i64::try_from(chunk.length).unwrap_or(i64::MAX), ":is_compressed": chunk.is_compressed,
    })?;
    Ok(tx.last_insert_rowid())
}

/// Calls `each` with every chunk of a turn, in order.
pub fn replay(connection: &Connection, turn: TurnId, mut each: impl FnMut(Stream, &[u8])) -> Result<(), Error> {
    let mut statement = connection
        .prepare_cached("SELECT stream, bytes, is_compressed FROM stream_log WHERE turn = :turn ORDER BY id")?;
    let mut rows = statement.query(named_params! { ":turn": turn.to_string() })?;
    while let Some(row) = rows.next()? {
        let stream = Stream::from_code(row.get_ref(0)?.as_str().unwrap_or("out")).unwrap_or(Stream::Out);
        let bytes = row.get_ref(1)?.as_blob().map_err(|_| Error::NotFound("log chunk"))?;
        if row.get::<_, bool>(2)? {
            each(stream, &decompress(bytes)?);
        } else {
            each(stream, bytes);
        }
    }
    Ok(())
}

/// The cursor of the newest chunk there is; 0 without one.
pub fn end(connection: &Connection, sandbox: SandboxId) -> Result<i64, Error> {
    Ok(connection
        .prepare_cached("SELECT COALESCE(MAX(id), 0) FROM stream_log WHERE sandbox = :sandbox")?
        .query_row(named_params! { ":sandbox": sandbox.to_string() }, |row| row.get(0))?)
}

/// What follows `cursor`; without one, the newest page.
pub fn page(connection: &Connection, sandbox: SandboxId, cursor: Option<i64>) -> Result<LogPage, Error> {
    let end = end(connection, sandbox)?;
    let (from, is_truncated) = match cursor {
        Some(cursor) => (cursor, false),
        None => newest(connection, sandbox)?,
    };
    let mut page = LogPage { next: from, end, is_truncated, ..LogPage::default() };
    let mut statement = connection.prepare_cached(
        "SELECT id, bytes, is_compressed FROM stream_log WHERE sandbox = :sandbox AND id > :from ORDER BY id",
    )?;
    let mut rows = statement.query(named_params! { ":sandbox": sandbox.to_string(), ":from": from })?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob().map_err(|_| Error::NotFound("log chunk"))?;
        if row.get::<_, bool>(2)? {
            page.bytes.extend_from_slice(&decompress(bytes)?);
        } else {
            page.bytes.extend_from_slice(bytes);
        }
        page.next = row.get(0)?;
        if page.bytes.len() >= PAGE_BYTES {
            break;
        }
    }
    Ok(page)
}

/// The cursor before the newest page, and whether something lies before it.
fn newest(connection: &Connection, sandbox: SandboxId) -> Result<(i64, bool), Error> {
    let mut statement =
        connection.prepare_cached("SELECT id, length FROM stream_log WHERE sandbox = :sandbox ORDER BY id DESC")?;
    let mut rows = statement.query(named_params! { ":sandbox": sandbox.to_string() })?;
    let (mut length, mut taken) = (0, None);
    while let Some(row) = rows.next()? {
        length += row.get::<_, i64>(1)?;
        if usize::try_from(length).unwrap_or(usize::MAX) <= PAGE_BYTES {
            taken = Some(row.get::<_, i64>(0)?);
        } else if taken.is_some() {
            return Ok((row.get(0)?, true));
        } else {
            // The newest chunk is larger than a page: there would be nothing to read without it.
            let id: i64 = row.get(0)?;
            return Ok((id - 1, rows.next()?.is_some()));
        }
    }
    Ok((0, false))
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    zstd::decode_all(bytes).map_err(unreadable)
}

fn unreadable(source: std::io::Error) -> Error {
    Error::Io { path: "the raw log".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest page of a log with chunks of these lengths, each of one letter.
    fn newest_page(lengths: &[usize]) -> (String, bool) {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../../migrations/0001_first.sql")).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        let sandbox = SandboxId::fresh();
        for (letter, length) in ('a'..).zip(lengths) {
            connection
                .execute(
                    "INSERT INTO stream_log (sandbox, turn, stream, bytes, length) VALUES (?1, 'turn', 'out', ?2, ?3)",
                    (
                        sandbox.to_string(),
                        letter.to_string().repeat(*length).into_bytes(),
                        i64::try_from(*length).unwrap(),
                    ),
                )
                .unwrap();
        }
        let page = page(&connection, sandbox, None).unwrap();
        assert_eq!(page.next, page.end, "there is nothing after the newest page");
        let mut letters: Vec<char> = String::from_utf8(page.bytes).unwrap().chars().collect();
        letters.dedup();
        (letters.into_iter().collect(), page.is_truncated)
    }

    #[test]
    fn the_newest_page_holds_the_newest_chunk_however_large() {
        assert_eq!(newest_page(&[]), (String::new(), false));
        assert_eq!(newest_page(&[10, 10]), ("ab".into(), false));
        assert_eq!(newest_page(&[PAGE_BYTES, 10, 10]), ("bc".into(), true));
        assert_eq!(newest_page(&[10, PAGE_BYTES + 1]), ("b".into(), true), "one chunk is more than a page");
        assert_eq!(newest_page(&[PAGE_BYTES + 1]), ("a".into(), false));
        assert_eq!(newest_page(&[PAGE_BYTES + 1, 10]), ("b".into(), true));
    }

    #[test]
    fn a_chunk_is_compressed_where_that_is_worth_it_and_reads_the_same() {
        let noise: Vec<u8> =
            (0..4000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        for (bytes, is_compressed) in
            [(b"short\n".to_vec(), false), (b"a line like the one before\n".repeat(100), true), (noise, false)]
        {
            let [chunk] = Chunk::of(Stream::Out, &bytes).collect::<Vec<_>>().try_into().unwrap();
            assert_eq!((chunk.is_compressed, chunk.length), (is_compressed, bytes.len()));
            let read = if is_compressed { decompress(&chunk.bytes).unwrap() } else { chunk.bytes };
            assert!(read == bytes, "{} bytes", bytes.len());
        }
        let lengths: Vec<_> = Chunk::of(Stream::Out, &vec![b'x'; CHUNK_BYTES + 1]).map(|chunk| chunk.length).collect();
        assert_eq!(lengths, [CHUNK_BYTES, 1]);
    }
}
