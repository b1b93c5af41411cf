//! What goes over the wire, and what of it we keep.

use serde::{Deserialize, Serialize};

use crate::model::word;

word! {
    /// What became of a pull request.
    State { Open = "open", Closed = "closed", Merged = "merged" }
}

/// A pull request to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPullRequest {
    pub title: String,
    pub body: String,
    pub branch: String,
    pub base: String,
    pub is_draft: bool,
}

/// A pull request, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    pub number: u64,
    /// Its page.
    pub url: String,
    pub title: String,
    pub state: State,
    pub is_draft: bool,
    pub branch: String,
    pub base: String,
    /// The commit its branch points at, as the forge knows it.
    pub head: String,
    /// As GitHub writes it: sorts as text.
    pub updated_at: String,
}

/// A repository, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryFacts {
    pub default_branch: String,
    pub url: String,
    pub is_private: bool,
    pub is_archived: bool,
    /// Whether the token's account may push; `None` where GitHub does not say.
    pub may_push: Option<bool>,
}

#[derive(Serialize)]
pub(super) struct New<'a> {
    pub(super) title: String,
    pub(super) body: String,
    pub(super) head: &'a str,
    pub(super) base: &'a str,
    pub(super) draft: bool,
}

#[derive(Serialize)]
pub(super) struct Edit {
    pub(super) title: String,
    pub(super) body: String,
}

#[derive(Deserialize)]
pub(super) struct Pull {
    number: u64,
    html_url: String,
    title: String,
    state: String,
    #[serde(default)]
    draft: Option<bool>,
    merged_at: Option<String>,
    updated_at: String,
    head: Side,
    base: Side,
}

#[derive(Deserialize)]
struct Side {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
}

#[derive(Deserialize)]
pub(super) struct Repository {
    default_branch: String,
    html_url: String,
    private: bool,
    #[serde(default)]
    archived: bool,
    permissions: Option<Permissions>,
}

#[derive(Deserialize)]
struct Permissions {
    #[serde(default)]
    push: bool,
}

impl From<Pull> for PullRequest {
    fn from(pull: Pull) -> Self {
        let state = match pull.merged_at {
            Some(_) => State::Merged,
            None if pull.state == "open" => State::Open,
            None => State::Closed,
        };
        Self {
            number: pull.number,
            url: pull.html_url,
            title: pull.title,
            state,
            is_draft: pull.draft.unwrap_or(false),
            branch: pull.head.branch,
            base: pull.base.branch,
            head: pull.head.sha,
            updated_at: pull.updated_at,
        }
    }
}

impl From<Repository> for RepositoryFacts {
    fn from(repository: Repository) -> Self {
        Self {
            default_branch: repository.default_branch,
            url: repository.html_url,
            is_private: repository.private,
            is_archived: repository.archived,
            may_push: repository.permissions.map(|permissions| permissions.push),
        }
    }
}
