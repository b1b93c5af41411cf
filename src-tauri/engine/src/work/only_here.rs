//! What of a sandbox's work exists nowhere else.
//!
//! The vault holds checkpoints under `refs/courier/<sandbox>/`. Each is a commit of the whole working tree; its parent is
//! the agent's newest commit, or the one it began with.

use std::path::Path;

use git2::{Oid, Repository, Sort};

use super::Error;

/// How many commits are counted.
const COMMITS: usize = 10_000;

/// What is known of a sandbox's saved work. Commits in hexadecimal.
#[derive(Clone, Debug)]
pub(crate) struct KnownWork {
    /// The newest checkpoint.
    pub checkpoint: String,
    /// The commit that was pushed last, if any.
    pub pushed: Option<String>,
    /// The commit it began with.
    pub base: String,
}

/// What exists only in the vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnlyHere {
    /// Files of the newest checkpoint that are otherwise, or not there, in any commit that will stay: the one pushed, or
    /// without one the agent's own newest.
    pub uncommitted_files: usize,
    /// The agent's commits that were not pushed.
    pub unpushed_commits: usize,
}

/// Compares the newest checkpoint with what was pushed. Blocking.
///
/// # Errors
/// `Git` where the vault does not hold what it should.
pub(crate) fn only_here(vault: &Path, saved: &KnownWork) -> Result<OnlyHere, Error> {
    let repository = Repository::open_bare(vault)?;
    let checkpoint = repository.find_commit(Oid::from_str(&saved.checkpoint)?)?;
    let base = Oid::from_str(&saved.base).ok();
    // Pushed from another repository of the app, and fetched back, or not: without it nothing counts as pushed.
    let pushed = saved.pushed.as_deref().and_then(|id| repository.find_commit(Oid::from_str(id).ok()?).ok());
    let head = checkpoint.parent(0).ok();
    let kept = match (&pushed, &head) {
        (Some(pushed), _) => Some(pushed.tree()?),
        (None, Some(head)) => Some(head.tree()?),
        (None, None) => None,
    };
    let tree = checkpoint.tree()?;
    let uncommitted_files = match kept {
        Some(kept) if kept.id() == tree.id() => 0,
        kept => repository.diff_tree_to_tree(kept.as_ref(), Some(&tree), None)?.deltas().len(),
    };
    let mut unpushed_commits = 0;
    if let Some(head) = head {
        let mut walk = repository.revwalk()?;
        walk.set_sorting(Sort::NONE)?;
        walk.push(head.id())?;
        for known in pushed.map(|commit| commit.id()).into_iter().chain(base) {
            // One that is not there hides nothing.
            _ = walk.hide(known);
        }
        for commit in walk.take(COMMITS) {
            commit?;
            unpushed_commits += 1;
        }
    }
    Ok(OnlyHere { uncommitted_files, unpushed_commits })
}

#[cfg(test)]
mod tests {
    use courier_test_support::repositories::Repository as Upstream;

    use super::*;

    /// A vault, which here is simply a repository: a base, two commits of the agent's, and a checkpoint over them.
    fn vault() -> (Upstream, KnownWork) {
        let vault = Upstream::ordinary().unwrap();
        let base = vault.git(&["rev-parse", "HEAD"]).unwrap();
        vault.git(&["checkout", "--quiet", "-b", "work"]).unwrap();
        for number in 1..=2 {
            vault.write("work.txt", &format!("step {number}\n")).unwrap();
            vault.commit(&format!("Step {number}")).unwrap();
        }
        vault.write("work.txt", "not committed\n").unwrap();
        vault.write("new.txt", "not committed either\n").unwrap();
        vault.git(&["rm", "--quiet", "README.md"]).unwrap();
        vault.commit("Checkpoint").unwrap();
        let checkpoint = vault.git(&["rev-parse", "HEAD"]).unwrap();
        vault.git(&["update-ref", "refs/courier/a-sandbox/turn-1", &checkpoint]).unwrap();
        vault.git(&["checkout", "--quiet", "main"]).unwrap();
        vault.git(&["branch", "--quiet", "-D", "work"]).unwrap();
        (vault, KnownWork { checkpoint, pushed: None, base })
    }

    fn only(vault: &Upstream, saved: &KnownWork) -> (usize, usize) {
        let found = only_here(&vault.path().join(".git"), saved).unwrap();
        (found.uncommitted_files, found.unpushed_commits)
    }

    #[test]
    fn what_was_not_pushed_is_counted() {
        let (vault, mut saved) = vault();
        assert_eq!(only(&vault, &saved), (3, 2), "three files against the agent's own commit, and its two commits");
        let commit = |name: &str| vault.git(&["rev-parse", &format!("{}{name}", saved.checkpoint)]).unwrap();
        let (head, first) = (commit("^"), commit("~2"));
        saved.pushed = Some(first);
        assert_eq!(only(&vault, &saved), (3, 1), "the second was not pushed");
        saved.pushed = Some(head);
        assert_eq!(only(&vault, &saved), (3, 0), "what is in no commit was not");
        saved.pushed = Some(saved.checkpoint.clone());
        assert_eq!(only(&vault, &saved), (0, 0));
        saved.pushed = Some("0123456789012345678901234567890123456789".into());
        assert_eq!(only(&vault, &saved), (3, 2), "a commit nobody has is none");
    }
}
