//! Names a tree may hold, and paths as a person reads them.

use gix::{
    bstr::{BStr, ByteSlice},
    validate::path::component,
};

/// `.git` in any spelling, on any system, for whoever checks it out later. Names that only Windows cannot have are a
/// person's own business elsewhere.
pub(super) const RULES: component::Options =
    component::Options { protect_windows: cfg!(windows), protect_hfs: true, protect_ntfs: true };

/// The longest path every system opens.
pub(super) const LONGEST: usize = 4095;

/// The most levels a tree should have: Git's own limit is 2,048, and others recurse.
pub(super) const DEEPEST: usize = 1000;

/// Whether a tree may hold this name.
pub(super) fn is_valid(name: &BStr, is_link: bool) -> bool {
    gix::validate::path::component(name, is_link.then_some(component::Mode::Symlink), RULES).is_ok()
}

/// For a person to read.
pub(super) fn shown(path: &BStr) -> String {
    const LONGEST: usize = 400;
    let text = path.to_str_lossy();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}
