//! The agent's own commits, on their way out: a script run inside the sandbox, and what it says.
//!
//! Git runs there, among what the agent left: its configuration and hooks can hurt nobody but the agent. What comes out is
//! a file and a few lines, and both are hostile: the file goes through `courier_checkpoint::bring`, the lines through
//! [`Told::parse`].

use git2::Oid;

use super::check_branch;

/// The most that is read of what the script prints, in bytes.
const LONGEST: usize = 16 << 10;
/// Stands before each line that is meant: a shell's start-up file may print too.
pub(super) const MARK: &str = "courier-bundle";
/// The most a bundle may take, in blocks of 512 bytes: 2 GiB.
const BLOCKS: u64 = (2 << 30) / 512;

/// What the sandbox says of the agent's repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is no git inside, no repository, or none that git can read: `why` is for a person.
    Nothing { why: &'static str },
    /// HEAD, and the branch it is on; `None` where it is detached. With `has_bundle` there are commits that are not known
    /// outside, and the bundle holds them.
    Head { commit: Oid, branch: Option<String>, has_bundle: bool },
}

/// Makes a bundle of HEAD, and of the newest stash, at `out`, without what is reachable from `known`. `workspace` and `out`
/// are paths as they are inside.
///
/// Nothing is written to the repository. Known commits the agent's repository does not have (it may have made a new one)
/// are left out: then the whole history comes.
pub fn script(workspace: &str, known: &[Oid], out: &str) -> String {
    let known: String = known.iter().map(|id| format!(" {id}")).collect();
    let (workspace, out) = (quoted(workspace), quoted(out));
    // Replacements and grafts would make git pack another history than the ids say. The configuration given here only
    // makes an odd repository work.
    format!(
        r#"export LC_ALL=C GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR GIT_NAMESPACE
out={out}
say() {{ printf '\n{MARK} %s\n' "$*"; }}
rm -rf -- "$out" "$out.lock"
command -v git >/dev/null 2>&1 || {{ say no-git; exit 0; }}
cd -- {workspace} || {{ say no-folder; exit 0; }}
export GIT_CEILING_DIRECTORIES="$(dirname -- "$(pwd -P)")"
g() {{ git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false -c pack.packSizeLimit=0 "$@"; }}
g rev-parse --git-dir >/dev/null 2>&1 || {{ say no-repository; exit 0; }}
head=$(g rev-parse -q --verify 'HEAD^{{commit}}' 2>/dev/null) || {{ say no-commit; exit 0; }}
say head "$head"
branch=$(g symbolic-ref -q HEAD 2>/dev/null) && say branch "$branch"
set --
for id in{known}; do g cat-file -e "$id^{{commit}}" 2>/dev/null && set -- "$@" "$id"; done
[ $# -gt 0 ] && set -- --not "$@"
tips=HEAD
g rev-parse -q --verify 'refs/stash^{{commit}}' >/dev/null 2>&1 && tips="HEAD refs/stash"
new=$(g rev-list -n 1 $tips "$@" 2>/dev/null) || {{ say broken; exit 0; }}
[ -n "$new" ] || {{ say known; exit 0; }}
if (ulimit -f {BLOCKS} && g bundle create -q "$out" $tips "$@") >/dev/null 2>&1; then say bundle; else rm -f -- "$out" "$out.lock"; say broken; fi
"#
    )
}

/// As one word for a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Told {
    /// Reads what the script printed. What is not understood is nothing.
    pub fn parse(printed: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&printed[printed.len().saturating_sub(LONGEST)..]);
        let (mut head, mut branch, mut end) = (None, None, "");
        for line in text.lines().filter_map(|line| line.strip_prefix(MARK)?.strip_prefix(' ')) {
            match line.split_once(' ') {
                Some(("head", id)) => head = Oid::from_str(id).ok().filter(|_| id.len() == 40),
                Some(("branch", name)) => {
                    let name = name.strip_prefix("refs/heads/");
                    branch = name.filter(|name| check_branch(name).is_ok()).map(str::to_owned);
                }
                _ => end = line,
            }
        }
        let why = match (end, head) {
            ("bundle" | "known", Some(commit)) => return Self::Head { commit, branch, has_bundle: end == "bundle" },
            ("no-git", _) => "there is no git in the sandbox",
            ("no-folder", _) => "the working folder is gone",
            ("no-repository", _) => "the working folder is no repository any more",
            ("no-commit", _) => "the repository has no commit, or none git can find",
            ("broken", _) => "git could not read the repository",
            _ => "the sandbox did not answer",
        };
        Self::Nothing { why }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use courier_checkpoint::bring::{Bringing, Brought, Limits, bring_in};
    use courier_test_support::repositories::{git, run};

    use super::*;
    use crate::{
        model::SandboxId,
        work::{Workspace, bench::Bench},
    };

    /// A sandbox whose agent is us.
    struct Sandbox {
        bench: Bench,
        id: SandboxId,
        path: String,
        out: String,
    }

    impl Sandbox {
        fn new() -> Self {
            let (bench, id) = (Bench::new(), SandboxId::fresh());
            let path = bench.path().join("it's a workspace");
            let base = ("main", bench.base);
            let (mirror, branch, origin) = (&bench.mirror, "courier/work", "https://example.org/a.git");
            Workspace { path: &path, mirror, base, branch, origin, begin: None }.create().unwrap();
            let (path, out) = (path.display().to_string(), bench.path().join("o'ut").display().to_string());
            bench.vault.write(|_| Ok(())).unwrap();
            Self { bench, id, path, out }
        }

        fn git(&self, arguments: &[&str]) -> String {
            git(Path::new(&self.path), arguments).unwrap()
        }

        fn commit(&self, name: &str) -> Oid {
            fs::write(Path::new(&self.path).join(name), name).unwrap();
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--no-verify", "--message", name]);
            Oid::from_str(&self.git(&["rev-parse", "HEAD"])).unwrap()
        }

        fn told(&self, known: &[Oid]) -> Told {
            let script = script(&self.path, known, &self.out);
            let printed = run(self.bench.path(), &["/bin/sh", "-c", &script], b"").unwrap();
            Told::parse(&printed)
        }

        fn bring(&self, verified: &[Oid], told: &Told) -> Brought {
            let Told::Head { commit, has_bundle, .. } = told else { panic!("{told:?}") };
            let bringing = Bringing {
                bundle: has_bundle.then(|| self.out.clone().into()),
                vault: self.bench.vault.path().to_owned(),
                mirror: self.bench.mirror.objects(),
                head: commit.to_string(),
                verified: verified.iter().map(Oid::to_string).collect(),
                references: format!("refs/courier/{}", self.id),
                limits: Limits::default(),
            };
            let brought = bring_in(&bringing).unwrap();
            self.bench.git(&["fsck", "--strict", "--full"]);
            brought
        }
    }

    #[test]
    fn commits_come_out_and_the_next_time_only_what_is_new() {
        let sandbox = Sandbox::new();
        let base = sandbox.bench.base;
        let told = sandbox.told(&[base]);
        let branch = Some("courier/work".to_owned());
        assert_eq!(told, Told::Head { commit: base, branch: branch.clone(), has_bundle: false });
        assert!(!Path::new(&sandbox.out).exists());
        assert_eq!(sandbox.bring(&[], &told).commits, 0);
        sandbox.commit("one");
        let two = sandbox.commit("two");
        let told = sandbox.told(&[base]);
        assert_eq!(told, Told::Head { commit: two, branch, has_bundle: true });
        assert_eq!(sandbox.bring(&[], &told).commits, 2);
        assert_eq!(sandbox.bench.vault.commit_of(sandbox.id, "head").unwrap(), Some(two));
        let three = sandbox.commit("three");
        let told = sandbox.told(&[base, two]);
        assert_eq!(sandbox.bring(&[two], &told), Brought { head: three.to_string(), stash: None, commits: 1 });
    }

    #[test]
    fn whatever_was_done_to_the_history_it_comes_out() {
        let sandbox = Sandbox::new();
        let base = sandbox.bench.base;
        let one = sandbox.commit("one");
        sandbox.bring(&[], &sandbox.told(&[base]));
        sandbox.git(&["checkout", "--quiet", "--detach"]);
        let told = sandbox.told(&[base, one]);
        assert_eq!(told, Told::Head { commit: one, branch: None, has_bundle: false }, "detached");
        // Moved by force.
        sandbox.git(&["checkout", "--quiet", "-B", "other", &format!("{base}~1")]);
        let moved = sandbox.commit("moved");
        let told = sandbox.told(&[base, one]);
        assert_eq!(sandbox.bring(&[one], &told).head, moved.to_string());
        // Back: nothing new.
        sandbox.git(&["reset", "--quiet", "--hard", &format!("{base}~1")]);
        let told = sandbox.told(&[base, moved]);
        assert_eq!(sandbox.bring(&[moved], &told).commits, 0);
        // A stash alone.
        fs::write(Path::new(&sandbox.path).join("README.md"), "put aside").unwrap();
        sandbox.git(&["stash", "--quiet"]);
        let told = sandbox.told(&[base, moved]);
        assert!(matches!(told, Told::Head { has_bundle: true, .. }));
        assert!(sandbox.bring(&[moved], &told).stash.is_some());
        // A repository of its own, without what ours borrowed.
        fs::remove_dir_all(Path::new(&sandbox.path).join(".git")).unwrap();
        sandbox.git(&["init", "--quiet", "--initial-branch=fresh"]);
        assert!(matches!(sandbox.told(&[base]), Told::Nothing { why } if why.contains("no commit")));
        let fresh = sandbox.commit("fresh");
        let told = sandbox.told(&[base]);
        assert_eq!(told, Told::Head { commit: fresh, branch: Some("fresh".to_owned()), has_bundle: true });
        assert_eq!(sandbox.bring(&[], &told).commits, 1);
    }

    #[test]
    fn a_repository_that_is_none_says_so() {
        let sandbox = Sandbox::new();
        let dot_git = Path::new(&sandbox.path).join(".git");
        sandbox.commit("one");
        fs::write(dot_git.join("HEAD"), "garbage").unwrap();
        assert!(matches!(sandbox.told(&[]), Told::Nothing { why } if why.contains("no repository")));
        fs::remove_dir_all(&dot_git).unwrap();
        assert!(matches!(sandbox.told(&[]), Told::Nothing { why } if why.contains("no repository")));
        fs::write(&dot_git, "gitdir: /nowhere\n").unwrap();
        assert!(matches!(sandbox.told(&[]), Told::Nothing { .. }));
        fs::remove_dir_all(&sandbox.path).unwrap();
        assert!(matches!(sandbox.told(&[]), Told::Nothing { why } if why.contains("gone")));
    }

    #[test]
    fn what_the_agent_configured_changes_nothing() {
        let sandbox = Sandbox::new();
        let base = sandbox.bench.base;
        let pwned = sandbox.bench.path().join("pwned");
        let touch = format!("touch '{}'", pwned.display());
        let config = [
            ("core.fsmonitor", touch.as_str()),
            ("core.sshCommand", &touch),
            ("core.pager", &touch),
            ("core.editor", &touch),
            ("core.alternateRefsCommand", &touch),
            ("uploadpack.packObjectsHook", &touch),
            ("url.ext::sh -c touch% x.insteadOf", "https://example.org/"),
            ("remote.origin.pushurl", "ext::sh -c touch% x"),
            ("pack.packSizeLimit", "1"),
            ("core.hooksPath", "hooks"),
            ("bundle.version", "9"),
        ];
        let two = {
            sandbox.commit("one");
            sandbox.commit("two")
        };
        for (name, value) in config {
            sandbox.git(&["config", name, value]);
        }
        // Another history under the same name.
        sandbox.git(&["replace", &two.to_string(), &base.to_string()]);
        let told = sandbox.told(&[base]);
        assert_eq!(sandbox.bring(&[], &told), Brought { head: two.to_string(), stash: None, commits: 2 });
        assert!(!pwned.exists(), "and nothing ran");
    }

    #[test]
    fn what_is_printed_is_not_believed() {
        let id = "00000000000000000000000000000000000000aa";
        let commit = Oid::from_str(id).unwrap();
        let told = |text: &str| Told::parse(text.as_bytes());
        let head = |branch: Option<&str>| Told::Head { commit, branch: branch.map(str::to_owned), has_bundle: true };
        let say = |branch: &str| format!("{MARK} head {id}\n{MARK} branch {branch}\n{MARK} bundle\n");
        assert_eq!(told(&format!("noise\n{}", say("refs/heads/a/b"))), head(Some("a/b")));
        for odd in ["refs/heads/../../x", "refs/heads/-x", "refs/tags/a", "refs/heads/a\u{7}b", "refs/heads/", "x"] {
            assert_eq!(told(&say(odd)), head(None), "{odd}");
        }
        for odd in ["", "head", "courier-bundle head 12\ncourier-bundle bundle\n", "courier-bundle bundle\n", "\0\0"] {
            assert!(matches!(told(odd), Told::Nothing { .. }), "{odd:?}");
        }
        let long = [vec![b'x'; LONGEST * 3], format!("\n{}", say("refs/heads/a")).into_bytes()].concat();
        assert_eq!(Told::parse(&long), head(Some("a")));
        assert!(matches!(Told::parse(&[0xff; 99]), Told::Nothing { .. }));
    }
}
