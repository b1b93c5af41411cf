//! What a hostile agent leaves, so that whoever looks at it runs its programs, reads a secret, or never ends. Each time:
//! no program ran, no secret is in the vault, and the rest was taken.

use std::{
    ffi::CString,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use courier_checkpoint::take::{self, Taken, Why};

use super::world::{World, git, nested, skipped, write};

const SECRET: &[u8] = b"the secret of this machine\n";

/// A workspace to be attacked from, a secret beside it, and a program that leaves a mark when it runs.
struct Attack {
    world: World,
}

impl Attack {
    fn new() -> Self {
        let world = World::new(&[("README.md", b"# Sample\n"), ("dir/file", b"file\n"), ("dir/other", b"other\n")]);
        write(&world.path("outside/secret"), SECRET);
        let script = format!("#!/bin/sh\ntouch {}\ncat\n", world.path("ran").display());
        write(&world.path("canary"), script.as_bytes());
        fs::set_permissions(world.path("canary"), PermissionsExt::from_mode(0o755)).unwrap();
        world.write("work", "the agent's work\n");
        Self { world }
    }

    fn program(&self) -> String {
        self.world.path("canary").display().to_string()
    }

    fn outside(&self) -> String {
        self.world.path("outside").display().to_string()
    }

    fn configure(&self, lines: &str) {
        let path = self.world.workspace().join(".git/config");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{before}{lines}\n")).unwrap();
    }

    /// The checkpoint, and what must be true of it.
    fn take(&self, name: &str) -> Taken {
        let taken = self.world.take(name);
        self.check(&taken);
        taken
    }

    fn check(&self, taken: &Taken) {
        assert!(!self.world.path("ran").exists(), "a program of the agent's ran");
        let tree = self.world.tree(&taken.tree);
        assert_eq!(tree.get(&b"work"[..]).expect("the rest is taken").1, b"the agent's work\n");
        for (path, (_, bytes)) in tree {
            assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET), "the secret, at {}", path.escape_ascii());
        }
    }
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o644) }, 0);
}

#[test]
fn hooks_do_not_run() {
    let attack = Attack::new();
    for hook in ["pre-commit", "post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman"] {
        let path = attack.world.workspace().join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(attack.world.path("canary"), path).unwrap();
    }
    attack.configure(&format!("[core]\n\thooksPath = {}", attack.world.workspace().join(".git/hooks").display()));
    attack.take("1");
}

#[test]
fn filters_do_not_run() {
    let attack = Attack::new();
    let program = attack.program();
    attack.configure(&format!(
        "[filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n\
         [filter \"lfs\"]\n\tclean = {program}\n\tprocess = {program}\n\trequired = true\n\
         [diff \"evil\"]\n\ttextconv = {program}\n\tcommand = {program}"
    ));
    attack.world.write(".gitattributes", "* filter=evil diff=evil\n*.bin filter=lfs\n");
    attack.world.write("dir/file", "filtered\n");
    attack.world.write("a.bin", "filtered too\n");
    let taken = attack.take("1");
    assert_eq!(attack.world.content(&taken, "dir/file"), b"filtered\n");
    assert_eq!(taken.lfs, ["a.bin"]);
}

#[test]
fn a_file_system_monitor_does_not_run_and_hides_nothing() {
    let attack = Attack::new();
    attack.configure(&format!(
        "[core]\n\tfsmonitor = {}\n\tuntrackedCache = true\n\tignoreStat = true\n\ttrustctime = false\n\
         \tcheckStat = minimal\n\tfileMode = false\n\tpager = {0}\n\teditor = {0}\n\tsshCommand = {0}\n\
         \texcludesFile = {1}",
        attack.program(),
        attack.world.workspace().join("everything").display(),
    ));
    attack.world.write("everything", "*\n");
    attack.world.write("dir/file", "changed\n");
    let index = ["update-index", "--assume-unchanged", "dir/file"];
    git(&attack.world.workspace(), &[&["-c", "core.fsmonitor=false"], &index[..]].concat());
    fs::write(attack.world.workspace().join(".git/info/exclude"), "*\n").unwrap();
    let taken = attack.take("1");
    assert_eq!(attack.world.content(&taken, "dir/file"), b"changed\n");
}

#[test]
fn configuration_that_leads_elsewhere_is_not_read() {
    let attack = Attack::new();
    let outside = attack.outside();
    write(&attack.world.path("outside/config"), format!("[core]\n\tfsmonitor = {}\n", attack.program()).as_bytes());
    attack.configure(&format!(
        "[include]\n\tpath = {outside}/config\n[includeIf \"gitdir:/\"]\n\tpath = {outside}/config\n\
         [core]\n\tworktree = {outside}\n[extensions]\n\tworktreeConfig = true\n\
         [alias]\n\tadd = !{}",
        attack.program()
    ));
    let taken = attack.take("1");
    assert_eq!(attack.world.paths(&taken), ["README.md", "dir/file", "dir/other", "work"]);
    // A pipe as configuration, which whoever opens the repository waits for.
    let config = attack.world.workspace().join(".git/config");
    fs::remove_file(&config).unwrap();
    fifo(&config);
    attack.take("2");
}

#[test]
fn a_link_out_of_the_workspace_is_a_link() {
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    symlink(attack.outside(), workspace.join("folder")).unwrap();
    symlink(format!("{}/secret", attack.outside()), workspace.join("file")).unwrap();
    symlink("/proc/self/environ", workspace.join("environ")).unwrap();
    fs::remove_dir_all(workspace.join("dir")).unwrap();
    symlink(attack.outside(), workspace.join("dir")).unwrap();
    let taken = attack.take("1");
    let tree = attack.world.tree(&taken.tree);
    for name in ["folder", "file", "environ", "dir"] {
        assert_eq!(tree[name.as_bytes()].0, "120000", "{name}");
    }
    assert!(!tree.contains_key(&b"dir/file"[..]));
}

#[test]
fn a_folder_that_becomes_a_link_while_it_is_read_leads_nowhere() {
    const ROUNDS: usize = 40;
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    for name in ["file", "other", "secret"] {
        write(&attack.world.path("outside").join(name), SECRET);
    }
    write(&workspace.join("dir/.gitignore"), b"");
    write(&attack.world.path("outside/.gitignore"), b"*\n");
    let (dir, aside) = (workspace.join("dir"), workspace.join("aside"));
    let link = attack.world.path("link");
    symlink(attack.outside(), &link).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The folder for the link and back, as fast as can be.
            while !is_over.load(Ordering::Relaxed) {
                _ = fs::rename(&dir, &aside);
                _ = fs::rename(&link, &dir);
                _ = fs::rename(&dir, &link);
                _ = fs::rename(&aside, &dir);
            }
        });
        let taken: Vec<Taken> = (0..ROUNDS)
            .map(|round| {
                attack.world.write("changes", round.to_string());
                attack.world.try_take("race").unwrap()
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        taken.iter().for_each(|taken| attack.check(taken));
    });
    // Not by the tree alone: no object of the vault has it.
    let vault = attack.world.path("vault.git");
    let objects = git(&vault, &["cat-file", "--batch-all-objects", "--batch-check"]);
    let blobs = objects.lines().filter(|line| line.contains(" blob ")).map(|line| &line[..40]);
    for blob in blobs {
        assert_ne!(git(&vault, &["cat-file", "blob", blob]).as_bytes(), SECRET);
    }
}

#[test]
fn pipes_sockets_and_devices_are_not_waited_for() {
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    fs::remove_file(workspace.join("dir/file")).unwrap();
    fifo(&workspace.join("dir/file"));
    for name in [".gitignore", ".gitattributes", "pipe", "dir/.gitignore"] {
        fifo(&workspace.join(name));
    }
    let socket = UnixListener::bind(workspace.join("socket")).unwrap();
    write(&workspace.join("deep/file"), b"deep\n");
    let ignore = UnixListener::bind(workspace.join("deep/.gitignore")).unwrap();
    // Only root can make a device.
    let device = CString::new(workspace.join("zero").as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    let is_made = unsafe { libc::mknod(device.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 5)) } == 0;
    let taken = attack.take("1");
    assert_eq!(attack.world.paths(&taken), ["README.md", "deep/file", "dir/other", "work"]);
    let mut expected = vec![
        (".gitattributes", Why::Special),
        (".gitignore", Why::Special),
        ("deep/.gitignore", Why::Special),
        ("dir/.gitignore", Why::Special),
        ("dir/file", Why::Special),
        ("pipe", Why::Special),
        ("socket", Why::Special),
    ];
    expected.extend(is_made.then_some(("zero", Why::Special)));
    assert_eq!(skipped(&taken), expected);
    drop((socket, ignore));
}

#[test]
fn a_pipe_in_place_of_a_repositorys_files_is_not_waited_for() {
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    for (folder, name) in [("one", "HEAD"), ("two", "packed-refs"), ("three", "commondir"), ("four", "x")] {
        nested(&workspace.join(folder), "ref: refs/heads/main\n");
        let path = workspace.join(folder).join(".git").join(name);
        _ = fs::remove_file(&path);
        fifo(&path);
        write(&workspace.join(folder).join("file"), b"within\n");
    }
    fs::create_dir(workspace.join("five")).unwrap();
    fifo(&workspace.join("five/.git"));
    write(&workspace.join("five/file"), b"within\n");
    let taken = attack.take("1");
    let paths = attack.world.paths(&taken);
    assert!(paths.iter().any(|path| path == "five/file") && paths.iter().any(|path| path == "one/file"), "{paths:?}");
    let without = |name| (name, Why::NestedWithoutCommit);
    assert_eq!(skipped(&taken), [without("four"), without("three"), without("two")]);
}

#[test]
fn a_git_file_that_points_outside_is_listed_and_not_followed() {
    const HEAD: &str = "1234567890123456789012345678901234567890";
    let attack = Attack::new();
    let private = attack.world.path("private-repository");
    nested(&private, HEAD);
    let git_folder = private.join(".git");
    let workspace = attack.world.workspace();
    write(&workspace.join("absolute/.git"), format!("gitdir: {}\n", git_folder.display()).as_bytes());
    write(&workspace.join("relative/.git"), b"gitdir: ../../private-repository/.git\n");
    nested(&workspace.join("worktree"), "ref: refs/heads/main\n");
    write(&workspace.join("worktree/.git/commondir"), format!("{}\n", git_folder.display()).as_bytes());
    fs::create_dir(workspace.join("link")).unwrap();
    symlink(&git_folder, workspace.join("link/.git")).unwrap();
    // Within by its letters, outside by a link on the way.
    symlink(&private, workspace.join("bridge")).unwrap();
    write(&workspace.join("crossing/.git"), b"gitdir: ../bridge/.git\n");
    for name in ["absolute", "relative", "worktree", "link", "crossing"] {
        write(&workspace.join(name).join("file"), b"within\n");
    }
    fs::remove_dir_all(workspace.join(".git")).unwrap();
    write(&workspace.join(".git"), format!("gitdir: {}\n", git_folder.display()).as_bytes());
    let taken = attack.take("1");
    let outside = |name| (name, Why::Outside);
    assert_eq!(skipped(&taken), [outside("absolute"), outside("link"), outside("relative"), outside("worktree")]);
    let tree = attack.world.tree(&taken.tree);
    for name in ["absolute", "relative", "worktree", "link", "crossing"] {
        assert_eq!(tree[format!("{name}/file").as_bytes()].1, b"within\n", "what lies in it is the agent's work");
    }
    assert!(!tree.values().any(|(_, bytes)| bytes == HEAD.as_bytes()));
}

#[test]
fn objects_of_a_private_repository_do_not_come_along() {
    let attack = Attack::new();
    let private = attack.world.path("private-repository");
    fs::create_dir(&private).unwrap();
    git(&private, &["init", "-q"]);
    write(&private.join("secret"), SECRET);
    git(&private, &["add", "secret"]);
    let blob = git(&private, &["hash-object", "secret"]);
    let alternates = attack.world.workspace().join(".git/objects/info/alternates");
    fs::write(alternates, format!("{}\n", private.join(".git/objects").display())).unwrap();
    git(
        &attack.world.workspace(),
        &["update-index", "--add", "--cacheinfo", &format!("100644,{},stolen", blob.trim())],
    );
    let taken = attack.take("1");
    assert!(!attack.world.paths(&taken).contains(&"stolen".to_owned()));
}

#[test]
fn absurd_names_are_taken_or_listed() {
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    let taken_names: &[&[u8]] = &[
        b"-rf",
        b"new\nline",
        b"\xff\xfe",
        b"CON",
        b"a:b",
        b"q?*",
        b" ",
        b"...",
        b"\x1b[31m",
        b"back\\slash",
        b".gitt",
        b"git",
        "\u{202e}txt".as_bytes(),
        "e\u{301}".as_bytes(),
        b"~",
    ];
    let refused: &[&[u8]] = &[
        b".GIT",
        b".git ",
        b".git.",
        b"git~1",
        b"GIT~1",
        b".git::$INDEX_ALLOCATION",
        ".g\u{200c}it".as_bytes(),
        ".git\u{200d}".as_bytes(),
        b".Git",
    ];
    for name in taken_names.iter().chain(refused) {
        write(&workspace.join("names").join(Path::new(std::ffi::OsStr::from_bytes(name))), b"named\n");
        let folder = workspace.join("folders").join(Path::new(std::ffi::OsStr::from_bytes(name)));
        write(&folder.join("file"), b"named\n");
    }
    symlink("elsewhere", workspace.join(".gitmodules")).unwrap();
    write(&workspace.join("n".repeat(255)), b"long\n");
    let taken = attack.take("1");
    let tree = attack.world.tree(&taken.tree);
    for name in taken_names {
        assert!(tree.contains_key(&[b"names/", *name].concat()), "{}", name.escape_ascii());
        assert!(tree.contains_key(&[b"folders/", *name, b"/file"].concat()), "{}", name.escape_ascii());
    }
    assert_eq!(taken.skipped.len(), 2 * refused.len() + 1);
    assert!(taken.skipped.iter().all(|skipped| skipped.why == Why::Name));
    assert!(tree.contains_key("n".repeat(255).as_bytes()));
}

#[test]
fn a_folder_deeper_than_any_should_be_is_listed() {
    let attack = Attack::new();
    // Deeper than a path can say: made step by step, and taken away by its top.
    let top = attack.world.workspace().join("d");
    fs::create_dir(&top).unwrap();
    let part = "p".repeat(60);
    let mut bottom = top.clone();
    for _ in 0..40 {
        bottom.push(&part);
    }
    fs::create_dir_all(&bottom).unwrap();
    write(&bottom.join("file"), b"deep\n");
    for _ in 0..2 {
        let other = attack.world.path("deeper");
        fs::rename(&top, &other).unwrap();
        fs::create_dir_all(&bottom).unwrap();
        fs::rename(other, bottom.join("deeper")).unwrap();
    }
    let many = attack.world.workspace().join("m");
    fs::create_dir_all(many.join("1/".repeat(1200))).unwrap();
    write(&many.join("1/".repeat(1200)).join("file"), b"deep\n");
    let taken = attack.take("1");
    let whys: Vec<Why> = taken.skipped.iter().map(|skipped| skipped.why).collect();
    assert_eq!(whys, [Why::TooDeep, Why::TooDeep], "{:?}", taken.skipped);
    assert!(taken.skipped.iter().all(|skipped| skipped.path.len() < 2000), "and named in few words");
}

#[test]
fn a_tree_without_end_is_an_error_soon() {
    let attack = Attack::new();
    for number in 0..3000 {
        write(&attack.world.workspace().join(format!("{:02}/{number}", number % 40)), b"");
    }
    let mut taking = attack.world.taking("1");
    taking.limits.entries = 1000;
    let failure = take::take(&taking).unwrap_err();
    assert_eq!(failure.cause, courier_checkpoint::request::Cause::TooLarge);
    assert!(failure.message.contains("1000"), "{failure}");
    taking.limits.entries = 10_000;
    attack.check(&take::take(&taking).unwrap());
}

#[test]
fn rules_that_are_links_or_without_end_count_for_nothing() {
    let attack = Attack::new();
    let workspace = attack.world.workspace();
    write(&attack.world.path("outside/rules"), b"*\n");
    symlink(attack.world.path("outside/rules"), workspace.join(".gitignore")).unwrap();
    symlink(attack.world.path("outside/rules"), workspace.join("dir/.gitattributes")).unwrap();
    fs::create_dir(workspace.join(".gitattributes")).unwrap();
    let large = fs::File::create(workspace.join("dir/.gitignore")).unwrap();
    large.set_len(50 << 20).unwrap();
    attack.world.write("dir/new", "new\n");
    let mut taking = attack.world.taking("1");
    taking.limits.file = 1 << 20;
    let taken = take::take(&taking).unwrap();
    attack.check(&taken);
    assert_eq!(attack.world.content(&taken, "dir/new"), b"new\n");
    assert_eq!(skipped(&taken), [("dir/.gitignore", Why::TooLarge)]);
}

#[test]
fn a_giant_file_of_holes_is_not_read() {
    let attack = Attack::new();
    for name in ["giant", "dir/file"] {
        fs::File::create(attack.world.workspace().join(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let taken = attack.take("1");
    assert_eq!(skipped(&taken), [("dir/file", Why::TooLarge), ("giant", Why::TooLarge)]);
    assert_eq!(attack.world.content(&taken, "dir/file"), b"file\n", "what was there stays");
}

#[test]
fn many_files_of_holes_are_an_error_that_says_so() {
    let attack = Attack::new();
    for number in 0..8 {
        fs::File::create(attack.world.workspace().join(number.to_string())).unwrap().set_len(1 << 20).unwrap();
    }
    let mut taking = attack.world.taking("1");
    taking.limits.bytes = 4 << 20;
    let failure = take::take(&taking).unwrap_err();
    assert_eq!(failure.cause, courier_checkpoint::request::Cause::TooLarge);
}

/// A second name of a file outside cannot be told from a file: it is one. Nobody in a sandbox can make it, since what
/// is outside is not there to be named, and what lies on another mount cannot be linked to. This says what is, so that
/// whoever changes the jail knows.
#[test]
fn a_second_name_of_a_file_outside_is_an_ordinary_file() {
    let attack = Attack::new();
    write(&attack.world.path("outside/harmless"), b"linked\n");
    fs::hard_link(attack.world.path("outside/harmless"), attack.world.workspace().join("second")).unwrap();
    let taken = attack.take("1");
    assert_eq!(attack.world.content(&taken, "second"), b"linked\n");
    assert_eq!(fs::read(attack.world.path("outside/harmless")).unwrap(), b"linked\n");
}

#[test]
fn a_file_that_changes_while_it_is_read_ends_nothing() {
    const ROUNDS: usize = 30;
    let attack = Attack::new();
    let path = attack.world.workspace().join("dir/file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut length = 0;
            while !is_over.load(Ordering::Relaxed) {
                length = (length + 40_001) % 400_000;
                _ = fs::write(&path, vec![b'x'; length]);
                _ = fs::remove_file(&path);
                _ = fs::create_dir(&path);
                _ = fs::remove_dir(&path);
            }
        });
        let taken: Vec<Taken> = (0..ROUNDS).map(|_| attack.world.try_take("race").unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        taken.iter().for_each(|taken| attack.check(taken));
    });
    _ = fs::remove_dir(&path);
    write(&path, b"at last\n");
    assert_eq!(attack.world.content(&attack.take("2"), "dir/file"), b"at last\n");
}

#[test]
fn killed_in_the_middle_the_last_checkpoint_is_as_it_was() {
    let attack = Attack::new();
    let before = attack.take("before");
    for number in 0..300 {
        attack.world.write(&format!("many/{number}"), vec![number as u8; 20_000]);
    }
    let request = courier_checkpoint::request::Request::Take(attack.world.taking("after"));
    let text = serde_json::to_vec(&request).unwrap();
    let work = attack.world.path("request");
    fs::write(&work, text).unwrap();
    for patience in 0..12_u32 {
        #[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
        let mut worker = std::process::Command::new(env!("CARGO_BIN_EXE_courier-checkpoint"))
            .stdin(fs::File::open(&work).unwrap())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Each time a little later: the moment is what is tested, not how long something takes.
        let until = std::time::Instant::now() + std::time::Duration::from_millis(u64::from(patience * patience));
        while std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        attack.world.check("before", &before);
        let vault = attack.world.path("vault.git");
        git(&vault, &["fsck", "--connectivity-only"]);
    }
    let after = attack.take("after");
    assert_eq!(attack.world.paths(&after).len(), attack.world.paths(&before).len() + 300);
}

#[test]
fn the_worker_answers_whatever_it_is_asked() {
    use std::io::Write;
    for text in ["", "junk", "{}", r#"{"kind":"take"}"#, &"[".repeat(100_000)] {
        #[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
        let mut worker = std::process::Command::new(env!("CARGO_BIN_EXE_courier-checkpoint"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        worker.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = worker.wait_with_output().unwrap();
        let answer: courier_checkpoint::request::Answer = serde_json::from_slice(&output.stdout).unwrap();
        let courier_checkpoint::request::Answer::Failed(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.cause, courier_checkpoint::request::Cause::BadRequest);
    }
}
