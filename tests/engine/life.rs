//! A sandbox's life through the engine: turns, queue, pause, stop, timeouts, and the app ending in between.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use courier_engine::{
    agent::Exit,
    engine::{Code, Config, Engine, NewSandbox, SendHow},
    model::{Activity, AgentKind, Ending, ErrorKind, Item, Lifecycle, OnTimeout, Reason, Status},
    provider::{Presence, Provider, ProviderId},
    store::SandboxRow,
};
use courier_test_support::{
    provider::FakeProvider,
    trouble::{Call, Trouble},
};
use tempfile::TempDir;

use crate::world::{Moved, World, config, eventually, until};

fn is(status: Status) -> impl Fn(&SandboxRow) -> bool {
    move |row| row.lifecycle.status == status && row.lifecycle.activity == Activity::None
}

fn killed(reason: Reason) -> Lifecycle {
    Lifecycle { status: Status::Killed, activity: Activity::None, ending: Some(Ending::Killed(reason)) }
}

fn output(items: &[Item]) -> String {
    items
        .iter()
        .filter_map(|item| match item {
            Item::Output { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_turn_is_given_followed_and_recorded() {
    let world = World::new().await;
    let (id, turn) = world.running("echo hello").await;
    world.provider.print(turn, b"hel");
    world.provider.print(turn, b"lo\n");
    world.provider.end(turn, Exit::Code(0));
    let row = world.until(id, |row| row.lifecycle.status == Status::Running && !row.is_working).await;
    assert_eq!(row.headline, "waits for your message");

    let items = world.items(id).await;
    assert!(matches!(&items[0], Item::Message { text, .. } if text == "echo hello"), "the message begins its turn");
    assert_eq!(output(&items), "hello\n");
    assert!(matches!(items.last(), Some(Item::Ended { error: None, exit_code: Some(0), .. })), "{items:?}");
    assert_eq!(world.log(id).await, b"hello\n", "the raw log is what was printed");
    assert_eq!(world.engine.project_list().await.unwrap()[0].active_sandboxes, 1);
}

#[tokio::test]
async fn a_turn_whose_spool_is_gone_for_good_ends() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.trouble(Call::Read, Trouble { refuses: true, ..Trouble::default() });
    world.provider.print(turn, b"heard");
    world.provider.forget(turn);
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.log(id).await, b"heard", "what was read is kept");
    world.provider.be_well();
    world.engine.sandbox_send(id, "next", SendHow::Queue).await.unwrap();
    world.turn_with("next").await;
}

#[tokio::test]
async fn messages_wait_their_turn_and_are_each_given_once() {
    let world = World::new().await;
    let (id, first) = world.running("one").await;
    for text in ["two", "three"] {
        world.engine.sandbox_send(id, text, SendHow::Queue).await.unwrap();
    }
    assert_eq!(world.engine.sandbox_get(id).await.unwrap().queued, 2);
    world.provider.end(first, Exit::Code(0));
    let second = world.turn_with("two").await;
    world.provider.end(second, Exit::Code(0));
    let third = world.turn_with("three").await;
    world.provider.end(third, Exit::Code(0));
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    let given: Vec<_> = world.provider.started().into_iter().map(|(_, prompt)| prompt).collect();
    assert_eq!(given, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_message_sent_by_interrupting_goes_before_those_that_wait() {
    let world = World::new().await;
    let (id, _first) = world.running("one").await;
    world.engine.sandbox_send(id, "later", SendHow::Queue).await.unwrap();
    world.engine.sandbox_send(id, "now", SendHow::Interrupt).await.unwrap();
    let now = world.turn_with("now").await;
    world.provider.end(now, Exit::Code(0));
    world.turn_with("later").await;
    let items = world.items(id).await;
    let interrupted = items.iter().any(|item| matches!(item, Item::Ended { error: Some(ErrorKind::Interrupted), .. }));
    assert!(interrupted, "the turn that was ended says so: {items:?}");
}

#[tokio::test]
async fn a_queued_message_can_be_changed_until_it_is_given() {
    let world = World::new().await;
    let (id, first) = world.running("one").await;
    let waiting = world.engine.sandbox_send(id, "tow", SendHow::Queue).await.unwrap();
    let unwanted = world.engine.sandbox_send(id, "never", SendHow::Queue).await.unwrap();
    world.engine.message_edit(waiting.id, "two").await.unwrap();
    world.engine.message_cancel(unwanted.id).await.unwrap();
    world.provider.end(first, Exit::Code(0));
    let second = world.turn_with("two").await;
    let late = world.engine.message_edit(waiting.id, "2").await.unwrap_err();
    assert_eq!(late.code(), Code::IllegalState);
    world.provider.end(second, Exit::Code(0));
    world.until(id, |row| !row.is_working && row.queued == 0).await;
}

#[tokio::test]
async fn pausing_stops_the_clock_and_resuming_starts_it() {
    let world = World::new().await;
    let (id, turn) = world.running("count").await;
    world.engine.sandbox_pause(id).await.unwrap();
    let paused = world.until(id, is(Status::Paused)).await;
    assert!(paused.remaining.is_some() && paused.expires_at.is_none(), "a paused sandbox does not age");
    assert_eq!(world.engine.project_list().await.unwrap()[0].active_sandboxes, 0, "it is not counted");
    world.engine.sandbox_resume(id).await.unwrap();
    let running = world.until(id, is(Status::Running)).await;
    assert!(running.expires_at.is_some());
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    let notices: Vec<_> =
        world.items(id).await.into_iter().filter(|item| matches!(item, Item::Notice { .. })).collect();
    assert_eq!(notices.len(), 2, "the transcript says when it was paused: {notices:?}");
}

#[tokio::test]
async fn a_pause_asked_for_while_it_is_looked_for_is_asked_for_once() {
    let mut world = World::new().await;
    let (id, _turn) = world.running("count").await;
    for call in [Call::Inspect, Call::Pause] {
        world.provider.trouble(call, Trouble { thinks: Duration::from_millis(200), ..Trouble::default() });
    }
    world.restart().await;
    // It is not known yet whether it is there.
    world.engine.sandbox_pause(id).await.unwrap();
    world.until(id, is(Status::Paused)).await;
    world.provider.be_well();
    world.engine.sandbox_resume(id).await.unwrap();
    world.until(id, is(Status::Running)).await;
    assert_eq!(world.provider.misdeeds(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pause_that_fails_leaves_it_running() {
    let world = World::new().await;
    let (id, _turn) = world.running("count").await;
    world.provider.refuse_pause(true);
    world.engine.sandbox_pause(id).await.unwrap();
    world.until(id, is(Status::Running)).await;
    let transitions = world.engine.sandbox_details(id).await.unwrap().transitions;
    assert_eq!(transitions.len(), 2, "it was created and ran, and never anything else: {transitions:?}");
}

#[tokio::test]
async fn stopping_keeps_what_was_printed() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.print(turn, b"half of it");
    world.engine.sandbox_stop(id).await.unwrap();
    let row = world.until(id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle, killed(Reason::Stopped));
    assert_eq!(output(&world.items(id).await), "half of it");
    assert_eq!(world.provider.alive(), 0, "nothing is left");
    assert_eq!(world.engine.project_list().await.unwrap()[0].active_sandboxes, 0);
    world.engine.sandbox_stop(id).await.expect("stopping what has ended is fine");
    let refused = world.engine.sandbox_send(id, "more", SendHow::Queue).await.unwrap_err();
    assert_eq!(refused.code(), Code::IllegalState);
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_says_why() {
    let world = World::new().await;
    world.provider.refuse_provision(Some("no room"));
    let project = world.project().await;
    let created = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "true")).await.unwrap();
    let row = world.until(created.id, is(Status::Error)).await;
    let error = row.error.unwrap();
    assert!(error.message.contains("no room") && !error.remedy.is_empty(), "{error:?}");
}

#[tokio::test]
async fn the_time_ends_a_sandbox_or_pauses_it() {
    let world = World::new().await;
    let project = world.project().await;
    let short = Duration::from_millis(200);
    let new = NewSandbox { timeout: short, ..NewSandbox::of(project, AgentKind::Shell, "sleep") };
    let ends = world.engine.sandbox_create(new.clone()).await.unwrap();
    let pauses = world.engine.sandbox_create(NewSandbox { on_timeout: OnTimeout::Pause, ..new }).await.unwrap();
    let row = world.until(ends.id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle, killed(Reason::TimedOut));
    world.until(pauses.id, is(Status::Paused)).await;
}

#[tokio::test]
async fn three_crashes_in_a_row_are_an_error() {
    let world = World::new().await;
    let (id, first) = world.running("a").await;
    world.provider.end(first, Exit::Signal(11));
    for prompt in ["b", "c"] {
        world.engine.sandbox_send(id, prompt, SendHow::Queue).await.unwrap();
        let turn = world.turn_with(prompt).await;
        world.provider.end(turn, Exit::Signal(11));
    }
    let row = world.until(id, is(Status::Error)).await;
    assert_eq!(row.error.unwrap().kind, "crashed");
}

#[tokio::test]
async fn a_sandbox_that_went_away_is_noticed() {
    let world = World::new().await;
    let (id, _turn) = world.running("work").await;
    world.provider.lose_all();
    let row = world.until(id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle, killed(Reason::Lost));
}

#[tokio::test]
async fn a_restart_joins_the_turn_without_a_gap_or_a_double() {
    let mut world = World::new().await;
    let (id, turn) = world.running("work").await;
    let mut expected = Vec::new();
    for round in 0..5 {
        for line in 0..40 {
            let text = format!("round {round} line {line} ✓\n");
            world.provider.print(turn, text.as_bytes());
            expected.extend(text.into_bytes());
        }
        world.restart().await;
    }
    world.provider.end(turn, Exit::Code(0));
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.log(id).await, expected);
    assert_eq!(output(&world.items(id).await).into_bytes(), expected, "and the transcript is the same text");
    assert_eq!(world.provider.started().len(), 1, "the turn was started once");
}

#[tokio::test]
async fn a_restart_goes_on_with_an_ending() {
    let mut world = World::new().await;
    let (id, _turn) = world.running("work").await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.restart().await;
    world.until(id, is(Status::Killed)).await;
}

#[tokio::test]
async fn after_a_reboot_a_sandbox_gets_a_new_place_and_goes_on() {
    let mut world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.print(turn, b"half of it");
    world.engine.shutdown().await;
    world.provider.lose_all();
    world.restart().await;
    let row = world.until(id, |row| row.lifecycle.status == Status::Running && !row.is_working).await;
    assert_eq!(row.lifecycle.activity, Activity::None);
    assert_eq!(output(&world.items(id).await), "half of it", "what was printed before is there");
    world.engine.sandbox_send(id, "more", SendHow::Queue).await.unwrap();
    let next = world.turn_with("more").await;
    world.provider.end(next, Exit::Code(0));
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    assert_eq!(world.provider.alive(), 1);
}

#[tokio::test]
async fn a_reboot_keeps_an_idle_sandbox_and_a_paused_one() {
    let mut world = World::new().await;
    let (idle, turn) = world.running("work").await;
    world.provider.end(turn, Exit::Code(0));
    world.until(idle, |row| !row.is_working).await;
    let (paused, turn) = world.running("more work").await;
    world.provider.end(turn, Exit::Code(0));
    world.until(paused, |row| !row.is_working).await;
    world.engine.sandbox_pause(paused).await.unwrap();
    world.until(paused, is(Status::Paused)).await;
    world.engine.shutdown().await;
    world.provider.lose_all();
    // Making a new place takes longer than the first look at what runs.
    world.provider.think(true);
    world.restart().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.provider.think(false);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while world.provider.alive() < 2 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.provider.alive(), 2);
    for (id, status) in [(idle, Status::Running), (paused, Status::Paused)] {
        assert_eq!(world.engine.sandbox_get(id).await.unwrap().lifecycle.status, status);
    }
}

#[tokio::test]
async fn resuming_after_the_time_was_over_gives_more() {
    let world = World::new().await;
    let project = world.project().await;
    let new = NewSandbox::of(project, AgentKind::Shell, "sleep");
    let new = NewSandbox { timeout: Duration::from_millis(200), on_timeout: OnTimeout::Pause, ..new };
    let id = world.engine.sandbox_create(new).await.unwrap().id;
    world.until(id, is(Status::Paused)).await;
    world.engine.sandbox_resume(id).await.unwrap();
    let row = world.until(id, is(Status::Running)).await;
    assert!(row.timeout > Duration::from_secs(60), "it has time to go on");
}

#[tokio::test]
async fn a_machine_that_its_own_clock_paused_has_run_out_of_time() {
    for (on_timeout, becomes) in [
        (OnTimeout::Kill, killed(Reason::TimedOut)),
        (OnTimeout::Pause, Lifecycle { status: Status::Paused, activity: Activity::None, ending: None }),
    ] {
        let (home, provider, clock) = (TempDir::new().unwrap(), FakeProvider::default(), Arc::<Moved>::default());
        let open = async || {
            let config = Config { clock: clock.clone(), ..config(home.path(), Arc::new(provider.clone())) };
            Engine::open(config).await.unwrap()
        };
        let engine = open().await;
        let project = engine.project_sample().await.unwrap().id;
        let new = NewSandbox { on_timeout, ..NewSandbox::of(project, AgentKind::Shell, "work") };
        let id = engine.sandbox_create(new).await.unwrap().id;
        let row = until(&engine, id, |row| row.is_working && row.step.is_none()).await;
        engine.shutdown().await;
        drop(engine);

        // The provider is asked while there is time left, and answers when there is none: the computer slept meanwhile.
        provider.pause(&ProviderId(row.provider_id.unwrap())).await.unwrap();
        provider.trouble(Call::Inspect, Trouble { is_late: Duration::from_millis(200), ..Trouble::default() });
        let looks = provider.calls(Call::Inspect);
        let engine = open().await;
        eventually("a look at it", async || (provider.calls(Call::Inspect) > looks).then_some(())).await;
        clock.0.store(u64::try_from(row.timeout.as_millis()).unwrap() + 60_000, Ordering::Relaxed);
        until(&engine, id, |row| row.lifecycle == becomes).await;
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_arrives_after_its_stop_is_destroyed() {
    let world = World::new().await;
    world.provider.think(true);
    let project = world.project().await;
    let created = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "true")).await.unwrap();
    while !world.provider.is_asked() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.engine.sandbox_stop(created.id).await.unwrap();
    world.provider.think(false);
    world.until(created.id, is(Status::Killed)).await;
    assert_eq!(world.provider.alive(), 0, "the late one is gone too");
    assert!(world.provider.started().is_empty(), "and its agent was never started");
}

#[tokio::test]
async fn a_turn_the_provider_does_not_take_now_is_started_later() {
    let world = World::new().await;
    world.provider.refuse_turns(true);
    let project = world.project().await;
    let created = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "later")).await.unwrap();
    world.until(created.id, |row| row.is_working).await;
    world.provider.refuse_turns(false);
    let turn = world.turn_with("later").await;
    world.provider.end(turn, Exit::Code(0));
    world.until(created.id, |row| !row.is_working).await;
    let errors = world.items(created.id).await.into_iter().filter(|item| matches!(item, Item::Error { .. })).count();
    assert_eq!(errors, 0, "nothing has failed");
}

#[tokio::test]
async fn a_failed_turn_says_why_once() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.end(turn, Exit::Signal(11));
    world.until(id, |row| !row.is_working).await;
    let errors = world.items(id).await.into_iter().filter(|item| matches!(item, Item::Error { .. })).count();
    assert_eq!(errors, 1);
}

#[tokio::test]
async fn a_sandbox_given_up_is_destroyed_by_a_later_life() {
    let mut world = World::new().await;
    let (id, _turn) = world.running("work").await;
    world.provider.refuse_destroy(true);
    let early = world.engine.sandbox_give_up(id).await.unwrap_err();
    assert_eq!(early.code(), Code::IllegalState, "nothing to give up yet");
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, |row| row.step.as_deref() == Some("waiting for the provider")).await;
    world.engine.sandbox_give_up(id).await.unwrap();
    let row = world.until(id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle, killed(Reason::Abandoned));
    world.until(id, |row| !row.is_working).await;
    assert_eq!(world.provider.alive(), 1, "it may still run");
    world.provider.refuse_destroy(false);
    world.restart().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while world.provider.alive() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.provider.alive(), 0, "the job that was owed is done");
}

#[tokio::test]
async fn what_arrives_after_it_was_given_up_is_destroyed() {
    let mut world = World::new().await;
    world.provider.think(true);
    let project = world.project().await;
    let created = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "true")).await.unwrap();
    while !world.provider.is_asked() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.engine.sandbox_stop(created.id).await.unwrap();
    world.engine.sandbox_give_up(created.id).await.unwrap();
    let row = world.until(created.id, is(Status::Killed)).await;
    assert_eq!(row.lifecycle, killed(Reason::Abandoned));
    let more = world.engine.sandbox_extend(created.id, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(more.code(), Code::IllegalState, "it has ended, though somebody waits for what arrives");
    world.provider.think(false);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    // Made, and destroyed at once: the provider knows it, and it is gone.
    let is_gone = || matches!(world.provider.presence(created.id), Some(Presence::Gone { .. }));
    while !is_gone() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_gone(), "it arrived, and stays");
    world.restart().await;
    assert_eq!(world.provider.alive(), 0);
}

#[tokio::test]
async fn a_pause_that_was_recorded_is_done_after_a_crash() {
    let mut world = World::new().await;
    let (id, _turn) = world.running("work").await;
    let slow = Trouble { thinks: Duration::from_secs(600), ..Trouble::default() };
    world.provider.trouble(Call::Pause, slow);
    world.engine.sandbox_pause(id).await.unwrap();
    // The app ends before the provider has heard of it.
    world.engine.shutdown().await;
    world.provider.be_well();
    world.restart().await;
    world.until(id, is(Status::Paused)).await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_provider_that_is_slow_to_say_what_runs() {
    let mut world = World::new().await;
    let (id, _turn) = world.running("work").await;
    world.provider.trouble(Call::Inspect, Trouble { thinks: Duration::from_secs(600), ..Trouble::default() });
    world.restart().await;
    world.engine.sandbox_stop(id).await.unwrap();
    world.until(id, is(Status::Killed)).await;
}

#[tokio::test]
async fn a_turn_the_provider_does_not_take_can_be_interrupted() {
    let world = World::new().await;
    world.provider.refuse_turns(true);
    let project = world.project().await;
    let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "later")).await.unwrap().id;
    world.until(id, |row| row.is_working).await;
    world.engine.sandbox_interrupt(id).await.unwrap();
    world.until(id, |row| row.lifecycle.status == Status::Running && !row.is_working).await;
    assert!(world.provider.started().is_empty(), "it never began");
}

#[tokio::test]
async fn two_engines_never_share_a_folder() {
    let world = World::new().await;
    let host = courier_engine::host::Host::new(
        world.home.path().to_owned(),
        std::sync::Arc::new(courier_engine::secrets::SessionOnly::default()),
        courier_engine::host::Person::default(),
    );
    let config = courier_engine::engine::Config {
        host,
        clock: std::sync::Arc::new(courier_engine::model::SystemClock),
        providers: Vec::new(),
    };
    let refused = courier_engine::engine::Engine::open(config).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyOpen);
}
