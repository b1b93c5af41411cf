//! What the service says, word for word.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

/// An answer in JSON.
pub(super) fn json(status: u16, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// An error of the control plane.
pub(super) fn error(status: u16, message: &str) -> Response {
    json(status, &json!({ "code": status, "message": message }))
}

pub(super) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

pub(super) fn wrong_key() -> Response {
    error(
        401,
        "Invalid API key, please visit https://e2b.dev/docs/api-key for more information.\n\
        Cannot get the team for the given API key",
    )
}

/// Killed, never there, or somebody else's: the service does not say which.
pub(super) fn no_such_sandbox(id: &str) -> Response {
    error(404, &format!("Sandbox \"{id}\" doesn't exist or you don't have access to it"))
}

pub(super) fn timeout_too_long(hours: u64) -> String {
    format!("Timeout cannot be greater than {hours} hours")
}

pub(super) fn already_paused(id: &str) -> Response {
    error(409, &format!("Error pausing sandbox - sandbox '{id}' is already paused"))
}

pub(super) fn transitioning(id: &str) -> Response {
    error(409, &format!("Sandbox '{id}' is still transitioning. Try again in a moment."))
}

/// As many run as the plan allows: there is no use in asking again soon.
pub(super) fn no_capacity(maximum: usize) -> String {
    format!(
        "you have reached the maximum number of concurrent E2B sandboxes ({maximum}). If you need more, \
        please contact us at 'https://e2b.dev/docs/support'"
    )
}

/// Asked too often: it says when to ask again.
pub(super) fn rate_limited(seconds: u64) -> Response {
    let mut response = error(429, "Rate limit exceeded");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// What a load balancer shows when there is nobody behind it.
pub(super) fn page() -> Response {
    let page = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n\
        <center><h1>503 Service Temporarily Unavailable</h1></center>\r\n</body>\r\n</html>\r\n";
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}

/// Where the way to a machine ends that was killed, or is paused.
pub(super) fn proxy_not_found(id: &str) -> Response {
    json(502, &json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 }))
}

pub(super) fn proxy_port_closed(id: &str, port: u16) -> Response {
    let message = "The sandbox is running but port is not open";
    json(502, &json!({ "sandboxId": id, "message": message, "port": port, "code": 502 }))
}

pub(super) fn proxy_transitioning(id: &str) -> Response {
    let message = "The sandbox is still transitioning. Try again in a moment.";
    json(409, &json!({ "sandboxId": id, "message": message, "code": 409 }))
}
