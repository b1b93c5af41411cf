//! What a machine is within: its users, its processes, its files.

use std::{os::unix::fs::MetadataExt, path::Path, time::Instant};

use axum::body::{Body, Bytes};
use base64::{Engine, engine::general_purpose::STANDARD};
use courier_test_support::e2b::{E2bServer, Options, Template};
use futures_util::stream;
use serde_json::json;

use crate::client::{Client, End, PATIENCE, Sandbox, shell};

async fn machine() -> (E2bServer, Client, Sandbox) {
    let server = E2bServer::start(Options::default()).expect("a server starts");
    let client = Client::of(&server);
    let sandbox = client.create().await;
    (server, client, sandbox)
}

#[tokio::test]
async fn root_and_the_ordinary_user_are_two() {
    let (server, client, sandbox) = machine().await;
    let of = async |user: &str, line: &str| {
        let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:")));
        let answer = client.stream(&sandbox, "Start", &[("authorization", &authorization)], shell(line)).await;
        answer.unwrap()
    };
    assert_eq!(of("user", "echo $HOME $USER; pwd; touch mine").await.printed(), "/home/user user\n/home/user\n");
    assert_eq!(of("root", "echo $HOME $USER; pwd").await.printed(), "/root root\n/root\n");
    let unknown = of("somebody", "true").await;
    assert_eq!(unknown.frames().0[0].1["error"]["code"], "unauthenticated");
    let folder = server.machines()[0].folder.clone();
    let owner = std::fs::metadata(folder.join("home/user/mine")).unwrap().uid();
    if std::fs::metadata(&folder).unwrap().uid() != 0 {
        return; // Whoever is not root is everybody within.
    }
    assert_eq!(owner, 1000);
    assert_eq!(of("user", "id -u; touch /opt/x || echo refused").await.printed().lines().next(), Some("1000"));
    assert_eq!(of("root", "id -u; touch /opt/x && touch /tmp/t").await.printed(), "0\n");
    assert!(of("user", "rm /opt/x || echo refused").await.printed().contains("refused"));
    assert!(of("user", "touch /usr/x || echo refused").await.printed().contains("refused"));
    assert_eq!(of("user", "ls -A /proc | grep -c '^[0-9]'").await.printed().trim().len(), 1, "it sees its own alone");
}

#[tokio::test]
async fn output_is_not_replayed_and_an_exit_is_remembered() {
    let (_server, client, sandbox) = machine().await;
    let mut start = shell("echo early; until test -e go; do sleep 0.05; done; echo late; exit 4");
    start["tag"] = json!("tagged");
    let begun = client.stream(&sandbox, "Start", &[], start).await.unwrap();
    assert_eq!((begun.printed().as_str(), begun.end), ("early\n", End::Silent));
    let selector = json!({ "process": { "tag": "tagged" } });
    let joined = client.stream(&sandbox, "Connect", &[], selector.clone()).await.unwrap();
    assert_eq!((joined.frames().0.len(), joined.end), (1, End::Silent), "the start, and nothing that was said before");
    client.run(&sandbox, "touch go").await.unwrap();
    let late = client.patient_stream(&sandbox, "Connect", &[], selector.clone(), PATIENCE).await.unwrap();
    assert_eq!((late.printed().replace("late\n", "").as_str(), late.end), ("", End::Whole));
    let after = client.stream(&sandbox, "Connect", &[], selector.clone()).await.unwrap();
    let (frames, _) = after.frames();
    assert_eq!(frames[1].1["event"]["end"]["exitCode"], 4, "{frames:?}");
    let listed = client.call(&sandbox, "/process.Process/List", json!({})).await.unwrap();
    assert_eq!(listed.json(), json!({ "processes": [] }));
    let unknown = client.stream(&sandbox, "Connect", &[], json!({ "process": { "pid": 77777 } })).await.unwrap();
    assert_eq!((unknown.status, &unknown.frames().0[0].1["error"]["code"]), (200, &json!("not_found")));
}

#[tokio::test]
async fn silence_is_broken_by_signs_of_life_and_by_the_deadline() {
    let (_server, client, sandbox) = machine().await;
    let headers = [("keepalive-ping-interval", "1"), ("connect-timeout-ms", "1500")];
    let answer = client.patient_stream(&sandbox, "Start", &headers, shell("exec sleep 30"), PATIENCE).await.unwrap();
    let (frames, _) = answer.frames();
    assert_eq!(frames[1].1, json!({ "event": { "keepalive": {} } }));
    assert_eq!(frames.last().unwrap().1["error"]["code"], "deadline_exceeded", "{frames:?}");
    let begun = Instant::now();
    while client.call(&sandbox, "/process.Process/List", json!({})).await.unwrap().json() != json!({ "processes": [] })
    {
        assert!(begun.elapsed() < PATIENCE, "it is killed too");
    }
}

#[tokio::test]
async fn large_files_come_and_go_piece_by_piece() {
    let (server, client, sandbox) = machine().await;
    let piece = Bytes::from((0..=255).collect::<Vec<u8>>().repeat(256));
    let pieces = 1024;
    let sent = Body::from_stream(stream::iter(vec![piece.clone(); pieces].into_iter().map(Ok::<_, std::io::Error>)));
    let kind = [("content-type", "application/octet-stream")];
    let answer = client.within(&sandbox, "POST", "/files?path=deep/large", &kind, sent, PATIENCE).await.unwrap();
    assert_eq!(answer.unwrap().json()[0]["path"], "/home/user/deep/large");
    let path = server.machines()[0].folder.join("home/user/deep/large");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    let range = [("range", "bytes=66060288-")];
    let read = client.within(&sandbox, "GET", "/files?path=deep/large", &range, "", PATIENCE).await.unwrap().unwrap();
    assert_eq!((read.status, read.body.len()), (206, 1 << 20));
    assert_eq!(read.headers["content-range"], "bytes 66060288-67108863/67108864");
    assert_eq!(read.body[..256], piece[..256]);
    let beyond = [("range", "bytes=67108864-")];
    let none = client.within(&sandbox, "GET", "/files?path=deep/large", &beyond, "", PATIENCE).await.unwrap().unwrap();
    assert_eq!(none.status, 416, "who has read all is told so");
    let stranger = Sandbox { token: "another".to_owned(), ..sandbox };
    let refused = client.within(&stranger, "GET", "/files?path=deep/large", &[], "", PATIENCE).await.unwrap().unwrap();
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn a_template_brings_programs_and_folders() {
    let shown = tempfile::tempdir().unwrap();
    let program = shown.path().join("bin/real-name");
    std::fs::create_dir(shown.path().join("bin")).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho I am $0\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(shown.path(), readable).unwrap();
    let template = Template {
        programs: vec![("agent".to_owned(), program.clone()), ("shell".to_owned(), "/bin/bash".into())],
        read_only: vec![shown.path().to_owned()],
    };
    let options = Options { templates: [("agents".to_owned(), template)].into(), ..Options::default() };
    let server = E2bServer::start(options).unwrap();
    let client = Client::of(&server);
    let sandbox = client.create_with(json!({ "templateID": "agents", "envVars": { "A": "b" } })).await;
    let answer = client.run(&sandbox, "readlink $(command -v agent); agent; echo $A").await.unwrap();
    let (link, ran) = (program.to_str().unwrap(), "I am /usr/local/bin/agent\nb\n");
    assert_eq!(answer.printed(), format!("{link}\n{ran}"));
    let refused = client.run(&sandbox, &format!("touch {}/x || echo refused", shown.path().display())).await.unwrap();
    assert!(refused.printed().contains("refused"));
    assert_eq!(server.machines()[0].template, "agents");
    assert!(Path::new(&server.machines()[0].folder).join("usr-local/bin/agent").is_symlink());
}
