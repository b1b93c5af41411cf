//! GitHub's API, as far as pull requests need it.
//!
//! One request asks for one thing and nothing waits here: a limit is told with its end, and whoever asked comes again.
//! Creating is safe to repeat, because the open request of a branch is looked for first, and after a refusal that says
//! there is one.

mod error;
mod wire;

use std::{collections::BTreeSet, fmt};

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, header};
use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    error::{Error, Reason, Wait},
    wire::{NewPullRequest, PullRequest, RepositoryFacts, State},
};
use super::{Host, Repository, watch::Look};
use crate::{net, secrets::Secret};

/// The version of the API that is asked for.
const API_VERSION: &str = "2022-11-28";

/// The longest answer that is read: a hundred pull requests with long bodies.
const LONGEST_ANSWER: usize = 32 * 1024 * 1024;

/// The most pages one look at a repository reads.
const PAGES: usize = 10;

/// The most pull requests it asks for one by one.
const SINGLY: usize = 20;

/// What GitHub takes as a title and as a body, in characters.
const LONGEST_TITLE: usize = 256;
const LONGEST_BODY: usize = 65_536;

/// One GitHub, asked with one token.
#[derive(Clone)]
pub struct GitHub {
    client: Client,
    host: Host,
    api: Url,
    token: Secret,
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHub({})", self.host.name())
    }
}

/// A pull request for a branch, and whether it was there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub pull: PullRequest,
    pub is_reused: bool,
}

/// What a look at a repository's pull requests found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Nothing changed since the answer with this tag.
    Unchanged,
    /// Those that changed last, newest first.
    Pulls {
        pulls: Vec<PullRequest>,
        /// To ask with the next time.
        tag: Option<String>,
    },
}

impl GitHub {
    /// Asks `host` with `token`, which is for it alone.
    ///
    /// # Errors
    /// Where this machine has no way to speak TLS.
    pub fn new(host: Host, token: Secret) -> Result<Self, Error> {
        let agent = concat!("CodeCourier/", env!("CARGO_PKG_VERSION"));
        let unreadable = |_| Error::new(Reason::Unreadable, "the host's address cannot be read");
        let api = Url::parse(host.api()).map_err(unreadable)?;
        let client = net::client(agent, &api).map_err(|error| Error::new(Reason::Tls, error.to_string()))?;
        Ok(Self { client, host, api, token })
    }

    /// The facts of a repository.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn repository(&self, of: &Repository) -> Result<RepositoryFacts, Error> {
        let answer = self.send(self.request(Method::GET, of, &[], &[])?).await?;
        self.read::<wire::Repository>(answer).await.map(RepositoryFacts::from)
    }

    /// The open pull request of a branch, the newest if there are several.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn find_open(&self, of: &Repository, branch: &str) -> Result<Option<PullRequest>, Error> {
        let head = format!("{}:{branch}", of.owner);
        let answer =
            self.send(self.request(Method::GET, of, &["pulls"], &[("head", &head), ("state", "open")])?).await?;
        let found: Vec<wire::Pull> = self.read(answer).await?;
        // A branch's name that GitHub does not understand filters nothing.
        let found = found.into_iter().map(PullRequest::from);
        Ok(found.filter(|pull| pull.branch == branch && pull.state == State::Open).max_by_key(|pull| pull.number))
    }

    /// One pull request.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn get(&self, of: &Repository, number: u64) -> Result<PullRequest, Error> {
        let answer = self.send(self.request(Method::GET, of, &["pulls", &number.to_string()], &[])?).await?;
        self.read::<wire::Pull>(answer).await.map(PullRequest::from)
    }

    /// Makes a pull request. Use [`GitHub::open`], which never makes a second one.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn create(&self, of: &Repository, new: &NewPullRequest) -> Result<PullRequest, Error> {
        let sent = wire::New {
            title: cut(&new.title, LONGEST_TITLE),
            body: cut(&new.body, LONGEST_BODY),
            head: &new.branch,
            base: &new.base,
            draft: new.is_draft,
        };
        let request = json(self.request(Method::POST, of, &["pulls"], &[])?, &sent)?;
        self.read::<wire::Pull>(self.send(request).await?).await.map(PullRequest::from)
    }

    /// The branch's open pull request; made where there is none.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn open(&self, of: &Repository, new: &NewPullRequest) -> Result<Opened, Error> {
        if let Some(pull) = self.find_open(of, &new.branch).await? {
            return Ok(Opened { pull, is_reused: true });
        }
        match self.create(of, new).await {
            Ok(pull) => Ok(Opened { pull, is_reused: false }),
            // Somebody was faster, or an answer was lost.
            Err(error) if error.reason == Reason::AlreadyExists => match self.find_open(of, &new.branch).await? {
                Some(pull) => Ok(Opened { pull, is_reused: true }),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Gives a pull request another title and body. Its commits change by pushing.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn edit(&self, of: &Repository, number: u64, title: &str, body: &str) -> Result<PullRequest, Error> {
        let sent = wire::Edit { title: cut(title, LONGEST_TITLE), body: cut(body, LONGEST_BODY) };
        let request = json(self.request(Method::PATCH, of, &["pulls", &number.to_string()], &[])?, &sent)?;
        self.read::<wire::Pull>(self.send(request).await?).await.map(PullRequest::from)
    }

    /// The repository's pull requests that changed last: one request, and one that costs nothing where nothing changed.
    /// More pages are read only where more changed since the last look than one holds, or, at a first look, where one that
    /// is watched was not among them.
    ///
    /// # Errors
    /// What the answer means.
    pub async fn changed(&self, look: &Look) -> Result<Listed, Error> {
        let of = &look.place.1;
        let mut pulls: Vec<PullRequest> = Vec::new();
        let mut first_tag = None;
        let mut reaches_back = false;
        for page in 1..=PAGES {
            let number = page.to_string();
            let query =
                [("state", "all"), ("sort", "updated"), ("direction", "desc"), ("per_page", "100"), ("page", &number)];
            let mut request = self.request(Method::GET, of, &["pulls"], &query)?;
            if let Some(tag) = look.tag.as_ref().filter(|_| page == 1) {
                request = request.header(header::IF_NONE_MATCH, tag);
            }
            let answer = self.send(request).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(Listed::Unchanged);
            }
            if page == 1 {
                first_tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            }
            let has_more = answer.headers().get(header::LINK).is_some_and(|links| says_next(links.as_bytes()));
            let found: Vec<wire::Pull> = self.read(answer).await?;
            pulls.extend(found.into_iter().map(PullRequest::from));
            reaches_back = match (&look.until, pulls.last()) {
                (Some(until), Some(last)) => last.updated_at <= *until,
                (None, Some(_)) => unseen(look, &pulls).is_empty(),
                (_, None) => true,
            };
            if !has_more || reaches_back {
                break;
            }
        }
        if !reaches_back {
            // A repository in which very much happens. One that is gone is told by nobody.
            for number in unseen(look, &pulls).into_iter().take(SINGLY) {
                match self.get(of, number).await {
                    Ok(pull) => pulls.push(pull),
                    Err(error) if error.reason == Reason::NoAccess => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // What moved between two pages is on both.
        let mut seen = BTreeSet::new();
        pulls.retain(|pull| seen.insert(pull.number));
        Ok(Listed::Pulls { pulls, tag: first_tag })
    }

    fn request(
        &self,
        method: Method,
        of: &Repository,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Error> {
        let unreadable = || Error::new(Reason::NoAccess, format!("{of} cannot be asked for"));
        let mut url = self.api.clone();
        // `..` as an owner would lead elsewhere; pushing segments keeps everything else in its place.
        if [&of.owner, &of.name].iter().any(|part| part.is_empty() || *part == "." || *part == "..") {
            return Err(unreadable());
        }
        url.path_segments_mut()
            .map_err(|()| unreadable())?
            .pop_if_empty()
            .extend(["repos", of.owner.as_str(), of.name.as_str()].iter().chain(path));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let bearer = header::HeaderValue::from_str(&format!("Bearer {}", self.token.expose()));
        let mut bearer = bearer.map_err(|_| Error::new(Reason::TokenRefused, "it has characters no token has"))?;
        bearer.set_sensitive(true);
        Ok(self
            .client
            .request(method, url)
            .header(header::ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", API_VERSION)
            .header(header::AUTHORIZATION, bearer))
    }

    /// Sends; an answer that is none of success or "not modified" is an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let answer = request.send().await.map_err(|error| self.lost(&error))?;
        let status = answer.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let (bytes, _) = net::body(answer, error::SAID).await.unwrap_or_default();
        Err(Error::of(status, &headers, &bytes, &self.token))
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response) -> Result<T, Error> {
        let (bytes, is_all) = net::body(answer, LONGEST_ANSWER).await.map_err(|error| self.lost(&error))?;
        if !is_all {
            return Err(Error::new(Reason::Unreadable, "the answer is too long"));
        }
        // The words of the parser would quote the answer.
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(Reason::Unreadable, format!("line {}, column {}", error.line(), error.column()))
        })
    }

    fn lost(&self, error: &reqwest::Error) -> Error {
        let reason = match net::trouble(error) {
            net::Trouble::Unreachable => Reason::Unreachable,
            net::Trouble::Tls => Reason::Tls,
            net::Trouble::TimedOut => Reason::TimedOut,
        };
        Error::new(reason, net::plain(&net::told(error), Some(&self.token), error::SAID))
    }
}

fn json<T: Serialize>(request: RequestBuilder, sent: &T) -> Result<RequestBuilder, Error> {
    let body = serde_json::to_vec(sent).map_err(|error| Error::new(Reason::Invalid, error.to_string()))?;
    Ok(request.header(header::CONTENT_TYPE, "application/json").body(body))
}

/// At most so many characters.
fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(longest - 1).collect();
    cut.push('…');
    cut
}

/// Those that are watched and not among these.
fn unseen(look: &Look, pulls: &[PullRequest]) -> Vec<u64> {
    look.numbers.iter().copied().filter(|number| pulls.iter().all(|pull| pull.number != *number)).collect()
}

/// Whether the header `Link` names a next page. The page's own address is not followed: the number is counted here.
fn says_next(links: &[u8]) -> bool {
    String::from_utf8_lossy(links).split(',').any(|link| link.contains("rel=\"next\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_github_would_refuse_is_cut() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("löngér", 5), "löng…");
    }

    #[test]
    fn no_owner_leads_elsewhere_and_no_token_is_printed() {
        let github = GitHub::new(Host::github(), Secret::new("ghp_canary0123456789")).unwrap();
        assert!(!format!("{github:?}").contains("canary"));
        let of = |owner: &str, name: &str| Repository { owner: owner.into(), name: name.into() };
        for (owner, name) in [("..", "x"), ("x", ".."), ("", "x"), (".", "x")] {
            assert!(github.request(Method::GET, &of(owner, name), &[], &[]).is_err(), "{owner}/{name}");
        }
        let built = github.request(Method::GET, &of("a/b", "c?d"), &["pulls"], &[("head", "a:b&c")]).unwrap();
        let request = built.build().unwrap();
        assert_eq!(request.url().as_str(), "https://api.github.com/repos/a%2Fb/c%3Fd/pulls?head=a%3Ab%26c");
        assert!(!format!("{request:?}").contains("canary"), "the header is marked as sensitive");
    }
}
