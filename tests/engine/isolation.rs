//! Attacks from inside on what lies around a real workspace: the mirror it borrows from, its neighbours, the app's data,
//! and whoever reads what was planted in it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use courier_engine::{
    engine::{NewSandbox, SendHow},
    model::AgentKind,
};

use crate::world::World;

/// Every file below a folder: its mode and its bytes.
fn everything_below(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        if entry.file_type().unwrap().is_dir() {
            found.extend(everything_below(&path));
            found.insert(path, (mode, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, (mode, bytes));
        }
    }
    found
}

#[tokio::test]
async fn a_workspace_can_change_nothing_of_the_mirror_it_borrows_from() {
    let world = World::on_this_machine().await;
    let project = world.project().await;
    let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "git log --oneline | wc -l")).await;
    let id = id.unwrap().id;
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    let mirror = world.home.path().join("projects").join(project.to_string()).join("mirror.git");
    let before = everything_below(&mirror);
    assert!(before.keys().any(|path| path.starts_with(mirror.join("objects")) && path.is_file()), "it has objects");

    let attack = r#"
        borrowed=$(cat .git/objects/info/alternates); ls "$borrowed" >/dev/null && echo seen
        ls "$borrowed/.." | tr '\n' ' '
        find "$borrowed" -type f | while read -r object; do
          (echo x > "$object") 2>/dev/null && echo written
          chmod 666 "$object" 2>/dev/null && echo changed
          rm -f "$object" 2>/dev/null && echo removed
          ln "$object" hard 2>/dev/null && echo linked
          mv "$object" moved 2>/dev/null && echo moved
          (echo x | dd of="$object" conv=notrunc) 2>/dev/null && echo overwritten
        done
        (: > "$borrowed/planted") 2>/dev/null && echo planted
        mkdir "$borrowed/ff" 2>/dev/null && echo made
        mv "$borrowed" away 2>/dev/null && echo away
        echo change > file && git add file && git commit -qm change && echo committed
        git push -q "$borrowed/.." HEAD:refs/heads/main 2>/dev/null && echo pushed
        git repack -qadl; git gc -q --prune=now --aggressive; git prune --expire=now; git -C "$borrowed/.." gc 2>/dev/null && echo collected
        git fsck --no-progress 2>&1 | grep -v dangling; echo end"#;
    world.engine.sandbox_send(id, attack, SendHow::Queue).await.unwrap();
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    let log = String::from_utf8_lossy(&world.log(id).await).into_owned();
    assert!(log.ends_with("seen\nobjects committed\nend\n"), "{log}");
    assert!(everything_below(&mirror) == before, "the mirror is not as it was");

    // Who comes later gets what upstream has.
    let later = NewSandbox::of(project, AgentKind::Shell, "git fsck --no-progress && git status --short && ls file");
    let later = world.engine.sandbox_create(later).await.unwrap().id;
    world.until(later, |row| !row.is_working && row.queued == 0).await;
    let log = String::from_utf8_lossy(&world.log(later).await).into_owned();
    assert!(log.contains("No such file") && !log.contains("error"), "{log}");
    end(&world, &[id, later]).await;
}

#[tokio::test]
async fn neighbours_and_the_apps_own_data_are_not_there() {
    let world = World::on_this_machine().await;
    let project = world.project().await;
    let first = NewSandbox::of(project, AgentKind::Shell, "echo of the first > secret; echo $PWD");
    let first = world.engine.sandbox_create(first).await.unwrap().id;
    world.until(first, |row| !row.is_working && row.queued == 0).await;
    let home = world.home.path().display().to_string();
    let script = format!(
        "cat {home}/courier.db {home}/lock {home}/sandboxes/{first}/workspace/secret {home}/sandboxes/{first}/turns/*/out 2>/dev/null
         ls -A {home} {home}/sandboxes | tr '\\n' ' '; ls -A .. | tr '\\n' ' '; echo end"
    );
    let second = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, &script)).await.unwrap().id;
    world.until(second, |row| !row.is_working && row.queued == 0).await;
    let log = String::from_utf8_lossy(&world.log(second).await).into_owned();
    assert_eq!(log, format!("{home}: projects sandboxes  {home}/sandboxes: {second} home workspace end\n"));
    end(&world, &[first, second]).await;
}

/// A repository is a program: hooks, drivers, monitors. Outside, nobody opens one that an agent has touched.
#[tokio::test]
async fn what_is_planted_in_a_workspace_runs_nowhere_outside() {
    let mut world = World::on_this_machine().await;
    let outside = world.home.path().join("ran-outside");
    let project = world.project().await;
    let script = format!(
        r#"printf '#!/bin/sh\ntouch {outside}\n' > ~/run; chmod +x ~/run
           for hook in post-checkout pre-commit post-merge reference-transaction pre-auto-gc; do cp ~/run .git/hooks/$hook; done
           git config core.fsmonitor ~/run; git config core.sshCommand ~/run; git config core.pager ~/run
           git config filter.x.clean ~/run; git config filter.x.smudge ~/run; git config diff.x.textconv ~/run
           echo '* filter=x diff=x' > .gitattributes; git config include.path /dev/zero
           echo /etc > .git/objects/info/alternates; ln -sf /etc/shadow README.md; rm -f .git/index; mkfifo .git/index fifo
           ln -s {home} data; ln -s / root; ln -s loop loop; chmod 000 notes; echo planted"#,
        outside = outside.display(),
        home = world.home.path().display(),
    );
    let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, &script)).await.unwrap().id;
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    assert!(world.log(id).await.ends_with(b"planted\n"));

    world.restart_on_this_machine().await;
    world.engine.sandbox_send(id, "echo again", SendHow::Queue).await.unwrap();
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    assert!(world.log(id).await.ends_with(b"again\n"), "and it hinders nobody");
    world.engine.sandbox_details(id).await.unwrap();
    world.engine.project_defaults(project).await.unwrap();
    let another = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, "git status -s; ls")).await;
    let another = another.unwrap().id;
    world.until(another, |row| !row.is_working && row.queued == 0).await;
    end(&world, &[id, another]).await;
    assert!(!outside.exists(), "somebody ran what the agent had planted");
}

/// A program that runs as its owner, left in a workspace, would be anybody's way to this user.
#[tokio::test]
async fn no_other_user_of_the_machine_finds_what_an_agent_leaves() {
    let mut world = World::on_this_machine().await;
    let open = world.home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    world.restart_on_this_machine().await;
    let (id, directory) = {
        let project = world.project().await;
        let script = "cp /usr/bin/id trap; chmod 6755 trap; echo left";
        let id = world.engine.sandbox_create(NewSandbox::of(project, AgentKind::Shell, script)).await.unwrap().id;
        (id, world.home.path().join("sandboxes").join(id.to_string()))
    };
    world.until(id, |row| !row.is_working && row.queued == 0).await;
    let trap = fs::metadata(directory.join("workspace/trap")).unwrap();
    assert_eq!(trap.mode() & 0o7777, 0o6755, "it truly lies there");
    for folder in [world.home.path(), &directory] {
        assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
    }
    end(&world, &[id]).await;
}

async fn end(world: &World, sandboxes: &[courier_engine::model::SandboxId]) {
    for &sandbox in sandboxes {
        world.engine.sandbox_stop(sandbox).await.unwrap();
        world.until(sandbox, |row| !row.lifecycle.status.is_live()).await;
    }
}
