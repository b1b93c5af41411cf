//! A checkpoint against `git add -A && git write-tree` of the real git, in the same tree, one after the other: the first
//! one, and one with ten changed files. The worker's start in its jail counts.
//!
//! `COURIER_BENCH_FILES` makes the tree smaller than 50,000 files of 20 kB.

#[cfg(unix)]
fn main() {
    bench::run();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod bench {
    use std::{
        fs,
        io::Write,
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    use courier_checkpoint::{
        jail::{self, Sight},
        request::{Answer, Request},
        take::{Author, Limits, Taken, Taking},
    };

    const FILES: usize = 50_000;
    const SIZE: usize = 20_000;
    const CHANGED: usize = 10;
    const ROUNDS: usize = 7;

    struct World {
        place: tempfile::TempDir,
        files: usize,
        base: String,
    }

    pub fn run() {
        let files = std::env::var("COURIER_BENCH_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(FILES);
        let world = World::new(files);
        let real = world.git_adds();
        let (ours, _) = world.take("first", true);
        print("first", ours, real);

        let (mut ours, mut real) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            world.change(round);
            // In turns: who comes second finds the files in memory.
            for is_ours in [round % 2 == 0, round % 2 != 0] {
                if is_ours {
                    let (time, taken) = world.take(&round.to_string(), true);
                    assert_eq!(taken.files_changed, CHANGED as u64);
                    ours.push(time);
                } else {
                    real.push(world.git_adds());
                }
            }
        }
        assert_eq!(world.take("last", true).1.tree, world.git_tree(), "what was measured is right");
        print("changed", median(ours), median(real));
        line("memory", world.memory() as f64 / 1e6, "MB", "200", None);
    }

    impl World {
        fn new(files: usize) -> Self {
            let place = tempfile::tempdir().expect("a temporary folder");
            let world = Self { place, files, base: String::new() };
            for folder in ["workspace", "git", "private"] {
                fs::create_dir(world.path(folder)).expect("a folder");
            }
            git(&world.path("git"), &["init", "-q", "--bare"]);
            git(&world.path("git"), &["config", "core.bare", "false"]);
            git(world.place.path(), &["init", "-q", "--bare", "vault"]);
            let vault = world.path("vault");
            let empty = git(&vault, &["mktree"]);
            let base = git(&vault, &["commit-tree", "-m", "Empty", empty.trim()]).trim().to_owned();
            let world = Self { base, ..world };
            for number in 0..files {
                world.write(number, 0);
            }
            // SAFETY: a system call without arguments. What was made is not to be written while something is measured.
            unsafe { libc::sync() };
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.place.path().join(name)
        }

        /// A file of words, each of its own.
        fn write(&self, number: usize, round: usize) {
            let path =
                self.path("workspace").join(format!("{:02}/{:03}/file{number}.txt", number % 20, number / 20 % 250));
            let mut text = Vec::with_capacity(SIZE + 40);
            let mut state = (number * 1000 + round) as u64;
            while text.len() < SIZE {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                _ = writeln!(text, "line {} of file {number}: {:x}", text.len(), state >> 40);
            }
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        fn change(&self, round: usize) {
            for number in 0..CHANGED {
                self.write(number * (self.files / CHANGED) + round, round + 1);
            }
        }

        fn git_adds(&self) -> Duration {
            let began = Instant::now();
            self.git(&["add", "-A"]);
            self.git(&["write-tree"]);
            began.elapsed()
        }

        fn git_tree(&self) -> String {
            self.git(&["write-tree"]).trim().to_owned()
        }

        fn git(&self, words: &[&str]) -> String {
            let mut command = command("git", &self.path("workspace"));
            command.env("GIT_DIR", self.path("git")).env("GIT_WORK_TREE", self.path("workspace")).args(words);
            output(command.stdout(Stdio::piped()).spawn().expect("git"))
        }

        fn take(&self, name: &str, is_jailed: bool) -> (Duration, Taken) {
            let began = Instant::now();
            let mut child = self.start(name, is_jailed);
            drop(child.stdin.take());
            let answer = output(child);
            let time = began.elapsed();
            match serde_json::from_str(&answer).expect("an answer") {
                Answer::Taken(taken) => (time, taken),
                other => panic!("{other:?}"),
            }
        }

        fn start(&self, name: &str, is_jailed: bool) -> Child {
            let taking = Taking {
                vault: self.path("vault"),
                workspace: self.path("workspace"),
                private: self.path("private"),
                reference: format!("refs/courier/bench/{name}"),
                base: self.base.clone(),
                head: None,
                message: "A checkpoint\n".into(),
                author: Author { name: "Bench".into(), email: "bench@example.org".into() },
                at: 1_700_000_000,
                limits: Limits::default(),
            };
            let program = Path::new(env!("CARGO_BIN_EXE_courier-checkpoint"));
            let sight =
                Sight { read: vec![self.path("workspace")], write: vec![self.path("vault"), self.path("private")] };
            let bubblewrap = Path::new("/usr/bin/bwrap");
            let mut command = if is_jailed && bubblewrap.exists() {
                let mut command = command(bubblewrap, Path::new("/"));
                command.args(jail::arguments(program, &sight));
                command
            } else {
                command(program, Path::new("/"))
            };
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the worker");
            let text = serde_json::to_vec(&Request::Take(taking)).expect("a request");
            child.stdin.as_mut().expect("a pipe").write_all(&text).expect("it listens");
            child
        }

        /// The most the worker ever held, of the two kinds of checkpoint.
        fn memory(&self) -> u64 {
            let changed = self.peak("memory-changed");
            fs::remove_dir_all(self.path("private")).expect("a folder");
            fs::create_dir(self.path("private")).expect("a folder");
            changed.max(self.peak("memory-first"))
        }

        #[expect(clippy::zombie_processes, reason = "it is waited for by the call that says what it used")]
        fn peak(&self, name: &str) -> u64 {
            let mut child = self.start(name, false);
            drop(child.stdin.take());
            // SAFETY: room for the answer; the child is ours, and nobody else waits for it.
            let usage = unsafe {
                let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
                assert!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) > 0 && status == 0);
                usage
            };
            usage.ru_maxrss as u64 * if cfg!(target_os = "macos") { 1 } else { 1024 }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a bench starts programs; the product does so elsewhere")]
    fn command(program: impl AsRef<Path>, folder: &Path) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(folder).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs([("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            command.env(format!("{who}_NAME"), "Bench").env(format!("{who}_EMAIL"), "bench@example.org");
        }
        command
    }

    fn git(folder: &Path, words: &[&str]) -> String {
        output(command("git", folder).args(words).stdout(Stdio::piped()).spawn().expect("git"))
    }

    fn output(child: Child) -> String {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort();
        times[times.len() / 2]
    }

    fn print(name: &str, ours: Duration, real: Duration) {
        let (ours, real) = (ours.as_secs_f64() * 1e3, real.as_secs_f64() * 1e3);
        line(name, ours, "ms", &format!("{real:.1}"), Some(ours / real));
    }

    fn line(name: &str, value: f64, unit: &str, against: &str, ratio: Option<f64>) {
        let ratio = ratio.map_or("null".to_owned(), |ratio| format!("{ratio:.3}"));
        _ = writeln!(
            std::io::stdout(),
            r#"{{"name":"checkpoint/{name}","value":{value:.1},"unit":"{unit}","against":{against},"ratio":{ratio}}}"#
        );
    }
}
