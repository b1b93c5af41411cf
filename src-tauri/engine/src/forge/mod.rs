//! Forges: where a project's repository lives on the web, and GitHub's pull requests.
//!
//! Which forge it is, is read from the recorded address alone. GitHub and one GitHub Enterprise host are spoken to
//! ([`GitHub`]); of others we know at most the page on which a person opens a request themselves. What is decided is
//! pure: whether there is anything to propose ([`skip`]), its words ([`text`]), and when to look again ([`watch`]).

mod github;
mod host;
pub mod skip;
pub mod text;
pub mod watch;

pub use github::{Error, GitHub, Listed, NewPullRequest, Opened, PullRequest, Reason, RepositoryFacts, State, Wait};
pub use host::{Host, InvalidHost};

use crate::secrets::CredentialKind;

/// A repository on a GitHub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository {
    pub owner: String,
    pub name: String,
}

impl std::fmt::Display for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Where a repository lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forge {
    GitHub {
        host: Host,
        repository: Repository,
    },
    /// One whose page for a new request we know.
    Other {
        kind: Kind,
        page: String,
    },
    Unknown,
}

/// Forges we know by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    GitLab,
    Bitbucket,
    /// Gitea, Forgejo, Codeberg.
    Gitea,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::GitLab => "GitLab",
            Self::Bitbucket => "Bitbucket",
            Self::Gitea => "Gitea",
        }
    }

    fn of(host: &str) -> Option<Self> {
        let begins = |names: &[&str]| names.iter().any(|name| host.starts_with(name));
        match host {
            "gitlab.com" => Some(Self::GitLab),
            "bitbucket.org" => Some(Self::Bitbucket),
            "codeberg.org" | "gitea.com" => Some(Self::Gitea),
            _ if begins(&["gitlab."]) => Some(Self::GitLab),
            _ if begins(&["gitea.", "forgejo."]) => Some(Self::Gitea),
            _ => None,
        }
    }
}

impl Forge {
    /// The forge of a recorded address. `enterprise`: the GitHub Enterprise host of the settings.
    pub fn of(remote: &str, enterprise: Option<&Host>) -> Self {
        let Some((authority, path)) = place(remote) else { return Self::Unknown };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let github = Host::github();
        // GitHub's way round a closed port 22.
        let known = if authority == "ssh.github.com" { github.name() } else { authority.as_str() };
        let host = [Some(&github), enterprise].into_iter().flatten().find(|host| host.is(known));
        if let (Some(host), [owner, name]) = (host, parts.as_slice()) {
            let repository = Repository { owner: (*owner).to_owned(), name: (*name).to_owned() };
            return Self::GitHub { host: host.clone(), repository };
        }
        match Kind::of(&authority) {
            // GitLab has groups within groups.
            Some(kind) if parts.len() == 2 || (kind == Kind::GitLab && parts.len() > 2) => {
                Self::Other { kind, page: format!("https://{authority}/{}", parts.join("/")) }
            }
            _ => Self::Unknown,
        }
    }

    /// The page on which a person compares a pushed branch with its base, and opens a request.
    pub fn compare_url(&self, base: &str, branch: &str) -> Option<String> {
        let (base, branch) = (encoded(base), encoded(branch));
        Some(match self {
            Self::GitHub { host, repository } => {
                format!("{}/{repository}/compare/{base}...{branch}?expand=1", host.web())
            }
            Self::Other { kind: Kind::GitLab, page } => format!(
                "{page}/-/merge_requests/new?merge_request%5Bsource_branch%5D={branch}&merge_request%5Btarget_branch%5D={base}"
            ),
            Self::Other { kind: Kind::Bitbucket, page } => {
                format!("{page}/pull-requests/new?source={branch}&dest={base}")
            }
            Self::Other { kind: Kind::Gitea, page } => format!("{page}/compare/{base}...{branch}"),
            Self::Unknown => return None,
        })
    }

    /// The token for it, and the host the token is for; both for pushing and for pull requests.
    pub fn credential(&self) -> Option<(CredentialKind, &str)> {
        match self {
            Self::GitHub { host, .. } => Some((host.credential(), host.domain())),
            Self::Other { .. } | Self::Unknown => None,
        }
    }
}

/// Host (with a port, if it is an odd one of the web) and path of an address, `.git` taken off.
fn place(remote: &str) -> Option<(String, String)> {
    let (scheme, authority, path) = match remote.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/')?;
            (scheme, authority, path)
        }
        None => {
            let (authority, path) = remote.split_once(':').filter(|(authority, _)| authority.contains('@'))?;
            ("ssh", authority, path)
        }
    };
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let authority = match scheme {
        // The port of SSH says nothing about the web.
        "ssh" => authority.split(':').next().unwrap_or_default().to_owned(),
        "https" => authority.strip_suffix(":443").unwrap_or(&authority).to_owned(),
        "http" => authority,
        _ => return None,
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!authority.is_empty() && !path.is_empty() && !path.contains(['?', '#'])).then(|| (authority, path.to_owned()))
}

/// For a path or a query. Slashes of a branch stay readable.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forge_is_known_by_its_address() {
        let enterprise: Host = "git.example.org".parse().unwrap();
        let of = |remote: &str| Forge::of(remote, Some(&enterprise));
        for remote in [
            "https://github.com/owner/name.git",
            "https://github.com/owner/name/",
            "https://GitHub.com:443/owner/name",
            "git@github.com:owner/name.git",
            "ssh://git@github.com:22/owner/name.git",
            "ssh://git@ssh.github.com:443/owner/name.git",
        ] {
            let Forge::GitHub { host, repository } = of(remote) else { panic!("{remote}") };
            assert_eq!((host.name(), repository.to_string()), ("github.com", "owner/name".to_owned()), "{remote}");
        }
        let forge = of("git@git.example.org:team/thing.git");
        assert_eq!(forge.credential(), Some((CredentialKind::GithubEnterpriseToken, "git.example.org")));
        assert_eq!(of("https://github.com/a/b").credential(), Some((CredentialKind::GithubToken, "github.com")));
        for remote in [
            "https://github.com/owner",
            "https://github.com/owner/name/more",
            "https://github.com.evil.example/owner/name",
            "https://example.org/github.com/name",
            "/srv/git/name.git",
            "file:///srv/github.com/a/b",
            "git@other.example:a/b",
        ] {
            assert_eq!(of(remote), Forge::Unknown, "{remote}");
            assert_eq!(of(remote).credential(), None);
        }
    }

    #[test]
    fn the_page_for_a_request_is_known_for_the_usual_forges() {
        let url = |remote: &str| Forge::of(remote, None).compare_url("main", "courier/a b#1");
        let expected = [
            ("git@github.com:o/n.git", "https://github.com/o/n/compare/main...courier/a%20b%231?expand=1"),
            (
                "https://gitlab.com/g/s/n.git",
                "https://gitlab.com/g/s/n/-/merge_requests/new?merge_request%5Bsource_branch%5D=courier/a%20b%231&merge_request%5Btarget_branch%5D=main",
            ),
            (
                "git@bitbucket.org:o/n.git",
                "https://bitbucket.org/o/n/pull-requests/new?source=courier/a%20b%231&dest=main",
            ),
            ("https://codeberg.org/o/n", "https://codeberg.org/o/n/compare/main...courier/a%20b%231"),
            (
                "ssh://git@gitea.example.org:2222/o/n.git",
                "https://gitea.example.org/o/n/compare/main...courier/a%20b%231",
            ),
        ];
        for (remote, page) in expected {
            assert_eq!(url(remote).as_deref(), Some(page), "{remote}");
        }
        assert_eq!(url("https://example.org/o/n.git"), None);
    }
}
