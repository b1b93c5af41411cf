//! A test on a disk of its own, small enough to be filled: it runs again where temporary files lie on one, in a private
//! namespace that leaves nothing behind. Works for root and for a user without privileges.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

const MARK: &str = "COURIER_SMALL_DISK";

/// Runs the test of this name (with its module's path) again on a disk of so many megabytes. False: it has run there,
/// and the caller returns; true: this is that run.
///
/// # Panics
/// Where the test fails there.
#[expect(clippy::disallowed_methods, reason = "tests start programs; the product does so elsewhere")]
pub fn is_here(test: &str, megabytes: u64) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let place = tempfile::tempdir().expect("a temporary folder can be made");
    let (_, name) = test.split_once("::").expect("a test lies in a crate");
    let mut command = std::process::Command::new("bwrap");
    command
        .args(["--dev-bind", "/", "/", "--die-with-parent", "--size", &(megabytes << 20).to_string(), "--tmpfs"])
        .arg(place.path())
        .arg("--setenv")
        .arg("TMPDIR")
        .arg(place.path())
        .args(["--setenv", MARK, "1", "--"])
        .arg(std::env::current_exe().expect("a test is a program"))
        .args(["--exact", name, "--nocapture"]);
    let output = command.output().expect("bubblewrap can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "on the small disk:\n{out}\n{err}");
    assert!(out.contains("1 passed"), "no test is called {name}: {out}");
    false
}

/// What fills a disk, until it is dropped.
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Ballast {
    /// Fills the disk that `folder` lies on, but for so many bytes.
    ///
    /// # Panics
    /// Where the file cannot be made.
    pub fn all_but(folder: &Path, left: u64) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).expect("an empty file needs no room");
        let block = [0; 4096];
        let mut length = 0_u64;
        while file.write_all(&block).is_ok() {
            length += 4096;
        }
        file.set_len(length.saturating_sub(left)).expect("a file can be made shorter");
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        // With the disk gone there is nothing to remove.
        _ = fs::remove_file(&self.0);
    }
}
