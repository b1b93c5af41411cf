//! A look at an address over HTTP before git pushes there.

use reqwest::{Client, StatusCode, Url, header};

use super::{Error, Reason};
use crate::{
    net::{self, Trouble},
    secrets::Secret,
};

/// How much of a refusal's words is kept, in bytes.
pub(super) const SAID: usize = 2_000;

/// The user name that goes with a token.
pub(in crate::work) const USER: &str = "x-access-token";

/// Asks as git does: first without a token, and with it once the remote has asked for one.
///
/// # Errors
/// What the answer means. A failure of TLS is left to git, which may trust others than we do.
pub(super) async fn look(url: &Url, token: Option<&Secret>) -> Result<(), Error> {
    let failed = |error: &reqwest::Error| {
        let reason = match net::trouble(error) {
            Trouble::Unreachable => Reason::Unreachable,
            Trouble::TimedOut => Reason::TimedOut,
            Trouble::Tls => Reason::Tls,
        };
        Error::new(reason, net::plain(&net::told(error), token, SAID))
    };
    let client =
        net::client("git/2.0 (CodeCourier)", url).map_err(|error| Error::new(Reason::Failed, error.to_string()))?;
    let answer = match ask(&client, url, None).await {
        Ok(answer) => answer,
        Err(error) if net::trouble(&error) == Trouble::Tls => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    let (answer, has_token) = match token {
        Some(secret) if answer.status() == StatusCode::UNAUTHORIZED => {
            (ask(&client, url, Some(secret)).await.map_err(|error| failed(&error))?, true)
        }
        _ => (answer, false),
    };
    judge(answer, token.filter(|_| has_token)).await
}

async fn ask(client: &Client, url: &Url, token: Option<&Secret>) -> Result<reqwest::Response, reqwest::Error> {
    let base = url.as_str().trim_end_matches('/');
    let request = client.get(format!("{base}/info/refs?service=git-receive-pack")).header(header::ACCEPT, "*/*");
    match token {
        Some(secret) => request.basic_auth(USER, Some(secret.expose())).send().await,
        None => request.send().await,
    }
}

async fn judge(answer: reqwest::Response, token: Option<&Secret>) -> Result<(), Error> {
    let status = answer.status();
    let text = |name: header::HeaderName| {
        let value = answer.headers().get(name)?.to_str().ok()?;
        Some(net::plain(value, token, SAID))
    };
    if status.is_redirection() {
        return Err(Error::new(
            Reason::Moved,
            text(header::LOCATION).map_or_else(String::new, |to| format!("to {to}")),
        ));
    }
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    if status == StatusCode::OK {
        let is_git = kind == "application/x-git-receive-pack-advertisement";
        return if is_git { Ok(()) } else { Err(Error::new(Reason::NotGit, format!("it answers with {kind:?}"))) };
    }
    let said = if kind.starts_with("text/plain") {
        let (bytes, _) = net::body(answer, SAID).await.unwrap_or_default();
        net::plain(&String::from_utf8_lossy(&bytes), token, SAID)
    } else {
        String::new()
    };
    let reason = Reason::of_words(&said).unwrap_or_else(|| Reason::of_status(status.as_u16(), token.is_some()));
    let said = if said.is_empty() { format!("status {status}") } else { format!("{said} (status {status})") };
    Err(Error::new(reason, said))
}
