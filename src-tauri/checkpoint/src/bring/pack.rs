//! The shape of a pack, read before libgit2 unpacks it.
//!
//! A pack of a few kilobytes can unpack to terabytes: a long run of zeros, or a delta that copies the same piece over and
//! over. So each entry is inflated once, into nothing, and measured against what it says of itself and what is allowed.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Read},
    time::Instant,
};

use flate2::{Decompress, FlushDecompress, Status};
use git2::Oid;

use super::{Error, Limits, Refusal, bundle::Bundle};

/// What git itself allows a chain of deltas to be long.
const CHAIN: u16 = 4095;
/// How many objects are read between two looks at the clock.
const LOOK: u32 = 1024;

/// What a pack builds on.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Objects named by their ids: beyond the pack, or elsewhere in it.
    pub bases: HashSet<Oid>,
}

impl Shape {
    pub fn read(bundle: &Bundle, limits: &Limits, deadline: Instant) -> Result<Self, Error> {
        let from = BufReader::with_capacity(1 << 16, bundle.pack()?.take(bundle.length));
        let mut scan =
            Scan { from, at: 0, unpacked: 0, limits, inflate: Decompress::new(true), shape: Shape::default() };
        scan.all(bundle.length, deadline)?;
        Ok(scan.shape)
    }
}

struct Scan<'a, R> {
    from: R,
    /// How many bytes were read.
    at: u64,
    /// What all entries come to, unpacked.
    unpacked: u64,
    limits: &'a Limits,
    inflate: Decompress,
    shape: Shape,
}

impl<R: BufRead> Scan<'_, R> {
    fn all(&mut self, length: u64, deadline: Instant) -> Result<(), Error> {
        if self.bytes::<4>()? != *b"PACK" || u32::from_be_bytes(self.bytes()?) != 2 {
            return Err(bad("it is of another kind"));
        }
        let count = u32::from_be_bytes(self.bytes()?);
        limit("the number of objects", count.into(), self.limits.objects.into())?;
        let mut chains = HashMap::new();
        for number in 0..count {
            if number % LOOK == 0 && Instant::now() > deadline {
                return Err(Error::TooSlow);
            }
            let start = self.at;
            let chain = self.entry(&chains)?;
            chains.insert(start, chain);
        }
        self.bytes::<20>()?;
        if self.at != length {
            return Err(bad("something follows its end"));
        }
        Ok(())
    }

    /// One entry; hands over how long the chain of deltas is that it ends.
    fn entry(&mut self, chains: &HashMap<u64, u16>) -> Result<u16, Error> {
        let start = self.at;
        let first = self.byte()?;
        let mut size = u64::from(first & 0x0f);
        if first & 0x80 != 0 {
            size = self.number(size, 4)?;
        }
        let (what, most, chain) = match (first >> 4) & 7 {
            1 => ("a commit", self.limits.commit, 0),
            2 => ("a tree", self.limits.tree, 0),
            3 => ("a file", self.limits.object, 0),
            6 => {
                let back = self.distance()?;
                let base = start
                    .checked_sub(back)
                    .and_then(|base| chains.get(&base))
                    .ok_or_else(|| bad("a delta of nothing"))?;
                ("a delta", self.limits.object, base + 1)
            }
            7 => {
                let base = Oid::from_bytes(&self.bytes::<20>()?).map_err(|_| bad("a delta of nothing"))?;
                self.shape.bases.insert(base);
                ("a delta", self.limits.object, 1)
            }
            _ => return Err(bad("an object of no kind")),
        };
        limit("a chain of deltas", chain.into(), CHAIN.into())?;
        limit(what, size, most)?;
        let begin = self.inflate(size)?;
        let mut unpacked = size;
        if chain > 0 {
            let mut begin = begin.as_slice();
            let (base, result) = (delta_size(&mut begin)?, delta_size(&mut begin)?);
            limit("a file", base.max(result), self.limits.object)?;
            unpacked += result;
        }
        self.unpacked = self.unpacked.saturating_add(unpacked);
        limit("what the pack holds", self.unpacked, self.limits.unpacked)?;
        Ok(chain)
    }

    /// Inflates one entry into nothing, but for its first bytes. It must have the length it says.
    fn inflate(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        let (mut begin, mut out) = (Vec::new(), [0; 1 << 15]);
        self.inflate.reset(true);
        loop {
            let input = self.from.fill_buf().map_err(|error| Error::io("the quarantine", &error))?;
            let is_over = input.is_empty();
            let (read, wrote) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(input, &mut out, FlushDecompress::None);
            let status = status.map_err(|_| bad("an object cannot be inflated"))?;
            let read = usize::try_from(self.inflate.total_in() - read).map_err(|_| bad("too much"))?;
            let wrote = usize::try_from(self.inflate.total_out() - wrote).map_err(|_| bad("too much"))?;
            self.from.consume(read);
            self.at += read as u64;
            let wanted = 20_usize.saturating_sub(begin.len());
            begin.extend_from_slice(&out[..wrote.min(wanted)]);
            if self.inflate.total_out() > size {
                return Err(bad("an object is longer than it says"));
            }
            match status {
                Status::StreamEnd if self.inflate.total_out() == size => return Ok(begin),
                Status::StreamEnd => return Err(bad("an object is shorter than it says")),
                _ if is_over || (read == 0 && wrote == 0) => return Err(bad("it is cut off")),
                _ => {}
            }
        }
    }

    /// A length, seven bits a byte, the lowest first.
    fn number(&mut self, mut value: u64, mut shift: u32) -> Result<u64, Error> {
        loop {
            let byte = self.byte()?;
            if shift > 56 {
                return Err(bad("a length without end"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    /// How far back a delta's base begins.
    fn distance(&mut self) -> Result<u64, Error> {
        let mut byte = self.byte()?;
        let mut value = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            value = (value + 1).checked_mul(128).ok_or_else(|| bad("a delta of nothing"))? | u64::from(byte & 0x7f);
        }
        Ok(value)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.bytes::<1>()?[0])
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|_| bad("it is cut off"))?;
        self.at += N as u64;
        Ok(bytes)
    }
}

fn delta_size(bytes: &mut &[u8]) -> Result<u64, Error> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (Some((byte, rest)), true) = (bytes.split_first(), shift <= 56) else {
            return Err(bad("a delta without sizes"));
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
}

fn bad(why: &str) -> Error {
    Refusal::Pack(why.to_owned()).into()
}

fn limit(what: &str, value: u64, limit: u64) -> Result<(), Error> {
    if value > limit { Err(Refusal::Limit { what: what.to_owned(), limit }.into()) } else { Ok(()) }
}
