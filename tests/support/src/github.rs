//! A GitHub-compatible server: one repository's facts and pull requests, bound to a bare repository that it serves over git
//! too, at the same address. `github-conformance/` proves it with GitHub's own client and description.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::DefaultBodyLimit,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    git_http::{GitHttp, NAME},
    serving::{Serving, held},
};

/// When the first pull request was made, in seconds; each change is a second later.
const BEGINNING: u64 = 1_767_225_600;

/// What goes wrong with the API.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The hour's requests are used up, until then (Unix seconds).
    RateLimited {
        reset: u64,
    },
    /// Too many at once; wait so many seconds.
    SecondaryLimit {
        after: u64,
    },
    /// As many servers say it: 429.
    TooMany {
        after: u64,
    },
    /// The organisation wants the token authorised at this address.
    SignOn(String),
    /// 403 with these words.
    Forbidden(String),
    Unauthorized,
    Gone,
    /// 301 to here.
    Moved(String),
    /// A fault of the server's own.
    Status(u16),
    /// Something that is no JSON.
    Garbage,
    /// It takes the request and says nothing.
    Stall,
    /// It makes what is asked for and breaks the connection.
    LostAnswer,
}

/// A request and its answer. The token is not in it.
#[derive(Clone, Debug, Serialize)]
pub struct Exchange {
    pub method: String,
    /// Without the prefix of an enterprise host.
    pub path: String,
    pub query: String,
    pub request_headers: BTreeMap<String, String>,
    pub request: Value,
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub answer: Value,
    /// Whether it came with the right token.
    pub is_signed_in: bool,
}

/// A pull request as it stands on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    pub is_draft: bool,
    pub is_open: bool,
    pub is_merged: bool,
    created: u64,
    updated: u64,
}

#[derive(Debug, Default)]
struct Memory {
    pulls: Vec<Pull>,
    fault: Option<Fault>,
    exchanges: Vec<Exchange>,
    /// Seconds since the beginning.
    now: u64,
    remaining: u64,
    is_archived: bool,
}

/// A running server.
#[derive(Debug)]
pub struct GithubServer {
    serving: Serving,
    git: Arc<GitHttp>,
    memory: Arc<Mutex<Memory>>,
}

impl GithubServer {
    /// A server that lets this token in.
    pub fn start(token: &str) -> anyhow::Result<Self> {
        let git = Arc::new(GitHttp::new(Some(token))?);
        let memory = Arc::new(Mutex::new(Memory { remaining: 5000, ..Memory::default() }));
        let (routed, remembered) = (Arc::clone(&git), Arc::clone(&memory));
        let serving = Serving::start("github", 0, |address| {
            let api = Arc::new(Api { git: routed, memory: remembered, web: format!("http://{address}") });
            let answer = move |method, uri, headers, body| async move { api.answer(method, uri, headers, body).await };
            Router::new().fallback(answer).layer(DefaultBodyLimit::disable())
        })?;
        Ok(GithubServer { serving, git, memory })
    }

    /// What a person would set as their enterprise host.
    pub fn host(&self) -> String {
        format!("http://{}", self.serving.address())
    }

    /// The base of the API.
    pub fn api(&self) -> String {
        format!("{}/api/v3", self.host())
    }

    /// The repository's address for git.
    pub fn url(&self) -> String {
        format!("{}/{NAME}.git", self.host())
    }

    /// The git side: repository, hooks, faults, requests.
    pub fn git(&self) -> &GitHttp {
        &self.git
    }

    pub fn fail(&self, fault: Fault) {
        held(&self.memory).fault = Some(fault);
    }

    pub fn heal(&self) {
        held(&self.memory).fault = None;
    }

    /// How many requests of the hour are left.
    pub fn set_remaining(&self, remaining: u64) {
        held(&self.memory).remaining = remaining;
    }

    pub fn archive(&self) {
        held(&self.memory).is_archived = true;
    }

    /// Every request of the API so far, with its answer.
    pub fn exchanges(&self) -> Vec<Exchange> {
        held(&self.memory).exchanges.clone()
    }

    pub fn pulls(&self) -> Vec<Pull> {
        held(&self.memory).pulls.clone()
    }

    /// Merges a pull request, the base branch with it where it only has to move on.
    pub fn merge(&self, number: u64) -> anyhow::Result<()> {
        let mut merged = None;
        self.change(number, |pull| {
            (pull.is_open, pull.is_merged) = (false, true);
            merged = Some((pull.head.clone(), pull.base.clone()));
        })?;
        if let Some((head, base)) = merged
            && self.git.git(&["merge-base", "--is-ancestor", &base, &head]).is_ok()
        {
            self.git.git(&["update-ref", &format!("refs/heads/{base}"), &format!("refs/heads/{head}")])?;
        }
        Ok(())
    }

    pub fn close(&self, number: u64) -> anyhow::Result<()> {
        self.change(number, |pull| pull.is_open = false)
    }

    pub fn reopen(&self, number: u64) -> anyhow::Result<()> {
        self.change(number, |pull| pull.is_open = true)
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Pull)) -> anyhow::Result<()> {
        let mut memory = held(&self.memory);
        memory.now += 1;
        let now = memory.now;
        let found = memory.pulls.iter_mut().find(|pull| pull.number == number);
        let pull = found.ok_or_else(|| anyhow::anyhow!("there is no pull request {number}"))?;
        pull.updated = now;
        change(pull);
        Ok(())
    }
}

struct Api {
    git: Arc<GitHttp>,
    memory: Arc<Mutex<Memory>>,
    web: String,
}

/// An answer before it is sent.
struct Answer {
    status: u16,
    value: Value,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    fn new(status: u16, value: Value) -> Self {
        Answer { status, value, headers: Vec::new() }
    }

    fn error(status: u16, message: &str) -> Self {
        let value = json!({ "message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string() });
        Answer::new(status, value)
    }

    /// As GitHub refuses what it was sent.
    fn invalid(error: Value) -> Self {
        let mut answer = Answer::error(422, "Validation Failed");
        answer.value["errors"] = json!([error]);
        answer
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Api {
    async fn answer(&self, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        if uri.path().starts_with(&format!("/{NAME}.git/")) {
            return self.git.answer(method, uri, headers, body).await;
        }
        let path = uri.path().strip_prefix("/api/v3").unwrap_or(uri.path()).to_owned();
        let query = uri.query().unwrap_or_default().to_owned();
        let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("token ")));
        let is_signed_in = token.is_some() && self.git.is_accepted(token);
        let fault = held(&self.memory).fault.clone();
        let (is_lost, is_garbage) = (matches!(fault, Some(Fault::LostAnswer)), matches!(fault, Some(Fault::Garbage)));
        let mut answer = match fault {
            Some(Fault::Stall) => return std::future::pending().await,
            Some(fault) if !is_lost && !is_garbage => faulty(fault),
            _ if !is_signed_in => Answer::error(401, "Bad credentials"),
            _ => self.route(&method, &path, &query, &request),
        };
        let tag = format!("W/\"{:016x}\"", fingerprint(&answer.value));
        if answer.status == 200 && method == Method::GET {
            if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
                (answer.status, answer.value) = (304, Value::Null);
            }
            answer = answer.with("etag", tag);
        }
        answer = self.counted(answer);
        let sent_headers: BTreeMap<String, String> =
            answer.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let named = |(name, value): (&HeaderName, &HeaderValue)| {
            (name != header::AUTHORIZATION)
                .then(|| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        };
        let exchange = Exchange {
            method: method.to_string(),
            path,
            query,
            request_headers: headers.iter().filter_map(named).collect(),
            request,
            status: answer.status,
            headers: sent_headers,
            answer: answer.value.clone(),
            is_signed_in,
        };
        held(&self.memory).exchanges.push(exchange);
        sent(&answer, is_lost, is_garbage)
    }

    /// With the headers that say how many requests are left. What has not changed costs none.
    fn counted(&self, answer: Answer) -> Answer {
        let mut memory = held(&self.memory);
        let is_limited = answer.headers.iter().any(|(name, _)| *name == "x-ratelimit-reset");
        if is_limited {
            return answer;
        }
        if answer.status != 304 {
            memory.remaining = memory.remaining.saturating_sub(1);
        }
        let remaining = memory.remaining;
        answer
            .with("x-ratelimit-limit", "5000")
            .with("x-ratelimit-remaining", remaining.to_string())
            .with("x-ratelimit-used", (5000 - remaining.min(5000)).to_string())
            .with("x-ratelimit-reset", (BEGINNING + 3600).to_string())
            .with("x-ratelimit-resource", "core")
            .with("x-github-request-id", "0000:1:2:3")
    }

    fn route(&self, method: &Method, path: &str, query: &str, request: &Value) -> Answer {
        let Some(rest) = path.strip_prefix(&format!("/repos/{NAME}")) else { return Answer::error(404, "Not Found") };
        match (method.as_str(), rest.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice()) {
            ("GET", [""]) => {
                let is_archived = held(&self.memory).is_archived;
                let mut value = self.repository();
                value["archived"] = json!(is_archived);
                Answer::new(200, value)
            }
            ("GET", ["pulls"]) => self.list(query),
            ("POST", ["pulls"]) => self.create(request),
            ("GET", ["pulls", number]) => self.one(number, |_| ()),
            ("PATCH", ["pulls", number]) => self.one(number, |pull| {
                let text = |name: &str| request[name].as_str().map(str::to_owned);
                pull.title = text("title").unwrap_or_else(|| pull.title.clone());
                pull.body = text("body").unwrap_or_else(|| pull.body.clone());
                pull.is_open = text("state").map_or(pull.is_open, |state| state == "open");
            }),
            _ => Answer::error(404, "Not Found"),
        }
    }

    fn list(&self, query: &str) -> Answer {
        let query = Query::read(query);
        let (owner, _) = NAME.split_once('/').unwrap_or_default();
        let mut pulls = held(&self.memory).pulls.clone();
        pulls.retain(|pull| {
            let is_state = match query.get("state").unwrap_or("open") {
                "all" => true,
                "closed" => !pull.is_open,
                _ => pull.is_open,
            };
            let is_head = query.get("head").is_none_or(|head| head == format!("{owner}:{}", pull.head));
            is_state && is_head && query.get("base").is_none_or(|base| base == pull.base)
        });
        pulls.sort_by_key(|pull| if query.get("sort") == Some("updated") { pull.updated } else { pull.created });
        // Newest first, unless asked otherwise.
        if query.get("direction") != Some("asc") {
            pulls.reverse();
        }
        let number = |name: &str, otherwise: usize| query.get(name).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
        let (size, page) = (number("per_page", 30).clamp(1, 100), number("page", 1).max(1));
        let heads = self.heads();
        let shown = pulls.iter().skip((page - 1) * size).take(size).map(|pull| self.simple(pull, &heads)).collect();
        let mut answer = Answer::new(200, Value::Array(shown));
        if pulls.len() > page * size {
            let next = query.with_page(page + 1);
            let link = format!("<{}/api/v3/repos/{NAME}/pulls?{next}>; rel=\"next\"", self.web);
            answer = answer.with("link", link);
        }
        answer
    }

    fn create(&self, request: &Value) -> Answer {
        let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
        let (owner, _) = NAME.split_once('/').unwrap_or_default();
        let named = text("head");
        let head = named.strip_prefix(&format!("{owner}:")).unwrap_or(&named).to_owned();
        let (base, heads) = (text("base"), self.heads());
        let custom = |message: String| json!({ "resource": "PullRequest", "code": "custom", "message": message });
        for (field, branch) in [("head", &head), ("base", &base)] {
            if !heads.contains_key(branch) {
                return Answer::invalid(json!({ "resource": "PullRequest", "field": field, "code": "invalid" }));
            }
        }
        for (field, longest) in [("title", 256), ("body", 65_536)] {
            if text(field).chars().count() > longest {
                let message = format!("{field} is too long (maximum is {longest} characters)");
                return Answer::invalid(
                    json!({ "resource": "Issue", "code": "custom", "field": field, "message": message }),
                );
            }
        }
        if text("title").trim().is_empty() {
            return Answer::invalid(json!({ "resource": "Issue", "code": "missing_field", "field": "title" }));
        }
        let count = self.git.git(&["rev-list", "--count", &format!("{base}..{head}")]);
        if count.is_ok_and(|count| count == "0") {
            return Answer::invalid(custom(format!("No commits between {base} and {head}")));
        }
        let mut memory = held(&self.memory);
        if memory.pulls.iter().any(|pull| pull.is_open && pull.head == head && pull.base == base) {
            return Answer::invalid(custom(format!("A pull request already exists for {owner}:{head}.")));
        }
        memory.now += 1;
        let (number, now) = (memory.pulls.len() as u64 + 1, memory.now);
        let pull = Pull {
            number,
            title: text("title"),
            body: text("body"),
            head,
            base,
            is_draft: request["draft"] == true,
            is_open: true,
            is_merged: false,
            created: now,
            updated: now,
        };
        memory.pulls.push(pull.clone());
        drop(memory);
        let place = format!("{}/api/v3/repos/{NAME}/pulls/{number}", self.web);
        Answer::new(201, self.whole(&pull, &heads)).with("location", place)
    }

    fn one(&self, number: &str, change: impl FnOnce(&mut Pull)) -> Answer {
        let mut memory = held(&self.memory);
        let number = number.parse().unwrap_or(0);
        let Some(pull) = memory.pulls.iter_mut().find(|pull| pull.number == number) else {
            return Answer::error(404, "Not Found");
        };
        let before = pull.clone();
        change(pull);
        let is_changed = before != *pull;
        let mut pull = pull.clone();
        if is_changed {
            memory.now += 1;
            pull.updated = memory.now;
            let place = (number - 1) as usize;
            memory.pulls[place] = pull.clone();
        }
        drop(memory);
        Answer::new(200, self.whole(&pull, &self.heads()))
    }

    fn repository(&self) -> Value {
        self.filled(include_str!("github/repository.json"), 0)
    }

    /// The branches and their commits.
    fn heads(&self) -> BTreeMap<String, String> {
        let listed = self.git.git(&["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads"]);
        let listed = listed.unwrap_or_default();
        let pairs = listed.lines().filter_map(|line| line.rsplit_once(' '));
        pairs.map(|(name, commit)| (name.to_owned(), commit.to_owned())).collect()
    }

    fn whole(&self, pull: &Pull, heads: &BTreeMap<String, String>) -> Value {
        let mut value = self.filled(include_str!("github/pull.json"), pull.number);
        let mut repository = self.repository();
        if let Some(facts) = repository.as_object_mut() {
            facts.retain(|fact, _| !["subscribers_count", "network_count", "permissions"].contains(&fact.as_str()));
        }
        let (owner, _) = NAME.split_once('/').unwrap_or_default();
        for (side, branch) in [("head", &pull.head), ("base", &pull.base)] {
            value[side]["ref"] = json!(branch);
            value[side]["label"] = json!(format!("{owner}:{branch}"));
            value[side]["sha"] = json!(heads.get(branch));
            value[side]["repo"] = repository.clone();
        }
        value["number"] = json!(pull.number);
        value["title"] = json!(pull.title);
        value["body"] = json!(pull.body);
        value["draft"] = json!(pull.is_draft);
        value["state"] = json!(if pull.is_open { "open" } else { "closed" });
        value["locked"] = json!(false);
        value["merged"] = json!(pull.is_merged);
        value["created_at"] = json!(time(pull.created));
        value["updated_at"] = json!(time(pull.updated));
        value["closed_at"] = if pull.is_open { Value::Null } else { json!(time(pull.updated)) };
        value["merged_at"] = if pull.is_merged { json!(time(pull.updated)) } else { Value::Null };
        value
    }

    /// As it stands in a list: without what only a look at one tells.
    fn simple(&self, pull: &Pull, heads: &BTreeMap<String, String>) -> Value {
        const WHOLE: [&str; 11] = [
            "merged",
            "mergeable",
            "mergeable_state",
            "merged_by",
            "comments",
            "review_comments",
            "maintainer_can_modify",
            "commits",
            "additions",
            "deletions",
            "changed_files",
        ];
        let mut value = self.whole(pull, heads);
        if let Some(facts) = value.as_object_mut() {
            facts.retain(|fact, _| !WHOLE.contains(&fact.as_str()));
        }
        value
    }

    /// One of GitHub's own examples, about this repository and this host.
    fn filled(&self, example: &str, number: u64) -> Value {
        let (owner, name) = NAME.split_once('/').unwrap_or_default();
        let text = example
            .replace("octocat/Hello-World/pulls/1347", &format!("octocat/Hello-World/pulls/{number}"))
            .replace("octocat/Hello-World/pull/1347", &format!("octocat/Hello-World/pull/{number}"))
            .replace("octocat/Hello-World/issues/1347", &format!("octocat/Hello-World/issues/{number}"))
            .replace("https://api.github.com", &format!("{}/api/v3", self.web))
            .replace("https://github.com", &self.web)
            .replace("\"octocat\"", &format!("\"{owner}\""))
            .replace("\"Hello-World\"", &format!("\"{name}\""))
            .replace("octocat/Hello-World", NAME)
            .replace("\"master\"", "\"main\"");
        serde_json::from_str(&text).expect("an example is JSON")
    }
}

fn faulty(fault: Fault) -> Answer {
    match fault {
        Fault::RateLimited { reset } => Answer::error(403, "API rate limit exceeded for user ID 1.")
            .with("x-ratelimit-remaining", "0")
            .with("x-ratelimit-reset", reset.to_string()),
        Fault::SecondaryLimit { after } => {
            Answer::error(403, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.")
                .with("retry-after", after.to_string())
        }
        Fault::TooMany { after } => Answer::error(429, "Too many requests").with("retry-after", after.to_string()),
        Fault::SignOn(url) => {
            Answer::error(403, "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to this organization.")
                .with("x-github-sso", format!("required; url={url}"))
        }
        Fault::Forbidden(words) => Answer::error(403, &words),
        Fault::Unauthorized => Answer::error(401, "Bad credentials"),
        Fault::Gone => Answer::error(410, "This repository has been disabled."),
        Fault::Moved(to) => Answer::error(301, "Moved Permanently").with("location", to),
        Fault::Status(status) => Answer::error(status, "Server Error"),
        Fault::Stall | Fault::Garbage | Fault::LostAnswer => Answer::error(500, "no answer of its own"),
    }
}

fn sent(answer: &Answer, is_lost: bool, is_garbage: bool) -> Response {
    let body = match () {
        () if is_lost => {
            let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::ErrorKind::ConnectionReset)]);
            Body::from_stream(broken.map(|piece| piece.map_err(std::io::Error::from)))
        }
        () if is_garbage => Body::from("<html>not JSON</html>"),
        () if answer.status == 304 => Body::empty(),
        () => Body::from(answer.value.to_string()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status of ours");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    for (name, value) in &answer.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value of ours"));
    }
    response
}

fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// A moment as GitHub writes it. The first day has room for every test.
fn time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("2026-01-01T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// The part of an address after its `?`.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Query(pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn with_page(&self, page: usize) -> String {
        let kept = self.0.iter().filter(|(name, _)| name != "page").map(|(name, value)| format!("{name}={value}"));
        kept.chain([format!("page={page}")]).collect::<Vec<_>>().join("&")
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            (other, _) => {
                bytes.push(*other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
