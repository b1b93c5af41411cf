//! Real git is the judge: of counts, of patches, and of what moved.

use std::fs;

use courier_test_support::repositories::{git, git_with_input};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::*;
use crate::work::bench::Bench;

fn between(from: Oid, to: Oid) -> Between {
    Between { from: Some(from), to: Some(to) }
}

fn asked(path: &str) -> Asked<'_> {
    Asked { path, old_path: None, context: 3, although_large: false }
}

/// A change with a bit of everything.
fn everything(bench: &Bench) -> [Oid; 2] {
    let many: String = (0..200).map(|line| format!("line {line}\n")).collect();
    let moved = many.replace("line 100\n", "another\n");
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    let module = b"1234567890123456789012345678901234567890";
    let file = 0o100_644;
    let one = bench.commit_modes(
        &[
            ("many.txt", Some(many.as_bytes()), file),
            ("gone.txt", Some(b"one\ntwo\n"), file),
            ("run.sh", Some(b"#!/bin/sh\n"), file),
            ("thing", Some(b"a file\n"), file),
            ("logo.png", Some(b"\x89PNG\0\x01\x02"), file),
            ("unended", Some(b"a\nb"), file),
            ("latin.txt", Some(b"caf\xe9\n"), file),
            ("module", Some(b"0000000000000000000000000000000000000001"), 0o160_000),
        ],
        bench.base,
    );
    let two = bench.commit_modes(
        &[
            ("many.txt", None, 0),
            ("folder/moved.txt", Some(moved.as_bytes()), file),
            ("gone.txt", None, 0),
            ("run.sh", Some(b"#!/bin/sh\n"), 0o100_755),
            ("thing", Some(b"README.md"), 0o120_000),
            ("logo.png", Some(b"\x89PNG\0\x01\x03\x04"), file),
            ("unended", Some(b"a\nc"), file),
            ("latin.txt", Some(b"caf\xe8\n"), file),
            ("big.bin", Some(pointer), file),
            ("empty", Some(b""), file),
            ("module", Some(module), 0o160_000),
            ("README.md", Some(b"# Sample\n\nA small repository, changed.\n"), file),
        ],
        one,
    );
    [one, two]
}

#[test]
fn each_file_is_listed_for_what_became_of_it() {
    let bench = Bench::new();
    let [one, two] = everything(&bench);
    let changes = bench.vault.changed_files(between(one, two), 100).unwrap();
    let short = |file: &ChangedFile| (file.path.clone(), file.kind, file.additions, file.deletions);
    let listed: Vec<_> = changes.files.iter().map(short).collect();
    let some = |path: &str, kind, added: u32, deleted: u32| (path.to_owned(), kind, Some(added), Some(deleted));
    assert_eq!(
        listed,
        [
            some("README.md", Kind::Modified, 1, 1),
            some("big.bin", Kind::Added, 3, 0),
            some("empty", Kind::Added, 0, 0),
            some("folder/moved.txt", Kind::Renamed, 1, 1),
            some("gone.txt", Kind::Deleted, 0, 2),
            some("latin.txt", Kind::Modified, 1, 1),
            ("logo.png".to_owned(), Kind::Modified, None, None),
            ("module".to_owned(), Kind::Modified, None, None),
            some("run.sh", Kind::Mode, 0, 0),
            some("thing", Kind::TypeChanged, 1, 1),
            some("unended", Kind::Modified, 1, 1),
        ]
    );
    let file = |path: &str| changes.files.iter().find(|file| file.path == path).unwrap();
    assert_eq!(file("folder/moved.txt").old_path.as_deref(), Some("many.txt"));
    assert!(file("logo.png").is_binary && file("big.bin").is_lfs_pointer && file("module").is_submodule);
    assert_eq!((file("logo.png").size_before, file("logo.png").size_after), (Some(7), Some(8)));
    assert_eq!((file("gone.txt").size_after, file("big.bin").size_before), (None, None));
    assert_eq!((changes.additions, changes.deletions, changes.more), (8, 7, 0));

    let few = bench.vault.changed_files(between(one, two), 4).unwrap();
    assert_eq!((few.files.len(), few.more, &few.files[..]), (4, 7, &changes.files[..4]));
    assert!(bench.vault.changed_files(between(two, two), 9).unwrap().files.is_empty());
    let all = bench.vault.changed_files(Between { from: None, to: Some(bench.base) }, 9).unwrap();
    assert_eq!(all.files.len(), 4, "from nothing");
    let none = bench.vault.changed_files(Between { from: Some(bench.base), to: None }, 9).unwrap();
    assert_eq!((none.deletions, none.files[0].kind), (all.additions, Kind::Deleted));
    let absent = bench.vault.changed_files(between(Oid::from_bytes(&[7; 20]).unwrap(), two), 9);
    assert!(matches!(absent, Err(Error::NoSuchCommit(_))));
}

#[test]
fn a_file_is_shown_with_its_line_numbers() {
    let bench = Bench::new();
    let [one, two] = everything(&bench);
    let moved = Asked { old_path: Some("many.txt"), context: 1, ..asked("folder/moved.txt") };
    let diff = bench.vault.file_diff(between(one, two), &moved).unwrap();
    let hunks = diff.hunks.unwrap();
    assert_eq!((hunks.len(), hunks[0].before, hunks[0].after), (1, (100, 3), (100, 3)));
    let shown: Vec<_> =
        hunks[0].lines.iter().map(|line| (line.kind, line.before, line.after, line.text.as_str())).collect();
    assert_eq!(
        shown,
        [
            (LineKind::Context, Some(100), Some(100), "line 99"),
            (LineKind::Deleted, Some(101), None, "line 100"),
            (LineKind::Added, None, Some(101), "another"),
            (LineKind::Context, Some(102), Some(102), "line 101"),
        ]
    );
    let unended = bench.vault.file_diff(between(one, two), &asked("unended")).unwrap().hunks.unwrap();
    let ends: Vec<bool> = unended[0].lines.iter().map(|line| line.is_unended).collect();
    assert_eq!(ends, [false, true, true]);
    let latin = bench.vault.file_diff(between(one, two), &asked("latin.txt")).unwrap();
    assert!(latin.is_lossy);
    assert_eq!(latin.hunks.unwrap()[0].lines[1].text, "caf\u{fffd}");
    let link = bench.vault.file_diff(between(one, two), &asked("thing")).unwrap();
    assert_eq!(link.after.unwrap().mode, 0o120_000);
    assert_eq!(link.hunks.unwrap()[0].lines[1].text, "README.md", "where it points");
    let why = |path| bench.vault.file_diff(between(one, two), &asked(path)).unwrap().hunks.unwrap_err();
    assert_eq!((why("logo.png"), why("module")), (Why::Binary, Why::Submodule));
    for path in ["absent", "folder", "", "/", "README.md/x", "../x"] {
        let refused = bench.vault.file_diff(between(one, two), &asked(path));
        assert!(matches!(refused, Err(Error::NoSuchFile(_))), "{path}");
    }
    let texts = bench.vault.file_texts(between(one, two), &asked("gone.txt")).unwrap();
    assert_eq!((texts.before.as_deref(), texts.after), (Some("one\ntwo\n"), None));
    let texts = bench.vault.file_texts(between(one, two), &asked("logo.png")).unwrap();
    assert_eq!((texts.summarised, texts.before), (Some(Why::Binary), None));
}

#[test]
fn what_is_large_is_shown_only_when_asked_for() {
    let bench = Bench::new();
    let many = "x\n".repeat(LINES + 1);
    let large = "a line of a few words\n".repeat(60_000);
    let huge = vec![b'x'; usize::try_from(LARGEST).unwrap() + 1];
    let long = format!("short\n{}\n", "é".repeat(5000));
    let file = 0o100_644;
    let commit = bench.commit_modes(
        &[
            ("many", Some(many.as_bytes()), file),
            ("large", Some(large.as_bytes()), file),
            ("huge", Some(&huge), file),
            ("long.min.js", Some(long.as_bytes()), file),
        ],
        bench.base,
    );
    let show = |path: &'static str, although_large| {
        let asked = Asked { although_large, ..asked(path) };
        bench.vault.file_diff(between(bench.base, commit), &asked).unwrap()
    };
    assert_eq!(show("many", false).hunks, Err(Why::Large));
    assert_eq!(show("large", false).hunks, Err(Why::Large));
    assert_eq!((show("huge", false).hunks, show("huge", true).hunks), (Err(Why::TooLarge), Err(Why::TooLarge)));
    assert_eq!(show("many", true).hunks.unwrap()[0].lines.len(), LINES + 1);
    let shown = show("large", true);
    assert_eq!((shown.hunks.unwrap()[0].lines.len(), shown.more_lines), (2 * LINES, 20_000));
    let long = show("long.min.js", false).hunks.unwrap().remove(0).lines;
    assert_eq!((long[0].is_cut, long[1].is_cut, long[1].text.chars().count()), (false, true, 2_000));
    let texts = bench.vault.file_texts(between(bench.base, commit), &asked("long.min.js")).unwrap();
    assert!(texts.is_cut && texts.after.unwrap().ends_with("é…\n"));
    let listed = bench.vault.changed_files(between(bench.base, commit), 9).unwrap();
    assert_eq!((listed.files[0].size_after, listed.files[0].additions), (Some(LARGEST + 1), None));
    let patch = bench.vault.patch(between(bench.base, commit)).unwrap();
    assert_eq!(patch.left_out, ["huge"]);
}

/// Real git applies our patch to the one side, and gets the other.
fn assert_applies(bench: &Bench, [one, two]: [Oid; 2]) {
    for [from, to] in [[one, two], [two, one]] {
        let patch = bench.vault.patch(between(from, to)).unwrap();
        assert!(patch.left_out.is_empty());
        let index = bench.path().join("judge");
        _ = fs::remove_file(&index);
        let ask = |arguments: &[&str], input: &[u8]| {
            let index = format!("GIT_INDEX_FILE={}", index.display());
            let command = [&["env", &index, "git"], arguments].concat();
            courier_test_support::repositories::run(bench.vault.path(), &command, input).unwrap()
        };
        ask(&["read-tree", &from.to_string()], b"");
        if !patch.text.is_empty() {
            ask(&["apply", "--cached", "--whitespace=nowarn", "-"], &patch.text);
        }
        let tree = String::from_utf8(ask(&["write-tree"], b"")).unwrap();
        assert_eq!(tree.trim(), bench.git(&["rev-parse", &format!("{to}^{{tree}}")]));
    }
}

#[test]
fn git_takes_the_patch() {
    let bench = Bench::new();
    assert_applies(&bench, everything(&bench));
}

#[test]
fn git_takes_the_patch_of_a_binary_file_whose_name_or_mode_changed() {
    let bench = Bench::new();
    let (file, program) = (0o100_644, 0o100_755);
    let binary = Some(b"\0binary\xff".as_slice());
    let one = bench.commit_modes(&[("a", binary, file), ("b", Some(b"\0other"), file)], bench.base);
    let two = bench.commit_modes(&[("a", binary, program), ("b", None, file), ("c", Some(b"\0other"), program)], one);
    assert_applies(&bench, [one, two]);
}

#[test]
fn an_odd_name_is_found_by_what_is_shown_of_it() {
    let bench = Bench::new();
    bench.vault.write(|_| Ok(())).unwrap();
    let blob = bench.vault.write(|repository| Ok(repository.blob(b"words\n")?)).unwrap();
    let mut tree = Vec::new();
    for name in [b"a\nb".as_slice(), b"caf\xe9", b"tab\tquote\""] {
        tree.extend_from_slice(&[b"100644 ", name, b"\0", blob.as_bytes()].concat());
    }
    let tree = bench.vault.write(|repository| Ok(repository.odb()?.write(git2::ObjectType::Tree, &tree)?)).unwrap();
    let from_nothing = Between { from: None, to: Some(tree) };
    let listed = bench.vault.changed_files(from_nothing, 9).unwrap();
    let paths: Vec<&str> = listed.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a\nb", "caf\u{fffd}", "tab\tquote\""]);
    for path in paths {
        let diff = bench.vault.file_diff(from_nothing, &asked(path)).unwrap();
        assert_eq!(diff.hunks.unwrap()[0].lines[0].text, "words", "{path:?}");
    }
    let patch = bench.vault.patch(from_nothing).unwrap();
    let folder = bench.path().join("applied");
    fs::create_dir(&folder).unwrap();
    git_with_input(&folder, &["apply", "-"], &patch.text).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}

#[test]
fn many_files_are_counted_as_git_counts_them() {
    let bench = Bench::new();
    let old: Vec<(String, String)> =
        (0..300).map(|n| (format!("d{}/f{n}", n % 7), format!("{n}\nsame\n").repeat(n % 9 + 1))).collect();
    let files: Vec<(&str, Option<&str>)> =
        old.iter().map(|(name, text)| (name.as_str(), Some(text.as_str()))).collect();
    let one = bench.commit(&files, bench.base);
    let new: Vec<(String, String)> =
        old.iter().map(|(name, text)| (name.clone(), text.replace("me\n", "me\nx\n"))).collect();
    let files: Vec<(&str, Option<&str>)> =
        new.iter().map(|(name, text)| (name.as_str(), Some(text.as_str()))).collect();
    let two = bench.commit(&files, one);
    assert_counts(&bench, one, two);
}

#[test]
fn lines_that_are_repeated_are_counted_as_git_counts_them() {
    let bench = Bench::new();
    let mut seed = 1_u64;
    let mut below = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % most
    };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for number in 0..400 {
        let mut lines: Vec<String> = (0..20 + below(150))
            .map(|line| if below(7) == 0 { "}".to_owned() } else { format!("{number} {line}") })
            .collect();
        old.push((format!("f{number}"), lines.join("\n") + "\n"));
        for _ in 0..=below(4) {
            let (from, most) = (below(lines.len()), [2, 8, 40][below(3)]);
            let until = lines.len().min(from + below(most));
            match below(4) {
                0 => drop(lines.drain(from..until)),
                1 => lines[from..until].iter_mut().filter(|line| *line != "}").for_each(|line| line.push('x')),
                2 => drop(lines.splice(from..from, vec!["}".to_owned(); until - from])),
                _ => lines[from..until].reverse(),
            }
            lines.push("last".to_owned());
        }
        new.push((format!("f{number}"), lines.join("\n") + ["", "\n"][below(2)]));
    }
    let [one, two] = [&old, &new].map(|files| -> Vec<(&str, Option<&str>)> {
        files.iter().map(|(name, text)| (name.as_str(), Some(text.as_str()))).collect()
    });
    let one = bench.commit(&one, bench.base);
    let two = bench.commit(&two, one);
    assert_counts(&bench, one, two);
}

fn assert_counts(bench: &Bench, one: Oid, two: Oid) {
    let ours = bench.vault.changed_files(between(one, two), 10_000).unwrap();
    let sides = [one.to_string(), two.to_string()];
    let numstat = ["-c", "core.quotePath=false", "diff", "--numstat", "--no-renames", &sides[0], &sides[1]];
    let mut theirs: Vec<String> = git(bench.vault.path(), &numstat).unwrap().lines().map(str::to_owned).collect();
    theirs.sort();
    let count = |count: Option<u32>| count.map_or("-".to_owned(), |count| count.to_string());
    let mut listed = Vec::new();
    for file in ours.files.iter().filter(|file| file.old_path.is_none()) {
        listed.push(format!("{}\t{}\t{}", count(file.additions), count(file.deletions), file.path));
    }
    listed.sort();
    if ours.files.iter().all(|file| file.old_path.is_none()) {
        assert_eq!(listed, theirs);
    } else {
        assert!(listed.iter().all(|line| theirs.contains(line)), "{listed:?} of {theirs:?}");
    }
}

/// A few files of a few lines, so that they meet.
fn files() -> impl Strategy<Value = Vec<(String, Option<Vec<u8>>, i32)>> {
    let name = prop::sample::select(vec!["a", "b", "c/d", "c/e", "f g", "ü", "README.md"]);
    let line = prop::sample::select(vec!["", "x", "y", "}", "caf\u{e9}", "\r"]);
    let text = (prop::collection::vec(line, 0..9), any::<bool>())
        .prop_map(|(lines, is_ended)| (lines.join("\n") + if is_ended { "\n" } else { "" }).into_bytes());
    let content = prop_oneof![6 => text, 1 => Just(b"\0binary".to_vec()), 1 => Just(b"\xff\xfe\n".to_vec())];
    let mode = prop::sample::select(vec![0o100_644, 0o100_644, 0o100_755]);
    let file = (name, prop::option::weighted(0.8, content), mode);
    prop::collection::vec(file, 0..6).prop_map(|files| {
        let mut unique = std::collections::BTreeMap::new();
        for (name, content, mode) in files {
            unique.insert(name.to_owned(), (content, mode));
        }
        unique.into_iter().map(|(name, (content, mode))| (name, content, mode)).collect()
    })
}

#[test]
fn whatever_changes_is_counted_and_applied_as_git_does() {
    let bench = Bench::new();
    bench.vault.write(|_| Ok(())).unwrap();
    let commit = |files: &[(String, Option<Vec<u8>>, i32)], on: Oid| {
        let there = bench.git(&["ls-tree", "-r", "-z", "--name-only", &on.to_string()]);
        let there: Vec<&str> = there.split('\0').collect();
        let files: Vec<_> = files
            .iter()
            .filter(|(name, content, _)| content.is_some() || there.contains(&name.as_str()))
            .map(|(name, content, mode)| (name.as_str(), content.as_deref(), *mode))
            .collect();
        bench.commit_modes(&files, on)
    };
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    // The same in every run: what fails can be looked at again.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(&(files(), files()), |(one, two)| {
        let one = commit(&one, bench.base);
        let two = commit(&two, one);
        assert_counts(&bench, one, two);
        assert_applies(&bench, [one, two]);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_mirror_object_that_was_overwritten_is_not_shown() {
    let bench = Bench::new();
    let commit = bench.commit(&[("README.md", Some("pwned\n"))], bench.base);
    let (mirror, vault) = (bench.mirror.objects(), bench.vault.path().join("objects"));
    for entry in fs::read_dir(mirror.join("pack")).unwrap() {
        let path = entry.unwrap().path();
        let content = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "pack") {
            git_with_input(bench.mirror.path(), &["unpack-objects", "-q"], &content).unwrap();
        }
    }
    assert!(bench.vault.file_diff(between(bench.base, commit), &asked("README.md")).is_ok());
    let loose = |objects: &std::path::Path, side: Oid| {
        let id = bench.git(&["rev-parse", &format!("{side}:README.md")]);
        objects.join(&id[..2]).join(&id[2..])
    };
    let (honest, other) = (loose(&mirror, bench.base), loose(&vault, commit));
    fs::remove_file(&honest).unwrap();
    fs::copy(other, &honest).unwrap();
    let shown = bench.vault.file_diff(between(bench.base, commit), &asked("README.md"));
    assert!(matches!(&shown, Err(Error::Git(error)) if error.message().contains("mismatch")), "{shown:?}");
    assert!(bench.vault.patch(between(bench.base, commit)).is_err());
    assert!(bench.vault.changed_files(between(bench.base, commit), 9).is_err());
}
