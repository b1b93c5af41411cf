//! A branch brought into the person's own repository, where a project has no remote.
//!
//! Their working tree, index, HEAD and checked-out branch are as before; none of their hooks runs. libgit2 does not push
//! into a repository with a working tree, and need not: the objects that are lacking are written as a pack, then a new
//! reference names the commit. A name that is taken is taken: nothing is ever forced.

use std::path::Path;

use git2::{Oid, Repository};

use super::{Error, Vault, check_branch, parcel};

/// How many names are tried.
const NAMES: u32 = 200;

/// A branch to bring.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The person's repository.
    pub to: &'a Path,
    /// How the branch is to be called.
    pub branch: &'a str,
    pub commit: Oid,
    /// What was brought before, if it was: the branch goes on where it is still that and is not checked out.
    pub last: Option<(&'a str, Oid)>,
}

/// What was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The branch's name there: another, where the one wanted was taken.
    pub branch: String,
    /// Whether anything was to be done.
    pub is_new: bool,
}

impl Delivery<'_> {
    /// Brings it. A second time finds it done.
    ///
    /// # Errors
    /// `Missing` or `NotARepository` where theirs is gone; `BadBranchName`; `BranchTaken` where two hundred names are;
    /// `NoSuchCommit`; `DiskFull`; `Git` or `Io`.
    pub fn bring(&self, vault: &Vault) -> Result<Delivered, Error> {
        check_branch(self.branch)?;
        let theirs = open(self.to)?;
        let ours = vault.open()?;
        if let Some(delivered) = self.already(&theirs)? {
            return Ok(delivered);
        }
        let objects = parcel::lacking(&ours, &theirs.odb()?, &[self.commit])?;
        parcel::write_into(&ours, &objects, &theirs.commondir().join("objects/pack"))?;
        theirs.odb()?.refresh()?;
        if let Some(delivered) = self.go_on(&theirs)? {
            return Ok(delivered);
        }
        for name in self.names() {
            let reference = format!("refs/heads/{name}");
            match theirs.reference(&reference, self.commit, false, "brought by CodeCourier") {
                Ok(_) => return Ok(Delivered { branch: name, is_new: true }),
                Err(error) if super::branch::is_in_the_way(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::BranchTaken(self.branch.to_owned()))
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let numbered = (2..=NAMES).map(|number| format!("{}-{number}", self.branch));
        std::iter::once(self.branch.to_owned()).chain(numbered)
    }

    /// A branch of ours that is this commit already.
    fn already(&self, theirs: &Repository) -> Result<Option<Delivered>, Error> {
        let last = self.last.map(|(name, _)| name.to_owned());
        for name in last.into_iter().chain(self.names()) {
            match theirs.refname_to_id(&format!("refs/heads/{name}")) {
                Ok(commit) if commit == self.commit => return Ok(Some(Delivered { branch: name, is_new: false })),
                Ok(_) => {}
                // The first that is free ends the row.
                Err(error) if error.code() == git2::ErrorCode::NotFound => {
                    if self.last.is_none_or(|(last, _)| last != name) {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Moves the branch that was brought before, where nobody has touched it since and nobody has it checked out.
    fn go_on(&self, theirs: &Repository) -> Result<Option<Delivered>, Error> {
        let Some((name, was)) = self.last else { return Ok(None) };
        let reference = format!("refs/heads/{name}");
        if theirs.refname_to_id(&reference).ok() != Some(was)
            || !theirs.graph_descendant_of(self.commit, was)?
            || is_checked_out(theirs, &reference)
        {
            return Ok(None);
        }
        match theirs.reference_matching(&reference, self.commit, true, was, "brought by CodeCourier") {
            Ok(_) => Ok(Some(Delivered { branch: name.to_owned(), is_new: true })),
            Err(error) if error.code() == git2::ErrorCode::Modified => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// In the folder itself, or in any other working tree of the repository. What cannot be told counts as yes.
fn is_checked_out(theirs: &Repository, reference: &str) -> bool {
    let is_head = |repository: &Repository| {
        let head = repository.find_reference("HEAD");
        head.is_ok_and(|head| head.symbolic_target().ok().flatten() == Some(reference))
    };
    let Ok(main) = Repository::open(theirs.commondir()) else { return true };
    let Ok(others) = theirs.worktrees() else { return true };
    is_head(theirs)
        || is_head(&main)
        || others.iter().any(|name| {
            let name = name.ok().flatten();
            let other = name.and_then(|name| theirs.find_worktree(name).ok());
            other.is_none_or(|other| Repository::open_from_worktree(&other).is_ok_and(|found| is_head(&found)))
        })
}

fn open(path: &Path) -> Result<Repository, Error> {
    if !path.exists() {
        return Err(Error::Missing(path.to_owned()));
    }
    Repository::open(path).map_err(|error| match error.code() {
        git2::ErrorCode::NotFound => Error::NotARepository(path.to_owned()),
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::work::bench::Bench;

    fn deliver(bench: &Bench, commit: Oid, last: Option<(&str, Oid)>) -> Delivered {
        Delivery { to: bench.upstream.path(), branch: "courier/work", commit, last }.bring(&bench.vault).unwrap()
    }

    fn new(branch: &str) -> Delivered {
        Delivered { branch: branch.to_owned(), is_new: true }
    }

    #[test]
    fn a_branch_is_there_and_everything_else_as_before() {
        let bench = Bench::new();
        let theirs = &bench.upstream;
        theirs.write("README.md", "being edited\n").unwrap();
        theirs.write("staged.txt", "staged\n").unwrap();
        theirs.git(&["add", "staged.txt"]).unwrap();
        let pwned = bench.path().join("pwned");
        for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction", "post-checkout"] {
            let path = theirs.path().join(".git/hooks").join(hook);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("#!/bin/sh\ntouch '{}'\n", pwned.display())).unwrap();
            #[cfg(unix)]
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let state = || {
            let git = theirs.path().join(".git");
            let status = theirs.git(&["--no-optional-locks", "status", "--porcelain", "--branch"]).unwrap();
            (fs::read(git.join("index")).unwrap(), fs::read(git.join("HEAD")).unwrap(), status)
        };
        let before = state();
        let commit = bench.commit(&[("new.txt", Some("one\n"))], bench.base);
        assert_eq!(deliver(&bench, commit, None), new("courier/work"));
        assert_eq!(state(), before);
        assert!(!pwned.exists(), "no hook ran");
        let delivered = Delivered { branch: "courier/work".to_owned(), is_new: false };
        assert_eq!(deliver(&bench, commit, None), delivered, "a second time finds it done");
        fs::remove_dir_all(theirs.path().join(".git/hooks")).unwrap();
        assert_eq!(theirs.git(&["show", "courier/work:new.txt"]).unwrap(), "one");
        theirs.git(&["fsck", "--strict", "--full"]).unwrap();
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let bench = Bench::new();
        let theirs = &bench.upstream;
        let main = theirs.git(&["rev-parse", "main"]).unwrap();
        theirs.git(&["branch", "courier/work", "main"]).unwrap();
        theirs.git(&["branch", "courier/work-2/deeper", "main"]).unwrap();
        let commit = bench.commit(&[("new.txt", Some("one\n"))], bench.base);
        assert_eq!(deliver(&bench, commit, None), new("courier/work-3"));
        assert_eq!(theirs.git(&["rev-parse", "courier/work"]).unwrap(), main);
        // A name beneath one that is a branch: nothing numbered helps.
        let beneath = Delivery { to: theirs.path(), branch: "main/x", commit, last: None }.bring(&bench.vault);
        assert!(matches!(beneath, Err(Error::BranchTaken(_))), "{beneath:?}");
    }

    #[test]
    fn what_was_brought_goes_on_unless_somebody_has_it() {
        let bench = Bench::new();
        let theirs = &bench.upstream;
        let one = bench.commit(&[("new.txt", Some("one\n"))], bench.base);
        let two = bench.commit(&[("new.txt", Some("two\n"))], one);
        let three = bench.commit(&[("new.txt", Some("three\n"))], two);
        let aside = bench.commit(&[("new.txt", Some("aside\n"))], bench.base);
        assert_eq!(deliver(&bench, one, None), new("courier/work"));
        assert_eq!(deliver(&bench, two, Some(("courier/work", one))), new("courier/work"), "nobody has touched it");
        assert_eq!(deliver(&bench, aside, Some(("courier/work", two))), new("courier/work-2"), "it does not go on");
        let tree = bench.path().join("their other working tree");
        theirs.git(&["worktree", "add", "--quiet", tree.to_str().unwrap(), "courier/work"]).unwrap();
        assert_eq!(deliver(&bench, three, Some(("courier/work", two))), new("courier/work-3"), "checked out elsewhere");
        theirs.git(&["checkout", "--quiet", "courier/work-3"]).unwrap();
        let four = bench.commit(&[("new.txt", Some("four\n"))], three);
        assert_eq!(deliver(&bench, four, Some(("courier/work-3", three))), new("courier/work-4"), "checked out");
        assert_eq!(theirs.git(&["status", "--porcelain"]).unwrap(), "");
        // And to the other working tree, which is a repository too.
        let five = bench.commit(&[("new.txt", Some("five\n"))], four);
        let to_tree = Delivery { to: &tree, branch: "five", commit: five, last: None };
        assert_eq!(to_tree.bring(&bench.vault).unwrap(), new("five"));
        theirs.git(&["fsck", "--strict", "--full"]).unwrap();
    }

    #[test]
    fn a_repository_that_is_gone_says_so() {
        let bench = Bench::new();
        let nowhere = bench.path().join("nowhere");
        let delivery = |to| Delivery { to, branch: "b", commit: bench.base, last: None };
        bench.vault.write(|_| Ok(())).unwrap();
        assert!(matches!(delivery(&nowhere).bring(&bench.vault), Err(Error::Missing(_))));
        fs::create_dir(&nowhere).unwrap();
        assert!(matches!(delivery(&nowhere).bring(&bench.vault), Err(Error::NotARepository(_))));
        let bad = Delivery { to: bench.upstream.path(), branch: "../x", commit: bench.base, last: None };
        assert!(matches!(bad.bring(&bench.vault), Err(Error::BadBranchName(_))));
    }
}
