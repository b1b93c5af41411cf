//! Edits as unified diffs.

use std::fmt::Write;

use similar::{Algorithm, ChangeTag, TextDiff};

use super::text::cut;
use crate::model::FileDiff;

/// The longest diff that is kept, in bytes; its counts are of the whole.
const MAX_PATCH: usize = 256 * 1024;

/// Two texts longer together than this, in bytes, are shown as one removed and one added: comparing costs time.
const MAX_COMPARED: usize = 2 * 1024 * 1024;

/// One stretch of a diff as an agent reports it; its lines begin with a space, `+`, `-`, or `\` for a remark.
#[derive(Debug)]
pub(crate) struct Hunk<L> {
    pub old_start: u32,
    pub old_lines: u32,
    pub new_start: u32,
    pub new_lines: u32,
    pub lines: Vec<L>,
}

/// The diff an agent reported itself. It knows the whole file, so its line numbers are right.
pub(crate) fn from_hunks<L: AsRef<str>>(path: &str, created: bool, hunks: &[Hunk<L>]) -> FileDiff {
    let (mut patch, mut added, mut removed) = (header(path, created), 0, 0);
    for hunk in hunks {
        // Writing to a string cannot fail.
        let _ = writeln!(patch, "@@ -{},{} +{},{} @@", hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines);
        for line in hunk.lines.iter().map(AsRef::as_ref) {
            added += u32::from(line.starts_with('+'));
            removed += u32::from(line.starts_with('-'));
            patch.push_str(line);
            patch.push('\n');
        }
    }
    FileDiff { path: path.to_owned(), added, removed, patch: cut(&patch, MAX_PATCH) }
}

/// The diff between two texts; `None` as the old one: the file is new. Of a fragment the line numbers are its own.
pub(crate) fn between(path: &str, old: Option<&str>, new: &str) -> FileDiff {
    let created = old.is_none();
    let old = old.unwrap_or_default();
    let mut patch = header(path, created);
    if old.len() + new.len() > MAX_COMPARED {
        let (removed, added) = (old.lines().count() as u32, new.lines().count() as u32);
        let _ = writeln!(patch, "@@ -1,{removed} +1,{added} @@");
        for (sign, text) in [('-', old), ('+', new)] {
            let _ = writeln!(patch, "{sign}{}", cut(text, MAX_PATCH / 4).replace('\n', &format!("\n{sign}")));
        }
        return FileDiff { path: path.to_owned(), added, removed, patch };
    }
    let diff = TextDiff::configure().algorithm(Algorithm::Patience).diff_lines(old, new);
    let (mut added, mut removed) = (0, 0);
    for change in diff.iter_all_changes() {
        added += u32::from(change.tag() == ChangeTag::Insert);
        removed += u32::from(change.tag() == ChangeTag::Delete);
    }
    patch.push_str(&diff.unified_diff().context_radius(3).to_string());
    FileDiff { path: path.to_owned(), added, removed, patch: cut(&patch, MAX_PATCH) }
}

/// A diff an agent made itself: its hunks as they are, counted. `None` where there are none.
pub(crate) fn patch(path: &str, told: &str) -> Option<FileDiff> {
    let begin = if told.starts_with("@@") { 0 } else { told.find("\n@@")? + 1 };
    let (hunks, created) = (&told[begin..], told[..begin].contains("--- /dev/null"));
    let count = |sign| hunks.lines().filter(|line| line.starts_with(sign)).count();
    let [added, removed] = ['+', '-'].map(|sign| u32::try_from(count(sign)).unwrap_or(u32::MAX));
    let patch = cut(&format!("{}{hunks}", header(path, created)), MAX_PATCH);
    Some(FileDiff { path: path.to_owned(), added, removed, patch })
}

fn header(path: &str, created: bool) -> String {
    if created { format!("--- /dev/null\n+++ b/{path}\n") } else { format!("--- a/{path}\n+++ b/{path}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_diff_is_taken_as_it_is() {
        let lines = vec![" one", "-two", "+TWO", "+2", " three"];
        let diff =
            from_hunks("a.txt", false, &[Hunk { old_start: 1, old_lines: 3, new_start: 1, new_lines: 4, lines }]);
        assert_eq!((diff.added, diff.removed), (2, 1));
        assert_eq!(diff.patch, "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+2\n three\n");
    }

    #[test]
    fn texts_are_compared_by_lines() {
        let diff = between("a.txt", Some("one\ntwo\nthree\n"), "one\nTWO\nthree\n");
        assert_eq!((diff.added, diff.removed), (1, 1));
        assert_eq!(diff.patch, "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n");
        let created = between("new", None, "a\nb");
        assert_eq!((created.added, created.removed), (2, 0));
        assert!(created.patch.starts_with("--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+a\n+b"), "{}", created.patch);
    }

    #[test]
    fn huge_texts_are_not_compared() {
        let diff = between("big", Some(&"old\n".repeat(400_000)), &"new\n".repeat(400_000));
        assert_eq!((diff.added, diff.removed), (400_000, 400_000));
        assert!(diff.patch.len() < MAX_PATCH, "{}", diff.patch.len());
    }
}
