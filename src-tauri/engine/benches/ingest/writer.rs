//! An agent that prints at a steady rate, in a process of its own.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, Write},
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How fast it prints, in bytes per second.
pub const RATE: f64 = 10e6;
/// How long.
const TIME: Duration = Duration::from_secs(12);
/// How often.
const PERIOD: Duration = Duration::from_millis(10);
/// Begins a line that says when it was written, in nanoseconds since 1970. The parser does not know it and shows it as it is.
pub const MARK: &str = r#"{"type":"written","at":""#;

pub fn run(from: &Path, to: &Path) {
    let mut reader = BufReader::new(File::open(from).expect("the recording"));
    let mut spool = File::options().append(true).open(to).expect("the spool");
    let (begin, mut written, mut chunk) = (Instant::now(), 0.0, Vec::new());
    while begin.elapsed() < TIME {
        let due = begin.elapsed().as_secs_f64() * RATE;
        while written + (chunk.len() as f64) < due {
            if reader.read_until(b'\n', &mut chunk).expect("the recording can be read") == 0 {
                reader.rewind().expect("it is a file");
            }
        }
        writeln!(chunk, r#"{MARK}{}"}}"#, now()).expect("memory");
        spool.write_all(&chunk).expect("space for the spool");
        written += chunk.len() as f64;
        chunk.clear();
        std::thread::sleep(PERIOD);
    }
}

/// Nanoseconds since 1970: the one clock two processes share.
pub fn now() -> u128 {
    #[expect(clippy::disallowed_methods, reason = "compared between two processes of this bench only")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).expect("it is later than 1970").as_nanos()
}
