//! Bundles as agents make them, and as an attacker does. Real git is the judge of what came in.

mod hostile;
mod ordinary;

use std::{fs, path::PathBuf};

use courier_test_support::repositories::{Repository as Upstream, git, git_with_input};
use tempfile::TempDir;

use super::*;

/// Upstream, its mirror, a vault that borrows from it, and the clone an agent works in.
struct World {
    folder: TempDir,
    clone: PathBuf,
    base: String,
}

impl World {
    fn new() -> Self {
        let upstream = Upstream::ordinary().unwrap();
        let folder = TempDir::new().unwrap();
        let place = folder.path();
        git(place, &["clone", "--quiet", "--bare", &upstream.source(), "mirror.git"]).unwrap();
        git(place, &["init", "--quiet", "--bare", "vault.git"]).unwrap();
        let mirror = place.join("mirror.git/objects");
        fs::write(place.join("vault.git/objects/info/alternates"), format!("{}\n", mirror.display())).unwrap();
        git(place, &["clone", "--quiet", "--shared", "mirror.git", "clone"]).unwrap();
        let clone = place.join("clone");
        let base = git(&clone, &["rev-parse", "HEAD"]).unwrap();
        Self { clone, base, folder }
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.clone, arguments).unwrap()
    }

    fn vault(&self, arguments: &[&str]) -> String {
        git(&self.folder.path().join("vault.git"), arguments).unwrap()
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.clone.join(name), content).unwrap();
    }

    /// Commits everything; hands over the commit.
    fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn bringing(&self) -> Bringing {
        Bringing {
            bundle: Some(self.folder.path().join("bundle")),
            vault: self.folder.path().join("vault.git"),
            mirror: self.folder.path().join("mirror.git/objects"),
            head: self.base.clone(),
            verified: vec![],
            references: "refs/courier/a".to_owned(),
            limits: Limits::default(),
        }
    }

    /// A bundle as git makes it, of this and without what is known.
    fn bundle(&self, arguments: &[&str]) {
        let path = self.folder.path().join("bundle");
        let path = path.to_str().unwrap();
        self.git(&[&["bundle", "create", "--quiet", path], arguments].concat());
    }

    /// A bundle of exactly these objects.
    fn bundle_of(&self, head: &str, objects: &[&str]) {
        let list = objects.join("\n") + "\n";
        let pack = git_with_input(&self.clone, &["pack-objects", "--stdout", "--quiet"], list.as_bytes()).unwrap();
        self.raw_bundle(head, &pack);
    }

    fn raw_bundle(&self, head: &str, pack: &[u8]) {
        let header = format!("# v2 git bundle\n-{}\n{head} HEAD\n\n", self.base);
        fs::write(self.folder.path().join("bundle"), [header.as_bytes(), pack].concat()).unwrap();
    }

    fn object(&self, kind: &str, content: &[u8]) -> String {
        let written =
            git_with_input(&self.clone, &["hash-object", "-t", kind, "-w", "--stdin", "--literally"], content);
        String::from_utf8(written.unwrap()).unwrap().trim().to_owned()
    }

    /// A tree with entries no git would write.
    fn tree(&self, entries: &[(&str, &str, &str)]) -> String {
        let mut content = Vec::new();
        for (mode, name, id) in entries {
            content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            content.extend_from_slice(git2::Oid::from_str(id).unwrap().as_bytes());
        }
        self.object("tree", &content)
    }

    fn commit_of(&self, tree: &str) -> String {
        let who = "A <a@example.org> 1767268800 +0000";
        let text = format!("tree {tree}\nparent {}\nauthor {who}\ncommitter {who}\n\nwords\n", self.base);
        self.object("commit", text.as_bytes())
    }

    /// The vault is as before: no object, no reference, no quarantine.
    fn assert_untouched(&self) {
        assert_eq!(self.vault(&["for-each-ref"]), "", "nothing points anywhere");
        let vault = self.folder.path().join("vault.git");
        let packs = fs::read_dir(vault.join("objects/pack")).unwrap().count();
        assert_eq!((packs, self.quarantines()), (0, 0), "nothing was left");
    }

    fn quarantines(&self) -> usize {
        let names = fs::read_dir(self.folder.path().join("vault.git")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("incoming")).count()
    }

    fn refusal(&self) -> Refusal {
        self.refusal_of(&self.bringing())
    }

    fn refusal_of(&self, bringing: &Bringing) -> Refusal {
        let refused = bring_in(bringing);
        self.assert_untouched();
        match refused {
            Err(Error::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }
}
