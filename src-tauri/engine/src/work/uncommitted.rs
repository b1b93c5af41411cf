//! What a person has not committed in their own folder: whether there is something a new sandbox could begin with.
//!
//! Only looked at here, and nothing is written: not even the index is brought up to date. To begin with it, a checkpoint
//! of the folder is taken as of any working tree (`refs/courier/<sandbox>/begin`, on the base), and the workspace is made
//! with [`Begin`](super::Begin).

use std::path::Path;

use git2::{ErrorCode, Repository, Status, StatusOptions, StatusShow};

use super::Error;

/// What there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncommitted {
    /// The branch that is checked out: only on that base does what is uncommitted make sense.
    pub branch: Option<String>,
    /// Files changed, new or gone.
    pub files: usize,
}

impl Uncommitted {
    /// Looks at a person's folder.
    ///
    /// # Errors
    /// `NotARepository` or `Git`.
    pub fn look(folder: &Path) -> Result<Self, Error> {
        let repository = Repository::open(folder).map_err(|error| match error.code() {
            ErrorCode::NotFound => Error::NotARepository(folder.to_owned()),
            _ => error.into(),
        })?;
        let mut options = StatusOptions::new();
        options.show(StatusShow::IndexAndWorkdir).include_untracked(true).recurse_untracked_dirs(true);
        options.include_ignored(false).exclude_submodules(true).update_index(false).no_refresh(true);
        let statuses = repository.statuses(Some(&mut options))?;
        let files = statuses.iter().filter(|entry| entry.status() != Status::CURRENT).count();
        let head = repository.find_reference("HEAD").ok();
        let branch =
            head.and_then(|head| head.symbolic_target().ok().flatten()?.strip_prefix("refs/heads/").map(str::to_owned));
        Ok(Self { branch, files })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use courier_test_support::repositories::Repository as Upstream;

    use super::*;

    #[test]
    fn what_is_uncommitted_is_seen_and_nothing_is_written() {
        crate::work::isolate_git();
        let theirs = Upstream::ordinary().unwrap();
        let nothing = Uncommitted { branch: Some("main".to_owned()), files: 0 };
        assert_eq!(Uncommitted::look(theirs.path()).unwrap(), nothing, "what is ignored does not count");
        theirs.write("README.md", "changed\n").unwrap();
        theirs.write("new/deep/file.txt", "new\n").unwrap();
        theirs.write("staged.txt", "staged\n").unwrap();
        theirs.git(&["add", "staged.txt"]).unwrap();
        fs::remove_file(theirs.path().join("src/main.sh")).unwrap();
        let pwned = theirs.path().join(".git/pwned");
        theirs.git(&["config", "core.fsmonitor", &format!("touch '{}'", pwned.display())]).unwrap();
        theirs.git(&["config", "filter.x.clean", &format!("touch '{}'", pwned.display())]).unwrap();
        fs::write(theirs.path().join(".git/info/attributes"), "* filter=x\n").unwrap();
        // Times the index does not know: git would note that nothing changed.
        let same = fs::File::options().write(true).open(theirs.path().join(".gitignore")).unwrap();
        same.set_modified(std::time::UNIX_EPOCH).unwrap();
        let index = || fs::read(theirs.path().join(".git/index")).unwrap();
        let before = index();
        assert_eq!(Uncommitted::look(theirs.path()).unwrap(), Uncommitted { files: 4, ..nothing });
        assert!(index() == before && !pwned.exists() && !theirs.path().join(".git/index.lock").exists());
        theirs.git(&["-c", "core.fsmonitor=false", "checkout", "--quiet", "--detach"]).unwrap();
        assert_eq!(Uncommitted::look(theirs.path()).unwrap().branch, None);
    }
}
