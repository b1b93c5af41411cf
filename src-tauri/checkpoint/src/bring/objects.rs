//! Commits and trees, read strictly: what `git fsck` calls broken is refused.

use std::collections::HashSet;

use git2::{ObjectType, Oid};

use super::names;

/// How many parents a commit may have.
const PARENTS: usize = 64;

/// An id written out, in small letters. The null id names nothing.
pub(super) fn id(hex: &[u8]) -> Option<Oid> {
    let is_hex = hex.len() == 40 && hex.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let id = Oid::from_str(std::str::from_utf8(hex).ok()?).ok()?;
    (is_hex && !id.is_zero()).then_some(id)
}

/// What a commit builds on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub tree: Oid,
    pub parents: Vec<Oid>,
}

impl Commit {
    pub fn parse(data: &[u8]) -> Result<Self, &'static str> {
        let mut lines = data.split(|byte| *byte == b'\n').peekable();
        let tree = lines.next().and_then(|line| line.strip_prefix(b"tree ")).and_then(id).ok_or("it has no tree")?;
        let mut parents = Vec::new();
        while let Some(parent) = lines.peek().and_then(|line| line.strip_prefix(b"parent ")) {
            parents.push(id(parent).ok_or("a parent has no name")?);
            lines.next();
            if parents.len() > PARENTS {
                return Err("it has too many parents");
            }
        }
        for role in ["author ", "committer "] {
            if !lines.next().is_some_and(|line| line.starts_with(role.as_bytes()) && !line.contains(&0)) {
                return Err("it does not say who made it");
            }
        }
        Ok(Self { tree, parents })
    }
}

/// One entry of a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'data> {
    pub mode: Mode,
    pub name: &'data [u8],
    pub id: Oid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Tree,
    File,
    Link,
    /// A commit of another repository: never looked for.
    Submodule,
}

impl Mode {
    fn parse(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"40000" => Self::Tree,
            b"100644" | b"100755" => Self::File,
            b"120000" => Self::Link,
            b"160000" => Self::Submodule,
            _ => return None,
        })
    }

    /// What kind of object it names.
    pub fn kind(self) -> Option<ObjectType> {
        match self {
            Self::Tree => Some(ObjectType::Tree),
            Self::File | Self::Link => Some(ObjectType::Blob),
            Self::Submodule => None,
        }
    }
}

/// Why a tree is refused: the words, and the name where a name is to blame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadTree<'data> {
    Shape(&'static str),
    Name(&'data [u8]),
}

/// Every entry, once all of them are as git writes them.
pub(super) fn tree(mut data: &[u8]) -> Result<Vec<Entry<'_>>, BadTree<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut names = HashSet::new();
    while !data.is_empty() {
        let space = data.iter().take(8).position(|byte| *byte == b' ').ok_or(BadTree::Shape("an entry has no mode"))?;
        let mode = Mode::parse(&data[..space]).ok_or(BadTree::Shape("an entry has a mode of no kind"))?;
        let rest = &data[space + 1..];
        let end = rest.iter().position(|byte| *byte == 0).ok_or(BadTree::Shape("an entry's name does not end"))?;
        let name = &rest[..end];
        let bytes = rest.get(end + 1..end + 21).ok_or(BadTree::Shape("an entry is cut off"))?;
        let id = Oid::from_bytes(bytes).map_err(|_| BadTree::Shape("an entry is cut off"))?;
        if id.is_zero() {
            return Err(BadTree::Shape("an entry names nothing"));
        }
        if !names::is_safe(name) || (mode == Mode::Link && names::is_gitmodules(name)) {
            return Err(BadTree::Name(name));
        }
        let entry = Entry { mode, name, id };
        if entries.last().is_some_and(|last| !is_before(last, &entry)) || !names.insert(name) {
            return Err(BadTree::Shape("its entries are not in order, or one is there twice"));
        }
        entries.push(entry);
        data = &rest[end + 21..];
    }
    Ok(entries)
}

/// The trees beneath one that was looked at before.
pub(super) fn subtrees(mut data: &[u8]) -> (u64, Vec<Oid>) {
    let (mut count, mut trees) = (0, Vec::new());
    while let Some(end) = data.iter().position(|byte| *byte == 0) {
        let Some(bytes) = data.get(end + 1..end + 21) else { break };
        count += 1;
        if data.starts_with(b"40000 ")
            && let Ok(id) = Oid::from_bytes(bytes)
        {
            trees.push(id);
        }
        data = &data[end + 21..];
    }
    (count, trees)
}

/// Git's order: a folder is compared as if its name ended in a slash.
fn is_before(one: &Entry<'_>, other: &Entry<'_>) -> bool {
    let key = |entry: &Entry<'_>| {
        let slash: &[u8] = if entry.mode == Mode::Tree { b"/" } else { b"" };
        [entry.name, slash].concat()
    };
    key(one) < key(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut data = Vec::new();
        for (mode, name) in entries {
            data.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            data.extend_from_slice(&[7; 20]);
        }
        data
    }

    #[test]
    fn an_ordinary_tree_is_read() {
        let data = raw(&[
            ("100644", "a"),
            ("40000", "b"),
            ("100755", "b0"),
            ("120000", "c"),
            ("160000", "d\ne"),
            ("100644", "é"),
        ]);
        assert_eq!(tree(&data).unwrap().len(), 6);
        assert_eq!(subtrees(&data), (6, vec![Oid::from_bytes(&[7; 20]).unwrap()]));
        assert!(tree(b"").unwrap().is_empty());
    }

    #[test]
    fn a_tree_git_would_not_write_is_refused() {
        let shapes: [&[(&str, &str)]; 9] = [
            &[("040000", "padded")],
            &[("100666", "absurd")],
            &[("100600", "absurd")],
            &[("777777777", "absurd")],
            &[("10644", "a device")],
            &[("100644", "b"), ("100644", "a")],
            &[("100644", "a"), ("100644", "a")],
            &[("100644", "a"), ("100644", "a.b"), ("40000", "a")],
            &[("", "no mode")],
        ];
        for shape in shapes {
            assert!(matches!(tree(&raw(shape)), Err(BadTree::Shape(_))), "{shape:?}");
        }
        let whole = raw(&[("100644", "a")]);
        for length in 1..whole.len() {
            assert!(tree(&whole[..length]).is_err(), "cut off after {length}");
        }
        let null = [b"100644 a\0".as_slice(), &[0; 20]].concat();
        assert!(tree(&null).is_err(), "the null id");
        assert_eq!(tree(&raw(&[("120000", ".gitmodules")])), Err(BadTree::Name(b".gitmodules")));
    }

    #[test]
    fn a_commit_is_read_strictly() {
        let id = "00000000000000000000000000000000000000aa";
        let who = "author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nwords\n";
        let whole = format!("tree {id}\nparent {id}\nparent {id}\n{who}");
        assert_eq!(Commit::parse(whole.as_bytes()).unwrap().parents.len(), 2);
        let many = format!("tree {id}\n{}{who}", format!("parent {id}\n").repeat(PARENTS + 1));
        let bad = ["", "tree x\n", &format!("parent {id}\ntree {id}\n{who}"), &format!("tree {id}\n"), &many];
        for text in bad {
            assert!(Commit::parse(text.as_bytes()).is_err(), "{text:.80}");
        }
    }
}
