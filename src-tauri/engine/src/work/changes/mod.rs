//! What changed between two commits: the list of files, one file's lines, and all of it as a patch.
//!
//! Everything shown was made by an agent: sizes are looked at before contents, contents before they are compared, and
//! there is a limit to each. Both sides are commits or trees of the vault; `None` is the empty tree.

mod count;
mod file;
mod list;
mod patch;
#[cfg(test)]
mod tests;

use git2::{Oid, Repository, Tree};

pub use file::{Asked, FileDiff, Hunk, Line, LineKind, Side, Texts, Why};
pub use list::{ChangedFile, Changes, Kind};
pub use patch::Patch;

use super::{Error, Vault};

/// A file larger than this is summarised, in bytes.
const SUMMARISED: u64 = 1 << 20;
/// So is one with more lines.
const LINES: usize = 20_000;
/// A file that is asked for all the same; and the largest whose lines are counted.
const LARGEST: u64 = 10 << 20;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    pub from: Option<Oid>,
    pub to: Option<Oid>,
}

impl Vault {
    /// The files that differ, by path; `most` of them are listed and counted.
    ///
    /// # Errors
    /// `NoSuchCommit` or `Git`.
    pub fn changed_files(&self, between: Between, most: usize) -> Result<Changes, Error> {
        list::changed_files(self, between, most)
    }

    /// How one file differs.
    ///
    /// # Errors
    /// `NoSuchFile` where neither side has it; `NoSuchCommit` or `Git`.
    pub fn file_diff(&self, between: Between, asked: &Asked<'_>) -> Result<FileDiff, Error> {
        file::diff(&self.open()?, between, asked)
    }

    /// Both texts of one file, for a view side by side.
    ///
    /// # Errors
    /// As [`file_diff`](Self::file_diff).
    pub fn file_texts(&self, between: Between, asked: &Asked<'_>) -> Result<Texts, Error> {
        file::texts(&self.open()?, between, asked)
    }

    /// All of it as `git apply` takes it.
    ///
    /// # Errors
    /// `TooLarge`; `NoSuchCommit` or `Git`.
    pub fn patch(&self, between: Between) -> Result<Patch, Error> {
        patch::patch(&self.open()?, between)
    }
}

impl Between {
    fn trees(self, repository: &Repository) -> Result<[Option<Tree<'_>>; 2], Error> {
        let tree = |id: Option<Oid>| -> Result<Option<Tree<'_>>, Error> {
            let Some(id) = id else { return Ok(None) };
            let found = repository.find_object(id, None).and_then(|object| object.peel_to_tree());
            found.map(Some).map_err(|error| Error::no_commit(id, error))
        };
        Ok([tree(self.from)?, tree(self.to)?])
    }
}

/// Whether this is a pointer that Git LFS left in a file's place.
fn is_lfs_pointer(content: &[u8]) -> bool {
    content.len() < 1024 && content.starts_with(b"version https://git-lfs.github.com/spec/v1\n")
}

/// As git decides it: a null byte near the beginning.
fn is_binary(content: &[u8]) -> bool {
    const LOOKED_AT: usize = 8000;
    memchr::memchr(0, &content[..content.len().min(LOOKED_AT)]).is_some()
}

fn count_lines(content: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', content).count();
    ends + usize::from(content.last().is_some_and(|last| *last != b'\n'))
}
