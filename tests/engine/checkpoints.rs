//! Checkpoints through the worker, in its jail and without one.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use courier_engine::{
    model::SandboxId,
    work::{
        Error, Mirror, Source, Vault, Worker, WorkerError, Workspace,
        checkpoint::{Checkpoints, Limits, Taken, Taking, Why},
    },
};
use courier_test_support::{
    repositories::Repository,
    small_disk::{self, Ballast},
};
use git2::Oid;
use tempfile::TempDir;

/// A project, as the app makes it, with one sandbox.
struct Project {
    home: TempDir,
    sandbox: SandboxId,
    base: Oid,
    checkpoints: Checkpoints,
}

impl Project {
    fn new(bubblewrap: Option<&str>) -> Self {
        let home = TempDir::new().unwrap();
        let origin = Repository::ordinary().unwrap();
        let sandbox = SandboxId::fresh();
        let mirror = Mirror::at(home.path().join("mirror.git"));
        let branches = mirror.update(&Source::parse(&origin.source()).unwrap(), None).unwrap();
        let base = mirror.pin(&branches.default, sandbox).unwrap();
        let workspace = home.path().join("workspace");
        let base_branch = (branches.default.as_str(), base);
        let clone =
            Workspace { path: &workspace, mirror: &mirror, base: base_branch, branch: "work", origin: "", begin: None };
        clone.create().unwrap();
        let worker = Worker::install(&program(), &home.path().join("workers"), bubblewrap.map(PathBuf::from)).unwrap();
        let private = home.path().join("private");
        let vault = Vault::at(home.path().join("vault.git"), mirror);
        vault.prepare(sandbox).unwrap();
        let checkpoints = Checkpoints { worker, vault, private, limits: Limits::default() };
        Self { home, sandbox, base, checkpoints }
    }

    fn workspace(&self) -> PathBuf {
        self.home.path().join("workspace")
    }

    async fn seed(&self) {
        self.checkpoints.seed(self.sandbox, &self.workspace(), self.base).await.unwrap();
    }

    async fn take(&self, name: &str) -> Result<Taken, Error> {
        let workspace = self.workspace();
        let taking = Taking {
            sandbox: self.sandbox,
            name,
            workspace: &workspace,
            base: self.base,
            head: None,
            message: "Checkpoint\n",
            author: ("Somebody", "somebody@example.org"),
            at: 1_700_000_000,
        };
        self.checkpoints.take(&taking).await
    }

    /// What a checkpoint has at a path.
    fn content(&self, taken: &Taken, path: &str) -> Option<Vec<u8>> {
        let vault = git2::Repository::open_bare(self.checkpoints.vault.path()).unwrap();
        let tree = vault.find_tree(taken.tree).unwrap();
        let entry = tree.get_path(Path::new(OsStr::from_bytes(path.as_bytes()))).ok()?;
        Some(vault.find_blob(entry.id()).unwrap().content().to_vec())
    }
}

/// The worker, which a test needs built.
fn program() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let place =
        std::env::var_os("CODECOURIER_CHECKPOINT").map_or_else(|| beside.join("courier-checkpoint"), Into::into);
    assert!(place.is_file(), "{} is missing: cargo build -p courier-checkpoint", place.display());
    place
}

const BWRAP: Option<&str> = Some("/usr/bin/bwrap");

#[tokio::test]
async fn a_checkpoint_is_taken_in_a_jail_and_without_one() {
    for bubblewrap in [BWRAP, None] {
        let project = Project::new(bubblewrap);
        project.seed().await;
        let clean = project.take("1").await.unwrap();
        assert_eq!((clean.files_changed, clean.bytes), (0, 0), "what was cloned is not read");
        fs::write(project.workspace().join("README.md"), "# Changed\n").unwrap();
        let taken = project.take("2").await.unwrap();
        assert_eq!((taken.files_changed, taken.parent), (1, project.base));
        assert_eq!(project.content(&taken, "README.md").unwrap(), b"# Changed\n");
        assert_eq!(project.content(&taken, "ignored.txt"), None);
        let vault = git2::Repository::open_bare(project.checkpoints.vault.path()).unwrap();
        let reference = vault.find_reference(&format!("refs/courier/{}/2", project.sandbox)).unwrap();
        assert_eq!(reference.target(), Some(taken.commit));
        project.checkpoints.forget(project.sandbox).await.unwrap();
        project.checkpoints.forget(project.sandbox).await.unwrap();
        assert_eq!(project.take("3").await.unwrap().tree, taken.tree, "it is only slower then");
    }
}

#[tokio::test]
async fn a_commit_that_is_not_there_is_said_by_its_name() {
    let mut project = Project::new(BWRAP);
    project.base = Oid::from_str("0123456789012345678901234567890123456789").unwrap();
    let error = project.take("1").await.unwrap_err();
    assert!(error.to_string().contains("0123456789"), "{error}");
}

/// What stands for the worker in a test: what is in the jail is said by who sits in it.
fn stand_in(project: &Project, script: &str) -> Checkpoints {
    let program = project.home.path().join("stand-in");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let worker = Worker::install(&program, &project.home.path().join("stand-ins"), None).unwrap();
    Checkpoints { worker, ..project.checkpoints.clone() }
}

#[tokio::test]
async fn the_worker_sees_the_request_and_nothing_else() {
    let project = Project::new(BWRAP);
    fs::write(project.home.path().join("secret"), "secret\n").unwrap();
    project.seed().await;
    // What the workspace names is what it would read, if it could: each is a link to something outside.
    let secret = project.home.path().join("secret");
    let places = [secret.as_path(), Path::new("/etc/passwd"), Path::new("/bin/sh"), Path::new("/proc/self/environ")];
    for (number, place) in places.iter().enumerate() {
        symlink(place, project.workspace().join(format!("link{number}"))).unwrap();
    }
    let arguments = courier_checkpoint::jail::arguments(
        Path::new("/usr/bin/find"),
        &courier_checkpoint::jail::Sight {
            read: vec![project.workspace(), project.checkpoints.vault.mirror().objects()],
            write: vec![project.checkpoints.vault.path().to_owned(), project.checkpoints.private.clone()],
        },
    );
    // The same jail with another program in it, which names all that is to be seen and where it could write.
    let find = |words: &[&str]| {
        #[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
        let output = std::process::Command::new("/usr/bin/bwrap").args(&arguments).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.stdout.is_empty(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let libraries = ["/usr", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/courier-checkpoint"];
    let home = project.home.path().to_str().unwrap();
    for path in find(&["/", "-not", "-path", "/usr/*", "-not", "-path", "/lib*/*"]).lines() {
        let is_ours = home.starts_with(path) || path.starts_with(home);
        assert!(path == "/" || path == "/etc" || libraries.contains(&path) || is_ours, "{path} is seen");
    }
    let all = find(&["/"]);
    let wanted = |path: &&str| Path::new(path) == secret || ["/bin/sh", "/usr/bin/sh", "/usr/bin/env"].contains(path);
    assert_eq!(all.lines().find(wanted), None, "no secret, no shell");
    let writable = find(&["/", "-type", "d", "-writable", "-prune"]);
    let mut writable: Vec<&str> = writable.lines().collect();
    writable.sort_unstable();
    let expected = [project.checkpoints.private.as_path(), project.checkpoints.vault.path()];
    assert_eq!(writable, expected.map(|path| path.to_str().unwrap()));
}

#[tokio::test]
async fn a_worker_that_hangs_is_killed() {
    let project = Project::new(None);
    let pid = project.home.path().join("pid");
    let mut hanging = stand_in(&project, &format!("echo $$ > {}; exec sleep 1000", pid.display()));
    hanging.worker = hanging.worker.with_limit(Duration::from_millis(500));
    let error = hanging.seed(project.sandbox, &project.workspace(), project.base).await.unwrap_err();
    assert!(matches!(error, Error::Worker(WorkerError::Deadline(_))), "{error}");
    let pid = fs::read_to_string(pid).unwrap();
    let gone = async {
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        while state().is_ok_and(|text| !text.contains(") Z ")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("nobody is left");
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_with_its_last_words() {
    let project = Project::new(None);
    for (script, words) in [("echo out of order >&2; exit 3", "out of order"), ("yes | head -c 50000000", "")] {
        let odd = stand_in(&project, script);
        let error = odd.seed(project.sandbox, &project.workspace(), project.base).await.unwrap_err();
        assert!(matches!(error, Error::Worker(WorkerError::NoAnswer(_))), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn what_nobody_may_read_is_listed_and_stays_as_it_was() {
    let project = Project::new(BWRAP);
    project.seed().await;
    fs::write(project.workspace().join("README.md"), "# Unreadable\n").unwrap();
    fs::create_dir(project.workspace().join("closed")).unwrap();
    fs::write(project.workspace().join("closed/file"), "within\n").unwrap();
    fs::write(project.workspace().join("open"), "open\n").unwrap();
    let set = |name: &str, mode| {
        fs::set_permissions(project.workspace().join(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    set("README.md", 0);
    set("closed", 0);
    // In the jail even a root without capabilities is nobody.
    let taken = project.take("1").await;
    set("README.md", 0o644);
    set("closed", 0o755);
    let taken = taken.unwrap();
    let skipped: Vec<(&str, Why)> = taken.skipped.iter().map(|one| (one.path.as_str(), one.why)).collect();
    assert_eq!(skipped, [("README.md", Why::Unreadable), ("closed", Why::Unreadable)]);
    assert_eq!(project.content(&taken, "README.md").unwrap(), b"# Sample\n\nA small repository.\n");
    assert_eq!(project.content(&taken, "open").unwrap(), b"open\n");
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_the_last_checkpoint() {
    const NAME: &str = concat!(module_path!(), "::a_full_disk_is_said_and_leaves_the_last_checkpoint");
    if !small_disk::is_here(NAME, 64) {
        return;
    }
    // A jail within the disk's own is not always to be had.
    let project = Project::new(None);
    project.seed().await;
    fs::write(project.workspace().join("README.md"), "# Changed\n").unwrap();
    let before = project.take("1").await.unwrap();
    // What cannot be made smaller, and too much of it.
    let noise: Vec<u8> =
        (0..1_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(project.workspace().join("noise"), noise).unwrap();
    let ballast = Ballast::all_but(project.home.path(), 1 << 20);
    let error = project.take("2").await.unwrap_err();
    assert!(matches!(error, Error::DiskFull), "{error}");
    drop(ballast);
    let after = project.take("2").await.unwrap();
    assert_eq!(after.files_changed, 1, "the last one was remembered");
    assert_ne!(after.tree, before.tree);
}
