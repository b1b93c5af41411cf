//! Errors as the Connect protocol tells them.

use axum::response::Response;
use serde_json::{Value, json};

/// Why something is not done: a code of the protocol's, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Refusal::new("invalid_argument", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Refusal::new("not_found", message)
    }

    /// What the operating system said, about this.
    pub(super) fn of(error: &std::io::Error, what: &str) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => "not_found",
            std::io::ErrorKind::AlreadyExists => "already_exists",
            std::io::ErrorKind::PermissionDenied => "permission_denied",
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::IsADirectory => "invalid_argument",
            _ => "internal",
        };
        Refusal::new(code, format!("{what}: {error}"))
    }

    pub(super) fn value(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }

    /// As the answer to a single request.
    pub(super) fn unary(&self) -> Response {
        super::super::answers::json(self.status(), &self.value())
    }

    /// The protocol's own table.
    fn status(&self) -> u16 {
        match self.code {
            "invalid_argument" | "failed_precondition" | "out_of_range" => 400,
            "unauthenticated" => 401,
            "permission_denied" => 403,
            "not_found" => 404,
            "already_exists" | "aborted" => 409,
            "resource_exhausted" => 429,
            "unimplemented" => 501,
            "unavailable" => 503,
            "deadline_exceeded" => 504,
            _ => 500,
        }
    }
}
