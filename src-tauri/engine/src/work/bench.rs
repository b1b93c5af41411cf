//! For tests: a project with upstream, mirror and vault, and commits made straight into the vault.

use std::path::Path;

use courier_test_support::repositories::{Repository as Upstream, git};
use git2::{Oid, Repository, Signature, Time, build::TreeUpdateBuilder};
use tempfile::TempDir;

use super::{Mirror, Source, Vault};
use crate::model::SandboxId;

/// The workbench.
pub(crate) struct Bench {
    pub upstream: Upstream,
    pub source: Source,
    pub mirror: Mirror,
    pub vault: Vault,
    /// Upstream's `main`.
    pub base: Oid,
    pub folder: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self::of(Upstream::ordinary().unwrap())
    }

    pub fn of(upstream: Upstream) -> Self {
        super::isolate_git();
        let folder = TempDir::new().unwrap();
        let source = Source::parse(&upstream.source()).unwrap();
        let mirror = Mirror::at(folder.path().join("mirror.git"));
        mirror.update(&source, None).unwrap();
        let base = mirror.pin("main", SandboxId::fresh()).unwrap();
        let vault = Vault::at(folder.path().join("vault.git"), mirror.clone());
        Self { upstream, source, mirror, vault, base, folder }
    }

    /// A commit of these files (`None` removes one) on top of another.
    pub fn commit(&self, files: &[(&str, Option<&str>)], on: Oid) -> Oid {
        let files: Vec<_> =
            files.iter().map(|(name, content)| (*name, content.map(str::as_bytes), 0o100_644)).collect();
        self.commit_modes(&files, on)
    }

    /// The same, each file with its mode. A submodule's content is the commit it names.
    pub fn commit_modes(&self, files: &[(&str, Option<&[u8]>, i32)], on: Oid) -> Oid {
        let made = self.vault.write(|repository| {
            let parent = repository.find_commit(on)?;
            let mut changes = TreeUpdateBuilder::new();
            for (name, content, mode) in files {
                match content {
                    Some(id) if *mode == 0o160_000 => {
                        let id = Oid::from_str(std::str::from_utf8(id).unwrap())?;
                        changes.upsert(*name, id, git2::FileMode::Commit);
                    }
                    Some(content) => {
                        let mode = match mode {
                            0o100_755 => git2::FileMode::BlobExecutable,
                            0o120_000 => git2::FileMode::Link,
                            _ => git2::FileMode::Blob,
                        };
                        changes.upsert(*name, repository.blob(content)?, mode);
                    }
                    None => _ = changes.remove(*name),
                }
            }
            let tree = repository.find_tree(changes.create_updated(repository, &parent.tree()?)?)?;
            commit_tree(repository, &tree, on)
        });
        made.unwrap()
    }

    /// Real git, asked about the vault.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(self.vault.path(), arguments).unwrap()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn commit_tree(repository: &Repository, tree: &git2::Tree<'_>, on: Oid) -> Result<Oid, super::Error> {
    let who = Signature::new("An Agent", "agent@example.org", &Time::new(1_767_268_800, 0))?;
    Ok(repository.commit(None, &who, &who, "A change\n", tree, &[&repository.find_commit(on)?])?)
}
