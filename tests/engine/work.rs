//! What a sandbox made is never lost: checkpoints, the steps of its end, and the branch in the person's own repository.
//! Real sandboxes of this machine, and real git as the judge.

use std::{fs, path::Path, time::Duration};

use courier_engine::{
    engine::{DeliverOptions, NewSandbox},
    model::{AgentKind, DeliverWhen, ProjectId, SandboxId, Status, StepKind, StepStatus},
    store::{CheckpointRow, ProjectSettings, SandboxRow},
};
use courier_test_support::repositories::Repository;

use crate::world::World;

/// A world with a project of a person's own folder.
struct Bench {
    world: World,
    person: Repository,
    project: ProjectId,
}

impl Bench {
    async fn new() -> Self {
        let (world, person) = (World::on_this_machine().await, Repository::ordinary().unwrap());
        let project = world.engine.project_add(&person.source(), None).await.unwrap().id;
        Self { world, person, project }
    }

    /// A Shell sandbox whose script has run.
    async fn ran(&self, script: &str) -> SandboxId {
        let id = self.begun(script).await;
        self.idle(id).await;
        id
    }

    async fn begun(&self, script: &str) -> SandboxId {
        let new = NewSandbox::of(self.project, AgentKind::Shell, script);
        self.world.engine.sandbox_create(new).await.unwrap().id
    }

    /// Waits until nothing of what was asked for is to be done any more, checkpoint included.
    async fn idle(&self, id: SandboxId) {
        let turns = |row: &SandboxRow| row.queued == 0 && !row.is_working && row.lifecycle.status == Status::Running;
        self.world.until(id, turns).await;
        let turns = self.world.engine.sandbox_details(id).await.unwrap().turns;
        self.checkpoints_until(id, |all| all.iter().any(|one| one.turn == Some(turns))).await;
    }

    async fn checkpoints_until(&self, id: SandboxId, wanted: impl Fn(&[CheckpointRow]) -> bool) -> Vec<CheckpointRow> {
        let mut changes = self.world.engine.feed().changes();
        let waiting = async {
            loop {
                let all = self.world.engine.sandbox_checkpoints(id).await.unwrap();
                if wanted(&all) {
                    return all;
                }
                _ = changes.recv().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("the checkpoint is taken")
    }

    async fn stop(&self, id: SandboxId) -> SandboxRow {
        self.world.engine.sandbox_stop(id).await.unwrap();
        self.world.until(id, |row| row.lifecycle.status == Status::Killed).await
    }

    async fn step(&self, id: SandboxId, kind: StepKind) -> Option<(StepStatus, String)> {
        let steps = self.world.engine.delivery(id).await.unwrap().steps;
        steps.into_iter().find(|step| step.kind == kind).map(|step| (step.status, step.detail))
    }

    async fn settings(&self, change: impl FnOnce(&mut ProjectSettings)) {
        let mut settings = self.world.engine.project_settings(self.project).await.unwrap();
        change(&mut settings);
        self.world.engine.project_settings_set(self.project, settings).await.unwrap();
    }

    fn vault(&self) -> std::path::PathBuf {
        self.world.home.path().join("projects").join(self.project.to_string()).join("vault.git")
    }

    fn git_in(&self, folder: &Path, arguments: &[&str]) -> String {
        courier_test_support::repositories::git(folder, arguments).unwrap()
    }
}

const WORK: &str = "echo committed > committed.txt && git add committed.txt && git commit -qm 'My own commit'
echo changed >> README.md
mkdir -p new && echo untracked > new/untracked.txt && chmod +x new/untracked.txt
echo secret > ignored.txt
rm src/main.sh";

#[tokio::test]
async fn a_stop_ends_with_everything_on_a_branch_in_the_persons_repository() {
    let bench = Bench::new().await;
    let (head, status) = (
        bench.person.git(&["rev-parse", "HEAD"]).unwrap(),
        bench.person.git(&["status", "--porcelain", "--ignored"]).unwrap(),
    );
    let index = fs::read(bench.person.path().join(".git/index")).unwrap();
    let id = bench.ran(WORK).await;
    let row = bench.stop(id).await;
    assert!(!row.is_unsaved, "{row:?}");
    let pushed = row.pushed.expect("it was brought");
    assert_eq!(pushed.branch, row.branch);
    for kind in [StepKind::Checkpoint, StepKind::Commit, StepKind::Push, StepKind::Destroy] {
        assert_eq!(bench.step(id, kind).await.unwrap().0, StepStatus::Done, "{kind}");
    }
    assert_eq!(bench.step(id, StepKind::PullRequest).await.unwrap().0, StepStatus::Skipped);

    let git = |arguments: &[&str]| bench.person.git(arguments).unwrap();
    let show = |path: &str| git(&["show", &format!("{}:{path}", pushed.branch)]);
    assert_eq!(show("committed.txt"), "committed");
    assert!(show("README.md").ends_with("changed"));
    assert_eq!(show("new/untracked.txt"), "untracked");
    assert!(git(&["ls-tree", &pushed.branch, "new/"]).starts_with("100755"));
    let names = git(&["ls-tree", "-r", "--name-only", &pushed.branch]);
    assert!(!names.contains("ignored.txt") && !names.contains("main.sh"), "{names}");
    assert_eq!(git(&["log", "--format=%s", &format!("main..{}", pushed.branch)]).lines().last(), Some("My own commit"));
    assert!(git(&["log", "-1", "--format=%b", &pushed.branch]).contains(&id.to_string()), "commits name the sandbox");

    assert_eq!(git(&["rev-parse", "HEAD"]), head, "the person's own branch has not moved");
    assert_eq!(git(&["status", "--porcelain", "--ignored"]), status);
    assert_eq!(fs::read(bench.person.path().join(".git/index")).unwrap(), index);
    git(&["fsck", "--strict", "--no-dangling"]);
    bench.git_in(&bench.vault(), &["fsck", "--strict", "--no-dangling"]);
}

#[tokio::test]
async fn each_turn_has_its_checkpoint_and_any_two_can_be_compared() {
    let bench = Bench::new().await;
    let id = bench.ran("echo one > one.txt").await;
    bench
        .world
        .engine
        .sandbox_send(id, "echo two > two.txt; echo more >> one.txt", courier_engine::engine::SendHow::Queue)
        .await
        .unwrap();
    bench.idle(id).await;
    let all = bench.world.engine.sandbox_checkpoints(id).await.unwrap();
    let turns: Vec<_> = all.iter().map(|one| (one.turn, one.files_changed)).collect();
    assert_eq!(turns, [(Some(1), 1), (Some(2), 2)]);
    let paths = async |from, to| -> Vec<String> {
        let changes = bench.world.engine.changes(id, from, to).await.unwrap();
        changes.files.into_iter().map(|file| file.path).collect()
    };
    assert_eq!(paths(None, None).await, ["one.txt", "two.txt"]);
    assert_eq!(paths(None, Some(all[0].id)).await, ["one.txt"]);
    assert_eq!(paths(Some(all[1].id), Some(all[0].id)).await, ["one.txt", "two.txt"]);
    let patch = bench.world.engine.changes_patch(id, None, None).await.unwrap();
    let copy = Repository::ordinary().unwrap();
    copy.write("the.patch", &String::from_utf8(patch.text).unwrap()).unwrap();
    copy.git(&["apply", "--index", "the.patch"]).unwrap();
    assert_eq!(fs::read_to_string(copy.path().join("one.txt")).unwrap(), "one\nmore\n");
}

#[tokio::test]
async fn a_paused_sandbox_is_saved_and_ends_without_being_woken() {
    let bench = Bench::new().await;
    let id = bench.begun("echo half > half.txt; echo written; sleep 600").await;
    bench.world.until(id, |row| row.is_working).await;
    let workspace = bench.world.engine.sandbox_details(id).await.unwrap().workspace;
    while !workspace.join("half.txt").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.world.engine.sandbox_pause(id).await.unwrap();
    bench.world.until(id, |row| row.lifecycle.status == Status::Paused).await;
    bench.checkpoints_until(id, |all| all.iter().any(|one| one.name == "pause")).await;
    let row = bench.stop(id).await;
    let transitions = bench.world.engine.sandbox_details(id).await.unwrap().transitions;
    assert!(transitions.iter().all(|change| (change.from, change.to) != (Some(Status::Paused), Status::Running)));
    let branch = row.pushed.unwrap().branch;
    assert_eq!(bench.person.git(&["show", &format!("{branch}:half.txt")]).unwrap(), "half");
}

#[tokio::test]
async fn a_sandbox_that_goes_away_by_itself_is_saved_all_the_same() {
    let mut bench = Bench::new().await;
    let id = bench.ran("echo kept > kept.txt && git add -A && git commit -qm mine; echo later > later.txt").await;
    let directory = bench.world.home.path().join("sandboxes").join(id.to_string());
    let record: serde_json::Value = serde_json::from_slice(&fs::read(directory.join("keeper.json")).unwrap()).unwrap();
    let keeper = i32::try_from(record["keeper"]["pid"].as_i64().unwrap()).unwrap();
    // SAFETY: a system call without pointers; the keeper is this test's own.
    assert_eq!(unsafe { libc::kill(keeper, libc::SIGKILL) }, 0);
    let row = bench.world.until(id, |row| row.lifecycle.status == Status::Killed).await;
    assert_eq!(row.lifecycle.ending.map(|ending| ending.code()), Some("lost"));
    // What is owed to it is a job, taken up at the next start at the latest.
    bench.world.restart_on_this_machine().await;
    let row = bench.world.until(id, |row| row.pushed.is_some()).await;
    let branch = row.pushed.unwrap().branch;
    assert_eq!(bench.person.git(&["show", &format!("{branch}:later.txt")]).unwrap(), "later");
    assert_eq!(
        bench.person.git(&["log", "--format=%s", &format!("main..{branch}")]).unwrap().lines().last(),
        Some("mine")
    );
}

#[tokio::test]
async fn a_sandbox_whose_time_is_over_is_saved_before_it_ends() {
    let bench = Bench::new().await;
    let new = NewSandbox {
        timeout: Duration::from_secs(2),
        ..NewSandbox::of(bench.project, AgentKind::Shell, "echo half > half.txt; sleep 600")
    };
    let id = bench.world.engine.sandbox_create(new).await.unwrap().id;
    let row = bench.world.until(id, |row| row.lifecycle.status == Status::Killed).await;
    assert_eq!(row.lifecycle.ending.map(|ending| ending.code()), Some("timed_out"));
    let branch = row.pushed.unwrap().branch;
    assert_eq!(bench.person.git(&["show", &format!("{branch}:half.txt")]).unwrap(), "half");
}

#[tokio::test]
async fn an_agent_that_is_killed_leaves_its_work_in_a_checkpoint() {
    let bench = Bench::new().await;
    let id = bench.ran("echo half > half.txt; kill -9 $$").await;
    let last = bench.world.engine.sandbox_checkpoints(id).await.unwrap().pop().unwrap();
    let tree = bench.git_in(&bench.vault(), &["ls-tree", "--name-only", &last.commit]);
    assert!(tree.contains("half.txt"), "{tree}");
    let row = bench.stop(id).await;
    assert_eq!(bench.person.git(&["show", &format!("{}:half.txt", row.pushed.unwrap().branch)]).unwrap(), "half");
}

#[tokio::test]
async fn nothing_changed_means_nothing_is_brought() {
    let bench = Bench::new().await;
    let id = bench.ran("true").await;
    let row = bench.stop(id).await;
    assert_eq!(row.pushed, None);
    assert_eq!(bench.step(id, StepKind::Push).await, Some((StepStatus::Skipped, "nothing was changed".to_owned())));
    assert_eq!(bench.person.git(&["branch", "--list", "courier/*"]).unwrap(), "");
}

#[tokio::test]
async fn a_project_that_asks_first_delivers_when_it_is_asked() {
    let bench = Bench::new().await;
    bench.settings(|settings| settings.deliver = DeliverWhen::Ask).await;
    let id = bench.ran("echo x > x.txt").await;
    let row = bench.stop(id).await;
    assert_eq!(row.pushed, None);
    assert_eq!(bench.step(id, StepKind::Push).await.unwrap().0, StepStatus::Held);
    bench.world.engine.sandbox_deliver(id, DeliverOptions::default()).await.unwrap();
    assert!(bench.world.engine.delivered(id).await.unwrap().sandbox.pushed.is_some());
}

#[tokio::test]
async fn workflows_are_held_until_the_person_has_confirmed_them() {
    let bench = Bench::new().await;
    let id = bench.ran("mkdir -p .github/workflows && echo 'on: push' > .github/workflows/x.yml").await;
    bench.stop(id).await;
    let state = bench.world.engine.delivered(id).await.unwrap();
    let workflow = ".github/workflows/x.yml".to_owned();
    assert_eq!(state.held, Some((vec![workflow.clone()], vec![])));
    assert!(state.sandbox.pushed.is_none() && bench.step(id, StepKind::Push).await.unwrap().1.contains(&workflow));
    bench.world.engine.sandbox_deliver(id, DeliverOptions::default()).await.unwrap();
    assert!(bench.world.engine.delivered(id).await.unwrap().held.is_some(), "asking once more confirms nothing");
    let options = DeliverOptions { is_confirmed: true, ..DeliverOptions::default() };
    bench.world.engine.sandbox_deliver(id, options).await.unwrap();
    assert!(bench.world.engine.delivered(id).await.unwrap().sandbox.pushed.is_some());
}

#[tokio::test]
async fn more_work_goes_to_the_same_branch() {
    let bench = Bench::new().await;
    let id = bench.ran("echo one > one.txt").await;
    bench.world.engine.sandbox_deliver(id, DeliverOptions::default()).await.unwrap();
    let first = bench.world.engine.delivered(id).await.unwrap().sandbox.pushed.unwrap();
    bench.world.engine.sandbox_send(id, "echo two > two.txt", courier_engine::engine::SendHow::Queue).await.unwrap();
    bench.idle(id).await;
    let second = bench.stop(id).await.pushed.unwrap();
    assert_eq!(first.branch, second.branch);
    assert_ne!(first.commit, second.commit);
    let names = bench.person.git(&["ls-tree", "--name-only", &second.branch]).unwrap();
    assert!(names.contains("one.txt") && names.contains("two.txt"), "{names}");
    assert_eq!(bench.person.git(&["branch", "--list", "courier/*"]).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_new_sandbox_begins_where_a_checkpoint_was() {
    let bench = Bench::new().await;
    let id = bench.ran("echo one > one.txt && git add -A && git commit -qm one; echo loose > loose.txt").await;
    let checkpoint = bench.world.engine.sandbox_checkpoints(id).await.unwrap().pop().unwrap();
    bench.stop(id).await;
    let new = NewSandbox {
        begin: Some(checkpoint.id),
        ..NewSandbox::of(
            bench.project,
            AgentKind::Shell,
            "git log --format=%s -1; git status --porcelain; cat loose.txt",
        )
    };
    let next = bench.world.engine.sandbox_create(new).await.unwrap().id;
    bench.idle(next).await;
    assert_eq!(String::from_utf8(bench.world.log(next).await).unwrap(), "one\n?? loose.txt\nloose\n");
    let names: Vec<_> =
        bench.world.engine.changes(next, None, None).await.unwrap().files.into_iter().map(|file| file.path).collect();
    assert_eq!(names, ["loose.txt", "one.txt"], "what it began with counts as its own");
}

#[tokio::test]
async fn a_sandbox_can_begin_with_what_the_person_has_not_committed() {
    let bench = Bench::new().await;
    bench.person.write("README.md", "mine\n").unwrap();
    bench.person.write("draft.txt", "a draft\n").unwrap();
    let before = bench.person.git(&["status", "--porcelain"]).unwrap();
    let new = NewSandbox {
        includes_uncommitted: true,
        ..NewSandbox::of(bench.project, AgentKind::Shell, "cat README.md draft.txt; ls ignored.txt")
    };
    let id = bench.world.engine.sandbox_create(new).await.unwrap().id;
    bench.idle(id).await;
    let log = String::from_utf8(bench.world.log(id).await).unwrap();
    assert!(log.starts_with("mine\na draft\n") && log.contains("No such file"), "{log}");
    assert_eq!(bench.person.git(&["status", "--porcelain"]).unwrap(), before, "theirs is as it was");
}

#[tokio::test]
async fn the_working_tree_can_be_made_what_it_was() {
    let bench = Bench::new().await;
    let id = bench.ran("echo good > good.txt; echo keep > ignored.txt").await;
    let good = bench.world.engine.sandbox_checkpoints(id).await.unwrap().pop().unwrap();
    bench
        .world
        .engine
        .sandbox_send(id, "rm -rf good.txt README.md .git; echo bad > bad.txt", courier_engine::engine::SendHow::Queue)
        .await
        .unwrap();
    bench.idle(id).await;
    bench.world.engine.checkpoint_restore(id, good.id).await.unwrap();
    let workspace = bench.world.engine.sandbox_details(id).await.unwrap().workspace;
    assert_eq!(fs::read_to_string(workspace.join("good.txt")).unwrap(), "good\n");
    assert!(workspace.join("README.md").exists() && !workspace.join("bad.txt").exists());
    assert_eq!(fs::read_to_string(workspace.join("ignored.txt")).unwrap(), "keep\n", "what is ignored stays");
    let all = bench.world.engine.sandbox_checkpoints(id).await.unwrap();
    let saved = all.iter().find(|one| one.name.starts_with("asked-")).expect("what was there is saved first");
    let names: Vec<_> = bench
        .world
        .engine
        .changes(id, Some(good.id), Some(saved.id))
        .await
        .unwrap()
        .files
        .into_iter()
        .map(|file| file.path)
        .collect();
    assert!(names.contains(&"bad.txt".to_owned()), "{names:?}");
}

#[tokio::test]
async fn an_app_that_is_quit_in_mid_turn_has_saved_what_there_was() {
    let mut bench = Bench::new().await;
    let id = bench.begun("echo half > half.txt; sleep 600").await;
    let workspace = bench.world.engine.sandbox_details(id).await.unwrap().workspace;
    while !workspace.join("half.txt").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.world.restart_on_this_machine().await;
    let all = bench.world.engine.sandbox_checkpoints(id).await.unwrap();
    let quit = all.iter().find(|one| one.name == "quit").expect("it was saved at the end");
    let tree = bench.git_in(&bench.vault(), &["ls-tree", "--name-only", &quit.commit]);
    assert!(tree.contains("half.txt"), "{tree}");
    bench.stop(id).await;
}
