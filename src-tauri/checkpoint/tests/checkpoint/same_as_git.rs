//! Whatever an agent does to its files, a checkpoint's tree is the one `git add -A && git write-tree` makes.
//!
//! Left out, since they are different on purpose: the agent's `info/exclude`, `core.autocrlf` and filters; repositories
//! without a commit and names git refuses, at which `git add` ends (see `hostile`); an ordinary folder where a
//! repository was, whose files git does not add; and the removal of a `.gitattributes` alone, of which git believes for
//! a while what its index says.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use super::world::{Judge, World, git, write};

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c.txt",
    b"dir",
    b"sub",
    b"build",
    b"x y",
    b"gr\xc3\xb6\xc3\x9fe",
    b"#hash",
    b"!bang",
    b"-dash",
    b"*.star",
    b"[br]",
    b"new\nline",
    b"\xff\xfe",
    b"UPPER",
    b"upper",
    b".hidden",
    b"foo.o",
    b"keep.o",
    b"README.md",
    b"readme.md",
    b"$dollar",
    b" lead",
    b"trail ",
    b"back\\slash",
    b"a.txt",
    b"a-b",
    b"a0",
    b"CON",
    b"q?\"<>|:",
];

const IGNORED: &[&str] = &[
    "*.o",
    "!keep.o",
    "build/",
    "/dir",
    "sub/*",
    "!sub/c.txt",
    "**/x y",
    "foo*",
    "!foo.o",
    "\\#hash",
    "\\!bang",
    "a/**/b",
    "[ab]",
    "dir/sub/",
    "trail\\ ",
    "*",
    "!*/",
    "!.gitignore",
    "# a comment",
    "",
    "UPPER",
    "/*.txt",
    "build",
    "!build/",
    "/sub/dir/**",
    "*.star",
    "\\*.star",
    "[br]",
    "b/",
    "!b",
    "$dollar\t",
    "back\\\\slash",
    "lead   ",
];

const ATTRIBUTES: &[&str] = &[
    "* text=auto",
    "*.txt text",
    "*.txt eol=crlf",
    "*.o -text",
    "*.md ident",
    "a text eol=lf",
    "sub/* text",
    "[attr]mine text",
    "b mine",
    "*.txt binary",
    "UPPER !text",
    "*.md filter=none",
    "\"x y\" text",
    "/dir/** text",
    "a -text",
    "* -text",
    "*.o text=auto eol=crlf",
    "README.md crlf",
    "# a comment",
    "*.txt !eol",
];

const CONTENTS: &[&[u8]] = &[
    b"",
    b"line\n",
    b"line\r\nline\r\n",
    b"mixed\r\nlf\n",
    b"lone\rcr\n",
    b"binary\0\r\n",
    b"$Id$\r\n",
    b"$Id: abc $\n",
    b"$Id: $ $Id",
    b"end\r",
    b"\r\n",
    b"other\n",
];

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// Somebody at work in a folder.
struct Agent {
    root: PathBuf,
    /// A repository with two commits, to be copied.
    template: PathBuf,
    chance: Chance,
    done: Vec<String>,
    /// The time the last file that was written has. Git compares whole seconds, and looks again into what is as young as
    /// its index; so each file gets a second of its own, long ago.
    time: u64,
}

impl Agent {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> bool {
        if is_link(path) || fs::write(path, bytes).is_err() {
            return false;
        }
        self.date(path);
        true
    }

    fn date(&mut self, path: &Path) {
        self.time += 1;
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.time);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }

    fn path(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..=self.chance.below(3) {
            path.push(Path::new(std::ffi::OsStr::from_bytes(self.chance.of(NAMES))));
        }
        path
    }

    /// A path that is there, for most operations; never git's own files.
    fn existing(&mut self) -> Option<PathBuf> {
        let mut at = self.root.clone();
        loop {
            let mut names: Vec<PathBuf> = fs::read_dir(&at).ok()?.map(|entry| entry.unwrap().path()).collect();
            names.retain(|path| !path.file_name().unwrap().as_bytes().starts_with(b".git"));
            names.sort();
            if names.is_empty() {
                return None;
            }
            at = names.swap_remove(self.chance.below(names.len()));
            let is_folder = fs::symlink_metadata(&at).unwrap().is_dir() && !at.join(".git").exists();
            if !is_folder || self.chance.below(4) == 0 {
                return Some(at);
            }
        }
    }

    fn folder(&mut self) -> PathBuf {
        match self.existing() {
            Some(path) if fs::symlink_metadata(&path).unwrap().is_dir() && !path.join(".git").exists() => path,
            _ => self.root.clone(),
        }
    }

    fn lines(&mut self, all: &[&str]) -> Vec<u8> {
        let end = if self.chance.below(5) == 0 { "\r\n" } else { "\n" };
        let lines: Vec<String> = (0..self.chance.below(5)).map(|_| format!("{}{end}", self.chance.of(all))).collect();
        lines.concat().into_bytes()
    }

    fn act(&mut self) {
        let what = self.chance.below(16);
        let did = match what {
            0..=4 => {
                let (path, bytes) = (self.path(), self.chance.of(CONTENTS).to_vec());
                let is_made = path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok());
                is_made && self.write(&path, &bytes)
            }
            5 | 6 => self.existing().is_some_and(|path| {
                let bytes = self.chance.of(CONTENTS).to_vec();
                path.is_file() && self.write(&path, &bytes)
            }),
            7 => self.existing().is_some_and(|path| remove(&path)),
            8 | 9 => {
                let to = self.path();
                let is_made = to.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok());
                is_made && self.existing().is_some_and(|from| fs::rename(from, to).is_ok())
            }
            10 => self.existing().is_some_and(|path| {
                let mode = [0o644, 0o755, 0o744, 0o600][self.chance.below(4)];
                !is_link(&path) && path.is_file() && fs::set_permissions(path, PermissionsExt::from_mode(mode)).is_ok()
            }),
            11 => {
                let (path, target) = (self.path(), self.path());
                path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok()) && symlink(target, path).is_ok()
            }
            12 | 13 => {
                let (folder, lines) = (self.folder(), self.lines(IGNORED));
                self.write(&folder.join(".gitignore"), &lines)
            }
            14 => {
                let (folder, lines) = (self.folder(), self.lines(ATTRIBUTES));
                self.write(&folder.join(".gitattributes"), &lines)
            }
            _ => {
                let path = self.path();
                let is_new = fs::symlink_metadata(&path).is_err();
                let is_made = is_new && fs::create_dir_all(&path).is_ok();
                if is_made {
                    copy(&self.template, &path);
                    if self.chance.below(2) == 0 {
                        let head = fs::read(path.join(".git/refs/heads/other")).unwrap();
                        fs::write(path.join(".git/HEAD"), head).unwrap();
                    }
                    write(&path.join("within"), b"not taken\n");
                }
                is_made
            }
        };
        self.done.push(format!("{what}{}", if did { "" } else { " (nothing)" }));
    }
}

/// Git looks into repositories within that it knows, so they must be real.
fn template(world: &World) -> PathBuf {
    let path = world.path("template");
    fs::create_dir(&path).unwrap();
    git(&path, &["init", "-q", "--initial-branch=main", "--template="]);
    git(&path, &["commit", "-q", "--allow-empty", "-m", "One"]);
    git(&path, &["branch", "other"]);
    git(&path, &["commit", "-q", "--allow-empty", "-m", "Two"]);
    path
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn remove(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if is_folder { fs::remove_dir_all(path).is_ok() } else { fs::remove_file(path).is_ok() }
}

/// So many agents, each for some rounds; returns how many checkpoints were compared.
fn compare(agents: usize, seed: u64) -> usize {
    const ROUNDS: usize = 5;
    let base: &[(&str, &[u8])] = &[
        ("README.md", b"# Sample\n$Id$\n"),
        (".gitignore", b"*.o\nbuild/\n"),
        ("foo.o", b"tracked, and ignored\n"),
        ("build/kept", b"in an ignored folder\n"),
        ("dir/sub/c.txt", b"text\r\n"),
        ("dir/a", b"a\n"),
        ("a", b"a\n"),
    ];
    let mut count = 0;
    for agent in 0..agents {
        let world = World::unseeded(base);
        let chance = Chance(seed.wrapping_add(agent as u64));
        let template = template(&world);
        let mut agent = Agent { root: world.workspace(), template, chance, done: Vec::new(), time: 1_000_000_000 };
        for (name, _) in base {
            agent.date(&world.workspace().join(name));
        }
        world.seed();
        let judge = Judge::new(&world);
        for round in 0..ROUNDS {
            for _ in 0..=agent.chance.below(8) {
                agent.act();
            }
            for path in judge.nested() {
                let path = world.workspace().join(Path::new(std::ffi::OsStr::from_bytes(&path)));
                if !is_link(&path) && path.is_dir() && !path.join(".git").exists() {
                    fs::remove_dir_all(path).unwrap();
                }
            }
            world.tick();
            let taken = world.take(&round.to_string());
            let real = judge.tree();
            let (done, seed) = (&agent.done, seed.wrapping_add(count as u64 / ROUNDS as u64));
            assert_eq!(
                taken.tree,
                real,
                "seed {seed}, round {round}, after {done:?}:\n{}",
                judge.difference(&taken.tree, &real)
            );
            world.tick();
            count += 1;
        }
    }
    count
}

#[test]
fn a_checkpoint_is_what_git_would_add() {
    assert_eq!(compare(12, 1), 60);
}

#[test]
#[ignore = "long: cargo xtask prove checkpoint"]
fn many_checkpoints_are_what_git_would_add() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let seed = number("COURIER_SEED", u64::from(std::process::id()) << 20);
    println!(r#"{{"name":"checkpoint/seed","value":{seed}}}"#);
    let agents = number("COURIER_PROOF_SIZE", 1000) as usize;
    let count = compare(agents, seed);
    println!(r#"{{"name":"checkpoint/compared","value":{count},"unit":"checkpoints","against":null,"ratio":null}}"#);
}
