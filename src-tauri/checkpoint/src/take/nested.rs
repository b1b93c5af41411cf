//! A repository within the workspace: what it has checked out, read beneath the workspace's root and nowhere else.

use std::{io::Read, path::Path};

use gix::{
    ObjectId,
    bstr::{BStr, BString, ByteSlice},
};

use super::{folder::Folder, look::Kind, rules::join};

/// What a folder with a `.git` in it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nested {
    /// A repository at this commit.
    At(ObjectId),
    /// A repository without a commit, or with one that can't be read.
    WithoutCommit,
    /// Its `.git` points outside the workspace, or is a link.
    Outside,
    /// No repository.
    Not,
}

/// What the folder at `path` is.
pub(super) fn look(root: &Folder, workspace: &Path, path: &BStr) -> Nested {
    let git = join(path, ".git".into());
    let folder = match root.folder(path).and_then(|folder| folder.look(".git".into())) {
        Ok(look) => match look.kind {
            Kind::Folder => git,
            Kind::Link => return Nested::Outside,
            Kind::Special => return Nested::Not,
            Kind::File { .. } => match pointed_at(root, workspace, path, git.as_ref()) {
                Ok(folder) => folder,
                Err(nested) => return nested,
            },
        },
        Err(_) => return Nested::Not,
    };
    let Some(head) = line(root, &folder, "HEAD") else { return Nested::Not };
    // A working tree of its own has its references with the repository it belongs to.
    let common = match line(root, &folder, "commondir") {
        None => folder.clone(),
        Some(to) => match resolved(workspace, folder.as_ref(), to.as_ref()) {
            Some(common) => common,
            None => return Nested::Outside,
        },
    };
    let is_there = |name: &str| root.folder(join(common.as_ref(), name.into()).as_ref()).is_ok();
    if !is_there("objects") || !is_there("refs") {
        return Nested::Not;
    }
    commit(root, &folder, &common, head).map_or(Nested::WithoutCommit, Nested::At)
}

/// The folder a `.git` file names.
fn pointed_at(root: &Folder, workspace: &Path, path: &BStr, git: &BStr) -> Result<BString, Nested> {
    let text = read(root, git, 4096).ok_or(Nested::Not)?;
    let to = text.strip_prefix(b"gitdir:").ok_or(Nested::Not)?.trim();
    if to.is_empty() {
        return Err(Nested::Not);
    }
    resolved(workspace, path, to.as_bstr()).ok_or(Nested::Outside)
}

/// A path as named in a folder of the workspace, if it stays within. By its letters only: a link on the way is refused
/// when it is opened.
fn resolved(workspace: &Path, folder: &BStr, to: &BStr) -> Option<BString> {
    let root = gix::path::into_bstr(workspace).ok()?;
    let (from, to): (&BStr, &BStr) = if to.starts_with(b"/") {
        let within = to.strip_prefix(root.as_bytes())?;
        (BStr::new(""), within.strip_prefix(b"/").unwrap_or_default().as_bstr())
    } else {
        (folder, to)
    };
    let mut parts: Vec<&[u8]> = from.split_str("/").filter(|part| !part.is_empty()).collect();
    for part in to.split_str("/") {
        match part {
            b"" | b"." => {}
            b".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| BString::from(parts.join(&b'/')))
}

/// Follows HEAD to a commit.
fn commit(root: &Folder, folder: &BString, common: &BString, head: BString) -> Option<ObjectId> {
    const MOST: usize = 5;
    let mut value = head;
    for _ in 0..MOST {
        let Some(name) = value.strip_prefix(b"ref:").map(|name| name.trim().as_bstr().to_owned()) else {
            return ObjectId::from_hex(value.get(..40)?).ok().filter(|id| !id.is_null());
        };
        if !name.starts_with(b"refs/") || name.split_str("/").any(|part| part == b".." || part.is_empty()) {
            return None;
        }
        let name = name.to_str().ok()?;
        value = line(root, folder, name).or_else(|| line(root, common, name)).or_else(|| packed(root, common, name))?;
    }
    None
}

/// A reference from `packed-refs`.
fn packed(root: &Folder, common: &BString, name: &str) -> Option<BString> {
    const MOST: u64 = 16 << 20;
    let text = read(root, join(common.as_ref(), "packed-refs".into()).as_ref(), MOST)?;
    let found =
        text.lines().find_map(|line| line.split_once_str(" ").filter(|(_, is)| is.trim_end() == name.as_bytes()));
    found.map(|(id, _)| id.as_bstr().to_owned())
}

/// The first line of a small file.
fn line(root: &Folder, folder: &BString, name: &str) -> Option<BString> {
    let text = read(root, join(folder.as_ref(), name.into()).as_ref(), 4096)?;
    text.lines().next().map(|line| line.trim().as_bstr().to_owned())
}

fn read(root: &Folder, path: &BStr, most: u64) -> Option<Vec<u8>> {
    let (file, _) = root.file(path).ok()?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_workspace_is_not_followed() {
        let resolved = |folder: &str, to: &str| {
            super::resolved(Path::new("/w"), folder.into(), to.into()).map(|path| path.to_string())
        };
        assert_eq!(resolved("sub", "../.git/modules/sub").as_deref(), Some(".git/modules/sub"));
        assert_eq!(resolved("sub", "/w/.git/modules/sub").as_deref(), Some(".git/modules/sub"));
        assert_eq!(resolved("a/b", "./c//d").as_deref(), Some("a/b/c/d"));
        for outside in ["../../secret", "/etc", "/wider/x", "/w/../etc", "..", "../a/../../b"] {
            assert_eq!(resolved("sub", outside), None, "{outside}");
        }
    }
}
