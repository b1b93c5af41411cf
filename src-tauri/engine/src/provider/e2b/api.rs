//! The control plane: machines are made, listed, paused, woken and ended.
//!
//! Every call is repeated where that does no harm: it changes nothing, or asking twice is asking once. A machine is made
//! under a key of our own (`Idempotency-Key`), so that one whose answer was lost is found and not made again.

use std::{collections::HashMap, time::Duration};

use reqwest::{Client, Method, RequestBuilder, Response};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{account::Account, error::Failure};
use crate::net;

/// How long one answer may take. A machine is there within seconds; resuming a large one takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest answer that is read.
const LONGEST: usize = 16 << 20;
/// How often what may be repeated is tried.
const TRIES: u32 = 5;
/// The first wait; each next one is twice as long, and by chance up to twice that.
const FIRST: Duration = Duration::from_millis(200);
/// The longest wait that somebody may ask of us.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How many machines one page of a list holds, at most.
const PAGE: u32 = 100;

/// Which sandbox a machine belongs to.
pub(super) const SANDBOX: &str = "courier-sandbox";
/// Which installation made it.
pub(super) const INSTALLATION: &str = "courier-installation";

/// What is asked of a new machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewMachine {
    #[serde(rename = "templateID")]
    pub template: String,
    /// Seconds.
    pub timeout: u64,
    pub auto_pause: bool,
    pub auto_resume: AutoResume,
    pub secure: bool,
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    pub metadata: HashMap<String, String>,
}

/// Whether mere traffic wakes a paused machine.
#[derive(Debug, Serialize)]
pub(super) struct AutoResume {
    pub enabled: bool,
}

/// What may be reached from inside.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Network {
    pub allow_out: Vec<String>,
    pub deny_out: Vec<String>,
}

/// How to reach a machine that was made or woken.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reachable {
    #[serde(rename = "sandboxID")]
    pub id: String,
    pub envd_access_token: Option<String>,
    pub domain: Option<String>,
}

/// A machine as it is listed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    #[serde(rename = "sandboxID")]
    pub id: String,
    #[serde(rename = "templateID", default)]
    pub template: String,
    pub alias: Option<String>,
    #[serde(default)]
    pub started_at: String,
    pub state: State,
    #[serde(default)]
    pub metadata: HashMap<String, String>,
    pub envd_access_token: Option<String>,
    pub domain: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Running,
    Paused,
    #[serde(other)]
    Other,
}

/// What a machine uses.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Used {
    pub cpu_count: u32,
    pub cpu_used_pct: f64,
    pub mem_used: u64,
    pub mem_total: u64,
    pub disk_used: u64,
    pub disk_total: u64,
}

/// The control plane of an account.
#[derive(Clone, Debug)]
pub(super) struct Api {
    client: Client,
    account: Account,
}

impl Api {
    pub(super) fn new(client: Client, account: Account) -> Self {
        Self { client, account }
    }

    /// Makes a machine, or finds the one that was made under this key.
    pub(super) async fn create(&self, new: &NewMachine, key: &str) -> Result<Reachable, Failure> {
        let request = || {
            Ok(self.request(Method::POST, "/v2/sandboxes").header("Idempotency-Key", key)).and_then(|r| json(r, new))
        };
        self.answer(request).await
    }

    pub(super) async fn get(&self, id: &str) -> Result<Listed, Failure> {
        self.answer(|| Ok(self.request(Method::GET, &format!("/sandboxes/{id}")))).await
    }

    /// Every machine of the account, in both states, that bears all of this.
    pub(super) async fn list(&self, bearing: &[(&str, &str)]) -> Result<Vec<Listed>, Failure> {
        let metadata: Vec<String> =
            bearing.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let metadata = metadata.join("&");
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let page = || {
                let mut query = vec![("state", "running,paused".to_owned()), ("limit", PAGE.to_string())];
                if !metadata.is_empty() {
                    query.push(("metadata", metadata.clone()));
                }
                query.extend(next.clone().map(|token| ("nextToken", token)));
                let query: Vec<String> =
                    query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
                self.request(Method::GET, &format!("/v2/sandboxes?{}", query.join("&")))
            };
            let page = &page;
            let (listed, token): (Vec<Listed>, _) = again(move || async move {
                let response = sent(page()).await?;
                let token = response.headers().get("x-next-token").and_then(|token| token.to_str().ok());
                let token = token.map(str::to_owned);
                Ok((parsed(response).await?, token))
            })
            .await?;
            let is_empty = listed.is_empty();
            found.extend(listed);
            match token.filter(|token| !token.is_empty() && !is_empty && next.as_ref() != Some(token)) {
                Some(token) => next = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Ends a machine; one that is not there has ended.
    pub(super) async fn delete(&self, id: &str) -> Result<(), Failure> {
        match self.done(|| Ok(self.request(Method::DELETE, &format!("/sandboxes/{id}")))).await {
            Err(Failure::NotFound) => Ok(()),
            other => other,
        }
    }

    /// Not repeated: one that failed may have happened, and only looking tells.
    pub(super) async fn pause(&self, id: &str) -> Result<(), Failure> {
        let request = json(self.request(Method::POST, &format!("/sandboxes/{id}/pause")), &serde_json::json!({}))?;
        sent(request).await.map(drop)
    }

    /// Wakes a machine, or finds it awake; either way its clock begins anew.
    pub(super) async fn connect(&self, id: &str, seconds: u64) -> Result<Reachable, Failure> {
        let path = format!("/v2/sandboxes/{id}/connect");
        self.answer(|| json(self.request(Method::POST, &path), &serde_json::json!({ "timeout": seconds }))).await
    }

    /// Sets how long it runs from now on.
    pub(super) async fn set_timeout(&self, id: &str, seconds: u64) -> Result<(), Failure> {
        let path = format!("/sandboxes/{id}/timeout");
        self.done(|| json(self.request(Method::POST, &path), &serde_json::json!({ "timeout": seconds }))).await
    }

    /// What it used last.
    pub(super) async fn used(&self, id: &str) -> Result<Option<Used>, Failure> {
        let found: Vec<Used> =
            self.answer(|| Ok(self.request(Method::GET, &format!("/sandboxes/{id}/metrics")))).await?;
        Ok(found.into_iter().next_back())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let address = format!("{}{path}", self.account.api());
        self.client.request(method, address).timeout(LIMIT).header("X-API-Key", self.account.key.expose())
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        request: impl Fn() -> Result<RequestBuilder, Failure> + Sync,
    ) -> Result<T, Failure> {
        let request = &request;
        again(move || async move { parsed(sent(request()?).await?).await }).await
    }

    async fn done(&self, request: impl Fn() -> Result<RequestBuilder, Failure> + Sync) -> Result<(), Failure> {
        let request = &request;
        again(move || async move { sent(request()?).await.map(drop) }).await
    }
}

/// Tries something again that may be tried again, each time after a longer wait.
pub(super) async fn again<T, F: Future<Output = Result<T, Failure>>>(attempt: impl Fn() -> F) -> Result<T, Failure> {
    let mut wait = FIRST;
    for _ in 1..TRIES {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(failure) => {
                let Some(least) = failure.again() else { return Err(failure) };
                tracing::debug!(?failure, "asking again");
                tokio::time::sleep(least.min(LONGEST_WAIT) + by_chance(wait)).await;
                wait *= 2;
            }
        }
    }
    attempt().await
}

/// Between once and twice this long, so that many who failed together do not come back together.
fn by_chance(wait: Duration) -> Duration {
    wait + wait * u32::from(Uuid::new_v4().as_bytes()[0]) / 256
}

fn json(request: RequestBuilder, body: &impl Serialize) -> Result<RequestBuilder, Failure> {
    let body = serde_json::to_vec(body).map_err(|error| Failure::Unknown(error.to_string()))?;
    Ok(request.header("Content-Type", "application/json").body(body))
}

/// An answer that is a success.
pub(super) async fn sent(request: RequestBuilder) -> Result<Response, Failure> {
    let response = request.send().await.map_err(|error| Failure::of(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = response.headers().get("retry-after").and_then(|text| text.to_str().ok()).map(str::to_owned);
    let (body, _) = net::body(response, LONGEST).await.unwrap_or_default();
    Err(Failure::answered(status.as_u16(), retry_after.as_deref(), &body))
}

async fn parsed<T: DeserializeOwned>(response: Response) -> Result<T, Failure> {
    let (body, is_all) = net::body(response, LONGEST).await.map_err(|error| Failure::of(&error))?;
    if !is_all {
        return Err(Failure::Unknown("its answer is too long".to_owned()));
    }
    serde_json::from_slice(&body).map_err(|_| Failure::Unknown("its answer is not what was asked for".to_owned()))
}

/// As a part of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
