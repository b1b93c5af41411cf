//! `POST /sandboxes`: what is asked is read, and the same key gets the same machine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{http::HeaderMap, response::Response};
use serde::Deserialize;
use serde_json::Value;

use super::{
    answers,
    fleet::{Fleet, NotMade, Promise},
    vm::{Wish, template_id},
};
use crate::serving::held;

/// What a machine has where none says how long, in seconds.
pub(super) const TIMEOUT: u64 = 300;

/// What is asked for. What is not here is taken and has no effect.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    #[serde(default)]
    auto_pause: bool,
    auto_resume: Option<AutoResume>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    enabled: bool,
}

/// Makes a machine, or gives the one that was made for this key.
pub(super) async fn answer(fleet: &Arc<Fleet>, headers: &HeaderMap, body: Value) -> Response {
    let Some(key) = headers.get("idempotency-key") else {
        let (status, value) = made(fleet, body).await;
        return answers::json(status, &value);
    };
    let Some(key) = key.to_str().ok().filter(|key| is_key(key)) else {
        return answers::error(400, "Idempotency-Key must be 1-255 characters of [a-z0-9-]");
    };
    let (asked, promise) = {
        let mut promises = held(&fleet.promises);
        promises.entry(key.to_owned()).or_insert_with(|| (body.clone(), Promise::default())).clone()
    };
    if asked != body {
        return answers::error(409, "Idempotency-Key was used for another request");
    }
    // Who asks while it is being made waits for it.
    let mut promised = promise.lock().await;
    if let Some((status, value)) = &*promised {
        return answers::json(*status, value);
    }
    let (status, value) = made(fleet, body).await;
    if status == 201 {
        *promised = Some((status, value.clone()));
    }
    answers::json(status, &value)
}

fn is_key(key: &str) -> bool {
    (1..=255).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

async fn made(fleet: &Arc<Fleet>, body: Value) -> (u16, Value) {
    let refused = |status: u16, message: &str| (status, serde_json::json!({ "code": status, "message": message }));
    let new: NewSandbox = match serde_json::from_value(body) {
        Ok(new) => new,
        Err(error) => return refused(400, &format!("Error when parsing request: {error}")),
    };
    let is_meant = |name: &&String| **name == new.template || template_id(name) == new.template;
    let Some(template) = fleet.options.templates.keys().find(is_meant).cloned() else {
        return refused(404, &format!("template '{}' not found", new.template));
    };
    let timeout = Duration::from_secs(new.timeout.unwrap_or(TIMEOUT));
    if let Some(hours) = fleet.options.maximum_hours.filter(|hours| timeout > Duration::from_secs(hours * 3600)) {
        return refused(400, &answers::timeout_too_long(hours));
    }
    let wish = Wish {
        template,
        metadata: new.metadata.unwrap_or_default(),
        auto_pause: new.auto_pause,
        auto_resume: new.auto_resume.is_some_and(|auto| auto.enabled),
        envs: new.env_vars.unwrap_or_default(),
    };
    match fleet.make(wish, timeout).await {
        Ok(vm) => (201, vm.sandbox()),
        Err(NotMade::NoCapacity(maximum)) => refused(429, &answers::no_capacity(maximum)),
        // What the service never says is said here: it is a test's own machine that does not work.
        Err(NotMade::Failed(error)) => refused(500, &format!("Failed to create sandbox: {error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_few_letters() {
        assert!(is_key("0199-abc"));
        assert!(!is_key("") && !is_key("Abc") && !is_key("a b") && !is_key(&"a".repeat(256)));
    }
}
