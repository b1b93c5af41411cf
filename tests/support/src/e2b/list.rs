//! `GET /sandboxes`: filtered, in order, page by page.

use std::{borrow::Cow, collections::BTreeMap};

use axum::{http::HeaderValue, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{answers, clock, fleet::Fleet, vm::State};
use crate::serving::held;

/// A page's length where none is asked for, and the longest.
const PAGE: usize = 100;

/// What is listed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    metadata: BTreeMap<String, String>,
    running: bool,
    paused: bool,
    limit: usize,
    /// After this one: its start and its id.
    after: Option<String>,
    is_ascending: bool,
    template: Option<String>,
}

pub(super) fn answer(fleet: &Fleet, query: &str, is_v2: bool) -> Response {
    let asked = match asked(query, is_v2) {
        Ok(asked) => asked,
        Err(message) => return answers::error(400, &message),
    };
    let mut all: Vec<_> = fleet
        .all()
        .into_iter()
        .map(|vm| {
            let started = held(&vm.standing).started;
            (format!("{}__{}", clock::text(started), vm.id), vm)
        })
        .collect();
    let running = all.iter().filter(|(_, vm)| vm.state() != State::Paused).count();
    all.sort_by(|(one, _), (other, _)| if asked.is_ascending { one.cmp(other) } else { other.cmp(one) });
    let is_after = |place: &str| match asked.after.as_deref() {
        Some(last) if asked.is_ascending => place > last,
        Some(last) => place < last,
        None => true,
    };
    let mut found = all.into_iter().filter(|(place, vm)| {
        let is_state = if vm.state() == State::Paused { asked.paused } else { asked.running };
        let has = |(key, value)| vm.wish.metadata.get(key) == Some(value);
        let is_template = asked.template.as_ref().is_none_or(|template| *template == vm.wish.template);
        is_state && is_template && asked.metadata.iter().all(has) && is_after(place)
    });
    let page: Vec<_> = found.by_ref().take(asked.limit).collect();
    let values: Vec<Value> = page.iter().map(|(_, vm)| vm.listed(&fleet.options)).collect();
    let mut response = answers::json(200, &json!(values));
    response.headers_mut().insert("x-total-running", HeaderValue::from(running));
    if let Some((last, _)) = page.last()
        && found.next().is_some()
        && let Ok(token) = HeaderValue::from_str(&STANDARD.encode(last))
    {
        response.headers_mut().insert("x-next-token", token);
    }
    response
}

fn asked(query: &str, is_v2: bool) -> Result<Asked, String> {
    // The first version lists what runs, all of it.
    let mut asked =
        Asked { running: true, paused: is_v2, limit: if is_v2 { PAGE } else { usize::MAX }, ..Asked::default() };
    let mut states: Option<Vec<String>> = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "metadata" => asked.metadata = metadata(&value),
            "state" => states.get_or_insert_default().extend(value.split(',').map(str::to_owned)),
            "limit" if is_v2 => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                asked.limit = limit.ok_or_else(|| format!("Invalid limit: {value}"))?;
            }
            "nextToken" if is_v2 && !value.is_empty() => {
                let token = STANDARD.decode(&*value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                asked.after = Some(token.ok_or("Invalid next token")?);
            }
            "order" => asked.is_ascending = value == "asc",
            "template" => asked.template = Some(value.into_owned()),
            _ => {}
        }
    }
    if let Some(states) = states.filter(|_| is_v2) {
        if let Some(unknown) = states.iter().find(|state| !["running", "paused"].contains(&state.as_str())) {
            return Err(format!("Invalid state: {unknown}"));
        }
        let has = |name: &str| states.iter().any(|state| state == name);
        (asked.running, asked.paused) = (has("running"), has("paused"));
    }
    Ok(asked)
}

/// The query has taken off one encoding; the whole has another, and each key and value a third.
fn metadata(value: &str) -> BTreeMap<String, String> {
    let spaces = value.replace('+', " ");
    let whole: Cow<str> = percent_encoding::percent_decode_str(&spaces).decode_utf8_lossy();
    form_urlencoded::parse(whole.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_three_times() {
        let asked = asked("metadata=odd%252520key%3Da%252520b%252526c&state=running&limit=1", true).unwrap();
        assert_eq!(asked.metadata, BTreeMap::from([("odd key".to_owned(), "a b&c".to_owned())]));
        assert!(asked.running && !asked.paused && asked.limit == 1);
    }

    #[test]
    fn limits_have_limits() {
        assert!(asked("limit=0", true).is_err() && asked("limit=101", true).is_err());
        assert_eq!(asked("limit=7", false).unwrap().limit, usize::MAX, "the first version has no pages");
    }
}
