//! Results, for people or as JSON.

use std::io::{self, Write};

use courier_engine::{
    engine::{Check, CheckState},
    model::{Ending, Status},
    store::{ProjectRow, SandboxRow},
};
use serde_json::{Value, json};

/// How to print.
pub(crate) struct Output {
    pub(crate) is_json: bool,
}

impl Output {
    pub(crate) fn line(&self, text: &str, value: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.is_json { writeln!(out, "{value}") } else { writeln!(out, "{text}") }
    }

    pub(crate) fn project(&self, project: &ProjectRow) -> io::Result<()> {
        let text =
            format!("{}  {:<24}  {} active  {}", project.id, project.name, project.active_sandboxes, project.source);
        self.line(
            &text,
            &json!({
                "id": project.id, "name": project.name, "source": project.source,
                "default_branch": project.default_branch, "active_sandboxes": project.active_sandboxes,
                "sandboxes": project.sandboxes, "created_at": project.created_at,
            }),
        )
    }

    pub(crate) fn sandbox(&self, sandbox: &SandboxRow) -> io::Result<()> {
        let what = match (&sandbox.error, &sandbox.step) {
            (Some(error), _) => format!("{}. {}", error.message, error.remedy),
            (None, Some(step)) => step.clone(),
            (None, None) => sandbox.headline.clone(),
        };
        let state = sandbox.lifecycle.words();
        self.line(&format!("{}  {state:<22}  {}  ({what})", sandbox.id, sandbox.title), &value(sandbox))
    }

    pub(crate) fn check(&self, check: &Check) -> io::Result<()> {
        let sign = match check.state {
            CheckState::Ok => "ok",
            CheckState::Warning => "warning",
            CheckState::Failed => "failed",
            CheckState::NotFound => "-",
        };
        let remedy = check.remedy.as_ref().map_or(String::new(), |remedy| format!("\n          {remedy}"));
        self.line(
            &format!("{sign:<8}  {}: {}{remedy}", check.name, check.found),
            &json!({
                "id": check.id, "name": check.name, "state": sign, "found": check.found,
                "looked_for": check.looked_for, "remedy": check.remedy,
            }),
        )
    }
}

/// A sandbox as JSON.
pub(crate) fn value(sandbox: &SandboxRow) -> Value {
    let reason = match (sandbox.lifecycle.status, sandbox.lifecycle.ending) {
        (Status::Killed, Some(Ending::Killed(reason))) => Some(reason.code()),
        _ => None,
    };
    json!({
        "id": sandbox.id, "project": sandbox.project, "title": sandbox.title,
        "status": sandbox.lifecycle.status, "activity": sandbox.lifecycle.activity, "reason": reason,
        "error": sandbox.error.as_ref().map(|error| json!({
            "kind": error.kind, "message": error.message, "remedy": error.remedy,
        })),
        "step": sandbox.step, "headline": sandbox.headline, "provider": sandbox.provider, "agent": sandbox.agent,
        "model": sandbox.model, "branch": sandbox.branch, "base_branch": sandbox.base_branch,
        "billed_to": sandbox.billed_to, "is_key_inside": sandbox.is_key_inside,
        "is_working": sandbox.is_working, "queued": sandbox.queued, "created_at": sandbox.created_at,
        "started_at": sandbox.started_at, "ended_at": sandbox.ended_at, "expires_at": sandbox.expires_at,
        "deleted_at": sandbox.deleted_at,
    })
}
