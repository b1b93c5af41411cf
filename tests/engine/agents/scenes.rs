//! What an agent must master.

use std::{fs, sync::atomic::Ordering, time::Duration};

use courier_engine::{
    engine::NewSandbox,
    model::{AgentKind, ErrorKind, Item, Status, ToolState, Usage},
};
use courier_test_support::{
    models::{WRITTEN_CONTENT, WRITTEN_FILE},
    processes,
};

use super::{Scene, app, stage::Stage};

macro_rules! scenes {
    ($($play:ident $seconds:literal $words:literal,)+) => {
        pub const ALL: &[Scene] = &[$(Scene {
            name: stringify!($play),
            words: $words,
            limit: Duration::from_secs($seconds),
            play: |stage| Box::pin($play(stage)),
        }),+];
    };
}

scenes! {
    fresh 120 "fresh turn writes and commits",
    follow_up 240 "follow-ups, and an exact bill",
    interrupt 240 "interrupt in a shell command",
    killed_app 240 "app killed -9 in mid-turn",
    killed_agent 240 "agent killed -9, tree swept",
    timeout 240 "time over, tree swept",
    refused_key 240 "key refused",
    rate_limit 300 "rate limit",
    known_end 300 "rate limit that ends, continued then",
    overload 300 "overload",
    too_long 240 "context too long",
    cut 300 "connection cut in mid-stream",
    long_output 240 "2 MB of output",
    colours 240 "ANSI and wide characters",
    long_prompt 300 "1-MB prompt on standard input",
}

async fn fresh(stage: Stage) {
    let id = stage.begin("Add a greeting in hello.txt and commit it [[scenario:happy]]").await;
    stage.idle(id).await;
    assert_eq!(stage.errors(id).await, [], "{:#?}", stage.items(id).await);
    let workspace = stage.workspace(id);
    let written = fs::read_to_string(workspace.join(WRITTEN_FILE));
    assert_eq!(written.unwrap_or_default(), WRITTEN_CONTENT, "{:#?}", stage.items(id).await);
    let head = fs::read_to_string(workspace.join(".git/logs/HEAD")).unwrap();
    assert!(head.contains("Add hello.txt"), "{head}");
    assert!(stage.said(id).await.contains("I have seen 1 user"), "{}", stage.said(id).await);
    let items = stage.items(id).await;
    let tools = items.iter().filter(|item| matches!(item, Item::Tool { state: ToolState::Done, .. })).count();
    assert!(tools >= 2, "write and commit are shown: {items:#?}");
    let log = stage.engine.log_read(id, Some(0)).await.unwrap().bytes;
    assert!(!String::from_utf8_lossy(&log).contains(stage.driven.key), "the key stays outside");
    stage.end(id).await;
}

async fn follow_up(stage: Stage) {
    let id = stage.begin("one [[scenario:happy]]").await;
    stage.idle(id).await;
    stage.tell(id, "two [[scenario:text]]").await;
    stage.tell(id, "three [[scenario:bash_ls]]").await;
    assert_eq!(stage.errors(id).await, [], "{:#?}", stage.items(id).await);
    let said = stage.said(id).await;
    assert!(said.contains("I have seen 2 user") && said.contains("I have seen 3 user"), "{said}");
    let (served, state) = (stage.server.usage_served(), stage.state(id).await);
    let expected = Usage {
        input: served.input,
        output: served.output,
        cache_write: served.cache_write,
        cache_read: served.cache_read,
    };
    assert_eq!((state.usage, state.is_usage_incomplete), (expected, false));
    stage.end(id).await;
}

async fn interrupt(stage: Stage) {
    let id = stage.begin("one [[scenario:sleep]]").await;
    stage.file(id, "started.txt").await;
    stage.engine.sandbox_interrupt(id).await.unwrap();
    stage.idle(id).await;
    let errors = stage.errors(id).await;
    assert!(matches!(&errors[..], [(ErrorKind::Interrupted, ..)]), "{errors:?}");
    stage.nothing_is_left_inside(id).await;
    assert!(stage.said(id).await.contains("Sleeping in the shell"), "what was said is kept");
    stage.tell(id, "two [[scenario:text]]").await;
    assert!(stage.said(id).await.contains("I have seen 2 user"), "{}", stage.said(id).await);
    assert_eq!(stage.errors(id).await.len(), 1);
    assert!(!stage.workspace(id).join("finished.txt").exists());
    let state = stage.state(id).await;
    assert!(state.is_usage_incomplete && state.usage.output > 0, "{:?}", state.usage);
    stage.end(id).await;
}

async fn killed_app(mut stage: Stage) {
    // Its folder is the other one's now.
    stage.close().await;
    let app = app::App::start(&stage, "one [[scenario:sleep8]]");
    let id = app.sandbox();
    eventually_asked(&stage).await;
    app.kill();
    let stage = app::reopened(stage).await;
    let row = stage.idle(id).await;
    assert_eq!(row.lifecycle.status, Status::Running);
    assert_eq!(stage.errors(id).await, [], "{:#?}", stage.items(id).await);
    assert!(stage.said(id).await.contains("I have seen 1 user"), "{}", stage.said(id).await);
    stage.end(id).await;
}

/// Waits until the model has answered once: the turn is in its middle.
async fn eventually_asked(stage: &Stage) {
    crate::world::eventually("the first answer", async || {
        stage.server.work().iter().any(|request| request.is_answered).then_some(())
    })
    .await;
}

async fn killed_agent(stage: Stage) {
    let id = stage.begin("one [[scenario:sleep]]").await;
    stage.file(id, "started.txt").await;
    let inside = stage.inside(id);
    let agent = inside.first().expect("the agent runs");
    processes::kill(agent);
    stage.idle(id).await;
    let errors = stage.errors(id).await;
    assert!(matches!(&errors[..], [(ErrorKind::Crashed, ..)]), "{errors:?}");
    stage.nothing_is_left_inside(id).await;
    assert!(stage.state(id).await.is_usage_incomplete);
    stage.tell(id, "two [[scenario:text]]").await;
    assert!(stage.said(id).await.contains("I have seen 2 user"), "{}", stage.said(id).await);
    stage.end(id).await;
}

async fn timeout(stage: Stage) {
    // Long enough for the agent to have begun: OpenCode alone takes many seconds to do so.
    let time = Duration::from_secs(if stage.driven.kind == AgentKind::Opencode { 45 } else { 15 });
    let id = stage.begin_with("one [[scenario:sleep]]", |new| NewSandbox { timeout: time, ..new }).await;
    stage.file(id, "started.txt").await;
    stage.gone(id).await;
    let row = stage.until(id, |row| !row.is_working).await;
    assert_eq!(row.lifecycle.status, Status::Killed);
    assert!(!stage.workspace(id).join("finished.txt").exists());
}

/// Plays a scenario that fails, and gives how.
async fn failure(stage: &Stage, scenario: &str) -> (ErrorKind, String, Option<courier_engine::model::Timestamp>) {
    let id = stage.begin(&format!("one [[scenario:{scenario}]]")).await;
    let row = stage.idle(id).await;
    // What it printed, should this fail.
    println!("{}", String::from_utf8_lossy(&stage.engine.log_read(id, Some(0)).await.unwrap().bytes));
    let errors = stage.errors(id).await;
    assert_eq!(
        errors.len(),
        1,
        "{:#?}\n{}",
        stage.items(id).await,
        String::from_utf8_lossy(&stage.engine.log_read(id, Some(0)).await.unwrap().bytes)
    );
    assert_eq!(row.lifecycle.status, Status::Running, "the message failed, not the sandbox");
    // And goes on.
    stage.tell(id, "two [[scenario:text]]").await;
    assert!(stage.said(id).await.contains("I have seen"), "{:#?}", stage.items(id).await);
    stage.end(id).await;
    errors.into_iter().next().unwrap()
}

async fn refused_key(stage: Stage) {
    let (kind, words, _) = failure(&stage, "e401").await;
    assert_eq!(kind, ErrorKind::RejectedKey, "{words}");
}

async fn rate_limit(stage: Stage) {
    let (kind, words, _) = failure(&stage, "e429bare").await;
    assert_eq!(kind, ErrorKind::RateLimited, "{words}");
}

async fn known_end(stage: Stage) {
    let id = stage.begin("one [[scenario:limit]]").await;
    stage.idle(id).await;
    let errors = stage.errors(id).await;
    let [(ErrorKind::RateLimited, _, Some(end))] = errors[..] else { panic!("{errors:?}") };
    stage.engine.sandbox_continue_at(id, Some(end)).await.unwrap();
    let row = stage.until(id, |row| row.lifecycle.status == Status::Paused).await;
    assert_eq!(row.continue_at, Some(end), "an hour is more than it has: it waits paused");
    stage.clock.0.store(3_700_000, Ordering::Relaxed);
    stage.until(id, |row| row.is_working && row.continue_at.is_none()).await;
    stage.idle(id).await;
    let items = stage.items(id).await;
    let told = |item: &Item| matches!(item, Item::Message { text, .. } if text == "Continue where you stopped.");
    assert_eq!(items.iter().filter(|item| told(item)).count(), 1, "{items:#?}");
    stage.end(id).await;
}

async fn overload(stage: Stage) {
    let (kind, words, _) = failure(&stage, "overload").await;
    assert_eq!(kind, ErrorKind::Overloaded, "{words}");
}

async fn too_long(stage: Stage) {
    let (kind, words, _) = failure(&stage, "e400ctx").await;
    assert_eq!(kind, ErrorKind::ContextTooLong, "{words}");
}

async fn cut(stage: Stage) {
    let id = stage.begin("one [[scenario:drop]]").await;
    stage.idle(id).await;
    let (items, errors) = (stage.items(id).await, stage.errors(id).await);
    let said = stage.said(id).await;
    assert!(said.contains("This text is cut off") || !stage.driven.streams, "what came is kept: {items:#?}");
    match &errors[..] {
        [(ErrorKind::Network | ErrorKind::Overloaded, ..)] => {}
        // Claude Code takes what came for the answer in the end.
        [] => assert!(items.iter().any(|item| matches!(item, Item::Notice { .. })), "it is said: {items:#?}"),
        others => panic!("{others:?}"),
    }
    stage.tell(id, "two [[scenario:text]]").await;
    assert!(stage.said(id).await.contains("I have seen"));
    stage.end(id).await;
}

async fn long_output(stage: Stage) {
    let id = stage.begin("one [[scenario:longout]]").await;
    stage.idle(id).await;
    assert_eq!(stage.errors(id).await, []);
    assert!(stage.said(id).await.contains("I have seen 1 user"));
    let shown = stage.items(id).await.into_iter().any(|item| match item {
        Item::Tool { result: Some(result), .. } => result.contains("1\n2\n3\n") || result.contains("299999\n300000"),
        _ => false,
    });
    assert!(shown, "what the command printed is shown");
    stage.end(id).await;
}

async fn colours(stage: Stage) {
    let id = stage.begin("one [[scenario:ansi]]").await;
    stage.idle(id).await;
    assert_eq!(stage.errors(id).await, []);
    let said = stage.said(id).await;
    assert!(said.contains("日本語 👩\u{200d}💻") && said.contains("back\u{2028}slash"), "{said}");
    let printed = stage.items(id).await.into_iter().find_map(|item| match item {
        Item::Tool { result: Some(result), .. } => Some(result),
        _ => None,
    });
    let printed = printed.expect("the command's output");
    assert!(printed.contains("✓ 日本語"), "{printed:?}");
    stage.end(id).await;
}

async fn long_prompt(stage: Stage) {
    // Longer than an argument may be, and like an option, a command and a file at its beginning.
    let prompt = format!("--help /x @y {} [[scenario:text]]", "ü".repeat(500_000));
    let id = stage.begin(&prompt).await;
    stage.idle(id).await;
    assert_eq!(stage.errors(id).await, []);
    let seen = stage.server.work().into_iter().find_map(|request| request.said.last().cloned());
    let seen = seen.expect("the model was asked");
    assert!(seen.contains(&prompt), "{} of {} bytes, beginning with {:?}", seen.len(), prompt.len(), seen.get(..60));
    assert!(stage.said(id).await.contains("I have seen 1 user"));
    stage.end(id).await;
}
