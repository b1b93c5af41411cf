//! What comes in, and what goes wrong without anybody's fault.

use std::{fs, time::Duration};

use super::{
    super::{Bringing, Brought, Error, Limits, Refusal, bring_in},
    World,
};
use crate::request::{Answer, Cause, Failure, Request};

#[test]
fn what_an_agent_committed_comes_in_whole() {
    let world = World::new();
    world.write("new.txt", b"one\n");
    world.commit("One");
    world.write("README.md", b"# Sample\n\nA small repository, changed.\n");
    let head = world.commit("Two");
    world.bundle(&["HEAD", "--not", &world.base]);
    let brought = bring_in(&world.bringing()).unwrap();
    assert_eq!(brought, Brought { head: head.clone(), stash: None, commits: 2 });
    assert_eq!(world.vault(&["log", "--format=%s", "--max-count=2", "refs/courier/a/head"]), "Two\nOne");
    world.vault(&["fsck", "--strict", "--full"]);
    assert_eq!(world.vault(&["show", &format!("{head}:new.txt")]), "one");
    assert_eq!(world.quarantines(), 0);

    // The next one builds on what came before, and on nothing of a third.
    world.write("new.txt", b"one\ntwo\n");
    let next = world.commit("Three");
    world.bundle(&["HEAD", "--not", &world.base, &head]);
    let stranger = Bringing { references: "refs/courier/b".to_owned(), ..world.bringing() };
    assert_eq!(bring_in(&stranger).unwrap_err(), Refusal::Prerequisite(head.clone()).into());
    let brought = bring_in(&Bringing { verified: vec![head.clone()], ..world.bringing() }).unwrap();
    assert_eq!(brought, Brought { head: next, stash: None, commits: 1 });
    world.vault(&["fsck", "--strict", "--full"]);

    // Back to an earlier commit: there is nothing to bring.
    let back = Bringing { bundle: None, head: world.base.clone(), verified: vec![head.clone()], ..world.bringing() };
    assert_eq!(bring_in(&back).unwrap(), Brought { head: world.base.clone(), stash: None, commits: 0 });
    let foreign = Bringing { bundle: None, head, verified: vec![], ..world.bringing() };
    assert!(matches!(bring_in(&foreign), Err(Error::Refused(Refusal::Missing { .. }))), "another sandbox's commit");
}

#[test]
fn a_stash_and_a_history_of_its_own_come_in() {
    let world = World::new();
    world.write("README.md", b"put aside\n");
    world.git(&["stash", "--quiet"]);
    world.git(&["checkout", "--quiet", "--orphan", "fresh"]);
    let head = world.commit("A beginning of its own");
    world.bundle(&["HEAD", "refs/stash", "--not", &world.base]);
    let brought = bring_in(&world.bringing()).unwrap();
    assert_eq!((brought.head, brought.stash.is_some(), brought.commits), (head, true, 3));
    assert_eq!(world.vault(&["show", "refs/courier/a/stash:README.md"]), "put aside");
    world.vault(&["fsck", "--strict", "--full"]);
}

#[test]
fn a_submodule_is_a_name_and_no_more() {
    let world = World::new();
    world.write(
        ".gitmodules",
        b"[submodule \"--upload-pack=touch pwned\"]\n\tpath = ../../x\n\turl = --upload-pack=x\n",
    );
    world.git(&["add", "--all"]);
    let absent = "1234567890123456789012345678901234567890";
    world.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{absent},sub")]);
    world.git(&["commit", "--quiet", "--message", "A submodule"]);
    world.bundle(&["HEAD", "--not", &world.base]);
    assert_eq!(bring_in(&world.bringing()).unwrap().commits, 1, "what it names is never looked for");
}

#[test]
fn a_pack_that_takes_too_long_is_given_up() {
    let world = World::new();
    world.write("new.txt", b"one\n");
    world.commit("One");
    world.bundle(&["HEAD", "--not", &world.base]);
    let limits = Limits { time: Duration::ZERO, ..Limits::default() };
    assert_eq!(bring_in(&Bringing { limits, ..world.bringing() }), Err(Error::TooSlow));
    world.assert_untouched();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_leaves_nothing_behind() {
    use courier_test_support::small_disk::{self, Ballast};
    let name = concat!(module_path!(), "::a_full_disk_is_said_and_leaves_nothing_behind");
    if !small_disk::is_here(name, 32) {
        return;
    }
    let world = World::new();
    // Nothing that can be made smaller.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(2 << 20)
    .collect();
    world.write("noise", &noise);
    world.commit("Noise");
    world.bundle(&["HEAD", "--not", &world.base]);
    // Not even the copy fits; then the copy, but not the pack.
    for left in [1 << 20, 3 << 20] {
        let ballast = Ballast::all_but(world.folder.path(), left);
        assert_eq!(bring_in(&world.bringing()), Err(Error::DiskFull), "{left} bytes are left");
        world.assert_untouched();
        drop(ballast);
    }
    assert_eq!(bring_in(&world.bringing()).unwrap().commits, 1);
}

#[test]
fn what_a_killed_worker_left_hinders_nobody() {
    let world = World::new();
    world.write("new.txt", b"one\n");
    let head = world.commit("One");
    world.bundle(&["HEAD", "--not", &world.base]);
    let vault = world.folder.path().join("vault.git");
    fs::create_dir_all(vault.join("incoming-refs-courier-a/objects/pack")).unwrap();
    fs::write(vault.join("incoming-refs-courier-a/bundle"), "half").unwrap();
    fs::create_dir_all(vault.join("refs/courier/a")).unwrap();
    fs::write(vault.join("refs/courier/a/head.lock"), "").unwrap();
    assert_eq!(bring_in(&world.bringing()).unwrap().head, head);
    assert_eq!(world.quarantines(), 0);
}

#[test]
fn only_a_place_for_checkpoints_is_written() {
    let world = World::new();
    for references in ["refs/heads/main", "refs/courier/../heads", "refs/courier/a/..", "HEAD", ""] {
        let bringing = Bringing { bundle: None, references: references.to_owned(), ..world.bringing() };
        assert!(matches!(bring_in(&bringing), Err(Error::Failed(_))), "{references}");
        world.assert_untouched();
    }
}

#[test]
fn the_worker_is_asked_and_answers() {
    let world = World::new();
    world.write("new.txt", b"one\n");
    let head = world.commit("One");
    world.bundle(&["HEAD", "--not", &world.base]);
    let ask = |request: &Request| {
        let request: Request = serde_json::from_slice(&serde_json::to_vec(request).unwrap()).unwrap();
        serde_json::from_slice::<Answer>(&serde_json::to_vec(&request.answer()).unwrap()).unwrap()
    };
    let strange = Bringing { verified: vec!["HEAD".to_owned()], ..world.bringing() };
    assert!(matches!(ask(&Request::Bring(strange)), Answer::Failed(Failure { cause: Cause::Failed, .. })));
    assert!(
        matches!(ask(&Request::Bring(world.bringing())), Answer::Brought(Brought { head: found, .. }) if found == head)
    );
    fs::write(world.folder.path().join("bundle"), "garbage").unwrap();
    assert!(matches!(ask(&Request::Bring(world.bringing())), Answer::Failed(Failure { cause: Cause::Refused, .. })));
}
