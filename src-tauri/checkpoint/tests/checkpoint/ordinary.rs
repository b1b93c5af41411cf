//! What an ordinary day brings.

use std::{fs, os::unix::fs::PermissionsExt, os::unix::fs::symlink};

use courier_checkpoint::{
    request::Cause,
    take::{self, Why},
};

use super::world::{World, git, nested, skipped, write};

const FILES: &[(&str, &[u8])] =
    &[("README.md", b"# Sample\n"), ("src/main.sh", b"echo\n"), (".gitignore", b"ignored\n"), ("old/name", b"same\n")];

#[test]
fn everything_an_agent_leaves_is_taken_and_what_is_ignored_is_not() {
    let world = World::new(FILES);
    let clean = world.take("1");
    assert_eq!((clean.files_changed, clean.bytes), (0, 0), "a seeded clone is not read");
    world.write("README.md", "# Changed\n");
    world.write("new/file", "untracked\n");
    world.write("ignored", "not taken\n");
    world.remove("src/main.sh");
    fs::rename(world.workspace().join("old/name"), world.workspace().join("renamed")).unwrap();
    fs::set_permissions(world.workspace().join("renamed"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("README.md", world.workspace().join("link")).unwrap();
    let taken = world.take("2");
    assert_eq!(world.paths(&taken), [".gitignore", "README.md", "link", "new/file", "renamed"]);
    let tree = world.tree(&taken.tree);
    assert_eq!(tree[&b"renamed"[..]], ("100755".into(), b"same\n".to_vec()));
    assert_eq!(tree[&b"link"[..]], ("120000".into(), b"README.md".to_vec()));
    assert_eq!(tree[&b"README.md"[..]].1, b"# Changed\n");
    assert_eq!(taken.files_changed, 6, "one changed, three new, two gone");
    assert_eq!(taken.parent, world.base);
    assert!(taken.skipped.is_empty() && !taken.is_same_as_last);
}

#[test]
fn nothing_new_is_the_same_commit_under_another_name() {
    let world = World::new(FILES);
    world.write("new", "new\n");
    let first = world.take("1");
    let second = world.take("2");
    assert!(second.is_same_as_last);
    assert_eq!((second.commit, second.files_changed), (first.commit, 0));
}

#[test]
fn the_agents_own_commit_is_the_parent_where_there_is_one() {
    let world = World::new(FILES);
    let vault = world.path("vault.git");
    let tree = format!("{}^{{tree}}", world.base);
    let head = git(&vault, &["commit-tree", "-p", &world.base, "-m", "The agent's", &tree]).trim().to_owned();
    let mut taking = world.taking("1");
    taking.head = Some(head.clone());
    let taken = take::take(&taking).unwrap();
    assert_eq!(taken.parent, head);
    assert_eq!(git(&vault, &["rev-parse", &format!("{}^", taken.commit)]).trim(), head);
    let later = world.take("2");
    assert!(!later.is_same_as_last, "another parent is another commit");
    taking.head = Some("0123456789012345678901234567890123456789".into());
    assert_eq!(take::take(&taking).unwrap_err().cause, Cause::NoSuchCommit);
}

#[test]
fn the_workspaces_own_repository_counts_for_nothing() {
    let world = World::new(FILES);
    world.write("new", "new\n");
    let workspace = world.workspace();
    let expected = world.take("1").tree;
    git(&workspace, &["checkout", "-q", "--detach"]);
    git(&workspace, &["checkout", "-q", "-b", "another"]);
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-q", "-m", "The agent's"]);
    assert_eq!(world.take("2").tree, expected, "another branch, a commit");
    fs::write(workspace.join(".git/index"), "junk").unwrap();
    fs::write(workspace.join(".git/HEAD"), "junk").unwrap();
    assert_eq!(world.take("3").tree, expected, "a broken one");
    fs::remove_dir_all(workspace.join(".git")).unwrap();
    assert_eq!(world.take("4").tree, expected, "none");
    git(&workspace, &["init", "-q"]);
    assert_eq!(world.take("5").tree, expected, "a new one");
    fs::remove_dir_all(workspace.join(".git")).unwrap();
    fs::write(workspace.join(".git"), "gitdir: /nowhere\n").unwrap();
    assert_eq!(world.take("6").tree, expected, "a file");
}

#[test]
fn without_what_is_remembered_everything_is_read_anew_and_tracked_files_stay_tracked() {
    let world = World::new(&[("kept.o", b"tracked\n"), (".gitignore", b"*.o\n")]);
    world.write("new", "new\n");
    let expected = world.take("1").tree;
    fs::remove_dir_all(world.path("private")).unwrap();
    let again = world.take("2");
    assert_eq!(again.tree, expected);
    assert!(!again.is_same_as_last);
}

#[test]
fn a_torn_memory_is_noticed() {
    let world = World::new(FILES);
    world.write("README.md", "# Changed\n");
    let expected = world.take("1").tree;
    let last = world.path("private/last");
    let whole = fs::read(&last).unwrap();
    let mut zeroed = whole.clone();
    zeroed[whole.len() / 2..].fill(0);
    let mut flipped = whole.clone();
    flipped[whole.len() - 30] ^= 1;
    for torn in [&whole[..whole.len() / 2], &zeroed, &flipped, b"", b"\n\n"] {
        fs::write(&last, torn).unwrap();
        assert_eq!(world.take("2").tree, expected);
    }
}

#[test]
fn a_change_in_the_very_instant_of_a_checkpoint_is_not_missed() {
    let world = World::new(FILES);
    // Same length, same times but for the one nobody can set: as fast as possible after one another, with nothing
    // waited for.
    for round in 0..60_u32 {
        let text = format!("{round:08}\n");
        world.write("README.md", &text);
        let taken = world.try_take("now").unwrap();
        assert_eq!(world.content(&taken, "README.md"), text.as_bytes());
    }
}

#[test]
fn a_file_set_back_in_time_is_seen_to_have_changed() {
    let world = World::new(FILES);
    world.tick();
    let file = world.workspace().join("README.md");
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    world.write("README.md", "# Simple\n");
    fs::File::open(&file).unwrap().set_modified(before).unwrap();
    assert_eq!(world.content(&world.take("1"), "README.md"), b"# Simple\n");
}

#[test]
fn names_that_differ_in_case_are_two_files() {
    let world = World::new(&[("README", b"one\n"), ("readme", b"two\n")]);
    world.write("ReadMe", "three\n");
    assert_eq!(world.paths(&world.take("1")), ["README", "ReadMe", "readme"]);
}

#[test]
fn a_folder_becomes_a_file_and_back() {
    let world = World::new(&[("thing/inner", b"in\n"), ("other", b"file\n")]);
    fs::remove_dir_all(world.workspace().join("thing")).unwrap();
    world.write("thing", "a file now\n");
    world.remove("other");
    world.write("other/inner", "a folder now\n");
    let taken = world.take("1");
    assert_eq!(world.paths(&taken), ["other/inner", "thing"]);
    world.remove("thing");
    world.write("thing/inner", "in\n");
    fs::remove_dir_all(world.workspace().join("other")).unwrap();
    world.write("other", "file\n");
    let back = world.take("2");
    assert_eq!(back.tree, git(&world.path("mirror.git"), &["rev-parse", "HEAD^{tree}"]).trim());
}

#[test]
fn an_empty_workspace_is_an_empty_tree() {
    let world = World::new(FILES);
    fs::remove_dir_all(world.workspace()).unwrap();
    fs::create_dir(world.workspace()).unwrap();
    let taken = world.take("1");
    assert_eq!(world.paths(&taken), Vec::<String>::new());
    assert_eq!(taken.files_changed, 4);
}

#[test]
fn a_file_that_is_too_large_is_listed_and_the_rest_is_taken() {
    let world = World::new(&[("grows", b"small\n")]);
    world.write("new", "new\n");
    world.write("big", vec![7; 2001]);
    world.write("grows", vec![7; 2001]);
    world.write("most", vec![7; 2000]);
    let mut taking = world.taking("1");
    taking.limits.file = 2000;
    let taken = take::take(&taking).unwrap();
    assert_eq!(world.paths(&taken), ["grows", "most", "new"]);
    assert_eq!(world.content(&taken, "grows"), b"small\n", "what was there stays");
    assert_eq!(skipped(&taken), [("big", Why::TooLarge), ("grows", Why::TooLarge)]);
    let again = take::take(&taking).unwrap();
    assert_eq!(again.skipped, taken.skipped, "listed as long as it is there");
    taking.limits.file = 3000;
    assert_eq!(world.paths(&take::take(&taking).unwrap()), ["big", "grows", "most", "new"]);
}

#[test]
fn changed_files_of_large_file_storage_and_workflows_are_named() {
    let world = World::new(&[
        (".gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n"),
        ("a.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"),
        ("b.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:2\nsize 2\n"),
        (".github/workflows/test.yml", b"on: push\n"),
        (".github/dependabot.yml", b"version: 2\n"),
    ]);
    let clean = world.take("1");
    assert_eq!((&clean.lfs, &clean.workflows), (&vec![], &vec![]));
    world.write("a.bin", b"\0real contents\r\n");
    world.write("sub/.gitattributes", "*.bin !filter\n*.dat filter=lfs\n");
    world.write("sub/c.bin", "ordinary\n");
    world.write("sub/d.dat", "large\n");
    world.remove("b.bin");
    world.write(".github/dependabot.yml", "version: 3\n");
    world.write(".github/workflows/new.yml", "on: push\n");
    world.remove(".github/workflows/test.yml");
    let taken = world.take("2");
    assert_eq!(taken.lfs, ["a.bin", "sub/d.dat"]);
    assert_eq!(taken.workflows, [".github/workflows/new.yml", ".github/workflows/test.yml"]);
    assert_eq!(world.content(&taken, "a.bin"), b"\0real contents\r\n", "as it lies there");
    world.write("later", "later\n");
    let later = world.take("3");
    assert_eq!((later.lfs, later.workflows), (taken.lfs, taken.workflows), "since the base, not since the last time");
}

#[test]
fn workflows_are_named_whatever_takes_their_folders_place() {
    let workflow = (".github/workflows/test.yml", &b"on: push\n"[..]);
    let world = World::new(&[workflow, (".github/CODEOWNERS", b"* @somebody\n")]);
    world.write(".github/CODEOWNERS", "* @nobody\n");
    assert_eq!(world.take("1").workflows, [""; 0], "another file beside them is none");
    world.write(".github/workflows/deep/er.yml", "on: push\n");
    assert_eq!(world.take("2").workflows, [".github/workflows/deep/er.yml"]);
    fs::remove_dir_all(world.workspace().join(".github/workflows")).unwrap();
    assert_eq!(world.take("3").workflows, [".github/workflows/test.yml"], "all of them are gone");
    symlink("../elsewhere", world.workspace().join(".github/workflows")).unwrap();
    assert_eq!(world.take("4").workflows, [".github/workflows", ".github/workflows/test.yml"], "a link");
    fs::remove_dir_all(world.workspace().join(".github")).unwrap();
    world.write(".github", "a file\n");
    assert_eq!(world.take("5").workflows, [".github/workflows/test.yml"], "a file in the place of the folder above");
}

#[test]
fn line_ends_ids_and_encodings_are_undone_as_git_does() {
    let world = World::new(&[(".gitattributes", b"*.txt text\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n*.l1 working-tree-encoding=ISO-8859-1\n*.bad working-tree-encoding=UTF-16LE\n*.odd working-tree-encoding=NONE-SUCH\n")]);
    let little: Vec<u8> = [0xff, 0xfe].into_iter().chain("grün\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let big: Vec<u8> = [0xfe, 0xff].into_iter().chain("grün\n".encode_utf16().flat_map(u16::to_be_bytes)).collect();
    world.write("a.txt", "one\r\ntwo\r\n");
    world.write("a.id", "$Id: something $\n");
    world.write("little.u16", little);
    world.write("big.u16", big);
    world.write("a.l1", b"gr\xfcn\n");
    world.write("a.bad", b"odd");
    world.write("a.odd", "kept\n");
    let taken = world.take("1");
    assert_eq!(world.content(&taken, "a.txt"), b"one\ntwo\n");
    assert_eq!(world.content(&taken, "a.id"), b"$Id$\n");
    for name in ["little.u16", "big.u16", "a.l1"] {
        assert_eq!(world.content(&taken, name), "grün\n".as_bytes(), "{name}");
    }
    assert_eq!(world.content(&taken, "a.bad"), b"odd", "what cannot be converted is taken as it lies there");
    assert_eq!(world.content(&taken, "a.odd"), b"kept\n");
}

#[test]
fn a_repository_within_is_its_commit_and_listed_and_a_submodule_stays() {
    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";
    let world = World::unseeded(FILES);
    let origin = world.path("origin");
    git(&origin, &["update-index", "--add", "--cacheinfo", &format!("160000,{ONE},module")]);
    git(&origin, &["commit", "-q", "-m", "A submodule"]);
    let mirror = world.path("mirror.git");
    git(&mirror, &["fetch", "-q", "origin", "+main:main"]);
    let base = git(&mirror, &["rev-parse", "main"]).trim().to_owned();
    let world = World { base, ..world };
    fs::create_dir(world.workspace().join("module")).unwrap();
    world.seed();
    let clean = world.take("1");
    assert_eq!(clean.tree, git(&mirror, &["rev-parse", "main^{tree}"]).trim(), "nobody checked it out");
    assert!(clean.skipped.is_empty());

    let module = world.workspace().join("module");
    fs::write(module.join(".git"), "gitdir: ../.git/modules/module\n").unwrap();
    nested(&world.path("workspace/.git/modules/module/x"), TWO);
    fs::rename(world.path("workspace/.git/modules/module/x/.git"), world.path("workspace/.git/modules/module/y"))
        .unwrap();
    for name in ["HEAD", "objects", "refs"] {
        let from = world.path("workspace/.git/modules/module/y").join(name);
        fs::rename(from, world.path("workspace/.git/modules/module").join(name)).unwrap();
    }
    nested(&world.workspace().join("own"), "ref: refs/heads/main\n");
    write(&world.workspace().join("own/.git/packed-refs"), format!("# pack-refs\n{ONE} refs/heads/main\n").as_bytes());
    write(&world.workspace().join("own/file"), b"within\n");
    nested(&world.workspace().join("empty"), "ref: refs/heads/main\n");
    write(&world.workspace().join("empty/file"), b"within\n");
    write(&world.workspace().join("junk/.git/whatever"), b"junk\n");
    write(&world.workspace().join("junk/file"), b"ordinary\n");
    let taken = world.take("2");
    let tree = world.tree(&taken.tree);
    assert_eq!(tree[&b"module"[..]], ("160000".into(), TWO.as_bytes().to_vec()));
    assert_eq!(tree[&b"own"[..]], ("160000".into(), ONE.as_bytes().to_vec()));
    assert_eq!(tree[&b"junk/file"[..]].1, b"ordinary\n");
    assert!(!tree.keys().any(|path| path.starts_with(b"own/") || path.starts_with(b"empty")));
    let expected = [("empty", Why::NestedWithoutCommit), ("module", Why::Nested), ("own", Why::Nested)];
    assert_eq!(skipped(&taken), expected);
    assert_eq!(skipped(&world.take("3")), expected, "each time");

    fs::remove_file(module.join(".git")).unwrap();
    write(&module.join("file"), b"no submodule any more\n");
    let taken = world.take("4");
    assert_eq!(world.content(&taken, "module/file"), b"no submodule any more\n");
}

#[test]
fn a_folder_with_tracked_files_stays_one_when_it_becomes_a_repository() {
    let world = World::new(FILES);
    world.write("made/file", "first\n");
    world.take("1");
    nested(&world.workspace().join("made"), "3333333333333333333333333333333333333333");
    nested(&world.workspace().join("src"), "ref: refs/heads/main\n");
    world.write("made/file", "second\n");
    let taken = world.take("2");
    assert_eq!(world.content(&taken, "made/file"), b"second\n");
    assert!(taken.skipped.is_empty());
}

#[test]
fn too_much_of_everything_is_an_error_that_says_so_and_changes_nothing() {
    let world = World::new(FILES);
    world.write("new", "new\n");
    let expected = world.take("1");
    let remembered = fs::read(world.path("private/last")).unwrap();
    world.write("more", vec![1; 5000]);
    let mut taking = world.taking("2");
    taking.limits.bytes = 4000;
    assert_eq!(take::take(&taking).unwrap_err().cause, Cause::TooLarge);
    let mut taking = world.taking("2");
    taking.limits.entries = 5;
    assert_eq!(take::take(&taking).unwrap_err().cause, Cause::TooLarge);
    assert_eq!(fs::read(world.path("private/last")).unwrap(), remembered);
    world.remove("more");
    let again = world.take("3");
    assert_eq!(again.commit, expected.commit);
    assert!(again.is_same_as_last);
}
