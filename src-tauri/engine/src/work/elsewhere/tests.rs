use std::{fs, path::PathBuf};

use courier_checkpoint::bring::{Bringing, Limits, bring_in};
use courier_test_support::repositories::{git, run};

use super::*;
use crate::{
    model::{SandboxId, Timestamp},
    work::{bench::Bench, bundle::Told},
};

/// A machine that shares nothing with us but what is carried over.
struct Elsewhere {
    bench: Bench,
    id: SandboxId,
    home: PathBuf,
    verified: Vec<Oid>,
}

impl Elsewhere {
    fn new(is_large: bool, checkpoint: impl Fn(&Bench) -> Option<Oid>) -> Self {
        let (bench, id) = (Bench::new(), SandboxId::fresh());
        let checkpoint = checkpoint(&bench);
        let home = bench.path().join("another machine");
        fs::create_dir_all(&home).unwrap();
        let folder = bench.path().join("parcels");
        let shipment = Shipment::pack_as(&bench.vault, id, bench.base, checkpoint, &folder, is_large).unwrap();
        let there = home.join("in.pack");
        fs::copy(&shipment.pack, &there).unwrap();
        let this = Self { verified: vec![bench.base], bench, id, home };
        let (workspace, pack) = (this.workspace(), there.display().to_string());
        let base = ("main", this.bench.base);
        let origin = "https://example.org/it's.git";
        let clone =
            Clone { workspace: &workspace, pack: &pack, base, branch: "courier/work", origin, shipment: &shipment };
        // Nothing of the mirror can be seen there.
        is_whole(&this.run(&clone.script())).unwrap();
        is_whole(&this.run(&clone.script())).unwrap();
        assert!(!there.exists());
        this
    }

    fn workspace(&self) -> String {
        self.home.join("it's the workspace").display().to_string()
    }

    fn run(&self, script: &str) -> Vec<u8> {
        let within = format!("export HOME={}\n{script}", quoted(&self.home.display().to_string()));
        run(&self.home, &["/bin/bash", "-c", &within], b"").unwrap()
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = PathBuf::from(self.workspace()).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(PathBuf::from(self.workspace()).as_path(), arguments).unwrap()
    }

    fn save(&mut self, name: &str, last: Option<Oid>) -> (crate::work::Taken, bool) {
        let out = self.home.join("out.bundle");
        let printed = self.run(&snapshot(&self.workspace(), &self.verified, &out.display().to_string()));
        let Told::Head { commit, has_bundle, .. } = Told::parse(&printed) else {
            panic!("{}", String::from_utf8_lossy(&printed))
        };
        let bringing = Bringing {
            bundle: has_bundle.then_some(out),
            vault: self.bench.vault.path().to_owned(),
            mirror: self.bench.mirror.objects(),
            head: commit.to_string(),
            verified: self.verified.iter().map(Oid::to_string).collect(),
            references: format!("refs/courier/{}/inside", self.id),
            limits: Limits::default(),
        };
        let brought = bring_in(&bringing).unwrap();
        let snapshot = Oid::from_str(&brought.head).unwrap();
        self.verified = vec![self.bench.base, snapshot];
        let recording = Recording {
            sandbox: self.id,
            name,
            snapshot,
            base: self.bench.base,
            head: self.bench.base,
            last,
            message: "A checkpoint\n",
            author: ("An Agent", "agent@example.org"),
            at: Timestamp::from_millis(1_000),
            left_out: left_out(&printed),
        };
        (record(&self.bench.vault, &recording).unwrap(), has_bundle)
    }

    /// What the real git would add.
    fn would_add(&self) -> String {
        let index = self.home.join("judge").display().to_string();
        let script = format!(
            "cd '{}' && GIT_INDEX_FILE='{index}' git add -A && GIT_INDEX_FILE='{index}' git write-tree",
            self.workspace().replace('\'', r"'\''")
        );
        String::from_utf8(self.run(&script)).unwrap().trim().to_owned()
    }
}

#[test]
fn the_whole_working_tree_comes_back_again_and_again() {
    let mut there = Elsewhere::new(false, |_| None);
    assert_eq!(there.git(&["rev-parse", "--abbrev-ref", "HEAD"]).trim(), "courier/work");
    assert_eq!(there.git(&["status", "--porcelain"]), "");
    assert_eq!(there.git(&["rev-parse", "HEAD"]).trim(), there.bench.base.to_string());
    there.write("new/untracked.txt", b"new\n");
    there.write("README.md", b"changed\n");
    there.write(".gitignore", b"target/\n");
    there.write("target/big", b"ignored");
    there.write(".github/workflows/ci.yml", b"on: push\n");
    let (first, _) = there.save("turn-1", None);
    assert_eq!(first.tree.to_string(), there.would_add());
    assert_eq!(first.workflows, [".github/workflows/ci.yml"]);
    assert_eq!(first.files_changed, 4);
    let (same, has_bundle) = there.save("turn-2", Some(first.commit));
    assert!(same.is_same_as_last && same.commit == first.commit && !has_bundle);
    // An agent that removes its repository, and ours, loses nothing.
    fs::remove_dir_all(PathBuf::from(there.workspace()).join(".git")).unwrap();
    fs::remove_dir_all(there.home.join(OWN)).unwrap();
    there.write("later.txt", b"later\n");
    let (last, _) = there.save("turn-3", Some(first.commit));
    assert_eq!(last.files_changed, 1);
    let listed = git(there.bench.vault.path(), &["ls-tree", "-r", "--name-only", &last.commit.to_string()]).unwrap();
    assert!(listed.contains("later.txt") && listed.contains("new/untracked.txt") && !listed.contains("target/big"));
    git(there.bench.vault.path(), &["fsck", "--strict"]).unwrap();
}

#[test]
fn large_files_are_left_out_by_name_and_those_of_lfs_hold_the_push() {
    let mut there = Elsewhere::new(false, |_| None);
    there.write(".gitattributes", b"*.psd filter=lfs diff=lfs merge=lfs -text\n");
    there.write("art/picture.psd", b"raw");
    let huge = PathBuf::from(there.workspace()).join("odd 'name'\n.bin");
    fs::File::create(&huge).unwrap().set_len((LARGEST_MB << 20) + (1 << 20)).unwrap();
    let (taken, _) = there.save("turn-1", None);
    assert_eq!(taken.lfs, ["art/picture.psd"]);
    let skipped: Vec<_> = taken.skipped.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(skipped, ["odd 'name'\n.bin"]);
}

#[test]
fn a_large_repository_travels_without_its_history() {
    let mut there = Elsewhere::new(true, |_| None);
    assert_eq!(there.git(&["status", "--porcelain"]), "");
    there.git(&["fsck"]);
    there.write("a.txt", b"a\n");
    assert_eq!(there.save("turn-1", None).0.tree.to_string(), there.would_add());
}

#[test]
fn a_checkpoint_to_begin_from_comes_with_what_was_uncommitted() {
    for is_large in [false, true] {
        let mut there = Elsewhere::new(is_large, |bench| {
            let committed = bench.commit(&[("committed.txt", Some("c\n"))], bench.base);
            Some(bench.commit(&[("uncommitted.txt", Some("u\n"))], committed))
        });
        assert_eq!(there.git(&["status", "--porcelain"]).trim(), "?? uncommitted.txt");
        assert_eq!(there.git(&["log", "--format=%s", "-1", "--name-only"]).lines().last(), Some("committed.txt"));
        let (taken, _) = there.save("turn-1", None);
        assert_eq!(taken.tree.to_string(), there.would_add());
        assert_eq!(taken.files_changed, 2, "since its base");
    }
}
