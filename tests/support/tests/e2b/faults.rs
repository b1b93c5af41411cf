//! Each fault does what it says, and no more.

use std::time::{Duration, Instant};

use courier_test_support::e2b::{Call, E2bServer, Fault, Options, PauseFailure, What};
use serde_json::{Value, json};

use crate::client::{Client, End, PATIENCE, Sandbox};

fn server() -> (E2bServer, Client) {
    let server = E2bServer::start(Options::default()).expect("a server starts");
    let client = Client::of(&server);
    (server, client)
}

fn base() -> Value {
    json!({ "templateID": "base" })
}

#[tokio::test]
async fn what_is_refused_has_no_effect() {
    let (server, client) = server();
    let refusals = [
        (What::RateLimited { seconds: 7 }, 429, "Rate limit exceeded"),
        (What::Capacity, 429, "maximum number of concurrent E2B sandboxes"),
        (What::Status(500), 500, "Internal server error"),
        (What::Page, 503, "<html>"),
    ];
    for (what, status, words) in refusals {
        server.inject(Fault::next(Call::Create, what.clone()));
        let answer = client.control("POST", "/v2/sandboxes", base()).await.unwrap();
        assert_eq!(answer.status, status, "{what:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains(words), "{what:?}");
        let is_told_when = answer.headers.get("retry-after").is_some_and(|seconds| seconds == "7");
        assert_eq!(is_told_when, matches!(what, What::RateLimited { .. }), "only a rate limit says when to ask again");
    }
    server.inject(Fault::next(Call::Create, What::Reset));
    assert!(client.control("POST", "/v2/sandboxes", base()).await.is_err());
    assert_eq!(server.created(), 0);
    let statuses: Vec<_> = server.requests().into_iter().map(|request| request.status).collect();
    assert_eq!(statuses, [Some(429), Some(429), Some(500), Some(503), None]);
    assert_eq!(client.control("POST", "/v2/sandboxes", base()).await.unwrap().status, 201, "they were for one each");
}

#[tokio::test]
async fn a_lost_answer_has_its_effect_and_the_key_finds_it() {
    let (server, client) = server();
    server.inject(Fault::next(Call::Create, What::AnswerLost));
    let key = [("idempotency-key", "a-key-1")];
    assert!(client.control_with("POST", "/v2/sandboxes", &key, base()).await.is_err(), "the connection was reset");
    assert_eq!(server.created(), 1);
    let again = client.control_with("POST", "/v2/sandboxes", &key, base()).await.unwrap();
    assert_eq!((again.status, server.created()), (201, 1), "the same key gets the same machine");
    let sandbox = Sandbox::of(&again.json());
    assert_eq!(sandbox.id, server.machines()[0].id);
    server.inject(Fault::next(Call::Start, What::AnswerLost));
    assert!(client.run(&sandbox, "echo done > effect; sleep 50").await.is_err());
    let listed = client.call(&sandbox, "/process.Process/List", json!({})).await.unwrap().json();
    assert_eq!(listed["processes"].as_array().unwrap().len(), 1, "it runs: {listed}");
}

#[tokio::test]
async fn streams_break_where_they_are_told_to() {
    let (server, client) = server();
    let sandbox = client.create().await;
    let run = async |what: What| {
        server.inject(Fault::next(Call::Start, what));
        client.run(&sandbox, "echo one; sleep 0.1; echo two").await.unwrap()
    };
    let whole = client.run(&sandbox, "echo one; sleep 0.1; echo two").await.unwrap();
    let (frames, rest) = whole.frames();
    assert_eq!((frames.len(), rest, whole.end), (5, 0, End::Whole), "start, two pieces, end, end of stream");
    assert_eq!(frames.last().unwrap(), &(2, json!({})));

    let broken = run(What::ResetAfter(50)).await;
    assert_eq!((broken.body.len(), broken.end), (50, End::Broken));
    assert_eq!(broken.body[..5], whole.body[..5], "what came is what was said");

    let truncated = run(What::TruncatedAfter(1)).await;
    let (frames, rest) = truncated.frames();
    assert_eq!((frames.len(), truncated.end), (1, End::Whole), "the stream pretends to be whole");
    assert!(rest > 0, "and half a frame is left");

    let ended = run(What::EndsAfter(2)).await;
    assert_eq!((ended.frames().0.len(), ended.frames().1, ended.end), (2, 0, End::Whole));
    assert_eq!(ended.printed(), "one\n");

    let unended = run(What::NoEndFrame).await;
    assert_eq!((unended.frames().0.len(), unended.end), (4, End::Whole), "all but the last");
    assert_eq!(unended.printed(), "one\ntwo\n");

    let stalled = run(What::StallAfter(2)).await;
    assert_eq!((stalled.frames().0.len(), stalled.end), (2, End::Silent), "the connection is open and nothing comes");
}

#[tokio::test]
async fn a_stall_of_a_single_call_has_its_effect() {
    let (server, client) = server();
    let sandbox = client.create().await;
    server.inject(Fault::next(Call::MakeDir, What::StallAfter(0)));
    let kind = [("content-type", "application/json")];
    let body = json!({ "path": "/home/user/made" }).to_string();
    let path = "/filesystem.Filesystem/MakeDir";
    let answer = client.within(&sandbox, "POST", path, &kind, body, Duration::from_millis(500)).await.unwrap();
    assert!(answer.is_none());
    assert!(server.machines()[0].folder.join("home/user/made").is_dir());
    server.inject(Fault::next(Call::FilesGet, What::StallAfter(3)));
    std::fs::write(server.machines()[0].folder.join("home/user/file"), "abcdef").unwrap();
    let file = client.within(&sandbox, "GET", "/files?path=file", &[], "", Duration::from_millis(500)).await.unwrap();
    let file = file.unwrap();
    assert_eq!((&file.body[..], file.end), (&b"abc"[..], End::Silent));
}

#[tokio::test]
async fn latency_befalls_the_nth_request_of_its_kind() {
    let (server, client) = server();
    let sandbox = client.create().await;
    let late = Duration::from_millis(300);
    server.inject(Fault::nth(Call::Get, 2, What::Latency(late)));
    let asked = async || {
        let begun = Instant::now();
        client.state(&sandbox).await.unwrap();
        begun.elapsed() >= late
    };
    assert_eq!([asked().await, asked().await, asked().await], [false, true, false]);
    server.inject(Fault::every(Call::Get, What::Status(502)));
    assert_eq!(client.state(&sandbox).await, None);
    assert_eq!(client.state(&sandbox).await, None);
    server.clear_faults();
    assert!(client.state(&sandbox).await.is_some());
}

#[tokio::test]
async fn a_pause_fails_in_three_ways() {
    let (server, client) = server();
    let failures = [
        (PauseFailure::StillRunning, Some("running")),
        (PauseFailure::Paused, Some("paused")),
        (PauseFailure::Lost, None),
    ];
    for (failure, state) in failures {
        let sandbox = client.create().await;
        server.inject(Fault::next(Call::Pause, What::PauseFails(failure)));
        let path = format!("/sandboxes/{}/pause", sandbox.id);
        let answer = client.control("POST", &path, json!({})).await.unwrap();
        assert_eq!(answer.status, 500, "{failure:?}");
        assert_eq!(client.state(&sandbox).await.as_deref(), state, "{failure:?}");
    }
}

#[tokio::test]
async fn a_lost_machine_breaks_its_streams_and_is_unknown() {
    let (server, client) = server();
    let sandbox = client.create().await;
    let (following, losing) = tokio::join!(client.run(&sandbox, "while echo x; do sleep 0.05; done"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.lose(&sandbox.id);
        client.state(&sandbox).await
    });
    assert_eq!(following.unwrap().end, End::Broken);
    assert_eq!(losing, None);
    let answer = client.run(&sandbox, "true").await.unwrap();
    assert_eq!((answer.status, &answer.json()["message"]), (502, &json!("The sandbox was not found")));

    let other = client.create().await;
    server.inject(Fault::next(Call::ListProcesses, What::MachineLost));
    let answer = client.call(&other, "/process.Process/List", json!({})).await.unwrap();
    assert_eq!((answer.status, server.machines().len()), (502, 0));
}

#[tokio::test]
async fn an_upload_whose_answer_is_lost_is_there() {
    let (server, client) = server();
    let sandbox = client.create().await;
    server.inject(Fault::next(Call::FilesPost, What::AnswerLost));
    let kind = [("content-type", "application/octet-stream")];
    let sent = client.within(&sandbox, "POST", "/files?path=sent", &kind, "bytes", PATIENCE).await;
    assert!(sent.is_err());
    assert_eq!(std::fs::read(server.machines()[0].folder.join("home/user/sent")).unwrap(), b"bytes");
}
