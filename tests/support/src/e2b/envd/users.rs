//! The two users of a machine, and whose a request is.

use std::path::{Component, Path, PathBuf};

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::refusal::Refusal;

/// One user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: &'static str,
    pub(super) id: u32,
    pub(super) home: &'static str,
}

const ROOT: User = User { name: "root", id: 0, home: "/root" };
const ORDINARY: User = User { name: "user", id: 1000, home: "/home/user" };

impl User {
    /// The user of this name; the ordinary one where none is named.
    pub(super) fn named(name: Option<&str>) -> Result<User, Refusal> {
        match name.unwrap_or(ORDINARY.name) {
            "user" | "" => Ok(ORDINARY),
            "root" => Ok(ROOT),
            other => Err(Refusal::new(
                "unauthenticated",
                format!("error looking up user '{other}': user: unknown user {other}"),
            )),
        }
    }

    /// Whom a request is made for, by `Authorization: Basic`.
    pub(super) fn of(headers: &HeaderMap) -> Result<User, Refusal> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(encoded) = given.and_then(|value| value.strip_prefix("Basic ")) else { return User::named(None) };
        let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        User::named(Some(text.split_once(':').map_or(text.as_str(), |(name, _)| name)))
    }

    /// The path meant: what is relative lies beneath the home folder.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        let home = Path::new(self.home);
        let path = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => home.join(path),
        };
        let mut clean = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => _ = clean.pop(),
                Component::CurDir => {}
                other => clean.push(other),
            }
        }
        clean
    }

    /// Makes this user the owner, where we may: outside a user namespace.
    pub(super) fn own(&self, path: &Path) -> std::io::Result<()> {
        if has_users() { std::os::unix::fs::lchown(path, Some(self.id), Some(self.id)) } else { Ok(()) }
    }

    /// Makes a folder and its parents, all that are new this user's.
    pub(super) fn make_folder(&self, folder: &Path) -> std::io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            self.make_folder(parent)?;
        }
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.own(folder),
        }
    }
}

/// Whether users are real here: only root can be somebody else.
pub(super) fn has_users() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The name of a user's or a group's number.
pub(super) fn name_of(id: u32) -> String {
    match id {
        0 => ROOT.name.to_owned(),
        1000 => ORDINARY.name.to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_lie_beneath_the_home() {
        assert_eq!(ORDINARY.path("a/b.txt"), Path::new("/home/user/a/b.txt"));
        assert_eq!(ORDINARY.path("~/x/../y"), Path::new("/home/user/y"));
        assert_eq!(ROOT.path("/etc/./hosts"), Path::new("/etc/hosts"));
    }
}
