//! The clone a sandbox works in.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use git2::{Oid, Repository, ResetType, build::CheckoutBuilder};

use super::{Error, Mirror, Vault, parcel};
use crate::model::SandboxId;

/// How long the readable part of a branch name may be, in characters.
const SLUG: usize = 40;

/// A clone to make. Blocking: call it where waiting is allowed.
#[derive(Debug)]
pub struct Workspace<'a> {
    pub path: &'a Path,
    pub mirror: &'a Mirror,
    /// The branch the work starts from, and its commit.
    pub base: (&'a str, Oid),
    /// The branch the work is done on.
    pub branch: &'a str,
    /// Where the repository comes from, for the agent to read; fetching from it is the app's job.
    pub origin: &'a str,
    /// A checkpoint to begin from.
    pub begin: Option<&'a Begin<'a>>,
}

/// Where a sandbox begins that does not begin at its base.
///
/// The branch begins at the commit the checkpoint was taken on (its parent: what the agent there had committed), the
/// working tree is the checkpoint's, and the index is the commit's: what was uncommitted there is uncommitted here. The
/// objects upstream does not have are copied in, so that nothing else of the vault can be seen.
#[derive(Debug)]
pub struct Begin<'a> {
    pub vault: &'a Vault,
    pub checkpoint: Oid,
}

impl Workspace<'_> {
    /// Makes the clone: objects borrowed from the mirror, the branch checked out, an identity for commits.
    ///
    /// It is made beside its place and renamed into it, so that a workspace that exists is whole; a second call finds it,
    /// and one that comes meanwhile waits.
    ///
    /// # Errors
    /// `Git` or `Io`; what was begun is removed.
    pub fn create(&self) -> Result<(), Error> {
        let unfinished = self.path.with_extension("unfinished");
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { path, source }
        };
        // Nobody stops a clone that has begun: who asked for it may be gone, and somebody else asks again.
        let lock = lock_of(self.path);
        let file = File::create(&lock).map_err(io(&lock))?;
        file.lock().map_err(io(&lock))?;
        if self.path.exists() {
            return Ok(());
        }
        if unfinished.exists() {
            std::fs::remove_dir_all(&unfinished).map_err(io(&unfinished))?;
        }
        if let Err(error) = self.fill(&unfinished) {
            // The reason matters more than the leftovers, which the next attempt removes.
            _ = std::fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        std::fs::rename(&unfinished, self.path).map_err(io(self.path))
    }

    fn fill(&self, path: &Path) -> Result<(), Error> {
        let repository = Repository::init(path)?;
        let alternates = repository.path().join("objects/info/alternates");
        let line = format!("{}\n", self.mirror.objects().display());
        std::fs::create_dir_all(alternates.parent().expect("a file in a folder"))
            .and_then(|()| std::fs::write(&alternates, line))
            .map_err(|source| Error::Io { path: alternates.clone(), source })?;
        // Alternates are read when the object database is opened.
        let repository = Repository::open(path)?;
        let (base, commit) = self.base;
        let begin = self.begin.map(|begin| begin.bring(&repository)).transpose()?;
        let head = begin.and_then(|begun| begun.head).unwrap_or(commit);
        repository.reference(&format!("refs/remotes/origin/{base}"), commit, true, "clone")?;
        repository.reference(&format!("refs/heads/{}", self.branch), head, true, "clone")?;
        repository.set_head(&format!("refs/heads/{}", self.branch))?;
        let mut config = repository.config()?;
        config.set_str("remote.origin.url", self.origin)?;
        config.set_str("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")?;
        config.set_str("user.name", "CodeCourier")?;
        config.set_str("user.email", "agent@codecourier.invalid")?;
        match begin {
            None => repository.checkout_head(Some(CheckoutBuilder::new().force()))?,
            Some(begun) => {
                let tree = repository.find_tree(begun.tree)?;
                repository.checkout_tree(tree.as_object(), Some(CheckoutBuilder::new().force()))?;
                // What is the same keeps its times in the index, so that git need not read it again.
                repository.reset(repository.find_commit(head)?.as_object(), ResetType::Mixed, None)?;
            }
        }
        Ok(())
    }
}

/// What a checkpoint is made of.
#[derive(Clone, Copy)]
struct Begun {
    head: Option<Oid>,
    tree: Oid,
}

impl Begin<'_> {
    /// Copies what the clone lacks of the checkpoint. (No agent has touched the clone yet.)
    fn bring(&self, clone: &Repository) -> Result<Begun, Error> {
        let vault = self.vault.open()?;
        let checkpoint =
            vault.find_commit(self.checkpoint).map_err(|error| Error::no_commit(self.checkpoint, error))?;
        let begun = Begun { head: checkpoint.parent_id(0).ok(), tree: checkpoint.tree_id() };
        let tips: Vec<Oid> = begun.head.into_iter().chain([begun.tree]).collect();
        let objects = parcel::lacking(&vault, &self.vault.upstream_objects()?, &tips)?;
        parcel::write_into(&vault, &objects, &clone.path().join("objects/pack"))?;
        clone.odb()?.refresh()?;
        Ok(begun)
    }
}

fn lock_of(workspace: &Path) -> PathBuf {
    workspace.with_extension("lock")
}

/// Waits until nobody clones into this place any more. Blocking.
///
/// # Errors
/// `Io`.
pub(crate) fn wait_for_clone(workspace: &Path) -> Result<(), Error> {
    let lock = lock_of(workspace);
    let waited = match File::open(&lock) {
        Ok(file) => file.lock(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    waited.map_err(|source| Error::Io { path: lock, source })
}

/// A branch for a sandbox: `courier/<slug of the title>-<short id>`.
pub fn branch_name(title: &str, sandbox: SandboxId) -> String {
    let mut slug = String::new();
    for character in title.chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
        if slug.len() >= SLUG {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    let slug = if slug.is_empty() { "work" } else { slug };
    format!("courier/{slug}-{}", sandbox.short())
}

/// Whether git takes this for a branch.
///
/// # Errors
/// `BadBranchName`.
pub fn check_branch(name: &str) -> Result<(), Error> {
    if git2::Branch::name_is_valid(name).unwrap_or(false) { Ok(()) } else { Err(Error::BadBranchName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use courier_test_support::repositories::git;

    use super::*;
    use crate::work::bench::Bench;

    #[test]
    fn a_sandbox_begins_where_another_was() {
        let bench = Bench::new();
        let head = bench.commit(&[("committed.txt", Some("committed\n"))], bench.base);
        let files = [("new.txt", Some("not yet\n")), ("src/main.sh", None), ("README.md", Some("changed\n"))];
        let checkpoint = bench.commit(&files, head);
        let hidden = bench.commit(&[("hidden.txt", Some("of another sandbox\n"))], bench.base);
        let path = bench.path().join("workspace");
        let begin = Begin { vault: &bench.vault, checkpoint };
        let base = ("main", bench.base);
        let (mirror, branch, origin) = (&bench.mirror, "courier/next", "/x");
        Workspace { path: &path, mirror, base, branch, origin, begin: Some(&begin) }.create().unwrap();
        let ask = |arguments: &[&str]| git(&path, arguments).unwrap();
        assert_eq!(ask(&["rev-parse", "HEAD"]), head.to_string());
        assert_eq!(ask(&["symbolic-ref", "--short", "HEAD"]), branch);
        assert_eq!(ask(&["status", "--porcelain"]), " M README.md\n D src/main.sh\n?? new.txt");
        assert_eq!(fs::read_to_string(path.join("new.txt")).unwrap(), "not yet\n");
        ask(&["fsck", "--strict", "--full"]);
        assert!(git(&path, &["cat-file", "-e", &hidden.to_string()]).is_err(), "it sees no neighbour's work");
        assert!(git(&path, &["cat-file", "-e", &checkpoint.to_string()]).is_err(), "nor what only the app needs");
        let alternates = fs::read_to_string(path.join(".git/objects/info/alternates")).unwrap();
        assert_eq!(alternates, format!("{}\n", bench.mirror.objects().display()));
    }

    #[test]
    fn two_who_clone_into_one_place_make_one_whole_clone() {
        let upstream = courier_test_support::repositories::Repository::with_files(2000).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mirror = Mirror::at(place.path().join("mirror.git"));
        mirror.update(&crate::work::Source::parse(&upstream.source()).unwrap(), None).unwrap();
        let path = place.path().join("workspace");
        let commit = mirror.pin("main", SandboxId::fresh()).unwrap();
        let clone = || {
            Workspace { path: &path, mirror: &mirror, base: ("main", commit), branch: "work", origin: "", begin: None }
                .create()
        };
        std::thread::scope(|scope| {
            let others = [scope.spawn(clone), scope.spawn(clone), scope.spawn(clone)];
            clone().unwrap();
            others.into_iter().for_each(|other| other.join().unwrap().unwrap());
        });
        let git = |words: &[&str]| courier_test_support::repositories::git(&path, words).unwrap();
        assert_eq!(git(&["status", "--porcelain"]), "", "the tree is whole");
        assert!(!path.with_extension("unfinished").exists());
    }

    #[test]
    fn a_title_becomes_a_branch_name_git_takes() {
        let id = SandboxId::fresh();
        let cases = ["Retry idempotent requests", "  ¿Qué? ", "日本語", "a/../b", "-x", &"long ".repeat(100), "x.lock"];
        for title in cases {
            let name = branch_name(title, id);
            assert!(check_branch(&name).is_ok(), "{name} from {title:?}");
        }
        assert!(branch_name("Retry: 429s", id).starts_with("courier/retry-429s-"));
    }
}
