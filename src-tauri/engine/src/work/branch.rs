//! What is uncommitted becomes a commit on the sandbox's branch.

use git2::{ErrorClass, ErrorCode, Oid, Repository, Signature, Time};

use super::{Error, Vault, check_branch};
use crate::model::{SandboxId, Timestamp};

/// Whom a commit names where a project says nothing.
pub const AUTHOR: (&str, &str) = ("CodeCourier", "agent@codecourier.invalid");
/// What a commit says where a project says nothing.
pub const MESSAGE: &str = "{title}";

/// A commit to make.
#[derive(Clone, Debug)]
pub struct Saving<'a> {
    pub sandbox: SandboxId,
    /// The branch it is pushed to.
    pub branch: &'a str,
    /// The agent's HEAD, or the base where it made no commit.
    pub head: Oid,
    /// The checkpoint whose tree it is to have.
    pub checkpoint: Oid,
    /// The author's name and email.
    pub author: (&'a str, &'a str),
    /// The whole message: see [`message`].
    pub message: &'a str,
    /// The same time makes the same commit, so that a second attempt changes nothing.
    pub at: Timestamp,
}

/// What a sandbox's branch names now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    pub commit: Oid,
    /// Whether there was something uncommitted.
    pub has_new_commit: bool,
}

/// A project's template with this sandbox's words: `{title}`, `{sandbox}` and `{branch}`. It always ends with the sandbox's
/// id, so that whoever reads the log finds the way back.
pub fn message(template: &str, title: &str, sandbox: SandboxId, branch: &str) -> String {
    let mut message = String::new();
    let mut rest = template;
    // In one pass: a title with braces in it is a title.
    while let Some(at) = rest.find('{') {
        message.push_str(&rest[..at]);
        rest = &rest[at..];
        let words = [("{title}", title.to_owned()), ("{sandbox}", sandbox.short()), ("{branch}", branch.to_owned())];
        match words.into_iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, word)) => {
                message.push_str(&word);
                rest = &rest[name.len()..];
            }
            None => {
                message.push('{');
                rest = &rest[1..];
            }
        }
    }
    message.push_str(rest);
    let message = message.replace('\0', "");
    let message = if message.trim().is_empty() { "Work of a sandbox" } else { message.trim() };
    format!("{message}\n\nSandbox: {sandbox}\n")
}

impl Vault {
    /// Commits what the checkpoint has beyond the head, if anything, and names the result as the sandbox's branch.
    ///
    /// # Errors
    /// `BadBranchName`; `BranchTaken` where another's name is in the way (`a` of `a/b`); `NoSuchCommit`; `DiskFull`; `Git`.
    pub fn save(&self, saving: &Saving<'_>) -> Result<Saved, Error> {
        check_branch(saving.branch)?;
        self.write_for(saving.sandbox, |repository| {
            let saved = commit(repository, saving)?;
            repository.reference(&format!("refs/courier/{}/branch", saving.sandbox), saved.commit, true, "saved")?;
            let named = repository.reference(&format!("refs/heads/{}", saving.branch), saved.commit, true, "saved");
            match named {
                Ok(_) => Ok(saved),
                Err(error) if is_in_the_way(&error) => Err(Error::BranchTaken(saving.branch.to_owned())),
                Err(error) => Err(error.into()),
            }
        })
    }
}

/// What was saved before is never left behind, since it may have been pushed: what is new is put on top of it, and where the
/// agent has committed since, both are joined.
fn commit(repository: &Repository, saving: &Saving<'_>) -> Result<Saved, Error> {
    let find = |id: Oid| repository.find_commit(id).map_err(|error| Error::no_commit(id, error));
    let (head, checkpoint) = (find(saving.head)?, find(saving.checkpoint)?);
    let last = match repository.refname_to_id(&format!("refs/courier/{}/branch", saving.sandbox)) {
        Ok(last) if last != head.id() && !repository.graph_descendant_of(head.id(), last)? => Some(find(last)?),
        Ok(_) => None,
        Err(error) if error.code() == ErrorCode::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let parents = match &last {
        Some(last) if repository.graph_descendant_of(last.id(), head.id())? => vec![last],
        Some(last) => vec![last, &head],
        None => vec![&head],
    };
    if let [only] = parents[..]
        && only.tree_id() == checkpoint.tree_id()
    {
        return Ok(Saved { commit: only.id(), has_new_commit: only.id() != head.id() });
    }
    let author = signature(saving.author, saving.at)?;
    let tree = checkpoint.tree()?;
    let commit = repository.commit(None, &author, &author, saving.message, &tree, &parents)?;
    Ok(Saved { commit, has_new_commit: true })
}

/// Git refuses empty names, and brackets and line ends in them.
pub(super) fn signature((name, email): (&str, &str), at: Timestamp) -> Result<Signature<'static>, Error> {
    let clean = |text: &str, other: &str| {
        let kept: String = text.chars().filter(|kept| !matches!(kept, '<' | '>') && !kept.is_control()).collect();
        let kept = kept.trim_matches(|end: char| end.is_whitespace() || ".,:;\"'\\".contains(end)).to_owned();
        if kept.is_empty() { other.to_owned() } else { kept }
    };
    let time = Time::new(at.millis().div_euclid(1000), 0);
    Ok(Signature::new(&clean(name, AUTHOR.0), &clean(email, AUTHOR.1), &time)?)
}

pub(super) fn is_in_the_way(error: &git2::Error) -> bool {
    matches!(error.code(), ErrorCode::Exists | ErrorCode::Directory)
        || (error.class() == ErrorClass::Reference && error.message().contains("collides"))
        || (error.class() == ErrorClass::Os && error.message().contains("irectory"))
        || error.message().contains("there is a folder with that name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::bench::Bench;

    fn saving(sandbox: SandboxId, head: Oid, checkpoint: Oid) -> Saving<'static> {
        let at = Timestamp::from_millis(1_767_268_800_999);
        Saving { sandbox, branch: "courier/work", head, checkpoint, author: AUTHOR, message: "Work\n", at }
    }

    #[test]
    fn what_was_saved_before_stays_in_the_branch() {
        let (bench, sandbox) = (Bench::new(), SandboxId::fresh());
        let first = bench.commit(&[("a.txt", Some("one\n"))], bench.base);
        let saved = bench.vault.save(&saving(sandbox, bench.base, first)).unwrap().commit;
        let second = bench.commit(&[("a.txt", Some("one\n")), ("b.txt", Some("two\n"))], bench.base);
        let more = bench.vault.save(&saving(sandbox, bench.base, second)).unwrap().commit;
        assert!(bench.vault.is_ancestor(saved, more).unwrap(), "it goes on from what may have been pushed");
        // The agent commits by itself, on what it knows.
        let own = bench.commit(&[("a.txt", Some("one\n")), ("b.txt", Some("two\n"))], bench.base);
        let head = bench.commit(&[("c.txt", Some("three\n"))], own);
        let joined = bench.vault.save(&saving(sandbox, head, head)).unwrap().commit;
        assert!(bench.vault.is_ancestor(more, joined).unwrap() && bench.vault.is_ancestor(head, joined).unwrap());
        assert_eq!(bench.git(&["diff", "--name-only", &head.to_string(), &joined.to_string()]), "");
        assert_eq!(bench.vault.save(&saving(sandbox, head, head)).unwrap().commit, joined, "again makes the same");
    }

    #[test]
    fn what_is_uncommitted_is_committed_once() {
        let (bench, sandbox) = (Bench::new(), SandboxId::fresh());
        let head = bench.commit(&[("a.txt", Some("committed\n"))], bench.base);
        let checkpoint = bench.commit(&[("b.txt", Some("not yet\n"))], head);
        let saved = bench.vault.save(&saving(sandbox, head, checkpoint)).unwrap();
        assert!(saved.has_new_commit && saved.commit != checkpoint);
        assert_eq!(bench.vault.save(&saving(sandbox, head, checkpoint)).unwrap(), saved, "again makes the same");
        assert_eq!(bench.vault.branch("courier/work").unwrap(), Some(saved.commit));
        assert_eq!(bench.vault.commit_of(sandbox, "branch").unwrap(), Some(saved.commit));
        assert_eq!(bench.git(&["log", "--format=%an %s", "-1", "courier/work"]), "CodeCourier Work");
        assert_eq!(bench.git(&["diff", "--name-only", "courier/work~1", "courier/work"]), "b.txt");
        bench.git(&["fsck", "--strict", "--full"]);
    }

    #[test]
    fn nothing_uncommitted_is_no_commit() {
        let (bench, sandbox) = (Bench::new(), SandboxId::fresh());
        let head = bench.commit(&[("a.txt", Some("committed\n"))], bench.base);
        let saved = bench.vault.save(&saving(sandbox, head, head)).unwrap();
        assert_eq!(saved, Saved { commit: head, has_new_commit: false });
        assert_eq!(bench.vault.branch("courier/work").unwrap(), Some(head));
    }

    #[test]
    fn a_name_that_is_in_the_way_is_said() {
        let (bench, sandbox) = (Bench::new(), SandboxId::fresh());
        bench.vault.save(&saving(sandbox, bench.base, bench.base)).unwrap();
        for branch in ["courier/work/deeper", "courier"] {
            let refused = bench.vault.save(&Saving { branch, ..saving(SandboxId::fresh(), bench.base, bench.base) });
            assert!(matches!(refused, Err(Error::BranchTaken(_))), "{branch}: {refused:?}");
        }
        let refused = bench.vault.save(&Saving { branch: "../x", ..saving(sandbox, bench.base, bench.base) });
        assert!(matches!(refused, Err(Error::BadBranchName(_))));
    }

    #[test]
    fn a_person_may_be_called_anything() {
        let (bench, sandbox) = (Bench::new(), SandboxId::fresh());
        let checkpoint = bench.commit(&[("b.txt", Some("not yet\n"))], bench.base);
        for author in [("", ""), ("<>", "\n"), ("A <x>\nB", "a@b>\ncommitter C <c@d> 0 +0000"), ("...", "é@ü")] {
            bench.vault.save(&Saving { author, ..saving(sandbox, bench.base, checkpoint) }).unwrap();
            bench.git(&["fsck", "--strict", "--full"]);
        }
    }

    #[test]
    fn a_message_names_the_sandbox() {
        let id = SandboxId::fresh();
        let made = message("{title} ({sandbox}) on {branch} {other}", "Use {sandbox} {", id, "b");
        assert_eq!(made, format!("Use {{sandbox}} {{ ({}) on b {{other}}\n\nSandbox: {id}\n", id.short()));
        assert_eq!(message(" \0", "t", id, "b"), format!("Work of a sandbox\n\nSandbox: {id}\n"));
    }
}
