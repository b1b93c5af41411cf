//! A program of ours that is run is a copy under app data: it must be there when the app's own is not any more (an
//! AppImage's mount, a version that was replaced), and a running one must not be changed by an update.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Copies a program to a folder named after its version and contents, unless it is there; returns the copy.
///
/// # Errors
/// The path that could not be read or written, and why.
pub(crate) fn install(program: &Path, copies: &Path) -> Result<PathBuf, (PathBuf, io::Error)> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| (path, source)
    };
    let bytes = fs::read(program).map_err(at(program))?;
    let name = program.file_name().ok_or_else(|| at(program)(io::ErrorKind::InvalidFilename.into()))?;
    let folder = copies.join(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), digest(&bytes)));
    let copy = folder.join(name);
    if fs::metadata(&copy).is_ok_and(|found| found.len() == bytes.len() as u64) {
        return Ok(copy);
    }
    write(&folder, &copy, &bytes).map_err(at(&copy))?;
    Ok(copy)
}

/// Whole or not at all: another app may start it while it is written.
fn write(folder: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!(".new-{}", uuid::Uuid::new_v4()));
    write_draft(&draft, bytes).and_then(|()| fs::rename(&draft, copy)).inspect_err(|_| {
        // On a full disk every attempt would leave one more.
        _ = fs::remove_file(&draft);
    })
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(draft, bytes)?;
    #[cfg(unix)]
    fs::set_permissions(draft, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    fs::File::open(draft)?.sync_all()
}

/// FNV-1a: it tells builds apart, and need not withstand anybody (whoever can write here can write the app).
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_build_has_its_own_copy_and_is_copied_once() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("keeper");
        fs::write(&program, "first").unwrap();
        let first = install(&program, &place.path().join("keepers")).unwrap();
        let written = fs::metadata(&first).unwrap().modified().unwrap();
        assert_eq!(install(&program, &place.path().join("keepers")).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), written);
        fs::write(&program, "second").unwrap();
        let second = install(&program, &place.path().join("keepers")).unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read(first).unwrap(), b"first", "a running one is not touched");
    }
}
