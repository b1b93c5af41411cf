//! Why there is no pull request to make. Pure.

use super::Forge;
use crate::model::word;

word! {
    /// Why none is made; stored with the status `skipped`.
    Reason {
        NoRemote = "no_remote", NoCommit = "no_commit", MainBranch = "main_branch", DefaultBranch = "default_branch",
        OtherForge = "other_forge", UnknownForge = "unknown_forge",
    }
}

impl Reason {
    /// In words, with what a person can do.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoRemote => "the project has no remote; the branch is in its own repository",
            Self::NoCommit => "nothing new was committed",
            Self::MainBranch => "the work is on main or master, and a pull request needs a branch of its own",
            Self::DefaultBranch => "the work is on the default branch, and a pull request needs a branch of its own",
            Self::OtherForge => "pull requests are made on GitHub only; open it on the page of the pushed branch",
            Self::UnknownForge => "the remote's host is not known; open the request there by hand",
        }
    }
}

/// What is known before a pull request would be made.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The recorded address.
    pub remote: Option<&'a str>,
    pub forge: &'a Forge,
    pub branch: &'a str,
    /// Upstream's default branch.
    pub default_branch: &'a str,
    /// The branch the work began from.
    pub base: &'a str,
    pub has_new_commit: bool,
}

/// A pull request that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    pub reason: Reason,
    /// Where a person can open one, once the branch is pushed.
    pub compare_url: Option<String>,
}

/// Whether none is to be made, and why.
pub fn skip(situation: &Situation<'_>) -> Option<Skip> {
    let because = |reason| Some(Skip { reason, compare_url: None });
    if situation.remote.is_none_or(|remote| remote.is_empty() || is_local(remote)) {
        return because(Reason::NoRemote);
    }
    if ["main", "master"].contains(&situation.branch) {
        return because(Reason::MainBranch);
    }
    if situation.branch == situation.default_branch {
        return because(Reason::DefaultBranch);
    }
    if !situation.has_new_commit {
        return because(Reason::NoCommit);
    }
    let reason = match situation.forge {
        Forge::GitHub { .. } => return None,
        Forge::Other { .. } => Reason::OtherForge,
        Forge::Unknown => Reason::UnknownForge,
    };
    Some(Skip { reason, compare_url: situation.forge.compare_url(situation.base, situation.branch) })
}

/// A repository of this machine is no forge's.
fn is_local(remote: &str) -> bool {
    remote.starts_with("file://") || std::path::Path::new(remote).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(remote: Option<&str>, branch: &str, has_new_commit: bool) -> Option<Reason> {
        let forge = Forge::of(remote.unwrap_or_default(), None);
        let situation =
            Situation { remote, forge: &forge, branch, default_branch: "trunk", base: "trunk", has_new_commit };
        skip(&situation).map(|skip| skip.reason)
    }

    #[test]
    fn each_rule_says_why() {
        let github = Some("git@github.com:o/n.git");
        assert_eq!(reason(github, "courier/x", true), None);
        assert_eq!(reason(None, "courier/x", true), Some(Reason::NoRemote));
        assert_eq!(reason(Some(""), "courier/x", true), Some(Reason::NoRemote));
        assert_eq!(reason(Some("/srv/n.git"), "courier/x", true), Some(Reason::NoRemote));
        assert_eq!(reason(github, "main", true), Some(Reason::MainBranch));
        assert_eq!(reason(github, "master", true), Some(Reason::MainBranch));
        assert_eq!(reason(github, "trunk", true), Some(Reason::DefaultBranch));
        assert_eq!(reason(github, "courier/x", false), Some(Reason::NoCommit));
        assert_eq!(reason(Some("https://example.org/o/n"), "courier/x", true), Some(Reason::UnknownForge));
    }

    #[test]
    fn another_forge_is_skipped_with_its_page() {
        let forge = Forge::of("https://gitlab.com/o/n.git", None);
        let situation = Situation {
            remote: Some("https://gitlab.com/o/n.git"),
            forge: &forge,
            branch: "courier/x",
            default_branch: "main",
            base: "main",
            has_new_commit: true,
        };
        let skip = skip(&situation).unwrap();
        assert_eq!(skip.reason, Reason::OtherForge);
        assert!(skip.compare_url.unwrap().starts_with("https://gitlab.com/o/n/-/merge_requests/new?"));
    }
}
