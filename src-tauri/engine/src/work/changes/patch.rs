//! The whole change as text that `git apply` takes.

use git2::{Delta, DiffDelta, DiffOptions, Repository};

use super::{Between, LARGEST, list::find_moved};
use crate::work::Error;

/// How long a patch may be, in bytes.
const LONGEST: usize = 64 << 20;
/// How many files it may have.
const FILES: usize = 20_000;

/// A patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// As git prints it. Bytes: a file that is not UTF-8 is as it is.
    pub text: Vec<u8>,
    /// Files too large for a patch; they are not in it.
    pub left_out: Vec<String>,
}

pub(super) fn patch(repository: &Repository, between: Between) -> Result<Patch, Error> {
    let [from, to] = between.trees(repository)?;
    let mut options = DiffOptions::new();
    options.show_binary(true).id_abbrev(40).context_lines(3);
    let mut diff = repository.diff_tree_to_tree(from.as_ref(), to.as_ref(), Some(&mut options))?;
    find_moved(&mut diff)?;
    if diff.deltas().len() > FILES {
        return Err(Error::TooLarge { what: "the number of files in a patch", limit: FILES as u64 });
    }
    let odb = repository.odb()?;
    let mut patch = Patch::default();
    // Where a file became a link, the file goes before the link comes.
    let mut order: Vec<(Vec<u8>, bool, usize)> = diff
        .deltas()
        .enumerate()
        .map(|(number, delta)| (path(&delta).to_vec(), delta.status() == Delta::Added, number))
        .collect();
    order.sort();
    for (_, _, number) in order {
        let Some(delta) = diff.get_delta(number) else { continue };
        let files = [delta.old_file(), delta.new_file()];
        let is_large = files.iter().any(|file| odb.read_header(file.id()).is_ok_and(|(size, _)| size as u64 > LARGEST));
        if is_large {
            patch.left_out.push(String::from_utf8_lossy(path(&delta)).into_owned());
            continue;
        }
        if let Some(mut file) = git2::Patch::from_diff(&diff, number)? {
            let text = file.to_buf()?;
            let is_same = delta.old_file().id() == delta.new_file().id();
            patch.text.extend_from_slice(if is_same { head(&text) } else { &text });
        }
        if patch.text.len() > LONGEST {
            return Err(Error::TooLarge { what: "the size of a patch", limit: LONGEST as u64 });
        }
    }
    Ok(patch)
}

/// The lines before a binary file's contents. Where only its name or mode changed, libgit2 shows contents all the same, and
/// without the line that would tell git of what.
fn head(text: &[u8]) -> &[u8] {
    let contents = [b"\nGIT binary patch\n".as_slice(), b"\nBinary files "];
    let begins = contents.iter().filter_map(|words| memchr::memmem::find(text, words)).min();
    begins.map_or(text, |at| &text[..=at])
}

fn path<'a>(delta: &DiffDelta<'a>) -> &'a [u8] {
    delta.new_file().path_bytes().or(delta.old_file().path_bytes()).unwrap_or_default()
}
