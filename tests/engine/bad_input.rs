//! What a person gets wrong: each is named, with its remedy, and nothing is stored.

use courier_engine::engine::{Code, NewSandbox, SendHow};
use courier_engine::model::AgentKind;
use courier_engine::store::Query;

use crate::world::World;

#[tokio::test]
async fn a_source_that_is_none_is_named() {
    let world = World::new().await;
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::create_dir(path("plain")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    git2::Repository::init(path("empty")).unwrap();
    git2::Repository::init_bare(path("bare")).unwrap();
    let cases = [
        ("gone", Code::PathMissing),
        ("file", Code::PathIsFile),
        ("plain", Code::NotARepository),
        ("empty", Code::EmptyRepository),
        ("bare", Code::BareRepository),
    ];
    for (name, code) in cases {
        let source = path(name).display().to_string();
        let error = world.engine.project_add(&source, None).await.unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.detail().is_some_and(|remedy| !remedy.is_empty()), "{name} has a remedy");
    }
    let secret = world.engine.project_add("https://me:hunter2@example.org/a.git", None).await.unwrap_err();
    assert_eq!(secret.code(), Code::Invalid);
    assert!(!secret.to_string().contains("hunter2"), "a password is not repeated: {secret}");
    assert!(world.engine.project_list().await.unwrap().is_empty());
}

#[tokio::test]
async fn prompts_of_every_kind_arrive_as_they_were_written() {
    let world = World::new().await;
    for prompt in ["-rf --help", "👩‍💻 שלום עולם\u{202e}", &"x".repeat(1 << 20)] {
        let (_, _turn) = world.running(prompt).await;
    }
}

#[tokio::test]
async fn an_impossible_request_stores_nothing() {
    let world = World::new().await;
    let project = world.project().await;
    for prompt in ["", " \n\t", "a\0b"] {
        let refused = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, prompt)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Invalid, "{prompt:?}");
    }
    let page = world.engine.sandbox_list(Query { limit: 10, ..Query::default() }).await.unwrap();
    assert_eq!(page.total, 0);
    let nowhere = world.engine.sandbox_send(courier_engine::model::SandboxId::fresh(), "x", SendHow::Queue).await;
    assert_eq!(nowhere.unwrap_err().code(), Code::NotFound);
}
