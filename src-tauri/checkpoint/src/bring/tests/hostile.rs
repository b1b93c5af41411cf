//! What an attacker sends.

use std::{fs, io::Write};

use courier_test_support::repositories::git_with_input;
use flate2::{Compression, write::ZlibEncoder};

use super::{
    super::{Bringing, Limits, Refusal, bring_in},
    World,
};

#[test]
fn an_object_that_is_missing_is_noticed() {
    let world = World::new();
    let file = world.object("blob", b"content\n");
    let folder = world.tree(&[("100644", "file", &file)]);
    let root = world.tree(&[("40000", "folder", &folder)]);
    let head = world.commit_of(&root);
    let missing = |what: &str, id: &str| Refusal::Missing { what: what.to_owned(), id: id.to_owned() };
    world.bundle_of(&head, &[&head, &root, &folder]);
    assert_eq!(world.refusal(), missing("file", &file));
    world.bundle_of(&head, &[&head, &root, &file]);
    assert_eq!(world.refusal(), missing("tree", &folder));
    world.bundle_of(&head, &[&head, &folder, &file]);
    assert_eq!(world.refusal(), missing("tree", &root));
    let who = "A <a@example.org> 1767268800 +0000";
    let text = format!("tree {root}\nparent {head}\nauthor {who}\ncommitter {who}\n\nwords\n");
    let child = world.object("commit", text.as_bytes());
    world.bundle_of(&child, &[&child, &root, &folder, &file]);
    assert_eq!(world.refusal(), missing("commit", &head), "a parent");
    world.bundle_of(&child, &[&head, &root, &folder, &file]);
    assert_eq!(world.refusal(), missing("commit", &child), "the tip itself");
    world.bundle_of(&head, &[&head, &root, &folder, &file]);
    assert_eq!(bring_in(&world.bringing()).unwrap().commits, 1, "with all of it there is nothing to refuse");
}

#[test]
fn an_object_of_the_vault_is_not_had_by_naming_it() {
    let world = World::new();
    let vault = world.folder.path().join("vault.git");
    let hidden = git_with_input(&vault, &["hash-object", "-w", "--stdin"], b"of another sandbox\n").unwrap();
    let hidden = String::from_utf8(hidden).unwrap().trim().to_owned();
    let root = world.tree(&[("100644", "mine", &hidden)]);
    let head = world.commit_of(&root);
    world.bundle_of(&head, &[&head, &root]);
    assert_eq!(world.refusal(), Refusal::Missing { what: "file".to_owned(), id: hidden.clone() });

    // A delta that copies all of it names it as its base.
    let copied = [19, 19, 0x90, 19];
    let base = git2::Oid::from_str(&hidden).unwrap();
    world.raw_bundle(&head, &pack(&[(7, base.as_bytes(), copied.len(), &copied)]));
    assert!(matches!(world.refusal(), Refusal::Pack(_)));
}

#[test]
fn entries_no_folder_may_have_are_refused() {
    let world = World::new();
    let file = world.object("blob", b"[core]\n\tfsmonitor = touch pwned\n");
    let folder = world.tree(&[("100644", "config", &file)]);
    for name in [".git", ".GIT", ".git ", "git~1", ".g\u{200c}it", "..", ".", "", "a/../../b", "..\\x", ".git::$DATA"] {
        let root = world.tree(&[("40000", name, &folder)]);
        // At the top, and where nobody looks.
        let below = world.tree(&[("40000", "deep", &root)]);
        for top in [&root, &below] {
            let head = world.commit_of(top);
            world.bundle_of(&head, &[&head, below.as_str(), &root, &folder, &file]);
            let refused = world.refusal();
            assert!(matches!(&refused, Refusal::Name { name: found, .. } if found == name), "{name:?}: {refused:?}");
        }
    }
    let absurd = world.tree(&[("100666", "devil", &file)]);
    let head = world.commit_of(&absurd);
    world.bundle_of(&head, &[&head, &absurd, &file]);
    assert!(matches!(world.refusal(), Refusal::Object { .. }));
    let confused = world.tree(&[("40000", "a file", &file)]);
    let head = world.commit_of(&confused);
    world.bundle_of(&head, &[&head, &confused, &file]);
    assert!(matches!(world.refusal(), Refusal::Object { .. }), "a file that says it is a folder");
}

#[test]
fn a_tree_that_shows_more_than_it_holds_is_refused() {
    let world = World::new();
    let mut tree = world.tree(&[("100644", "file", &world.object("blob", b"x"))]);
    let mut all = vec![world.object("blob", b"x"), tree.clone()];
    for _ in 0..9 {
        let names: Vec<String> = (0..10).map(|number| format!("d{number}")).collect();
        let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_str(), tree.as_str())).collect();
        tree = world.tree(&entries);
        all.push(tree.clone());
    }
    let head = world.commit_of(&tree);
    all.push(head.clone());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    world.bundle_of(&head, &all);
    assert!(matches!(world.refusal(), Refusal::Limit { what, .. } if what == "the number of files"));

    // The same folder of upstream's, many times over.
    let upstream = world.git(&["rev-parse", &format!("{}^{{tree}}", world.base)]);
    let root = world.tree(&[("40000", "a", &upstream), ("40000", "b", &upstream), ("40000", "c", &upstream)]);
    let head = world.commit_of(&root);
    world.bundle_of(&head, &[&head, &root]);
    let limits = Limits { files: 16, ..Limits::default() };
    assert!(matches!(world.refusal_of(&Bringing { limits, ..world.bringing() }), Refusal::Limit { .. }));
    let limits = Limits { files: 20, ..Limits::default() };
    assert!(bring_in(&Bringing { limits, ..world.bringing() }).is_ok());
}

#[test]
fn folders_nest_only_so_deep() {
    let world = World::new();
    let file = world.object("blob", b"x");
    let mut all = vec![file.clone(), world.tree(&[("100644", "file", &file)])];
    for _ in 0..60 {
        let tree = world.tree(&[("40000", "d", all.last().unwrap())]);
        all.push(tree);
    }
    let head = world.commit_of(all.last().unwrap());
    all.push(head.clone());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    world.bundle_of(&head, &all);
    let limits = Limits { depth: 60, ..Limits::default() };
    let refused = world.refusal_of(&Bringing { limits, ..world.bringing() });
    assert!(matches!(refused, Refusal::Limit { what, .. } if what == "how deep folders nest"));
    let limits = Limits { depth: 61, ..Limits::default() };
    assert!(bring_in(&Bringing { limits, ..world.bringing() }).is_ok());
}

#[test]
fn a_small_pack_that_unpacks_to_much_is_refused_before_it_is_unpacked() {
    let world = World::new();
    let head = world.base.clone();
    let limits = Limits { object: 1 << 20, unpacked: 4 << 20, ..Limits::default() };
    let bringing = Bringing { limits, ..world.bringing() };
    let zeros = vec![0; 3 << 20];
    world.raw_bundle(&head, &pack(&[(3, &[], zeros.len(), &zeros)]));
    assert_eq!(world.refusal_of(&bringing), Refusal::Limit { what: "a file".to_owned(), limit: 1 << 20 });
    world.raw_bundle(&head, &pack(&[(3, &[], 10, &zeros)]));
    let longer = Refusal::Pack("an object is longer than it says".to_owned());
    assert_eq!(world.refusal_of(&bringing), longer, "it says another length");

    // A delta of a few bytes that says it makes gigabytes of a thousand.
    let base = vec![b'x'; 1000];
    let mut delta = vec![0xe8, 0x07];
    delta.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x10]);
    delta.extend_from_slice(&[0xb0, 0xe8, 0x03].repeat(100));
    let back = [u8::try_from(pack(&[(3, &[], base.len(), &base)]).len() - 32).unwrap()];
    world.raw_bundle(&head, &pack(&[(3, &[], base.len(), &base), (6, &back, delta.len(), &delta)]));
    assert_eq!(world.refusal_of(&bringing), Refusal::Limit { what: "a file".to_owned(), limit: 1 << 20 });

    // Each is small enough; together they are not.
    let half = vec![0; 1 << 19];
    world.raw_bundle(&head, &pack(&[(3, [].as_slice(), half.len(), &half[..]); 9]));
    assert_eq!(world.refusal_of(&bringing), Refusal::Limit { what: "what the pack holds".to_owned(), limit: 4 << 20 });
    let crowd = [b"PACK\0\0\0\x02\xff\xff\xff\xff".as_slice(), &[0; 20]].concat();
    world.raw_bundle(&head, &crowd);
    assert!(matches!(world.refusal_of(&bringing), Refusal::Limit { .. }), "as many as can be written");
    let limits = Limits { bundle: 100, ..limits };
    assert_eq!(world.refusal_of(&Bringing { limits, ..bringing }), Refusal::TooLarge(100));
}

#[test]
fn a_pack_that_is_cut_off_changed_or_garbage_is_refused() {
    let world = World::new();
    world.write("new.txt", &b"some words that are long enough\n".repeat(20));
    world.commit("One");
    world.bundle(&["HEAD", "--not", &world.base]);
    let path = world.folder.path().join("bundle");
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 20, 100, whole.len() / 2, whole.len() - 21, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(world.refusal(), Refusal::Pack(_) | Refusal::Header(_)), "{length} bytes");
    }
    fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    assert!(matches!(world.refusal(), Refusal::Pack(_)), "something follows");
    let mut sum = whole.clone();
    *sum.last_mut().unwrap() ^= 1;
    fs::write(&path, &sum).unwrap();
    assert!(matches!(world.refusal(), Refusal::Pack(_)), "the checksum is another");
    let pack = whole.windows(4).position(|four| four == b"PACK").unwrap();
    for at in (pack..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        world.refusal();
    }
    fs::write(&path, b"\0\xff garbage").unwrap();
    assert!(matches!(world.refusal(), Refusal::Header(_)));
    fs::write(&path, &whole).unwrap();
    assert!(bring_in(&world.bringing()).is_ok());
}

#[test]
fn commits_of_another_repository_are_nothing_to_build_on() {
    let (world, other) = (World::new(), World::new());
    other.write("private.txt", b"private\n");
    let private = other.commit("Private");
    other.write("more.txt", b"more\n");
    other.commit("More");
    other.bundle(&["HEAD", "--not", &private]);
    fs::rename(other.folder.path().join("bundle"), world.folder.path().join("bundle")).unwrap();
    assert_eq!(world.refusal(), Refusal::Prerequisite(private));
}

#[test]
fn a_bundle_that_leaves_out_files_is_refused() {
    let world = World::new();
    world.write("new.txt", b"left out\n");
    world.commit("One");
    world.bundle(&["--filter=blob:none", "HEAD", "--not", &world.base]);
    assert_eq!(world.refusal(), Refusal::Capability("filter=blob:none".to_owned()));
}

#[test]
fn objects_nobody_asked_for_stay_outside() {
    let world = World::new();
    let (file, extra) = (world.object("blob", b"asked\n"), world.object("blob", b"not asked\n"));
    let root = world.tree(&[("100644", "file", &file)]);
    let head = world.commit_of(&root);
    world.bundle_of(&head, &[&head, &root, &file, &extra]);
    assert_eq!(world.refusal(), Refusal::Unasked);
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_neither_followed_nor_waited_for() {
    use std::os::unix::{ffi::OsStrExt, fs::symlink};
    let world = World::new();
    let path = world.folder.path().join("bundle");
    assert_eq!(world.refusal(), Refusal::NoBundle);
    let elsewhere = world.folder.path().join("elsewhere");
    fs::write(&elsewhere, "# v2 git bundle\n").unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(world.refusal(), Refusal::NotAFile, "a link");
    fs::remove_file(&path).unwrap();
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a string that ends in a null byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert_eq!(world.refusal(), Refusal::NotAFile, "a FIFO");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(world.refusal(), Refusal::NotAFile, "a folder");
}

/// A pack of these: kind, what precedes the data, the length it says it has, and the data. Its checksum is wrong.
fn pack(entries: &[(u8, &[u8], usize, &[u8])]) -> Vec<u8> {
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend_from_slice(&u32::try_from(entries.len()).unwrap().to_be_bytes());
    for (kind, before, length, data) in entries {
        let mut rest = length >> 4;
        let mut byte = (kind << 4) | u8::try_from(length & 15).unwrap();
        while rest > 0 {
            pack.push(byte | 0x80);
            byte = u8::try_from(rest & 0x7f).unwrap();
            rest >>= 7;
        }
        pack.push(byte);
        pack.extend_from_slice(before);
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::best());
        deflate.write_all(data).unwrap();
        pack.extend_from_slice(&deflate.finish().unwrap());
    }
    pack.extend_from_slice(&[0; 20]);
    pack
}
