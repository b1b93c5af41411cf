//! What lies in a machine: looked at, listed, made, moved, removed.

use std::{
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::Path,
    time::UNIX_EPOCH,
};

use serde_json::{Value, json};

use super::{
    refusal::Refusal,
    users::{self, User},
};
use crate::e2b::clock;

/// One entry, as the protocol describes it.
fn entry(path: &Path, own: &Metadata) -> Value {
    let link = own.is_symlink().then(|| fs::read_link(path).ok()).flatten();
    // What a link leads to is what counts, while it leads anywhere.
    let meant = if own.is_symlink() { fs::metadata(path).unwrap_or_else(|_| own.clone()) } else { own.clone() };
    let kind = match () {
        () if meant.is_file() => "FILE_TYPE_FILE",
        () if meant.is_dir() => "FILE_TYPE_DIRECTORY",
        () if meant.is_symlink() => "FILE_TYPE_SYMLINK",
        () => "FILE_TYPE_UNSPECIFIED",
    };
    let modified = meant.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut value = json!({
        "name": path.file_name().unwrap_or_default().to_string_lossy(),
        "type": kind,
        "path": path.to_string_lossy(),
        "size": meant.len().to_string(),
        "mode": meant.mode() & 0o777,
        "permissions": permissions(&meant),
        "owner": users::name_of(meant.uid()),
        "group": users::name_of(meant.gid()),
        "modifiedTime": clock::text(u64::try_from(modified.as_millis()).unwrap_or(0)),
    });
    if let Some(link) = link {
        value["symlinkTarget"] = json!(link.to_string_lossy());
    }
    value
}

/// `drwxr-xr-x`
fn permissions(metadata: &Metadata) -> String {
    let kind = match () {
        () if metadata.is_dir() => 'd',
        () if metadata.is_symlink() => 'L',
        () => '-',
    };
    let letters = "rwxrwxrwx".chars().enumerate();
    let bits = letters.map(|(place, letter)| if metadata.mode() >> (8 - place) & 1 == 1 { letter } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}

pub(super) fn stat(path: &Path) -> Result<Value, Refusal> {
    Ok(json!({ "entry": entry(path, &looked_at(path)?) }))
}

fn looked_at(path: &Path) -> Result<Metadata, Refusal> {
    fs::symlink_metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Refusal::not_found(format!("file not found: lstat {}: no such file or directory", path.display()))
        }
        _ => Refusal::of(&error, "error getting file info"),
    })
}

/// What lies in a folder, and in its folders to this depth.
pub(super) fn list(folder: &Path, depth: u64) -> Result<Value, Refusal> {
    let found = fs::metadata(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Refusal::not_found(format!("path not found: {}", folder.display())),
        _ => Refusal::of(&error, "error getting file info"),
    })?;
    if !found.is_dir() {
        return Err(Refusal::invalid(format!("path is not a directory: {}", folder.display())));
    }
    let mut entries = Vec::new();
    walk(folder, depth, &mut entries).map_err(|error| Refusal::of(&error, "error reading directory"))?;
    Ok(json!({ "entries": entries }))
}

fn walk(folder: &Path, depth: u64, entries: &mut Vec<Value>) -> std::io::Result<()> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let Ok(own) = fs::symlink_metadata(&path) else { continue }; // It has gone meanwhile.
        entries.push(entry(&path, &own));
        if own.is_dir() && depth > 1 {
            walk(&path, depth - 1, entries)?;
        }
    }
    Ok(())
}

pub(super) fn make(folder: &Path, user: User) -> Result<Value, Refusal> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {
            Err(Refusal::new("already_exists", format!("directory already exists: {}", folder.display())))
        }
        Ok(_) => Err(Refusal::invalid(format!("path already exists but it is not a directory: {}", folder.display()))),
        Err(_) => {
            user.make_folder(folder).map_err(|error| Refusal::of(&error, "error creating directory"))?;
            stat(folder)
        }
    }
}

pub(super) fn rename(from: &Path, to: &Path, user: User) -> Result<Value, Refusal> {
    looked_at(from)?;
    let moved = to.parent().map_or(Ok(()), |parent| user.make_folder(parent)).and_then(|()| fs::rename(from, to));
    moved.map_err(|error| Refusal::of(&error, "error renaming"))?;
    stat(to)
}

/// Removes whatever it is; what is not there is removed.
pub(super) fn remove(path: &Path) -> Result<Value, Refusal> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Refusal::of(&error, "error removing file or directory"))
        }
        _ => Ok(json!({})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_a_link_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let listed = list(folder.path(), 1).unwrap();
        assert_eq!(listed["entries"].as_array().unwrap().len(), 2);
        assert_eq!(listed["entries"][0]["size"], "5", "numbers of 64 bits are text");
        assert_eq!(listed["entries"][1]["type"], "FILE_TYPE_FILE");
        assert_eq!(listed["entries"][1]["symlinkTarget"], file.to_str().unwrap());
        assert_eq!(stat(&folder.path().join("none")).unwrap_err().code, "not_found");
    }
}
