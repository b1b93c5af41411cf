//! The bundle's file and its header.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use git2::{ObjectType, Oid};

use super::{Error, Limits, Refusal, known::Known, objects, quarantine::Quarantine};

/// A line, the whole header, and how many commits it may build on.
const LINE: usize = 4096;
const HEADER: usize = 1 << 20;
const PREREQUISITES: usize = 10_000;

/// The commits a bundle was asked for.
#[derive(Clone, Debug)]
pub(super) struct Tips {
    pub head: Option<Oid>,
    pub stash: Option<Oid>,
}

/// Our own copy of the bundle: the agent may write to its file at any time.
#[derive(Debug)]
pub(super) struct Bundle {
    pub tips: Tips,
    prerequisites: Vec<Oid>,
    path: PathBuf,
    /// Where the pack begins, and how long it is.
    start: u64,
    pub length: u64,
}

impl Bundle {
    /// Copies the file and reads the header. A link is not followed, a FIFO not waited for.
    pub fn copy(from: &Path, quarantine: &Quarantine, limits: &Limits) -> Result<Self, Error> {
        let file = open(from).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Refusal::NoBundle.into(),
            _ if is_no_file(&error) => Refusal::NotAFile.into(),
            _ => Error::io("the bundle", &error),
        })?;
        let about = file.metadata().map_err(|error| Error::io("the bundle", &error))?;
        if !about.is_file() {
            return Err(Refusal::NotAFile.into());
        }
        if about.len() > limits.bundle {
            return Err(Refusal::TooLarge(limits.bundle).into());
        }
        let path = quarantine.path().join("bundle");
        let wrote = |error: io::Error| Error::io("the quarantine", &error);
        let mut copy = File::create_new(&path).map_err(wrote)?;
        let copied = io::copy(&mut file.take(limits.bundle + 1), &mut copy).map_err(wrote)?;
        if copied > limits.bundle {
            return Err(Refusal::TooLarge(limits.bundle).into());
        }
        copy.flush().map_err(wrote)?;
        let mut header = Header::default();
        header.read(&mut BufReader::new(File::open(&path).map_err(wrote)?))?;
        let start = header.length as u64;
        Ok(Self { tips: header.tips()?, prerequisites: header.prerequisites, path, start, length: copied - start })
    }

    /// The pack's bytes.
    pub fn pack(&self) -> Result<File, Error> {
        let opened = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.start))?;
            Ok(file)
        });
        opened.map_err(|error| Error::io("the quarantine", &error))
    }

    /// Each commit it builds on is one that is known here.
    pub fn check_prerequisites(&self, known: &Known<'_>) -> Result<(), Error> {
        for id in &self.prerequisites {
            if known.kind(*id) != Some(ObjectType::Commit) {
                return Err(Refusal::Prerequisite(id.to_string()).into());
            }
        }
        Ok(())
    }
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(unix)]
fn is_no_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EMLINK | libc::ENXIO))
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(not(unix))]
fn is_no_file(_: &io::Error) -> bool {
    false
}

#[derive(Debug, Default)]
struct Header {
    prerequisites: Vec<Oid>,
    references: Vec<(Oid, Vec<u8>)>,
    length: usize,
}

impl Header {
    fn read(&mut self, from: &mut impl BufRead) -> Result<(), Error> {
        let version = match self.line(from)?.as_slice() {
            b"# v2 git bundle" => 2,
            b"# v3 git bundle" => 3,
            _ => return Err(bad("the first line is another")),
        };
        loop {
            let line = self.line(from)?;
            match line.split_first() {
                None => return Ok(()),
                Some((b'@', capability)) if version == 3 && self.is_fresh() => {
                    if capability != b"object-format=sha1" {
                        return Err(Refusal::Capability(words(capability)).into());
                    }
                }
                Some((b'-', rest)) if self.references.is_empty() => {
                    let id = rest.get(..40).and_then(objects::id);
                    let (Some(id), None | Some(b' ')) = (id, rest.get(40)) else { return Err(bad("a commit's name")) };
                    if self.prerequisites.len() == PREREQUISITES {
                        return Err(bad("it builds on too much"));
                    }
                    self.prerequisites.push(id);
                }
                Some(_) => {
                    let id = line.get(..40).and_then(objects::id);
                    let (Some(id), Some(b' ')) = (id, line.get(40)) else { return Err(bad("a line of another kind")) };
                    self.references.push((id, line[41..].to_vec()));
                    if self.references.len() > 2 {
                        return Err(Refusal::Reference.into());
                    }
                }
            }
        }
    }

    fn is_fresh(&self) -> bool {
        self.prerequisites.is_empty() && self.references.is_empty()
    }

    /// One line without its end.
    fn line(&mut self, from: &mut impl BufRead) -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        let read =
            from.take(LINE as u64).read_until(b'\n', &mut line).map_err(|error| Error::io("the quarantine", &error))?;
        self.length += read;
        if line.pop() != Some(b'\n') || self.length > HEADER {
            return Err(bad("it does not end"));
        }
        Ok(line)
    }

    fn tips(&self) -> Result<Tips, Error> {
        let mut tips = Tips { head: None, stash: None };
        for (id, name) in &self.references {
            let tip = match name.as_slice() {
                b"HEAD" => &mut tips.head,
                b"refs/stash" => &mut tips.stash,
                _ => return Err(Refusal::Reference.into()),
            };
            if tip.replace(*id).is_some() {
                return Err(Refusal::Reference.into());
            }
        }
        if self.references.is_empty() {
            return Err(bad("it names nothing"));
        }
        Ok(tips)
    }
}

fn bad(why: &str) -> Error {
    Refusal::Header(why.to_owned()).into()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Header, Error> {
        let mut header = Header::default();
        header.read(&mut text.as_bytes())?;
        header.tips()?;
        Ok(header)
    }

    const A: &str = "00000000000000000000000000000000000000aa";

    #[test]
    fn a_header_is_read_to_its_end_and_no_further() {
        let text = format!("# v2 git bundle\n-{A} a subject\n-{A}\n{A} HEAD\n{A} refs/stash\n\nPACK");
        let header = read(&text).unwrap();
        assert_eq!((header.prerequisites.len(), header.references.len()), (2, 2));
        assert_eq!(&text[header.length..], "PACK");
        assert!(read(&format!("# v3 git bundle\n@object-format=sha1\n{A} HEAD\n\n")).is_ok());
    }

    #[test]
    fn names_nobody_asked_for_are_refused() {
        let odd = ["refs/heads/../../x", "-x", "refs/heads/a\u{7}b", "refs/heads/main", "HEAD ", "", "HEAD\r"];
        for name in odd {
            let refused = read(&format!("# v2 git bundle\n{A} {name}\n\n"));
            assert_eq!(refused.err(), Some(Refusal::Reference.into()), "{name:?}");
        }
        let twice = read(&format!("# v2 git bundle\n{A} HEAD\n{A} HEAD\n\n"));
        assert_eq!(twice.err(), Some(Refusal::Reference.into()));
    }

    #[test]
    fn a_filtered_or_foreign_bundle_is_refused() {
        for capability in ["filter=blob:none", "object-format=sha256", "surprise"] {
            let refused = read(&format!("# v3 git bundle\n@{capability}\n{A} HEAD\n\n"));
            assert_eq!(refused.err(), Some(Refusal::Capability(capability.to_owned()).into()));
        }
        assert!(read(&format!("# v2 git bundle\n@filter=blob:none\n{A} HEAD\n\n")).is_err(), "version 2 has none");
        assert!(read(&format!("# v3 git bundle\n{A} HEAD\n@object-format=sha1\n\n")).is_err(), "too late");
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let long = format!("# v2 git bundle\n-{A} {}\n{A} HEAD\n\n", "x".repeat(LINE));
        let many = format!("# v2 git bundle\n{}{A} HEAD\n\n", format!("-{A}\n").repeat(PREREQUISITES + 1));
        let empty = "# v2 git bundle\n\n".to_owned();
        let short = format!("# v2 git bundle\n{A} HEAD\n");
        let upper = format!("# v2 git bundle\n{} HEAD\n\n", A.to_uppercase());
        let null = format!("# v2 git bundle\n{} HEAD\n\n", "0".repeat(40));
        let late = format!("# v2 git bundle\n{A} HEAD\n-{A}\n\n");
        for text in [long, many, empty, short, upper, null, late, String::new(), "garbage".to_owned()] {
            assert!(
                matches!(read(&text), Err(Error::Refused(Refusal::Header(_)))),
                "{:?}",
                &text[..text.len().min(99)]
            );
        }
    }
}
