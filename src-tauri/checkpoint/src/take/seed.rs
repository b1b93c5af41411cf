//! Learning what a fresh clone holds: nobody has worked in it yet, so its files are what the commit says.

use gix::{
    bstr::{BStr, ByteSlice},
    index::{
        Entry,
        entry::{Mode, Stat},
    },
};

use super::{
    Seeding, failure,
    folder::Folder,
    look::Kind,
    objects::Objects,
    parse_id,
    private::{Draft, Last},
};
use crate::request::Failure;

/// Remembers the files as they lie there now, so that the first checkpoint reads only what was changed since.
///
/// # Errors
/// `NoSuchCommit`, `DiskFull`, `BadRequest` or `Failed`.
pub fn seed(request: &Seeding) -> Result<(), Failure> {
    let objects = Objects::open(&request.vault)?;
    let base = objects.tree_of(parse_id(&request.base)?)?;
    let draft = Draft::begin(&request.private)?;
    let mut last = Last::of_tree(base, &objects);
    let root = Folder::root(&request.workspace).map_err(|error| failure("open the workspace", error))?;
    let mut open: (Vec<u8>, Option<Folder>) = (Vec::new(), root.folder("".into()).ok());
    let (entries, paths) = last.index.entries_mut_and_pathbacking();
    for entry in entries {
        let path = entry.path_in(paths);
        let (folder, name) = path.rsplit_once_str("/").unwrap_or((b"", path));
        if open.0 != folder {
            open = (folder.to_vec(), root.folder(folder.into()).ok());
        }
        if let Some(stat) = open.1.as_ref().and_then(|folder| stat(folder, name.into(), entry)) {
            entry.stat = stat;
        }
    }
    draft.finish(&last.index, last.tree, None)
}

/// What a file looks like now; none where it is not what the commit says, which the first checkpoint then finds.
fn stat(folder: &Folder, name: &BStr, entry: &Entry) -> Option<Stat> {
    let look = folder.look(name).ok()?;
    let is_as_stored = match look.kind {
        Kind::File { is_executable } => {
            entry.mode.contains(Mode::FILE) && (!cfg!(unix) || is_executable == (entry.mode == Mode::FILE_EXECUTABLE))
        }
        Kind::Link => entry.mode == Mode::SYMLINK,
        _ => false,
    };
    is_as_stored.then_some(look.stat)
}
