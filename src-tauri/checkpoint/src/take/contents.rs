//! Reading one file.

use std::io::{self, Read};

use gix::{ObjectId, bstr::BStr, objs::FindExt};

use super::{
    folder::Folder,
    look::{Kind, Look},
    objects::Objects,
};

/// Of files larger than this there is only one in memory.
pub(super) const LARGE: u64 = 8 << 20;

pub(super) enum Contents {
    /// What is in it, and what it was when it was opened.
    Bytes { bytes: Vec<u8>, look: Look },
    /// It has more bytes than it may.
    TooLarge,
}

/// Reads a name in a folder. `look` is from before it was opened, and counts for nothing once it is: another file may
/// lie there by then.
pub(super) fn read(folder: &Folder, name: &BStr, look: Look, most: u64) -> io::Result<Contents> {
    if look.kind == Kind::Link {
        return Ok(Contents::Bytes { bytes: folder.link(name)?, look });
    }
    let (file, look) = folder.file(name)?;
    if look.size > most {
        return Ok(Contents::TooLarge);
    }
    let mut bytes = Vec::with_capacity(look.size as usize + 1);
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Ok(Contents::TooLarge) } else { Ok(Contents::Bytes { bytes, look }) }
}

/// What is stored under an id, if it can be found.
pub(super) fn stored(objects: &Objects, id: ObjectId, buffer: &mut Vec<u8>) -> Option<()> {
    objects.odb.find_blob(&id, buffer).ok().map(|_| ())
}
