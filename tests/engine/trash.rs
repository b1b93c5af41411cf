//! The trash: what is deleted is hidden and comes back, what is purged is gone, and nothing else is ever touched.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use courier_engine::{
    agent::Exit,
    engine::{Code, NewSandbox, StorageEntry},
    model::{Activity, AgentKind, ProjectId, SandboxId, Status},
    store::{Query, SandboxRow},
};
use courier_test_support::{
    repositories::{Repository, git},
    trouble::{Call, Trouble},
};
use rusqlite::Connection;

use crate::world::{World, open};

const MARKER: &str = ".courier-sandbox";

fn ended(row: &SandboxRow) -> bool {
    row.lifecycle.status == Status::Killed && row.lifecycle.activity == Activity::None
}

fn folder(home: &Path, id: SandboxId) -> PathBuf {
    home.join("sandboxes").join(id.to_string())
}

fn database(home: &Path) -> Connection {
    Connection::open(home.join("courier.db")).unwrap()
}

async fn listed(world: &World, search: Option<&str>) -> Vec<SandboxId> {
    let query = Query { search: search.map(str::to_owned), limit: 10, ..Query::default() };
    let page = world.engine.sandbox_list(query).await.unwrap();
    assert_eq!(page.total as usize, page.rows.len());
    page.rows.into_iter().map(|row| row.id).collect()
}

async fn trash(world: &World) -> Vec<SandboxId> {
    world.engine.trash_list(None).await.unwrap().into_iter().map(|row| row.id).collect()
}

/// A sandbox of this project that has printed something, and ended.
async fn finished(world: &World, project: ProjectId, prompt: &str) -> SandboxId {
    let created = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, prompt)).await.unwrap();
    let turn = world.turn_with(prompt).await;
    world.provider.print(turn, format!("{prompt} printed this\n").repeat(1000).as_bytes());
    world.provider.end(turn, Exit::Code(0));
    world.until(created.id, |row| row.started_at.is_some() && !row.is_working && row.queued == 0).await;
    world.engine.sandbox_stop(created.id).await.unwrap();
    world.until(created.id, ended).await;
    created.id
}

/// A project over somebody's own repository, and how that repository is.
async fn project_of(world: &World, repository: &Repository) -> (ProjectId, Vec<String>) {
    let project = world.engine.project_add(&repository.source(), None).await.unwrap().id;
    (project, state(repository))
}

/// Everything that could be changed of a repository.
fn state(repository: &Repository) -> Vec<String> {
    repository.git(&["fsck", "--full", "--strict"]).unwrap();
    let mut state = vec![
        repository.git(&["for-each-ref"]).unwrap(),
        repository.git(&["status", "--porcelain", "--ignored"]).unwrap(),
        repository.git(&["rev-parse", "HEAD"]).unwrap(),
    ];
    let mut waiting = vec![repository.path().to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let (entry, path) = entry.map(|entry| (entry.metadata().unwrap(), entry.path())).unwrap();
            // Git itself refreshes its index when it is asked for the status.
            if !path.ends_with(".git/index") && !path.ends_with(".git") {
                state.push(format!("{} {:o}", path.display(), entry.permissions().mode()));
            }
            if entry.is_dir() {
                waiting.push(path);
            }
        }
    }
    state.sort();
    state
}

/// Saves what `change` makes of a sandbox's tree as a checkpoint, as the engine does: a commit in the project's vault.
async fn checkpoint(world: &World, id: SandboxId, change: impl Fn(&Path)) -> String {
    let row = world.engine.sandbox_get(id).await.unwrap();
    let project = world.home.path().join("projects").join(row.project.to_string());
    let vault = project.join("vault.git");
    if !vault.exists() {
        git(&project, &["init", "--quiet", "--bare", "vault.git"]).unwrap();
        let mirror = project.join("mirror.git/objects");
        fs::write(vault.join("objects/info/alternates"), format!("{}\n", mirror.display())).unwrap();
    }
    let tree = tempfile::tempdir().unwrap();
    let (vault_path, tree_path) = (vault.display().to_string(), tree.path().display().to_string());
    let in_vault = |words: &[&str]| {
        let place = ["--git-dir", &vault_path, "--work-tree", &tree_path];
        git(tree.path(), &place.into_iter().chain(words.iter().copied()).collect::<Vec<_>>()).unwrap()
    };
    in_vault(&["config", "core.bare", "false"]);
    in_vault(&["read-tree", &row.base_commit]);
    in_vault(&["checkout-index", "--all"]);
    change(tree.path());
    in_vault(&["add", "--all"]);
    let written = in_vault(&["write-tree"]);
    let commit = in_vault(&["commit-tree", &written, "-p", &row.base_commit, "-m", "Checkpoint"]);
    in_vault(&["update-ref", &format!("refs/courier/{id}/turn-1"), &commit]);
    in_vault(&["config", "core.bare", "true"]);
    // Newer than what the engine has taken itself, which is of an empty world.
    let words = "INSERT INTO checkpoints (id, sandbox, name, commit_id, tree_id, head, files_changed, created_at)
                 VALUES (?1, ?2, 'test', ?3, '', '', 1, 9000000000000)";
    database(world.home.path())
        .execute(words, [SandboxId::fresh().to_string(), id.to_string(), commit.clone()])
        .unwrap();
    // Here nothing takes checkpoints, and so the engine has noted that the work is not saved.
    let words = "UPDATE sandboxes SET is_unsaved = 0 WHERE id = ?1";
    database(world.home.path()).execute(words, [id.to_string()]).unwrap();
    commit
}

async fn entry(world: &World, id: SandboxId) -> StorageEntry {
    let storage = world.engine.storage().await.unwrap();
    storage.entries.into_iter().find(|entry| entry.sandbox == id).unwrap()
}

#[tokio::test]
async fn a_deleted_sandbox_is_hidden_and_uncounted_at_once_and_ends() {
    let world = World::new().await;
    world.provider.trouble(Call::Destroy, Trouble { refuses: true, ..Trouble::default() });
    let (id, _) = world.running("a long errand").await;
    assert_eq!(world.engine.project_list().await.unwrap()[0].active_sandboxes, 1);
    world.engine.sandbox_delete(id).await.unwrap();
    let project = &world.engine.project_list().await.unwrap()[0];
    assert_eq!((project.active_sandboxes, project.sandboxes), (0, 0), "at once, while it still runs");
    let row = world.engine.sandbox_get(id).await.unwrap();
    assert!(row.deleted_at.is_some() && row.lifecycle.activity == Activity::Stopping, "{row:?}");
    assert!(listed(&world, None).await.is_empty() && listed(&world, Some("errand")).await.is_empty());
    assert_eq!(trash(&world).await, [id]);
    world.provider.be_well();
    world.until(id, ended).await;
    assert_eq!(world.provider.alive(), 0, "an owner goes on owning what is deleted");
    assert_eq!(world.engine.trash_list(Some(ProjectId::fresh())).await.unwrap(), [], "each project has its own trash");
}

#[tokio::test]
async fn what_is_restored_is_listed_again_whatever_its_status() {
    let world = World::new().await;
    let (id, _) = world.running("an errand").await;
    world.engine.sandbox_delete(id).await.unwrap();
    world.engine.sandbox_restore(id).await.unwrap();
    let row = world.until(id, ended).await;
    assert_eq!(row.deleted_at, None, "the stop goes on");
    assert_eq!(listed(&world, None).await, [id]);
    world.engine.sandbox_delete(id).await.unwrap();
    assert_eq!(trash(&world).await, [id]);
    world.engine.sandbox_restore(id).await.unwrap();
    world.engine.sandbox_restore(id).await.expect("once more does no harm");
    assert_eq!((listed(&world, Some("errand")).await, trash(&world).await), (vec![id], vec![]));
    let nobody = SandboxId::fresh();
    for answer in [
        world.engine.sandbox_delete(nobody).await,
        world.engine.sandbox_restore(nobody).await,
        world.engine.sandbox_purge(nobody).await,
    ] {
        assert_eq!(answer.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test]
async fn deleting_twice_still_lets_the_agent_end_in_peace() {
    let world = World::new().await;
    let (id, turn) = world.running("work").await;
    world.provider.trouble(Call::Signal, Trouble { thinks: Duration::from_millis(200), ..Trouble::default() });
    world.engine.sandbox_delete(id).await.unwrap();
    world.engine.sandbox_delete(id).await.unwrap();
    world.until(id, ended).await;
    let exit = world.provider.spool(turn).unwrap().exit;
    assert_eq!(exit, Some(Exit::Signal(15)), "a second stop would have killed it");
}

#[tokio::test]
async fn a_deletion_that_a_crash_kept_from_stopping_is_made_up_for() {
    let mut world = World::new().await;
    let (id, _) = world.running("work").await;
    world.engine.shutdown().await;
    database(world.home.path()).execute("UPDATE sandboxes SET deleted_at = 1", []).unwrap();
    world.restart().await;
    world.until(id, ended).await;
    assert_eq!(trash(&world).await, [id]);
}

#[tokio::test]
async fn a_purge_leaves_nothing_but_what_was_consumed_and_touches_nothing_else() {
    let world = World::new().await;
    let repository = Repository::ordinary().unwrap();
    let (project, before) = project_of(&world, &repository).await;
    let (id, other) = (finished(&world, project, "purged").await, finished(&world, project, "kept").await);
    checkpoint(&world, id, |tree| fs::write(tree.join("new"), "").unwrap()).await;
    checkpoint(&world, other, |tree| fs::write(tree.join("new"), "").unwrap()).await;
    let conversation = world.items(other).await;
    let home = world.home.path();
    database(home)
        .execute(
            "INSERT INTO usage_records (id, project, sandbox, turn, title, service, unit, quantity, cost, at)
             SELECT 'u', project, id, (SELECT id FROM turns WHERE sandbox = sandboxes.id), title, 's', 'u', 7, 9, 1
             FROM sandboxes WHERE id = ?1",
            [id.to_string()],
        )
        .unwrap();
    let workspace = folder(home, id).join("workspace");
    symlink(repository.path(), workspace.join("link")).unwrap();
    symlink(repository.path().join(".git"), workspace.join("src/.git")).unwrap();
    fs::hard_link(repository.path().join("README.md"), workspace.join("same")).unwrap();
    fs::create_dir_all(workspace.join("closed/in")).unwrap();
    fs::set_permissions(workspace.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();

    let refused = world.engine.sandbox_purge(id).await.unwrap_err();
    assert_eq!(refused.code(), Code::IllegalState, "it is not in the trash: {refused}");
    assert!(workspace.join("link").is_symlink());
    world.engine.sandbox_delete(id).await.unwrap();
    let facts = world.engine.purge_facts(id).await.unwrap();
    assert_eq!((facts.uncommitted_files, facts.unpushed_commits, facts.is_live), (1, 0, false), "{facts:?}");
    assert!(facts.bytes > 0 && facts.path == folder(home, id), "{facts:?}");
    world.engine.sandbox_purge(id).await.unwrap();

    assert_eq!(world.engine.sandbox_get(id).await.unwrap_err().code(), Code::NotFound);
    assert!(!folder(home, id).exists() && folder(home, other).join("workspace").is_dir());
    let database = database(home);
    let tables: Vec<String> = database
        .prepare("SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'sandbox'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(tables.len() > 5, "{tables:?}");
    for table in &tables {
        let count = |id: SandboxId| -> u32 {
            let words = format!("SELECT COUNT(*) FROM {table} WHERE sandbox = ?1");
            database.query_row(&words, [id.to_string()], |row| row.get(0)).unwrap()
        };
        assert_eq!(count(id), 0, "{table} holds something of it");
        if ["messages", "turns", "stream_log", "transcript_items"].contains(&table.as_str()) {
            assert!(count(other) > 0, "{table} lost what is another's");
        }
    }
    let dangling: u32 =
        database.query_row("SELECT COUNT(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
    assert_eq!(dangling, 0);
    let consumed: (String, Option<String>, Option<String>, String, i64, i64) = database
        .query_row("SELECT project, sandbox, turn, title, quantity, cost FROM usage_records", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        })
        .unwrap();
    assert_eq!(consumed, (project.to_string(), None, None, "purged".to_owned(), 7, 9));

    let bare = home.join("projects").join(project.to_string());
    for (repository, prefix) in [("mirror.git", "refs/courier/pins"), ("vault.git", "refs/courier")] {
        git(&bare.join(repository), &["fsck", "--full"]).unwrap();
        let left = git(&bare.join(repository), &["for-each-ref", "--format=%(refname)", prefix]).unwrap();
        assert!(left.contains(&other.to_string()) && !left.contains(&id.to_string()), "{repository}: {left}");
    }
    assert_eq!(state(&repository), before, "the person's repository is as it was");
    assert_eq!((trash(&world).await, listed(&world, None).await), (vec![], vec![other]));
    assert_eq!(world.items(other).await, conversation, "the other's conversation is whole");
}

#[tokio::test]
async fn what_has_not_ended_is_not_purged() {
    let world = World::new().await;
    world.provider.refuse_destroy(true);
    let (id, _) = world.running("work").await;
    world.engine.sandbox_delete(id).await.unwrap();
    assert!(world.engine.purge_facts(id).await.unwrap().is_live);
    let refused = world.engine.sandbox_purge(id).await.unwrap_err();
    assert!(refused.code() == Code::IllegalState && refused.detail().is_some(), "{refused}");
    assert_eq!(world.engine.trash_empty().await.unwrap(), 0, "it waits until it has ended");
    assert!(folder(world.home.path(), id).join("workspace").is_dir());
    world.provider.refuse_destroy(false);
    world.until(id, ended).await;
    assert_eq!(world.engine.trash_empty().await.unwrap(), 1);
    assert!(trash(&world).await.is_empty() && !folder(world.home.path(), id).exists());
    assert_eq!(world.provider.alive(), 0);
}

#[tokio::test]
async fn what_was_given_up_is_made_to_end_before_its_files_go() {
    let world = World::new().await;
    world.provider.refuse_destroy(true);
    let (id, _) = world.running("work").await;
    world.engine.sandbox_delete(id).await.unwrap();
    world.engine.sandbox_give_up(id).await.unwrap();
    world.until(id, ended).await;
    let refused = world.engine.sandbox_purge(id).await.unwrap_err();
    assert!(world.provider.alive() == 1 && folder(world.home.path(), id).join("workspace").is_dir(), "{refused}");
    let row = world.engine.sandbox_get(id).await.unwrap();
    assert!(row.headline.contains("could not be purged"), "{}", row.headline);
    let refused = world.engine.sandbox_restore(id).await.unwrap_err();
    assert_eq!(refused.code(), Code::IllegalState, "its purge has begun");
    world.provider.refuse_destroy(false);
    world.engine.sandbox_purge(id).await.unwrap();
    assert_eq!(world.provider.alive(), 0);
    assert!(!folder(world.home.path(), id).exists());
}

#[tokio::test]
async fn a_purge_that_was_broken_off_goes_on_at_the_next_start() {
    type Crash = fn(&Connection, &Path, &str);
    let stages: [Crash; 5] = [
        |_, _, _| {},
        |_, folder, _| fs::remove_dir_all(folder.join("workspace")).unwrap(),
        |_, folder, _| fs::remove_dir_all(folder).unwrap(),
        |database, folder, id| {
            fs::remove_dir_all(folder).unwrap();
            database.execute("DELETE FROM stream_log WHERE sandbox = ?1", [id]).unwrap();
            database.execute("DELETE FROM transcript_items WHERE sandbox = ?1 AND seq > 1", [id]).unwrap();
        },
        |_, folder, _| {
            fs::remove_dir_all(folder).unwrap();
            fs::create_dir(folder).unwrap();
        },
    ];
    let mut world = World::new().await;
    let project = world.project().await;
    for (number, crash) in stages.into_iter().enumerate() {
        let id = finished(&world, project, &format!("stage {number}")).await;
        world.engine.sandbox_delete(id).await.unwrap();
        world.engine.shutdown().await;
        {
            let database = database(world.home.path());
            database.execute("UPDATE sandboxes SET purge_at = 1 WHERE id = ?1", [id.to_string()]).unwrap();
            crash(&database, &folder(world.home.path(), id), &id.to_string());
        }
        world.restart().await;
        let mut changes = world.engine.feed().changes();
        let gone = async {
            while world.engine.sandbox_get(id).await.is_ok() {
                _ = changes.recv().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap_or_else(|_| panic!("stage {number} stays"));
        assert!(!folder(world.home.path(), id).exists(), "stage {number}");
    }
}

#[tokio::test]
async fn a_folder_that_is_not_certain_to_be_ours_stays_and_so_does_its_row() {
    let world = World::new().await;
    let project = world.project().await;
    let id = finished(&world, project, "work").await;
    world.engine.sandbox_delete(id).await.unwrap();
    let folder = folder(world.home.path(), id);
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = elsewhere.path().join("moved");

    fs::remove_file(folder.join(MARKER)).unwrap();
    let refused = world.engine.sandbox_purge(id).await.unwrap_err();
    assert_eq!(refused.code(), Code::DataFolder, "{refused}");
    assert!(refused.to_string().contains(&folder.display().to_string()), "{refused} says which");
    fs::write(folder.join(MARKER), "").unwrap();

    fs::rename(&folder, &moved).unwrap();
    symlink(&moved, &folder).unwrap();
    let refused = world.engine.sandbox_purge(id).await.unwrap_err();
    assert_eq!(refused.code(), Code::DataFolder, "{refused}");
    assert!(moved.join("workspace/.git").is_dir(), "what lies elsewhere is left alone");
    assert_eq!(trash(&world).await, [id], "nothing of it was removed");
    world.engine.sandbox_restore(id).await.expect("nor was its purge begun");
    world.engine.sandbox_delete(id).await.unwrap();

    fs::remove_file(&folder).unwrap();
    fs::rename(&moved, &folder).unwrap();
    world.engine.sandbox_purge(id).await.unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn storage_names_what_is_safe_and_only_that_is_cleaned() {
    let world = World::new().await;
    let repository = Repository::ordinary().unwrap();
    let (project, before) = project_of(&world, &repository).await;
    let (clean, changed) = (finished(&world, project, "clean").await, finished(&world, project, "changed").await);
    let (live, _) = world.running("live").await;
    checkpoint(&world, clean, |_| {}).await;
    checkpoint(&world, changed, |tree| {
        fs::write(tree.join("README.md"), "another").unwrap();
        fs::write(tree.join("new"), "").unwrap();
    })
    .await;
    let home = world.home.path();
    let large = vec![7; 3 << 20];
    fs::write(folder(home, clean).join("workspace/large"), &large).unwrap();
    fs::hard_link(folder(home, clean).join("workspace/large"), folder(home, clean).join("workspace/again")).unwrap();
    symlink(repository.path(), folder(home, clean).join("workspace/link")).unwrap();
    let spool = folder(home, clean).join("turns/none");
    fs::create_dir_all(&spool).unwrap();
    fs::write(spool.join("out"), &large).unwrap();

    let storage = world.engine.storage().await.unwrap();
    assert!(storage.is_whole && storage.entries.len() == 3);
    let parts: u64 = storage.entries.iter().map(|entry| entry.bytes - entry.log_bytes).sum();
    let rest = storage.total - parts - storage.mirrors - storage.vaults - storage.database;
    assert!(rest < 1 << 20, "the total is the sum of its parts, and {rest} bytes of lock and log");
    assert!(storage.database >= 1 << 16 && storage.mirrors > 0 && storage.vaults > 0, "{storage:?}");
    let found = entry(&world, clean).await;
    let once = large.len() as u64;
    assert!(found.is_safe && found.log_bytes > 0, "{found:?}");
    assert!((once..2 * once).contains(&found.workspace_bytes), "counted once, by either of its names: {found:?}");
    assert!((once..once + (1 << 20)).contains(&found.spool_bytes), "{found:?}");
    for (id, reason) in [(changed, "changes to 2 files were not pushed"), (live, "it has not ended")] {
        let found = entry(&world, id).await;
        assert_eq!((found.is_safe, found.reason.as_str()), (false, reason));
    }

    let refused = world.engine.storage_clean(vec![clean, changed]).await.unwrap_err();
    assert!(refused.code() == Code::IllegalState && refused.to_string().contains("changed"), "{refused}");
    assert!(folder(home, clean).join("workspace/large").exists(), "nothing was removed");
    let freed = world.engine.storage_clean(vec![clean]).await.unwrap();
    assert!(freed >= 2 * once, "{freed}");
    let mut left: Vec<_> = fs::read_dir(folder(home, clean)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name != MARKER);
    assert!(left.is_empty(), "{left:?}");
    let row = world.engine.sandbox_get(clean).await.unwrap();
    assert!(row.files_cleaned_at.is_some() && ended(&row));
    assert!(world.log(clean).await.starts_with(b"clean printed this\n"), "the raw log can be read on");
    let found = entry(&world, clean).await;
    assert!(found.workspace_bytes == 0 && found.log_bytes > 0 && found.files_cleaned_at.is_some(), "{found:?}");
    assert_eq!(world.engine.storage_clean(vec![clean]).await.unwrap(), 0);
    assert_eq!(state(&repository), before);
    // What was cleaned is purged like everything else.
    world.engine.sandbox_delete(clean).await.unwrap();
    world.engine.sandbox_purge(clean).await.unwrap();
}

#[tokio::test]
async fn without_a_checkpoint_its_folder_is_all_there_is() {
    let world = World::new().await;
    let project = world.project().await;
    let id = finished(&world, project, "work").await;
    let found = entry(&world, id).await;
    assert!(!found.is_safe && found.reason.contains("never saved"), "{found:?}");
    let refused = world.engine.storage_clean(vec![id]).await.unwrap_err();
    assert!(refused.to_string().contains("never saved"), "{refused}");
    let facts = world.engine.purge_facts(id).await.unwrap();
    assert!(facts.lost.iter().any(|sentence| sentence.contains("never saved")), "{facts:?}");
    assert!(facts.kept.iter().any(|sentence| sentence.contains("not touched")), "{facts:?}");
    let unread = folder(world.home.path(), id).join("workspace/.git/refs/stash");
    fs::write(unread, "0123456789012345678901234567890123456789\n").unwrap();
    assert!(world.engine.purge_facts(id).await.unwrap().has_stash);
}

#[tokio::test]
async fn a_long_log_is_purged_in_pieces_while_others_write() {
    let mut world = World::new().await;
    let project = world.project().await;
    let id = finished(&world, project, "work").await;
    world.engine.shutdown().await;
    {
        let database = database(world.home.path());
        database
            .execute(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 9000)
                 INSERT INTO stream_log (sandbox, turn, stream, bytes, length)
                 SELECT turns.sandbox, turns.id, 'out', zeroblob(100), 20000 FROM turns, n",
                [],
            )
            .unwrap();
    }
    world.restart().await;
    world.engine.sandbox_delete(id).await.unwrap();
    let (purged, other) = tokio::join!(world.engine.sandbox_purge(id), world.running("meanwhile"));
    purged.unwrap();
    assert_eq!(listed(&world, None).await, [other.0]);
    let home = world.close().await;
    let engine = open(&home, &world.provider).await;
    assert_eq!(engine.sandbox_list(Query { limit: 10, ..Query::default() }).await.unwrap().rows.len(), 1);
}
