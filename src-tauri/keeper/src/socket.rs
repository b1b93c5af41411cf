//! The keeper's socket. A socket's address ends at 107 bytes (103 on macOS), and a sandbox's folder may lie deeper.

use std::{
    fs, io,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
};

/// Begins to listen; what an earlier keeper left there goes. Call it with the lock held.
pub fn bind(directory: &Path) -> io::Result<UnixListener> {
    let place = Place::of(directory)?;
    match fs::remove_file(place.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(place.path())?;
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to whoever listens.
pub fn connect(directory: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Place::of(directory)?.path())
}

/// Takes the socket away.
pub fn remove(directory: &Path) -> io::Result<()> {
    fs::remove_file(Place::of(directory)?.path())
}

/// On Linux: through a descriptor of the folder, which makes the path short whatever the folder is called.
#[cfg(target_os = "linux")]
struct Place {
    path: PathBuf,
    _directory: fs::File,
}

#[cfg(target_os = "linux")]
impl Place {
    fn of(directory: &Path) -> io::Result<Self> {
        use std::os::{fd::AsRawFd, unix::fs::OpenOptionsExt};
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let directory = fs::OpenOptions::new().read(true).custom_flags(flags).open(directory)?;
        Ok(Self { path: format!("/proc/self/fd/{}/keeper.sock", directory.as_raw_fd()).into(), _directory: directory })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Elsewhere: in a folder of the user's own below `/tmp`, under a number made from the folder's path.
#[cfg(not(target_os = "linux"))]
struct Place {
    path: PathBuf,
}

#[cfg(not(target_os = "linux"))]
impl Place {
    fn of(directory: &Path) -> io::Result<Self> {
        use std::os::unix::{ffi::OsStrExt, fs::DirBuilderExt, fs::MetadataExt};
        // SAFETY: a system call without arguments that cannot fail.
        let user = unsafe { libc::getuid() };
        let folder = PathBuf::from(format!("/tmp/courier-{user}"));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(&folder)?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            let message = format!("{} is not this user's own folder", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let bytes = directory.as_os_str().as_bytes();
        let number = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Ok(Self { path: folder.join(format!("{number:016x}.sock")) })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_deeper_than_an_address_is_long_works() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let listener = bind(&deep).unwrap();
        let _client = connect(&deep).unwrap();
        listener.accept().unwrap();
        let _again = bind(&deep).expect("a socket left behind is no hindrance");
        remove(&deep).unwrap();
    }
}
