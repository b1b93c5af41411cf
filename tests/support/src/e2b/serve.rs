//! Every request's way: seen, befallen by what was injected, answered.

use std::sync::{Arc, Mutex};

use axum::{body::Bytes, extract::Request, response::Response};
use serde::Serialize;

use super::{
    answers,
    control::{self, Asked},
    fault::{Call, Faults, What},
    fleet::Fleet,
    frames,
    proxy::{self, Target},
    wire::Wire,
};
use crate::serving::held;

/// What a request of the control plane may weigh.
const LARGEST: usize = 4 << 20;

/// A request, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestSeen {
    /// Its kind.
    pub call: Call,
    /// What it was answered with; nothing if it was not (yet).
    pub status: Option<u16>,
    /// Which machine it was about; a new one has no name yet.
    pub sandbox: Option<String>,
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) key: String,
    pub(super) fleet: Arc<Fleet>,
    pub(super) faults: Faults,
    pub(super) requests: Mutex<Vec<RequestSeen>>,
}

/// Where a request goes.
enum Way {
    Control(Asked),
    Machine(Target),
}

impl Served {
    /// Answers a request, if it is to be answered.
    pub(super) async fn answer(self: Arc<Self>, wire: Wire, request: Request) -> Response {
        let (way, call, sandbox) = match Target::of(request.headers()) {
            Some(target) => {
                let (call, id) = (Call::of_machine(request.method(), request.uri().path()), target.id.clone());
                (Way::Machine(target), call, Some(id))
            }
            None => {
                let asked = Asked::of(request.method(), request.uri().path(), request.uri().query());
                let (call, id) = (asked.call, asked.sandbox.clone());
                (Way::Control(asked), call, id)
            }
        };
        let number = self.see(call, sandbox.clone());
        let misfortune = self.faults.befall(call);
        tokio::time::sleep(misfortune.latency).await;
        let fault = misfortune.what;
        if let Some(early) = self.early(fault.as_ref(), sandbox.as_deref(), &wire).await {
            self.note(number, &early);
            return early;
        }
        let response = match way {
            Way::Machine(target) => proxy::answer(&self.fleet, &target, &wire, request).await,
            Way::Control(asked) => Arc::clone(&self).control(asked, request, fault.clone()).await,
        };
        match fault {
            Some(What::AnswerLost) => wire.reset_here().await,
            Some(What::StallAfter(_)) if !call.is_stream() && call != Call::FilesGet => std::future::pending().await,
            _ => {}
        }
        self.note(number, &response);
        match fault {
            Some(what) => frames::spoiled(response, call, &what, &wire),
            None => response,
        }
    }

    /// What is answered without doing anything.
    async fn early(&self, fault: Option<&What>, sandbox: Option<&str>, wire: &Wire) -> Option<Response> {
        match fault? {
            What::RateLimited { seconds } => Some(answers::rate_limited(*seconds)),
            What::Capacity => {
                let maximum = self.fleet.options.maximum_running.unwrap_or(20);
                Some(answers::error(429, &answers::no_capacity(maximum)))
            }
            What::Status(status) => Some(answers::error(*status, "Internal server error")),
            What::Page => Some(answers::page()),
            What::Reset => wire.reset_here().await,
            What::MachineLost => {
                self.fleet.lose(sandbox?);
                None
            }
            _ => None,
        }
    }

    async fn control(self: Arc<Self>, asked: Asked, request: Request, fault: Option<What>) -> Response {
        let given = request.headers().get("x-api-key").map(|value| value.as_bytes());
        let is_open = asked.call == Call::Other && request.uri().path() == "/health";
        if given != Some(self.key.as_bytes()) && !is_open {
            return answers::wrong_key();
        }
        let (head, body) = request.into_parts();
        let Ok(body) = axum::body::to_bytes(body, LARGEST).await else {
            return answers::error(400, "the request did not come whole");
        };
        // What has begun goes on though the client may be gone.
        let doing = Arc::clone(&self);
        let done = self.fleet.tasks.spawn(async move { doing.do_it(asked, &head.headers, &body, fault).await });
        done.await.unwrap_or_else(|error| answers::error(500, &error.to_string()))
    }

    async fn do_it(
        &self,
        asked: Asked,
        headers: &axum::http::HeaderMap,
        body: &Bytes,
        fault: Option<What>,
    ) -> Response {
        control::answer(&self.fleet, &asked, headers, body, fault.as_ref()).await
    }

    fn see(&self, call: Call, sandbox: Option<String>) -> usize {
        let mut requests = held(&self.requests);
        requests.push(RequestSeen { call, status: None, sandbox });
        requests.len() - 1
    }

    fn note(&self, number: usize, response: &Response) {
        if let Some(seen) = held(&self.requests).get_mut(number) {
            seen.status = Some(response.status().as_u16());
        }
    }
}
