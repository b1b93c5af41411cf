//! Where a project comes from: a folder on this machine, or an address.

use std::path::{Path, PathBuf};

use super::Error;

/// A place to mirror from, checked as far as that is possible without the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A person's own working copy.
    Folder(PathBuf),
    /// Something git fetches from.
    Address(String),
}

impl Source {
    /// Reads what a person typed or chose.
    ///
    /// # Errors
    /// Says what is wrong with a folder: missing, a file, no repository, empty, bare; or with an address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if is_address(text) {
            if holds_password(text) {
                return Err(Error::PasswordInAddress);
            }
            return Ok(Self::Address(text.to_owned()));
        }
        let path = PathBuf::from(text);
        if text.is_empty() || !path.is_absolute() {
            return Err(Error::NotAnAddress(text.to_owned()));
        }
        check_folder(&path).map(Self::Folder)
    }

    /// What git fetches from, and what the project's row holds.
    pub fn address(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Address(address) => address.clone(),
        }
    }

    /// A name for the project, taken from the last part.
    pub fn name(&self) -> String {
        let address = self.address();
        let last = address.trim_end_matches(['/', '\\']).rsplit(['/', '\\', ':']).next().unwrap_or_default();
        let name = last.strip_suffix(".git").unwrap_or(last);
        if name.is_empty() { "project".to_owned() } else { name.to_owned() }
    }

    /// The branch that is checked out in a folder.
    pub fn checked_out(&self) -> Option<String> {
        let Self::Folder(path) = self else { return None };
        let repository = git2::Repository::open(path).ok()?;
        repository.head().ok()?.shorthand().ok().map(str::to_owned)
    }

    /// Where pushes will go: the address itself, or a folder's own `origin`.
    pub fn remote_url(&self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.clone()),
            Self::Folder(path) => {
                let repository = git2::Repository::open(path).ok()?;
                let remote = repository.find_remote("origin").ok()?;
                remote.url().ok().filter(|url| !holds_password(url)).map(str::to_owned)
            }
        }
    }
}

fn is_address(text: &str) -> bool {
    let has_scheme =
        ["https://", "http://", "ssh://", "git://", "file://"].iter().any(|scheme| text.starts_with(scheme));
    let is_scp_like = !text.contains("://")
        && !Path::new(text).is_absolute()
        && text.split_once(':').is_some_and(|(host, path)| host.contains('@') && !path.is_empty());
    has_scheme || is_scp_like
}

/// Whether an address holds a secret. Over HTTP that is anything before the host: a token stands there alone.
fn holds_password(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_http = scheme.starts_with("http");
    authority.rsplit_once('@').is_some_and(|(user, _)| is_http || user.contains(':'))
}

fn check_folder(path: &Path) -> Result<PathBuf, Error> {
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::Missing(path.to_owned())),
        Err(source) => return Err(Error::Io { path: path.to_owned(), source }),
    };
    if !path.is_dir() {
        return Err(Error::IsFile(path));
    }
    let repository = match git2::Repository::open(&path) {
        Ok(repository) => repository,
        Err(error) if error.code() == git2::ErrorCode::NotFound => return Err(Error::NotARepository(path)),
        Err(error) => return Err(error.into()),
    };
    if repository.is_bare() || repository.workdir().is_none() {
        return Err(Error::Bare(path));
    }
    if repository.head().and_then(|head| head.peel_to_commit()).is_err() {
        return Err(Error::Empty(path.display().to_string()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_folders() {
        for address in
            ["https://example.org/a/b.git", "git@example.org:a/b.git", "ssh://git@example.org/a", "file:///a"]
        {
            assert_eq!(Source::parse(address).unwrap(), Source::Address(address.into()));
        }
        assert!(matches!(Source::parse("a/relative/path"), Err(Error::NotAnAddress(_))));
        assert!(matches!(Source::parse("  "), Err(Error::NotAnAddress(_))));
    }

    #[test]
    fn a_password_never_gets_as_far_as_the_database() {
        assert!(matches!(Source::parse("https://me:secret@example.org/a.git"), Err(Error::PasswordInAddress)));
        let token = Source::parse("https://ghp_0123456789@example.org/a.git");
        assert!(matches!(token, Err(Error::PasswordInAddress)), "a token stands there alone");
        assert!(Source::parse("ssh://git@example.org/a.git").is_ok(), "a user name is no secret");
    }

    #[test]
    fn the_name_is_the_last_part() {
        assert_eq!(Source::Address("git@example.org:team/harbor-api.git".into()).name(), "harbor-api");
        assert_eq!(Source::Folder("/home/me/notes/".into()).name(), "notes");
    }
}
