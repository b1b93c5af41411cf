//! Why a push was not taken: causes told apart, each with its remedy.
//!
//! Servers say it in words, and mostly only there: a status of HTTP, a line of `git receive-pack`, what a hook printed.
//! The words are kept beside the cause, since they may name the file, the rule or the link that settles it.

use std::{fmt, time::Duration};

use super::Way;
use crate::model::word;

word! {
    /// What was in the way of a push. Codes are stored.
    Reason {
        NotFastForward = "not_fast_forward", Protected = "protected", WorkflowScope = "workflow_scope",
        NoToken = "no_token", TokenRefused = "token_refused", SignOn = "sign_on", NoPermission = "no_permission",
        Archived = "archived", NotFound = "not_found", SecretFound = "secret_found", TooLarge = "too_large",
        LfsMissing = "lfs_missing", NameTaken = "name_taken", Declined = "declined", Unreachable = "unreachable",
        Tls = "tls", TimedOut = "timed_out", Cancelled = "cancelled", Moved = "moved", DiskFull = "disk_full",
        RemoteFull = "remote_full", NoAgent = "no_agent", KeyRefused = "key_refused", UnknownHost = "unknown_host",
        ChangedHost = "changed_host", NoSuchBranch = "no_such_branch", BadAddress = "bad_address", Busy = "busy",
        ServerFailed = "server_failed", NotGit = "not_git", Failed = "failed",
    }
}

impl Reason {
    /// The cause, to be read after "could not push: ".
    fn cause(self) -> &'static str {
        match self {
            Self::NotFastForward => "the branch there has commits that are not here",
            Self::Protected => "the branch is protected there",
            Self::WorkflowScope => "the token may not change workflows",
            Self::NoToken => "the remote asks for a token, and none is stored for it",
            Self::TokenRefused => "the remote refused the token: it has expired, was revoked, or is incomplete",
            Self::SignOn => "the organisation wants the token authorised for its single sign-on",
            Self::NoPermission => "the account may not write to this repository",
            Self::Archived => "the repository is archived and read-only",
            Self::NotFound => "there is no such repository, or this account may not see it",
            Self::SecretFound => "the remote found a secret in the commits",
            Self::TooLarge => "a file, or all of it together, is too large for the remote",
            Self::LfsMissing => "files kept by Git LFS were not uploaded there",
            Self::NameTaken => "the branch's name is in the way of another branch's",
            Self::Declined => "a check on the remote declined it",
            Self::Unreachable => "the remote cannot be reached",
            Self::Tls => "the remote did not prove who it is",
            Self::TimedOut => "the remote did not finish in time",
            Self::Cancelled => "it was cancelled",
            Self::Moved => "the repository moved",
            Self::DiskFull => "the disk is full",
            Self::RemoteFull => "the remote's disk is full",
            Self::NoAgent => "no SSH agent answers",
            Self::KeyRefused => "the remote accepts none of the SSH agent's keys",
            Self::UnknownHost => "the host's key is not in known_hosts",
            Self::ChangedHost => "the host has another key than known_hosts says",
            Self::NoSuchBranch => "there is nothing to push under this name",
            Self::BadAddress => "the recorded address is none to push to",
            Self::Busy => "the remote asks to wait",
            Self::ServerFailed => "the remote failed",
            Self::NotGit => "what answers there is not Git",
            Self::Failed => "git failed",
        }
    }

    /// What a person can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotFastForward => "Push to a branch of another name; nothing is ever forced",
            Self::Protected => "Use a branch the rules allow, or ask who set them",
            Self::WorkflowScope => {
                "Give the token the scope \"workflow\" (fine-grained: Workflows, read and write), or leave the changes under .github/workflows out"
            }
            Self::NoToken => "Store a token under Keys: Contents and Pull requests, read and write",
            Self::TokenRefused => "Make a new token and store it under Keys",
            Self::SignOn => {
                "Open the token's settings on GitHub, choose \"Configure SSO\" and authorise it for the organisation"
            }
            Self::NoPermission => {
                "Give the token write access to this repository (Contents, read and write), or ask for access"
            }
            Self::Archived => "Ask an owner to unarchive the repository",
            Self::NotFound => "Check the address and whether the token or key may see the repository",
            Self::SecretFound => {
                "Take the secret out of the commits, not only of the last one, and revoke it; the remote's words name the file"
            }
            Self::TooLarge => "Take the file out of the commits, or keep it with Git LFS; the remote's words name it",
            Self::LfsMissing => "Upload them with git lfs from a clone of your own",
            Self::NameTaken => "Choose another branch name",
            Self::Declined => "Do what the remote's words ask for, then try again",
            Self::Unreachable => {
                "Check the network, the proxy and the address; the work is kept, and the push can be tried again"
            }
            Self::Tls => "Check the date of this machine, and whether a proxy stands between that it does not trust",
            Self::TimedOut => "Try again; if it had arrived all the same, that is found out",
            Self::Cancelled => "Try again at any time",
            Self::Moved => "Check that the new address is the same project's, and make the project anew with it",
            Self::DiskFull => "Free some space and try again",
            Self::RemoteFull => "Try again later, or tell who runs the remote",
            Self::NoAgent => {
                "Start an SSH agent and add your key (ssh-add), or store a token and use the HTTPS address"
            }
            Self::KeyRefused => {
                "Add the right key to the agent (ssh-add -l shows those it has), or add it to your account there"
            }
            Self::UnknownHost => {
                "Connect once with ssh in a terminal, compare the fingerprint with the one the host publishes, and accept it"
            }
            Self::ChangedHost => {
                "Compare the fingerprint with the one the host publishes; if it is right, remove the old line with ssh-keygen -R"
            }
            Self::NoSuchBranch => "Nothing was saved on this branch yet",
            Self::BadAddress => "Make the project anew with an address of https or ssh, without a password",
            Self::Busy => "Wait a few minutes and try again",
            Self::ServerFailed => "Try again later",
            Self::NotGit => "Check the address; a sign-in page of the network may stand between",
            Self::Failed => "Try again; if it stays, the words above say what git met",
        }
    }

    /// Whether trying again without changing anything can help.
    pub fn is_passing(self) -> bool {
        use Reason as R;
        matches!(
            self,
            R::Unreachable | R::TimedOut | R::Busy | R::ServerFailed | R::RemoteFull | R::DiskFull | R::NotGit
        )
    }

    /// By an answer of HTTP.
    pub(super) fn of_status(status: u16, has_token: bool) -> Self {
        match status {
            401 if has_token => Self::TokenRefused,
            401 => Self::NoToken,
            403 if has_token => Self::NoPermission,
            403 => Self::NoToken,
            404 | 410 => Self::NotFound,
            413 => Self::TooLarge,
            407 => Self::Unreachable,
            429 => Self::Busy,
            300..=399 => Self::Moved,
            500..=599 => Self::ServerFailed,
            _ => Self::NotGit,
        }
    }

    /// By a server's words: GitHub's, GitLab's, and git's own. `None`: they say nothing we know.
    pub(super) fn of_words(said: &str) -> Option<Self> {
        let said = said.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        // What is more particular comes first: a declined hook is how most of these end.
        Some(match () {
            () if has(&["without `workflow` scope", "without `workflows` permission", "without workflow scope"]) => {
                Self::WorkflowScope
            }
            () if has(&["push cannot contain secrets", "push protection", "secret detected", "gh009"]) => {
                Self::SecretFound
            }
            () if has(&[
                "gh001",
                "file size limit",
                "exceeds maximum",
                "larger than",
                "too large",
                "large files detected",
            ]) =>
            {
                Self::TooLarge
            }
            () if has(&["gh008", "unknown git lfs object", "lfs objects are missing"]) => Self::LfsMissing,
            () if has(&["gh006", "gh013", "protected branch", "rule violations"]) => Self::Protected,
            () if has(&["single sign-on", "saml sso", "saml enforcement"]) => Self::SignOn,
            () if has(&["archived so it is read-only", "repository has been archived", "archived"]) => Self::Archived,
            () if has(&["non-fast-forward", "fetch first", "stale info"]) => Self::NotFastForward,
            () if has(&["' exists; cannot create", "directory/file conflict", "conflicts with", "is a directory"]) => {
                Self::NameTaken
            }
            () if has(&["no space left", "disk quota", "not enough disk"]) => Self::RemoteFull,
            () if has(&[
                "repository not found",
                "project you were looking for could not be found",
                "does not appear to be a git repository",
            ]) =>
            {
                Self::NotFound
            }
            () if has(&[
                "write access to repository not granted",
                "permission to",
                "not allowed to push",
                "denied to",
                "read-only",
            ]) =>
            {
                Self::NoPermission
            }
            () if has(&["invalid username or", "bad credentials", "token has expired", "authentication failed"]) => {
                Self::TokenRefused
            }
            () if has(&["hook declined", "pre-receive", "update hook"]) => Self::Declined,
            () => return None,
        })
    }

    /// By what git2 says where no server's words do. Over SSH the host's own lines come this way too.
    pub(super) fn of_git(error: &git2::Error) -> Self {
        use git2::{ErrorClass as Class, ErrorCode as Code};
        let message = error.message();
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        match (error.code(), error.class()) {
            (Code::NotFastForward, _) => return Self::NotFastForward,
            (Code::Timeout, _) => return Self::TimedOut,
            (Code::Certificate, Class::Ssh) => return Self::UnknownHost,
            (Code::Certificate, _) => return Self::Tls,
            _ => {}
        }
        if let Some(status) = message.split_once("http status code: ").and_then(|(_, code)| code.trim().parse().ok()) {
            return Self::of_status(status, true);
        }
        match () {
            () if super::super::is_no_space(error) => Self::DiskFull,
            () if has(&["timed out", "timeout", "Timed out"]) => Self::TimedOut,
            () if has(&["agent"]) && error.class() == Class::Ssh => Self::NoAgent,
            () if has(&[
                "Username/PublicKey combination invalid",
                "no authentication methods",
                "Permission denied",
            ]) =>
            {
                Self::KeyRefused
            }
            () if has(&["redirect"]) => Self::Moved,
            () if has(&["src refspec"]) => Self::NoSuchBranch,
            () if has(&["invalid content-type", "no content-type"]) => Self::NotGit,
            () if error.class() == Class::Ssl || message.starts_with("SSL") => Self::Tls,
            () if has(&[
                "failed to resolve",
                "failed to connect",
                "could not connect",
                "unexpected EOF",
                "early EOF",
                "connection",
            ]) =>
            {
                Self::Unreachable
            }
            () if matches!(error.class(), Class::Net | Class::Http | Class::Ssh) && error.code() == Code::Auth => {
                Self::TokenRefused
            }
            () if matches!(error.class(), Class::Net | Class::Os | Class::Ssh) => Self::Unreachable,
            () => Self::Failed,
        }
    }
}

/// A push that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub reason: Reason,
    /// How the remote was spoken to; `None`: it was not.
    pub way: Option<Way>,
    /// What it answered, or what git met: plain text, bounded, without secrets.
    pub said: String,
}

impl Error {
    pub(super) fn new(reason: Reason, said: impl Into<String>) -> Self {
        Self { reason, way: None, said: said.into() }
    }

    pub(super) fn timed_out(limit: Duration) -> Self {
        Self::new(Reason::TimedOut, format!("nothing after {} seconds", limit.as_secs()))
    }

    pub(super) fn by(self, way: &Way) -> Self {
        Self { way: Some(way.clone()), ..self }
    }

    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        self.reason.remedy()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.cause())?;
        if let Some(way) = &self.way {
            write!(f, " (tried: {way})")?;
        }
        if !self.said.is_empty() {
            write!(f, ": {}", self.said)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_words_are_understood() {
        for (said, reason) in [
            (
                "refusing to allow a Personal Access Token to create or update workflow `.github/workflows/ci.yml` without `workflow` scope",
                Reason::WorkflowScope,
            ),
            (
                "refusing to allow a GitHub App to create or update workflow `.github/workflows/ci.yml` without `workflows` permission",
                Reason::WorkflowScope,
            ),
            (
                "error: GH013: Repository rule violations found for refs/heads/x.\n- GITHUB PUSH PROTECTION\n- Push cannot contain secrets",
                Reason::SecretFound,
            ),
            (
                "error: GH013: Repository rule violations found for refs/heads/x.\n- Changes must be made through a pull request.",
                Reason::Protected,
            ),
            ("error: GH006: Protected branch update failed for refs/heads/main.", Reason::Protected),
            ("error: GH001: Large files detected. You may want to try Git Large File Storage", Reason::TooLarge),
            ("error: GH008: Your push referenced at least 1 unknown Git LFS object:", Reason::LfsMissing),
            (
                "GitLab: You are not allowed to push code to protected branches on this project.\npre-receive hook declined",
                Reason::Protected,
            ),
            ("ERROR: Permission to owner/name.git denied to somebody.", Reason::NoPermission),
            ("Write access to repository not granted.", Reason::NoPermission),
            ("ERROR: Repository not found.", Reason::NotFound),
            ("This repository was archived so it is read-only.", Reason::Archived),
            ("The 'team' organization has enabled or enforced SAML SSO.", Reason::SignOn),
            (
                "cannot lock ref 'refs/heads/courier/x': 'refs/heads/courier' exists; cannot create 'refs/heads/courier/x'",
                Reason::NameTaken,
            ),
            ("fetch first", Reason::NotFastForward),
            ("pre-receive hook declined", Reason::Declined),
            ("unpack-objects: No space left on device", Reason::RemoteFull),
            (
                "Invalid username or token. Password authentication is not supported for Git operations.",
                Reason::TokenRefused,
            ),
        ] {
            assert_eq!(Reason::of_words(said), Some(reason), "{said}");
        }
        assert_eq!(Reason::of_words("hello"), None);
    }

    #[test]
    fn every_cause_has_a_remedy_and_reads_on() {
        for reason in Reason::ALL {
            let words = Error::new(*reason, "").to_string();
            assert!(words.starts_with(|c: char| c.is_lowercase()) && !words.ends_with('.'), "{words}");
            let remedy = reason.remedy();
            assert!(remedy.starts_with(char::is_uppercase) && !remedy.ends_with('.'), "{remedy}");
        }
    }
}
