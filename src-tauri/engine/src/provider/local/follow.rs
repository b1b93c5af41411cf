//! Reads a turn's spool while it grows.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use courier_keeper::{
    protocol::{Request, Response, SPOOL_CAP},
    spool::{self, ExitRecord},
};
use tokio::task::JoinHandle;

use super::{
    super::{Error, Follower, Offsets, SpoolEvent},
    blocking, joined, keeper,
    ticker::Ticks,
    unreadable,
};
use crate::{agent::Exit, model::Stream};

/// How much is handed over at once.
const CHUNK: u64 = 512 << 10;

/// How often it is asked whether the keeper still lives, while nothing else happens.
const KEEPER_PERIOD: Duration = Duration::from_millis(500);

/// Follows one turn.
#[derive(Debug)]
pub(super) struct SpoolFollower {
    /// The sandbox's folder.
    directory: PathBuf,
    turn: String,
    place: PathBuf,
    tails: [Tail; 2],
    exit: Option<ExitRecord>,
    /// A read that is under way.
    reading: Option<Reading>,
    ticks: Ticks,
    /// When the keeper was last seen; `None`: it is gone, and what is there is all.
    keeper_seen: Option<Instant>,
    /// Up to where the keeper has agreed to let it grow.
    allowed: Arc<AtomicU64>,
}

/// A read of one of the tails.
#[derive(Debug)]
struct Reading {
    index: usize,
    bytes: JoinHandle<Result<Vec<u8>, Error>>,
}

/// One stream.
#[derive(Debug)]
struct Tail {
    stream: Stream,
    file: Option<Arc<File>>,
    path: PathBuf,
    offset: u64,
}

impl SpoolFollower {
    pub(super) fn new(directory: PathBuf, turn: String, from: Offsets, ticks: Ticks) -> Result<Self, Error> {
        let place = spool::turn_directory(&directory, &turn);
        if !place.try_exists().map_err(|source| unreadable(&place, source))? {
            return Err(Error::NoSuchTurn);
        }
        let tail = |stream, name, offset| Tail { stream, file: None, path: place.join(name), offset };
        let tails = [tail(Stream::Out, spool::OUT, from.out), tail(Stream::Err, spool::ERR, from.err)];
        let keeper_seen = Some(Instant::now());
        Ok(Self {
            directory,
            turn,
            place,
            tails,
            exit: None,
            reading: None,
            ticks,
            keeper_seen,
            allowed: Arc::new(SPOOL_CAP.into()),
        })
    }

    /// What is there to be read, or whether it has ended; `None`: not now. Quick: it looks, and does not read.
    fn look(&mut self) -> Result<Option<Look>, Error> {
        // The end first: everything before it is in the files by then.
        if self.exit.is_none() {
            self.exit = spool::read_exit(&self.place).map_err(|source| unreadable(&self.place, source))?;
        }
        let ends = self.exit.map(|exit| [exit.out_len, exit.err_len]);
        for (index, tail) in self.tails.iter_mut().enumerate() {
            let length = tail.length()?;
            let end = ends.map_or(length, |ends| ends[index].min(length));
            if tail.offset < end {
                return Ok(Some(Look::Bytes { index, count: (end - tail.offset).min(CHUNK) }));
            }
        }
        if let Some(exit) = self.exit {
            return Ok(Some(Look::Ended(match exit {
                ExitRecord { code: Some(code), .. } => Exit::Code(code),
                ExitRecord { signal: Some(signal), .. } => Exit::Signal(signal),
                ExitRecord { code: None, signal: None, .. } => Exit::Unknown,
            })));
        }
        match self.keeper_seen {
            // Looked at everything once more after it was gone.
            None => return Ok(Some(Look::Ended(Exit::Unknown))),
            Some(at) if at.elapsed() < KEEPER_PERIOD => {}
            // Nobody writes `exit` into a folder that was deleted; whether it ended, only the keeper can say.
            Some(_) if !self.place.try_exists().map_err(|source| unreadable(&self.place, source))? => {
                return Ok(Some(Look::Deleted));
            }
            Some(_) => {
                self.keeper_seen = keeper::is_kept(&self.directory)?.then(Instant::now);
                if self.keeper_seen.is_none() {
                    return self.look();
                }
            }
        }
        Ok(None)
    }

    /// Begins to read. It goes on, and is not begun again, where nobody waits for it any more.
    fn begin(&mut self, index: usize, count: u64) {
        let tail = &self.tails[index];
        let (file, offset, path) = (tail.file.clone(), tail.offset, tail.path.clone());
        let file = file.expect("what has a length was opened");
        let bytes = tokio::task::spawn_blocking(move || read(&file, offset, count, &path));
        self.reading = Some(Reading { index, bytes });
    }

    /// Lets the spool grow as far beyond what was read as it may hold unread.
    fn allow(&mut self) {
        let read = self.tails.iter().map(|tail| tail.offset).max().unwrap_or(0);
        if read + SPOOL_CAP / 2 <= self.allowed.load(Ordering::Relaxed) || self.exit.is_some() {
            return;
        }
        let bytes = read + SPOOL_CAP;
        let request = Request::AllowSpool { turn: self.turn.clone(), bytes };
        let (directory, allowed) = (self.directory.clone(), Arc::clone(&self.allowed));
        // Not waited for: what it allows is not needed yet. Where the keeper did not hear it, the next read says it again.
        drop(tokio::task::spawn_blocking(move || {
            if keeper::ask_blocking(&directory, &request, &[]).is_ok() {
                allowed.fetch_max(bytes, Ordering::Relaxed);
            }
        }));
    }
}

/// Whether the keeper still copies a turn's output.
fn is_open(directory: &Path, turn: &str) -> Result<bool, Error> {
    match keeper::ask_blocking(directory, &Request::Status, &[]) {
        Ok(Response::Status(status)) => Ok(status.turns.iter().any(|open| open.turn == turn)),
        Ok(other) => Err(keeper::unexpected(other)),
        Err(Error::Gone) => Ok(false),
        Err(error) => Err(error),
    }
}

enum Look {
    Deleted,
    Bytes { index: usize, count: u64 },
    Ended(Exit),
}

#[async_trait]
impl Follower for SpoolFollower {
    async fn next(&mut self) -> Result<SpoolEvent, Error> {
        loop {
            if let Some(Reading { index, bytes }) = &mut self.reading {
                let (index, read) = (*index, bytes.await);
                self.reading = None;
                let bytes = joined(read)?;
                let tail = &mut self.tails[index];
                tail.offset += bytes.len() as u64;
                let stream = tail.stream;
                self.allow();
                // What comes next is read while this is taken in. What else there is to see is seen again then.
                if let Ok(Some(Look::Bytes { index, count })) = self.look() {
                    self.begin(index, count);
                }
                return Ok(SpoolEvent::Bytes { stream, bytes });
            }
            match self.look()? {
                Some(Look::Ended(exit)) => return Ok(SpoolEvent::Ended(exit)),
                Some(Look::Bytes { index, count }) => self.begin(index, count),
                Some(Look::Deleted) => {
                    let (directory, turn) = (self.directory.clone(), self.turn.clone());
                    // A keeper that does not answer now is asked again.
                    let is_open = blocking(move || is_open(&directory, &turn)).await.unwrap_or(true);
                    self.keeper_seen = is_open.then(Instant::now);
                }
                None => self.ticks.next().await,
            }
        }
    }
}

impl Tail {
    fn length(&mut self) -> Result<u64, Error> {
        let file = match &self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                Ok(file) => self.file.insert(Arc::new(file)),
                // The turn is claimed, and its keeper about to make it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(source) => return Err(unreadable(&self.path, source)),
            },
        };
        file.metadata().map(|found| found.len()).map_err(|source| unreadable(&self.path, source))
    }
}

fn read(file: &File, offset: u64, count: u64, path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; usize::try_from(count).expect("a chunk")];
    let mut done = 0;
    while done < bytes.len() {
        match read_at(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(unreadable(path, source)),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn read_at(_file: &File, _bytes: &mut [u8], _offset: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::{super::ticker::Ticker, *};

    struct Place {
        folder: tempfile::TempDir,
        ticker: Ticker,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            spool::prepare(folder.path()).unwrap();
            spool::claim(folder.path(), "t").unwrap();
            Self { folder, ticker: Ticker::new() }
        }

        fn turn(&self) -> PathBuf {
            spool::turn_directory(self.folder.path(), "t")
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            std::fs::write(self.turn().join(name), bytes).unwrap();
        }

        fn exit(&self, record: ExitRecord) {
            spool::write_whole(&self.turn(), spool::EXIT, &serde_json::to_vec(&record).unwrap()).unwrap();
        }

        fn follow(&self, from: Offsets) -> SpoolFollower {
            let ticks = self.ticker.subscribe().unwrap();
            SpoolFollower::new(self.folder.path().to_owned(), "t".into(), from, ticks).unwrap()
        }
    }

    async fn read_all(follower: &mut SpoolFollower) -> (Vec<u8>, Vec<u8>, Exit) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match follower.next().await.unwrap() {
                SpoolEvent::Bytes { stream: Stream::Out, bytes } => out.extend(bytes),
                SpoolEvent::Bytes { stream: Stream::Err, bytes } => err.extend(bytes),
                SpoolEvent::Ended(exit) => return (out, err, exit),
            }
        }
    }

    #[tokio::test]
    async fn everything_from_the_offsets_to_the_recorded_ends_is_read() {
        let place = Place::new();
        let out: Vec<u8> = (0..600_000_u32).map(|number| number as u8).collect();
        place.write(spool::OUT, &[out.as_slice(), b"not part of it"].concat());
        place.write(spool::ERR, b"problem");
        place.exit(ExitRecord { code: Some(3), out_len: 600_000, err_len: 7, ..ExitRecord::default() });
        let mut follower = place.follow(Offsets { out: 5, err: 3 });
        let first = follower.next().await.unwrap();
        assert!(matches!(&first, SpoolEvent::Bytes { bytes, .. } if bytes.len() as u64 == CHUNK));
        let SpoolEvent::Bytes { bytes: mut read, .. } = first else { unreachable!() };
        let (rest, err, exit) = read_all(&mut follower).await;
        read.extend(rest);
        assert!(read == out[5..]);
        assert_eq!((err.as_slice(), exit), (&b"blem"[..], Exit::Code(3)));
    }

    #[tokio::test]
    async fn what_grows_is_followed_and_giving_up_a_wait_loses_nothing() {
        let place = Place::new();
        let lock = spool::lock(place.folder.path()).unwrap();
        place.write(spool::OUT, b"one");
        let mut follower = place.follow(Offsets::default());
        assert!(matches!(follower.next().await.unwrap(), SpoolEvent::Bytes { bytes, .. } if bytes == b"one"));
        let waiting = tokio::time::timeout(Duration::from_millis(50), follower.next()).await;
        assert!(waiting.is_err(), "there is nothing yet");
        place.write(spool::OUT, b"one, two");
        place.exit(ExitRecord { signal: Some(15), out_len: 8, ..ExitRecord::default() });
        assert_eq!(read_all(&mut follower).await, (b", two".to_vec(), Vec::new(), Exit::Signal(15)));
        drop(lock);
    }

    #[tokio::test]
    async fn a_turn_whose_keeper_died_ends_unknown_once_all_was_read() {
        let place = Place::new();
        place.write(spool::OUT, b"last words");
        let mut follower = place.follow(Offsets::default());
        assert_eq!(read_all(&mut follower).await, (b"last words".to_vec(), Vec::new(), Exit::Unknown));
    }

    #[tokio::test]
    async fn a_turn_that_never_was_is_said_to_be_so() {
        let place = Place::new();
        let ticks = place.ticker.subscribe().unwrap();
        let made = SpoolFollower::new(place.folder.path().to_owned(), "other".into(), Offsets::default(), ticks);
        assert!(matches!(made, Err(Error::NoSuchTurn)));
    }
}
