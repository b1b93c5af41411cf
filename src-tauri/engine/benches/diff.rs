//! How long the list of changed files takes to open, with counts and moved files, where an agent changed 2,000 of 10,000.
//!
//! - `diff/open`: milliseconds, required ≤ 300; `ratio` is by the real `git diff --numstat -M` in the same run.
//! - `diff/file`: milliseconds until one of the files is there with its hunks.

#[path = "figures/mod.rs"]
mod figures;

use std::{fmt::Write, path::Path, time::Instant};

use courier_engine::{
    model::SandboxId,
    work::{
        Mirror, Source, Vault,
        changes::{Asked, Between},
        isolate_git,
    },
};
use courier_test_support::repositories::{Repository, git};
use git2::{FileMode, Oid, Signature, Time, build::TreeUpdateBuilder};

/// Files there are, and lines in each.
const FILES: usize = 10_000;
const LINES: usize = 150;
/// Files that are changed; of those some are new, some gone, some moved.
const CHANGED: usize = 1_700;
const NEW: usize = 200;
const GONE: usize = 50;
const MOVED: usize = 50;
/// How often each is measured; the median counts.
const TIMES: usize = 21;

fn main() {
    isolate_git();
    let upstream = Repository::empty().expect("a repository");
    for number in 0..FILES {
        upstream.write(&name(number), &content(number, "")).expect("a file");
    }
    upstream.commit("Begin").expect("a commit");
    let place = tempfile::tempdir().expect("a folder");
    let mirror = Mirror::at(place.path().join("mirror.git"));
    mirror.update(&Source::parse(&upstream.source()).expect("a source"), None).expect("a mirror");
    let base = mirror.pin("main", SandboxId::fresh()).expect("a commit");
    let vault = Vault::at(place.path().join("vault.git"), mirror);
    let checkpoint = checkpoint(&vault, base);
    let between = Between { from: Some(base), to: Some(checkpoint) };
    let [mut ours, mut theirs, mut file] = [const { Vec::new() }; 3];
    for _ in 0..TIMES {
        ours.push(millis(|| {
            let changes = vault.changed_files(between, 5_000).expect("changes");
            assert_eq!(changes.files.len(), CHANGED + NEW + GONE + MOVED, "all of them are listed");
            assert!(changes.additions > 0 && changes.more == 0);
        }));
        theirs.push(millis(|| numstat(vault.path(), base, checkpoint)));
        file.push(millis(|| {
            let asked = Asked { path: &name(7), old_path: None, context: 3, although_large: false };
            let diff = vault.file_diff(between, &asked).expect("a file");
            assert_eq!(diff.hunks.expect("lines").len(), 3);
        }));
    }
    figures::print("diff/open", median(&mut ours), "ms", Some(median(&mut theirs)));
    figures::print("diff/file", median(&mut file), "ms", None);
}

fn name(number: usize) -> String {
    format!("packages/part{:02}/src/folder{:03}/file{number:05}.ts", number % 40, number / 100)
}

fn content(number: usize, edit: &str) -> String {
    let mut text = String::new();
    for line in 0..LINES {
        let edited = if line % 50 == 10 { edit } else { "" };
        writeln!(text, "export const value{line} = compute({number}, {});{edited}", line * 7 + number).expect("text");
    }
    text
}

/// As a checkpoint is: loose objects in the vault.
fn checkpoint(vault: &Vault, base: Oid) -> Oid {
    let made = vault.write(|repository| {
        let mut changes = TreeUpdateBuilder::new();
        for number in 0..CHANGED {
            let edited = repository.blob(content(number, " // edited").as_bytes())?;
            changes.upsert(name(number), edited, FileMode::Blob);
        }
        for number in 0..NEW {
            let new = repository.blob(content(FILES + number, "").as_bytes())?;
            changes.upsert(format!("packages/new/file{number}.ts"), new, FileMode::Blob);
        }
        for number in CHANGED..CHANGED + GONE + MOVED {
            changes.remove(name(number));
        }
        for number in CHANGED + GONE..CHANGED + GONE + MOVED {
            let moved = repository.blob(content(number, " // moved").as_bytes())?;
            changes.upsert(format!("packages/moved/file{number}.ts"), moved, FileMode::Blob);
        }
        let parent = repository.find_commit(base)?;
        let tree = repository.find_tree(changes.create_updated(repository, &parent.tree()?)?)?;
        let who = Signature::new("An Agent", "agent@example.org", &Time::new(1_767_268_800, 0))?;
        Ok(repository.commit(None, &who, &who, "A checkpoint", &tree, &[&parent])?)
    });
    made.expect("a checkpoint")
}

fn numstat(vault: &Path, base: Oid, checkpoint: Oid) {
    let sides = [base.to_string(), checkpoint.to_string()];
    let printed = git(vault, &["diff", "--numstat", "-M", &sides[0], &sides[1]]).expect("git compares");
    assert_eq!(printed.lines().count(), CHANGED + NEW + GONE + MOVED, "git sees the same");
}

fn millis(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64() * 1000.0
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
