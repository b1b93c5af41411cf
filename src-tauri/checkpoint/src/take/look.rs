//! What is known of a path without reading it, whatever the system.

use gix::index::entry::Stat;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        is_executable: bool,
    },
    Link,
    Folder,
    /// A pipe, a socket or a device.
    Special,
}

/// What is known of a path without reading it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub kind: Kind,
    pub size: u64,
    /// What tells whether it changed. Owner and device are left out: they depend on who looks from where.
    pub stat: Stat,
}
