//! The control plane: what is done to a machine by name.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, Method},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    answers, create,
    fault::{Call, PauseFailure, What},
    fleet::{Fleet, NotMade},
    list, metrics,
    vm::{NotPaused, State, Vm, template_id},
};

/// The longest that `refreshes` adds, in seconds.
const REFRESH: u64 = 3600;

/// A request of the control plane.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: Call,
    /// The machine's id, in what is about one.
    pub(super) sandbox: Option<String>,
    is_v2: bool,
    /// What distinguishes requests of the same call.
    verb: String,
    query: String,
}

impl Asked {
    pub(super) fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        let (is_v2, path) = path.strip_prefix("/v2/").map_or((false, path), |rest| (true, rest));
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (call, sandbox, verb) = match (method.as_str(), &segments[..]) {
            ("POST", ["sandboxes"]) => (Call::Create, None, ""),
            ("GET", ["sandboxes"]) => (Call::List, None, ""),
            ("GET", ["sandboxes", "metrics"]) => (Call::Metrics, None, ""),
            ("GET", ["sandboxes", id]) => (Call::Get, Some(*id), ""),
            ("DELETE", ["sandboxes", id]) => (Call::Delete, Some(*id), ""),
            ("GET", ["sandboxes", id, "metrics"]) => (Call::Metrics, Some(*id), ""),
            ("POST", ["sandboxes", id, verb]) => {
                let call = match *verb {
                    "pause" => Call::Pause,
                    "connect" | "resume" => Call::Connect,
                    "timeout" | "refreshes" => Call::SetTimeout,
                    _ => Call::Other,
                };
                (call, Some(*id), *verb)
            }
            (_, [first, ..]) => (Call::Other, None, *first),
            _ => (Call::Other, None, ""),
        };
        let query = query.unwrap_or_default().to_owned();
        Asked { call, sandbox: sandbox.map(str::to_owned), is_v2, verb: verb.to_owned(), query }
    }
}

/// Does what is asked; a pause may be befallen by a fault of its own.
pub(super) async fn answer(
    fleet: &Arc<Fleet>,
    asked: &Asked,
    headers: &HeaderMap,
    body: &Bytes,
    fault: Option<&What>,
) -> Response {
    let text: &[u8] = if body.is_empty() { b"{}" } else { body };
    let Ok(body) = serde_json::from_slice::<Value>(text) else {
        return answers::error(400, "Error when parsing request");
    };
    let id = match (asked.call, &asked.sandbox) {
        (Call::Create, _) => return create::answer(fleet, headers, body).await,
        (Call::List, _) => return list::answer(fleet, &asked.query, asked.is_v2),
        (Call::Metrics, None) => return all_metrics(fleet, &asked.query),
        (_, None) => return aside(fleet, &asked.verb),
        (_, Some(id)) => id,
    };
    let Some(vm) = fleet.get(id) else { return answers::no_such_sandbox(id) };
    match asked.call {
        Call::Get => answers::json(200, &vm.detail(&fleet.options)),
        Call::Delete => match fleet.kill(&vm).await {
            true => answers::no_content(),
            false => answers::no_such_sandbox(id),
        },
        Call::Pause => pause(fleet, &vm, fault).await,
        Call::Connect => connect(fleet, asked, &vm, &body).await,
        Call::SetTimeout => set_timeout(fleet, asked, &vm, &body),
        Call::Metrics if vm.state() == State::Paused => answers::json(200, &json!([])),
        Call::Metrics => answers::json(200, &json!([metrics::sample(&vm, &fleet.options)])),
        _ => answers::error(404, "no such path"),
    }
}

async fn pause(fleet: &Arc<Fleet>, vm: &Arc<Vm>, fault: Option<&What>) -> Response {
    let failed = || answers::error(500, "Error pausing sandbox");
    match fault {
        Some(What::PauseFails(PauseFailure::StillRunning)) => return failed(),
        Some(What::PauseFails(PauseFailure::Lost)) => {
            fleet.lose(&vm.id);
            return failed();
        }
        _ => {}
    }
    if vm.state() == State::Pausing {
        return answers::transitioning(&vm.id);
    }
    match fleet.pause(vm).await {
        Ok(()) if fault == Some(&What::PauseFails(PauseFailure::Paused)) => failed(),
        Ok(()) => answers::no_content(),
        Err(NotPaused::Already) => answers::already_paused(&vm.id),
        Err(NotPaused::Gone) => answers::no_such_sandbox(&vm.id),
        Err(NotPaused::Failed) => failed(),
    }
}

/// The seconds of a field.
fn seconds(body: &Value, field: &str) -> Option<u64> {
    body[field].as_u64()
}

async fn connect(fleet: &Arc<Fleet>, asked: &Asked, vm: &Arc<Vm>, body: &Value) -> Response {
    let is_resume = asked.verb == "resume";
    let timeout = match seconds(body, "timeout") {
        None if !asked.is_v2 && !is_resume => return answers::error(400, "timeout is required"),
        seconds => Duration::from_secs(seconds.unwrap_or(create::TIMEOUT)),
    };
    if let Some(hours) = fleet.options.maximum_hours.filter(|hours| timeout > Duration::from_secs(hours * 3600)) {
        return answers::error(400, &answers::timeout_too_long(hours));
    }
    let resumed = fleet.resume(vm, timeout).await;
    if vm.is_gone() {
        return answers::no_such_sandbox(&vm.id);
    }
    match resumed {
        Ok(true) => answers::json(201, &vm.sandbox()),
        Ok(false) if is_resume => answers::error(409, &format!("Sandbox {} is already running", vm.id)),
        Ok(false) => {
            // Who connects gives it time, and never takes any.
            vm.set_timeout(timeout, fleet.maximum(), true);
            answers::json(200, &vm.sandbox())
        }
        Err(NotMade::NoCapacity(maximum)) => answers::error(429, &answers::no_capacity(maximum)),
        Err(NotMade::Failed(error)) => answers::error(500, &format!("{error:#}")),
    }
}

fn set_timeout(fleet: &Fleet, asked: &Asked, vm: &Vm, body: &Value) -> Response {
    if vm.state() == State::Paused {
        return answers::no_such_sandbox(&vm.id);
    }
    let is_refresh = asked.verb == "refreshes";
    let seconds = match is_refresh {
        true => Some(seconds(body, "duration").unwrap_or(create::TIMEOUT).min(REFRESH)),
        false => seconds(body, "timeout"),
    };
    let Some(seconds) = seconds else { return answers::error(400, "timeout is required") };
    vm.set_timeout(Duration::from_secs(seconds), fleet.maximum(), is_refresh);
    answers::no_content()
}

fn all_metrics(fleet: &Fleet, query: &str) -> Response {
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "sandbox_ids");
    let ids = asked.map(|(_, ids)| ids.into_owned()).unwrap_or_default();
    let found = ids.split(',').filter_map(|id| fleet.get(id)).filter(|vm| vm.state() == State::Running);
    let samples: serde_json::Map<_, _> =
        found.map(|vm| (vm.id.clone(), metrics::sample(&vm, &fleet.options))).collect();
    answers::json(200, &json!({ "sandboxes": samples }))
}

/// What is asked beside machines.
fn aside(fleet: &Fleet, verb: &str) -> Response {
    match verb {
        "health" => answers::no_content(),
        "templates" => {
            let told = |name: &String| {
                json!({
                    "templateID": template_id(name),
                    "buildID": "00000000-0000-0000-0000-000000000000",
                    "aliases": [name],
                    "names": [name],
                    "public": false,
                    "buildStatus": "ready",
                    "cpuCount": fleet.options.cpu_count,
                    "memoryMB": fleet.options.memory_megabytes,
                    "diskSizeMB": fleet.options.disk_megabytes,
                })
            };
            answers::json(200, &fleet.options.templates.keys().map(told).collect())
        }
        _ => answers::error(404, "no such path"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_name_the_same_calls() {
        let asked = Asked::of(&Method::POST, "/v2/sandboxes/i1/connect", None);
        assert_eq!((asked.call, asked.sandbox.as_deref(), asked.is_v2), (Call::Connect, Some("i1"), true));
        let asked = Asked::of(&Method::POST, "/sandboxes/i1/refreshes", None);
        assert_eq!((asked.call, asked.is_v2), (Call::SetTimeout, false));
        assert_eq!(Asked::of(&Method::GET, "/sandboxes/metrics", None).sandbox, None);
    }
}
