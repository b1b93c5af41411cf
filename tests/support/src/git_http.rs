//! A git server over HTTP: the real `git http-backend` behind basic authentication, and what may go wrong with one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use anyhow::Context;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::DefaultBodyLimit,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::stream;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    repositories::git,
    serving::{Serving, held},
};

/// The name of the repository it has.
pub const NAME: &str = "owner/name";

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    pub method: String,
    pub path: String,
    pub query: String,
    /// User and password of basic authentication.
    pub user: Option<(String, String)>,
    pub status: u16,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// An answer of this status with these words.
    Status(u16, String),
    /// A way to somewhere else; a path, or an address.
    Redirect(String),
    /// The connection breaks in the middle of the answer.
    Drop,
    /// It takes the request and says nothing.
    Stall,
    /// A page for people, as a network's sign-in has it.
    Page,
}

/// Which requests meet the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// Once the token was accepted.
    SignedIn,
    /// When the commits come.
    Receiving,
}

/// A running server with one bare repository.
#[derive(Debug)]
pub struct GitServer {
    serving: Serving,
    git: Arc<GitHttp>,
}

impl GitServer {
    /// A server whose repository has an ordinary history; it asks for `token`, if there is one.
    pub fn start(token: Option<&str>) -> anyhow::Result<Self> {
        let git = Arc::new(GitHttp::new(token)?);
        let routed = Arc::clone(&git);
        let serving = Serving::start("git-http", 0, |_| {
            let answer =
                move |method, uri, headers, body| async move { routed.answer(method, uri, headers, body).await };
            Router::new().fallback(answer).layer(DefaultBodyLimit::disable())
        })?;
        Ok(GitServer { serving, git })
    }

    /// The address of the repository.
    pub fn url(&self) -> String {
        format!("http://{}/{NAME}.git", self.serving.address())
    }

    pub fn port(&self) -> u16 {
        self.serving.address().port()
    }
}

impl std::ops::Deref for GitServer {
    type Target = GitHttp;
    fn deref(&self) -> &GitHttp {
        &self.git
    }
}

/// The repository and how it is served.
#[derive(Debug)]
pub struct GitHttp {
    folder: TempDir,
    repository: PathBuf,
    token: Mutex<Option<String>>,
    fault: Mutex<Option<(When, Fault)>>,
    requests: Mutex<Vec<RequestSeen>>,
}

impl GitHttp {
    pub(crate) fn new(token: Option<&str>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("courier-git-http-").tempdir()?;
        let repository = folder.path().canonicalize()?.join(format!("{NAME}.git"));
        fs::create_dir_all(repository.parent().context("a path of two parts")?)?;
        let origin = crate::repositories::Repository::ordinary()?;
        let target = repository.to_string_lossy().into_owned();
        git(folder.path(), &["clone", "--quiet", "--bare", &origin.source(), &target])?;
        git(&repository, &["remote", "remove", "origin"])?;
        let token = Mutex::new(token.map(str::to_owned));
        Ok(GitHttp { folder, repository, token, fault: Mutex::default(), requests: Mutex::default() })
    }

    /// The bare repository, for git to look into.
    pub fn repository(&self) -> &Path {
        &self.repository
    }

    /// Runs git in it.
    pub fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        git(&self.repository, arguments)
    }

    /// Whom it lets in from now on.
    pub fn accept(&self, token: Option<&str>) {
        *held(&self.token) = token.map(str::to_owned);
    }

    pub(crate) fn is_accepted(&self, given: Option<&str>) -> bool {
        held(&self.token).as_deref().is_none_or(|token| given == Some(token))
    }

    pub fn fail(&self, when: When, fault: Fault) {
        *held(&self.fault) = Some((when, fault));
    }

    pub fn heal(&self) {
        *held(&self.fault) = None;
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RequestSeen> {
        held(&self.requests).clone()
    }

    /// Puts a hook in its place. A script that prints to standard error is heard by who pushes.
    #[cfg(unix)]
    pub fn hook(&self, name: &str, script: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.repository.join("hooks").join(name);
        fs::create_dir_all(path.parent().context("a hook lies in a folder")?)?;
        // Written aside, since a program that is open for writing cannot be run.
        let aside = path.with_extension("new");
        fs::write(&aside, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o755))?;
        Ok(fs::rename(aside, path)?)
    }

    /// Declines every push with these words, as a server's own checks do.
    #[cfg(unix)]
    pub fn decline(&self, words: &str) -> anyhow::Result<()> {
        let said = self.folder.path().join("said");
        fs::write(&said, format!("{words}\n"))?;
        self.hook("pre-receive", &format!("cat >/dev/null; cat '{}' >&2; exit 1", said.display()))
    }

    pub(crate) async fn answer(&self, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let user = basic(&headers);
        let is_in = self.is_accepted(user.as_ref().map(|(_, password)| password.as_str()));
        let is_receiving = method == Method::POST && uri.path().ends_with("/git-receive-pack");
        let fault = held(&self.fault).clone().filter(|(when, _)| match when {
            When::Always => true,
            When::SignedIn => is_in && user.is_some(),
            When::Receiving => is_in && is_receiving,
        });
        let mut seen = RequestSeen {
            method: method.to_string(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            user: user.clone(),
            status: 0,
        };
        let answer = match fault {
            Some((_, Fault::Stall)) => {
                held(&self.requests).push(seen);
                return std::future::pending().await;
            }
            Some((_, fault)) => faulty(fault),
            None if !is_in => unauthorized(),
            None => {
                let name = user.map_or_else(|| "somebody".to_owned(), |(name, _)| name);
                self.backend(&method, &uri, &headers, &body, &name).await.unwrap_or_else(|error| {
                    eprintln!("git http-backend: {error:#}");
                    plain(500, "the server failed")
                })
            }
        };
        seen.status = answer.status().as_u16();
        held(&self.requests).push(seen);
        answer
    }

    async fn backend(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Bytes,
        user: &str,
    ) -> anyhow::Result<Response> {
        #[expect(clippy::disallowed_methods, reason = "a program of the tests, with an environment of its own")]
        let mut command = Command::new("git");
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        command
            .arg("http-backend")
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_PROJECT_ROOT", self.folder.path())
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("PATH_INFO", uri.path())
            .env("QUERY_STRING", uri.query().unwrap_or_default())
            .env("REQUEST_METHOD", method.as_str())
            .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING))
            .env("GIT_PROTOCOL", text(HeaderName::from_static("git-protocol")))
            .env("REMOTE_USER", user)
            .env("REMOTE_ADDR", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        // Whoever owns the folder, also where the tests run as root.
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
        let mut child = command.spawn().context("could not start git")?;
        let mut input = child.stdin.take().context("it was piped")?;
        let sending = async {
            // It may end before it has read everything: then its answer says why.
            _ = input.write_all(body).await;
            drop(input);
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), sending);
        answer_of(&output?.stdout)
    }
}

/// What a CGI program printed, as an answer.
fn answer_of(output: &[u8]) -> anyhow::Result<Response> {
    let at = output.windows(4).position(|end| end == b"\r\n\r\n").context("it printed no head")?;
    let mut response = Response::new(Body::from(output[at + 4..].to_vec()));
    for line in std::str::from_utf8(&output[..at])?.split("\r\n") {
        let (name, value) = line.split_once(':').context("a line of the head has no colon")?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            *response.status_mut() = StatusCode::from_u16(value.split(' ').next().unwrap_or(value).parse()?)?;
        } else {
            response.headers_mut().insert(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
        }
    }
    Ok(response)
}

fn faulty(fault: Fault) -> Response {
    match fault {
        Fault::Status(401, words) => {
            let mut answer = unauthorized();
            *answer.body_mut() = Body::from(words);
            answer
        }
        Fault::Status(status, words) => plain(status, &words),
        Fault::Redirect(to) => {
            let mut answer = plain(301, "moved");
            let to = HeaderValue::from_str(&to).expect("a test's own address");
            answer.headers_mut().insert(header::LOCATION, to);
            answer
        }
        Fault::Drop => {
            let broken = stream::iter([Ok(Bytes::from_static(b"001e")), Err(std::io::ErrorKind::ConnectionReset)]);
            let mut answer = Response::new(Body::from_stream(futures_util::StreamExt::map(broken, |piece| {
                piece.map_err(std::io::Error::from)
            })));
            let kind = HeaderValue::from_static("application/x-git-receive-pack-advertisement");
            answer.headers_mut().insert(header::CONTENT_TYPE, kind);
            answer
        }
        Fault::Page => {
            let mut answer = plain(200, "<html><title>Sign in</title></html>");
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            answer
        }
        Fault::Stall => plain(500, "a stall is no answer"),
    }
}

fn unauthorized() -> Response {
    let mut answer = plain(401, "");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"git\""));
    answer
}

fn plain(status: u16, words: &str) -> Response {
    let mut answer = Response::new(Body::from(words.to_owned()));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a test's own status");
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repositories::Repository;

    /// The judge is git itself: it clones from the server and pushes to it, and is refused without the token.
    #[test]
    fn git_itself_clones_and_pushes() {
        let server = GitServer::start(Some("secret")).unwrap();
        let local = Repository::ordinary().unwrap();
        let url = format!("http://x-access-token:secret@127.0.0.1:{}/{NAME}.git", server.port());
        local.write("more.txt", "more\n").unwrap();
        local.commit("Add more").unwrap();
        local.git(&["push", "--quiet", &url, "main:refs/heads/courier/work"]).unwrap();
        let (ours, theirs) = (local.git(&["rev-parse", "main"]), server.git(&["rev-parse", "courier/work"]));
        assert_eq!(ours.unwrap(), theirs.unwrap());
        let listed = local.git(&["ls-remote", &url]).unwrap();
        assert!(listed.contains("refs/heads/courier/work"), "{listed}");
        assert!(server.requests()[0].user.is_none(), "git asks first without");
        let wrong = url.replace("secret", "wrong");
        assert!(local.git(&["-c", "core.askPass=true", "push", &wrong, "main:refs/heads/other"]).is_err());
        server.decline("not today").unwrap();
        let declined = local.git(&["push", &url, "main:refs/heads/other"]).unwrap_err().to_string();
        assert!(declined.contains("remote: not today"), "{declined}");
    }
}
