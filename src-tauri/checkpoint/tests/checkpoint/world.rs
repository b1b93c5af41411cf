//! A mirror, a vault, and a workspace cloned from the mirror, as the app makes them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use courier_checkpoint::{
    request::Failure,
    take::{self, Author, Limits, Seeding, Taken, Taking, Why},
};
use tempfile::TempDir;

pub struct World {
    pub place: TempDir,
    pub base: String,
}

/// What a tree has at a path: the mode, and the contents (of a repository within: its commit).
pub type Tree = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

impl World {
    /// A workspace with these files, seeded.
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let world = Self::unseeded(files);
        world.seed();
        world
    }

    pub fn unseeded(files: &[(&str, &[u8])]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let origin = place.path().join("origin");
        fs::create_dir(&origin).unwrap();
        git(&origin, &["init", "-q", "--initial-branch=main"]);
        for (name, bytes) in files {
            write(&origin.join(name), bytes);
        }
        git(&origin, &["add", "-A", "-f"]);
        git(&origin, &["commit", "-q", "--allow-empty", "-m", "Begin"]);
        let base = git(&origin, &["rev-parse", "HEAD"]).trim().to_owned();
        let mirror = place.path().join("mirror.git");
        git(place.path(), &["clone", "-q", "--bare", &origin.to_string_lossy(), &mirror.to_string_lossy()]);
        let vault = place.path().join("vault.git");
        git(place.path(), &["init", "-q", "--bare", &vault.to_string_lossy()]);
        fs::write(vault.join("objects/info/alternates"), format!("{}\n", mirror.join("objects").display())).unwrap();
        let workspace = place.path().join("workspace");
        git(place.path(), &["clone", "-q", "--shared", &mirror.to_string_lossy(), &workspace.to_string_lossy()]);
        Self { place, base }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.workspace().join(name), bytes.as_ref());
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.workspace().join(name)).unwrap();
    }

    pub fn seeding(&self) -> Seeding {
        Seeding {
            vault: self.path("vault.git"),
            workspace: self.workspace(),
            private: self.path("private"),
            base: self.base.clone(),
        }
    }

    pub fn seed(&self) {
        self.tick();
        take::seed(&self.seeding()).unwrap();
    }

    pub fn taking(&self, name: &str) -> Taking {
        Taking {
            vault: self.path("vault.git"),
            workspace: self.workspace(),
            private: self.path("private"),
            reference: format!("refs/courier/sandbox/{name}"),
            base: self.base.clone(),
            head: None,
            message: format!("Checkpoint {name}\n"),
            author: Author { name: "Somebody".into(), email: "somebody@example.org".into() },
            at: 1_700_000_000,
            limits: Limits::default(),
        }
    }

    pub fn try_take(&self, name: &str) -> Result<Taken, Failure> {
        take::take(&self.taking(name))
    }

    /// A checkpoint that must succeed; the vault is whole after it, and has the reference.
    pub fn take(&self, name: &str) -> Taken {
        let taken = self.try_take(name).unwrap();
        self.check(name, &taken);
        taken
    }

    pub fn check(&self, name: &str, taken: &Taken) {
        let vault = self.path("vault.git");
        let reference = format!("refs/courier/sandbox/{name}");
        assert_eq!(git(&vault, &["rev-parse", &reference]).trim(), taken.commit);
        assert_eq!(git(&vault, &["rev-parse", &format!("{reference}^{{tree}}")]).trim(), taken.tree);
        git(&vault, &["fsck", "--strict", "--connectivity-only", &taken.commit]);
    }

    /// Everything in a tree of the vault.
    pub fn tree(&self, tree: &str) -> Tree {
        let vault = self.path("vault.git");
        let list = git_bytes(&vault, &["ls-tree", "-r", "-z", tree]);
        let mut all = Tree::new();
        for line in list.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t').unwrap();
            let head = String::from_utf8(line[..tab].to_vec()).unwrap();
            let parts: Vec<&str> = head.split(' ').collect();
            let bytes = match parts[1] {
                "commit" => parts[2].as_bytes().to_vec(),
                _ => git_bytes(&vault, &["cat-file", "blob", parts[2]]),
            };
            all.insert(line[tab + 1..].to_vec(), (parts[0].to_owned(), bytes));
        }
        all
    }

    /// The paths of a tree, for comparing.
    pub fn paths(&self, taken: &Taken) -> Vec<String> {
        self.tree(&taken.tree).keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    pub fn content(&self, taken: &Taken, path: &str) -> Vec<u8> {
        self.tree(&taken.tree).remove(path.as_bytes()).unwrap_or_else(|| panic!("{path} is not there")).1
    }

    /// Waits until the clock that files are dated by has moved.
    pub fn tick(&self) {
        let probe = self.path("probe");
        let now = || {
            fs::write(&probe, "").unwrap();
            fs::metadata(&probe).unwrap().modified().unwrap()
        };
        let before = now();
        while now() <= before {
            std::thread::yield_now();
        }
    }
}

pub fn skipped(taken: &Taken) -> Vec<(&str, Why)> {
    taken.skipped.iter().map(|skipped| (skipped.path.as_str(), skipped.why)).collect()
}

pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A repository within, as far as git looks at it to add it.
pub fn nested(folder: &Path, head: &str) {
    for name in ["objects", "refs/heads"] {
        fs::create_dir_all(folder.join(".git").join(name)).unwrap();
    }
    write(&folder.join(".git/HEAD"), head.as_bytes());
}

pub fn git(folder: &Path, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&git_bytes(folder, arguments)).into_owned()
}

pub fn git_bytes(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    run(command(folder).args(arguments))
}

/// The real git, without anybody's configuration.
#[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env_clear().stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs([
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_AUTHOR_NAME", "Somebody"),
        ("GIT_AUTHOR_EMAIL", "somebody@example.org"),
        ("GIT_COMMITTER_NAME", "Somebody"),
        ("GIT_COMMITTER_EMAIL", "somebody@example.org"),
    ]);
    command
}

pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output.stdout
}

/// What `git add -A && git write-tree` makes of a workspace, with an index of its own that lasts.
pub struct Judge {
    folder: PathBuf,
    workspace: PathBuf,
}

impl Judge {
    pub fn new(world: &World) -> Self {
        let folder = world.path("judge.git");
        git(world.place.path(), &["init", "-q", "--bare", &folder.to_string_lossy()]);
        let objects = world.path("vault.git").join("objects");
        fs::write(folder.join("objects/info/alternates"), [objects.as_os_str().as_bytes(), b"\n"].concat()).unwrap();
        for (name, value) in [("core.bare", "false"), ("core.safecrlf", "false"), ("advice.addEmbeddedRepo", "false")] {
            git(&folder, &["config", name, value]);
        }
        let judge = Self { folder, workspace: world.workspace() };
        run(judge.git().args(["read-tree", &world.base]));
        // It says what differs, and by its exit code too: that is no failure.
        judge.git().args(["update-index", "-q", "--refresh"]).output().unwrap();
        judge
    }

    pub fn tree(&self) -> String {
        run(self.git().args(["add", "-A"]));
        String::from_utf8(run(self.git().args(["write-tree"]))).unwrap().trim().to_owned()
    }

    /// The repositories within that it knows.
    pub fn nested(&self) -> Vec<Vec<u8>> {
        let list = run(self.git().args(["ls-files", "-s", "-z"]));
        let lines = list.split(|byte| *byte == 0).filter(|line| line.starts_with(b"160000 "));
        lines.map(|line| line[line.iter().position(|byte| *byte == b'\t').unwrap() + 1..].to_vec()).collect()
    }

    pub fn difference(&self, ours: &str, real: &str) -> String {
        String::from_utf8_lossy(&run(self.git().args(["diff-tree", "-r", ours, real]))).into_owned()
    }

    fn git(&self) -> Command {
        let mut command = command(&self.workspace);
        command.env("GIT_DIR", &self.folder).env("GIT_WORK_TREE", &self.workspace);
        command
    }
}
