//! Opening what lies in a workspace, where the system is no Unix: by path, without following a link, after the agent has
//! been stopped. What is open is looked at again before it is read.

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use gix::{
    bstr::{BStr, BString},
    index::entry::{Stat, stat::Time},
};

use super::look::{Kind, Look};

/// A folder.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn root(path: &Path) -> io::Result<Self> {
        fs::canonicalize(path).map(Self)
    }

    /// A folder beneath this one.
    pub fn folder(&self, path: &BStr) -> io::Result<Self> {
        let place = self.beneath(path)?;
        match look(&fs::symlink_metadata(&place)?).kind {
            Kind::Folder => Ok(Self(place)),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// A file beneath this one, for reading; an error where it is not a regular one.
    pub fn file(&self, path: &BStr) -> io::Result<(File, Look)> {
        let place = self.beneath(path)?;
        let is_file = |metadata: &Metadata| matches!(look(metadata).kind, Kind::File { .. });
        if !is_file(&fs::symlink_metadata(&place)?) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(place)?;
        let metadata = file.metadata()?;
        if !is_file(&metadata) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok((file, look(&metadata)))
    }

    /// What a name in this folder is; links are not followed.
    pub fn look(&self, name: &BStr) -> io::Result<Look> {
        fs::symlink_metadata(self.0.join(native(name)?)).map(|metadata| look(&metadata))
    }

    /// Where a link in this folder points, as Git writes it.
    pub fn link(&self, name: &BStr) -> io::Result<Vec<u8>> {
        let target = fs::read_link(self.0.join(native(name)?))?;
        let target = gix::path::into_bstr(target).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(gix::path::to_unix_separators_on_windows(target).into_owned().into())
    }

    /// The names in this folder, and what they are; at most `most` of them.
    pub fn names(&self, most: u64) -> io::Result<Vec<(BString, Option<Kind>)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = gix::path::os_string_into_bstring(entry.file_name()).map_err(|_| io::ErrorKind::InvalidData)?;
            names.push((name, entry.metadata().ok().map(|metadata| look(&metadata).kind)));
            if names.len() as u64 > most {
                break; // Whoever counts sees it.
            }
        }
        Ok(names)
    }

    /// A path beneath this one, no part of which but the last is a link.
    fn beneath(&self, path: &BStr) -> io::Result<PathBuf> {
        let mut place = self.0.clone();
        for part in native(path)?.components() {
            match part {
                std::path::Component::Normal(part) => place.push(part),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
            if place.parent() != Some(self.0.as_path()) && place.parent().is_some_and(Path::is_symlink) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(place)
    }
}

fn native(path: &BStr) -> io::Result<PathBuf> {
    gix::path::from_bstr(path).map(|path| path.into_owned()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn look(metadata: &Metadata) -> Look {
    let kind = metadata.file_type();
    let kind = if kind.is_symlink() {
        Kind::Link
    } else if kind.is_dir() {
        Kind::Folder
    } else if kind.is_file() {
        Kind::File { is_executable: false }
    } else {
        Kind::Special
    };
    let time = |time: io::Result<SystemTime>| time.ok().and_then(|time| Time::try_from(time).ok()).unwrap_or_default();
    Look {
        kind,
        size: metadata.len(),
        stat: Stat { mtime: time(metadata.modified()), size: metadata.len() as u32, ..Stat::default() },
    }
}
