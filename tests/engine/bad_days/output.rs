//! What agents print at their worst.

use courier_engine::{
    agent::Exit,
    engine::{Config, Engine},
    model::{Item, Status},
};
use courier_test_support::provider::FakeProvider;
use std::sync::{Arc, atomic::Ordering};
use tempfile::TempDir;

use super::{counted, is, nothing_runs, outputs, printed_by, script};
use crate::world::{Moved, World, config, eventually, until};

/// Runs a script to its end in a real sandbox, and returns the raw log.
async fn log_of(world: &World, prompt: &str) -> Vec<u8> {
    let project = world.project().await;
    let new = courier_engine::engine::NewSandbox::of(project, courier_engine::model::AgentKind::Shell, prompt);
    let id = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(id, |row| row.lifecycle.status == Status::Running && !row.is_working && row.queued == 0).await;
    let log = world.log(id).await;
    assert!(matches!(world.items(id).await.last(), Some(Item::Ended { .. })), "its transcript ends");
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
    log
}

#[tokio::test]
async fn every_byte_of_every_kind_of_output_is_kept() {
    let world = World::on_this_machine().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let cases: [(&str, Vec<u8>); 8] = [
        ("head -c 2000000 /dev/zero | tr '\\0' x; echo", [vec![b'x'; 2_000_000], b"\n".to_vec()].concat()),
        ("head -c 18000000 /dev/zero | tr '\\0' y", vec![b'y'; 18_000_000]),
        ("for i in $(seq 0 255); do printf \"\\\\x$(printf %02x $i)\"; done", every_byte),
        (
            "printf '\\033[31mred\\033[0m \\033]52;c;AAAA\\007\\033[2J\\r\\n'",
            b"\x1b[31mred\x1b[0m \x1b]52;c;AAAA\x07\x1b[2J\r\n".to_vec(),
        ),
        ("printf '10%%\\r20%%\\r30%%'", b"10%\r20%\r30%".to_vec()),
        ("yes '' | head -n 2000000", vec![b'\n'; 2_000_000]),
        (":", Vec::new()),
        ("echo before; exec 1>&-; sleep 1; echo after >&2; exit 3", b"before\nafter\n".to_vec()),
    ];
    for (prompt, expected) in cases {
        let log = log_of(&world, prompt).await;
        assert!(log == expected, "{prompt}: {} bytes of {}", log.len(), expected.len());
    }
    counted(&world.engine, 0).await;
}

#[tokio::test]
async fn a_child_that_holds_the_pipes_for_ever_holds_up_nothing() {
    let world = World::on_this_machine().await;
    let prompt = "echo first; (trap '' TERM HUP; sleep 1; while :; do echo later; sleep 0.1; done) & exit 0";
    let id = script(&world, prompt, "first").await;
    world.until(id, |row| !row.is_working).await;
    let log = world.log(id).await;
    world.engine.sandbox_send(id, "echo second", courier_engine::engine::SendHow::Queue).await.unwrap();
    printed_by(&world, id, "second").await;
    let later = world.log(id).await;
    assert!(later.starts_with(&log) && later.ends_with(b"second\n"), "{:?}", String::from_utf8_lossy(&later));
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
    nothing_runs(id).await;
}

#[tokio::test]
async fn characters_cut_anywhere_come_together_again() {
    let world = World::new().await;
    let text = "ä€𝄞 👩‍💻\r\n日本語\rשלום\n";
    let (id, turn) = world.running("work").await;
    for cut in 0..=text.len() {
        let (head, tail) = text.as_bytes().split_at(cut);
        for part in [head, tail] {
            world.provider.print(turn, part);
            let printed = part.len();
            // Each part is read by itself.
            if printed > 0 {
                let wanted = cut * text.len() + if std::ptr::eq(part, head) { cut } else { text.len() };
                eventually("the part", async || (world.log(id).await.len() >= wanted).then_some(())).await;
            }
        }
    }
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    let expected = text.repeat(text.len() + 1);
    assert!(world.log(id).await == expected.as_bytes());
    assert_eq!(outputs(&world.items(id).await), expected, "no character was broken");
}

#[tokio::test]
async fn an_agent_that_is_silent_for_minutes_is_said_to_be() {
    let home = TempDir::new().unwrap();
    let (provider, clock) = (FakeProvider::default(), Arc::new(Moved::default()));
    let config = Config { clock: clock.clone(), ..config(home.path(), Arc::new(provider.clone())) };
    let engine = Engine::open(config).await.unwrap();
    let project = engine.project_sample().await.unwrap().id;
    let new = courier_engine::engine::NewSandbox::of(project, courier_engine::model::AgentKind::Shell, "think");
    let id = engine.sandbox_create(new).await.unwrap().id;
    until(&engine, id, |row| row.is_working && row.step.is_none()).await;
    let turn = eventually("the turn", async || provider.open_turns().first().copied()).await;
    provider.print(turn, b"a word\n");
    eventually("the word", async || (engine.log_read(id, Some(0)).await.unwrap().bytes == b"a word\n").then_some(()))
        .await;
    clock.0.store(7 * 60 * 1000, Ordering::Relaxed);
    let row = until(&engine, id, |row| row.quiet_minutes.is_some()).await;
    assert_eq!(row.quiet_minutes, Some(7));
    provider.print(turn, b"another\n");
    until(&engine, id, |row| row.quiet_minutes.is_none()).await;
    provider.end(turn, Exit::Code(0));
    until(&engine, id, |row| !row.is_working).await;
    engine.shutdown().await;
}
