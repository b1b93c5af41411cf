//! A sandbox's working tree made as it was at a checkpoint.
//!
//! Git does it inside the sandbox, where following a link of the agent's leads nowhere. It needs nothing of the agent's
//! repository, which may be damaged or gone: a repository of its own in the sandbox's home borrows the mirror's objects
//! and is given a pack of those the mirror lacks.
//!
//! Files the checkpoint does not have are removed, but for those that are ignored now (no checkpoint has them) and
//! repositories of their own. The agent's branch and index stay as they are. Take a checkpoint before: what is removed
//! is then in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use git2::Oid;

use super::{Error, Vault, bundle::quoted, parcel};

/// Stands before the line that says how it went.
const MARK: &str = "courier-restore";

/// Writes what the sandbox needs of a checkpoint beyond the mirror: a pack, in a folder of its own that is made beneath
/// `folder`. `None`: the mirror has all of it.
///
/// # Errors
/// `NoSuchCommit`, `DiskFull`, `Git` or `Io`.
pub fn pack(vault: &Vault, checkpoint: Oid, folder: &Path) -> Result<Option<PathBuf>, Error> {
    let repository = vault.open()?;
    let tree = repository.find_commit(checkpoint).map_err(|error| Error::no_commit(checkpoint, error))?.tree_id();
    let objects = parcel::lacking(&repository, &vault.upstream_objects()?, &[tree])?;
    let folder = folder.join(checkpoint.to_string());
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(&folder, error)),
        _ => {}
    }
    parcel::write_into(&repository, &objects, &folder)
}

/// The checkpoint's tree, which the script is given.
///
/// # Errors
/// `NoSuchCommit` or `Git`.
pub fn tree(vault: &Vault, checkpoint: Oid) -> Result<Oid, Error> {
    let found = vault.open()?;
    let commit = found.find_commit(checkpoint).map_err(|error| Error::no_commit(checkpoint, error))?;
    Ok(commit.tree_id())
}

/// Makes the working tree at `workspace` this tree. `pack` and `mirror_objects` are where the pack and the mirror's objects
/// are to be read, inside; the pack's file is not removed.
pub fn script(workspace: &str, tree: Oid, mirror_objects: &str, pack: Option<&str>) -> String {
    let (workspace, mirror) = (quoted(workspace), quoted(mirror_objects));
    let unpack = pack
        .map_or_else(String::new, |pack| format!("git index-pack --stdin <{} >/dev/null || failed pack", quoted(pack)));
    format!(
        r#"export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1 GIT_TERMINAL_PROMPT=0
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR GIT_NAMESPACE
say() {{ printf '\n{MARK} %s\n' "$*"; }}
failed() {{ say failed "$1"; exit 1; }}
cd -- {workspace} || failed folder
own=$(mktemp -d "${{HOME:-/tmp}}/.courier-restore.XXXXXX") || failed room
trap 'rm -rf -- "$own"' EXIT
git init --quiet --bare --template= "$own/git" >/dev/null || failed git
export GIT_DIR="$own/git" GIT_INDEX_FILE="$own/index" GIT_WORK_TREE="$PWD"
git config core.bare false && git config core.excludesFile /dev/null || failed git
printf '%s\n' {mirror} >"$GIT_DIR/objects/info/alternates" || failed room
{unpack}
git read-tree {tree} || failed tree
# Git waits for ever for a pipe that is called like one of its files.
find . -type p \( -name .gitignore -o -name .gitattributes \) -exec rm -f -- {{}} + 2>/dev/null
git update-index -q --refresh >/dev/null 2>&1
git clean -f -d -q || failed clean
git checkout-index --all --force --index --quiet || failed files
say restored
"#
    )
}

/// What the script says of itself. The files are what they are; whoever wants to be sure takes a checkpoint.
///
/// # Errors
/// The step that failed, for a person.
pub fn told(printed: &[u8]) -> Result<(), &'static str> {
    let text = String::from_utf8_lossy(&printed[printed.len().saturating_sub(4096)..]);
    let last = text.lines().filter_map(|line| line.strip_prefix(MARK)?.strip_prefix(' ')).next_back();
    Err(match last {
        Some("restored") => return Ok(()),
        Some("failed folder") => "the working folder is gone",
        Some("failed room") => "there is no room in the sandbox's home",
        Some("failed git") => "there is no git in the sandbox that could do it",
        Some("failed pack" | "failed tree") => "the checkpoint could not be read inside the sandbox",
        Some("failed clean") => "a file could not be removed",
        Some("failed files") => "a file could not be written",
        _ => "the sandbox did not answer",
    })
}

#[cfg(test)]
mod tests {
    use courier_test_support::repositories::{git, run};

    use super::*;
    use crate::work::{Workspace, bench::Bench};

    struct Sandbox {
        bench: Bench,
        path: PathBuf,
        checkpoint: Oid,
    }

    impl Sandbox {
        /// A working tree, and a checkpoint with a bit of everything.
        fn new() -> Self {
            let bench = Bench::new();
            let checkpoint = bench.commit_modes(
                &[
                    ("README.md", Some(b"# As it was\n"), 0o100_644),
                    ("src/main.sh", None, 0),
                    ("run.sh", Some(b"#!/bin/sh\n"), 0o100_755),
                    ("deep/er/file", Some(b"\0\xff"), 0o100_644),
                    ("link", Some(b"README.md"), 0o120_000),
                    ("thing/inside", Some(b"a folder\n"), 0o100_644),
                ],
                bench.base,
            );
            let path = bench.path().join("it's here");
            let base = ("main", bench.base);
            let (mirror, branch) = (&bench.mirror, "courier/work");
            Workspace { path: &path, mirror, base, branch, origin: "/x", begin: None }.create().unwrap();
            Self { bench, path, checkpoint }
        }

        fn restore(&self) {
            let folder = self.bench.path().join("parcels");
            let pack = pack(&self.bench.vault, self.checkpoint, &folder).unwrap();
            let pack = pack.map(|pack| pack.display().to_string());
            let tree = tree(&self.bench.vault, self.checkpoint).unwrap();
            let objects = self.bench.mirror.objects().display().to_string();
            let script = script(&self.path.display().to_string(), tree, &objects, pack.as_deref());
            let home = self.bench.path().join("home");
            fs::create_dir_all(&home).unwrap();
            let home_is = format!("HOME={}", home.display());
            told(&run(self.bench.path(), &["env", &home_is, "/bin/bash", "-c", &script], b"").unwrap()).unwrap();
            assert_eq!(fs::read_dir(home).unwrap().count(), 0, "nothing is left in its home");
        }

        /// The working tree is the checkpoint's, but for what is ignored and these.
        fn assert_as_it_was(&self, but_for: &[&str]) {
            let judge = self.bench.path().join("judge");
            _ = fs::remove_dir_all(&judge);
            let vault = format!("--git-dir={}", self.bench.vault.path().display());
            let tree = format!("--work-tree={}", self.path.display());
            let index = format!("GIT_INDEX_FILE={}", judge.display());
            let ask = |arguments: &[&str]| {
                let command = [&["env", &index, "git", &vault, &tree, "-c", "core.bare=false"], arguments].concat();
                String::from_utf8(run(&self.path, &command, b"").unwrap()).unwrap()
            };
            ask(&["read-tree", &self.checkpoint.to_string()]);
            let status = ask(&["status", "--porcelain", "--no-renames"]);
            let differs: Vec<&str> = status.lines().map(|line| &line[3..]).filter(|line| !line.is_empty()).collect();
            let against_head: Vec<&str> =
                status.lines().filter(|line| line.get(1..2) != Some(" ")).map(|line| &line[3..]).collect();
            assert_eq!(against_head, but_for, "{differs:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_working_tree_is_as_it_was_and_the_rest_of_the_repository_as_it_is() {
        let sandbox = Sandbox::new();
        let path = &sandbox.path;
        fs::write(path.join("README.md"), "changed\n").unwrap();
        fs::write(path.join("new.txt"), "not in the checkpoint\n").unwrap();
        fs::write(path.join("staged.txt"), "staged\n").unwrap();
        fs::write(path.join("ignored.txt"), "ignored\n").unwrap();
        fs::write(path.join("thing"), "a file where a folder was\n").unwrap();
        fs::create_dir_all(path.join("link/is/a/folder")).unwrap();
        fs::write(path.join("link/is/a/folder/file"), "").unwrap();
        fs::create_dir_all(path.join("nested")).unwrap();
        git(&path.join("nested"), &["init", "--quiet"]).unwrap();
        fs::write(path.join("nested/own.txt"), "in no checkpoint\n").unwrap();
        git(path, &["add", "staged.txt"]).unwrap();
        std::os::unix::fs::symlink("/", path.join("deep")).unwrap();
        fs::create_dir(path.join("pipes")).unwrap();
        for name in ["pipes/.gitignore", "pipes/.gitattributes", ".gitattributes"] {
            run(path, &["mkfifo", name], b"").unwrap();
        }
        let before = git(path, &["rev-parse", "HEAD", "--abbrev-ref", "HEAD"]).unwrap();
        sandbox.restore();
        sandbox.assert_as_it_was(&["nested/"]);
        assert_eq!(git(path, &["rev-parse", "HEAD", "--abbrev-ref", "HEAD"]).unwrap(), before);
        assert_eq!(fs::read_to_string(path.join("ignored.txt")).unwrap(), "ignored\n");
        assert_eq!(fs::read_to_string(path.join("nested/own.txt")).unwrap(), "in no checkpoint\n");
        assert!(!path.join("new.txt").exists() && !path.join("staged.txt").exists());
        git(path, &["fsck"]).unwrap();
        sandbox.restore();
        sandbox.assert_as_it_was(&["nested/"]);
    }

    #[test]
    fn a_damaged_repository_or_none_is_no_hindrance() {
        let sandbox = Sandbox::new();
        fs::write(sandbox.path.join(".git/HEAD"), "garbage").unwrap();
        fs::write(sandbox.path.join(".git/index"), "garbage").unwrap();
        sandbox.restore();
        sandbox.assert_as_it_was(&[]);
        fs::remove_dir_all(sandbox.path.join(".git")).unwrap();
        fs::remove_file(sandbox.path.join("README.md")).unwrap();
        fs::write(sandbox.path.join(".git"), "gitdir: /nowhere\n").unwrap();
        sandbox.restore();
        sandbox.assert_as_it_was(&[]);
        fs::remove_dir_all(&sandbox.path).unwrap();
        fs::create_dir(&sandbox.path).unwrap();
        sandbox.restore();
        sandbox.assert_as_it_was(&[]);
    }

    #[cfg(unix)]
    #[test]
    fn what_did_not_change_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;
        let sandbox = Sandbox::new();
        let same = sandbox.path.join(".gitignore");
        let before = same.metadata().unwrap();
        sandbox.restore();
        let after = same.metadata().unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    }

    #[test]
    fn a_checkpoint_upstream_has_needs_no_pack() {
        let bench = Bench::new();
        bench.vault.write(|_| Ok(())).unwrap();
        assert_eq!(pack(&bench.vault, bench.base, bench.path()).unwrap(), None);
        let absent = Oid::from_str("00000000000000000000000000000000000000aa").unwrap();
        assert!(matches!(pack(&bench.vault, absent, bench.path()), Err(Error::NoSuchCommit(_))));
        assert!(told(b"courier-restore restored\ncourier-restore failed tree\n").is_err());
        assert!(told(b"").is_err());
    }
}
