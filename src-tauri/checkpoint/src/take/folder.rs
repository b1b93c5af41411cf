//! Opening what lies in a workspace, without ever leaving it.
//!
//! An agent may still be at work: a folder can become a symbolic link between two looks at it. So everything is opened
//! beneath a handle of the workspace's root, no link is followed, no other file system entered, and what turns out to be
//! a pipe does not block. What is open is looked at again before it is read.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use gix::{
    bstr::{BStr, BString},
    index::entry::{Stat, stat::Time},
};

use super::look::{Kind, Look};

/// A folder that is open.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// The workspace's root. It may be reached through links: its path is ours.
    pub fn root(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a C string; the descriptor is new and ours.
        own(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) }).map(Self)
    }

    /// A folder beneath this one.
    pub fn folder(&self, path: &BStr) -> io::Result<Self> {
        let path = if path.is_empty() { BStr::new(".") } else { path };
        open_beneath(&self.0, path, libc::O_RDONLY | libc::O_DIRECTORY).map(Self)
    }

    /// A file beneath this one, for reading; an error where it is not a regular one.
    pub fn file(&self, path: &BStr) -> io::Result<(File, Look)> {
        let file = open_beneath(&self.0, path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        let mut stat = MaybeUninit::uninit();
        // SAFETY: an open descriptor, and room for the answer.
        let look = unsafe { answered(libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()), &stat) }?;
        match look.kind {
            Kind::File { .. } => Ok((File::from(file), look)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    }

    /// What a name in this folder is; links are not followed.
    pub fn look(&self, name: &BStr) -> io::Result<Look> {
        let name = CString::new(name.to_vec())?;
        let mut stat = MaybeUninit::uninit();
        // SAFETY: an open descriptor, a C string, and room for the answer.
        unsafe {
            let result = libc::fstatat(self.0.as_raw_fd(), name.as_ptr(), stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW);
            answered(result, &stat)
        }
    }

    /// Where a link in this folder points, whatever that is.
    pub fn link(&self, name: &BStr) -> io::Result<Vec<u8>> {
        let name = CString::new(name.to_vec())?;
        let mut target = vec![0_u8; libc::PATH_MAX as usize];
        // SAFETY: an open descriptor, a C string, and room for as many bytes as are said.
        let length =
            unsafe { libc::readlinkat(self.0.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        target.truncate(length);
        Ok(target)
    }

    /// The names in this folder but `.` and `..`, and what they are where the system says so; at most `most` of them.
    pub fn names(&self, most: u64) -> io::Result<Vec<(BString, Option<Kind>)>> {
        let listing = Listing::of(&self.0)?;
        let mut names = Vec::new();
        while let Some(entry) = listing.next()? {
            if entry.0 == "." || entry.0 == ".." {
                continue;
            }
            names.push(entry);
            if names.len() as u64 > most {
                break; // Whoever counts sees it.
            }
        }
        Ok(names)
    }
}

/// An open listing.
struct Listing(*mut libc::DIR);

impl Listing {
    fn of(folder: &OwnedFd) -> io::Result<Self> {
        // SAFETY: an open descriptor; the copy belongs to the listing from then on.
        unsafe {
            let copy = libc::fcntl(folder.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0);
            if copy < 0 {
                return Err(io::Error::last_os_error());
            }
            let listing = libc::fdopendir(copy);
            if listing.is_null() {
                let error = io::Error::last_os_error();
                libc::close(copy);
                return Err(error);
            }
            Ok(Self(listing))
        }
    }

    fn next(&self) -> io::Result<Option<(BString, Option<Kind>)>> {
        // SAFETY: the listing is open, and nobody else reads it; what it gives is valid until the next call.
        unsafe {
            *errno() = 0;
            let entry = libc::readdir(self.0);
            if entry.is_null() {
                let error = io::Error::last_os_error();
                return if error.raw_os_error() == Some(0) { Ok(None) } else { Err(error) };
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
            let kind = match (*entry).d_type {
                libc::DT_DIR => Some(Kind::Folder),
                libc::DT_LNK => Some(Kind::Link),
                libc::DT_FIFO | libc::DT_SOCK | libc::DT_CHR | libc::DT_BLK => Some(Kind::Special),
                _ => None,
            };
            Ok(Some((BString::from(name.to_bytes()), kind)))
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        // SAFETY: it is open and used no more.
        unsafe { libc::closedir(self.0) };
    }
}

fn errno() -> *mut libc::c_int {
    // SAFETY: the address of this thread's own number.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::__errno_location();
        #[cfg(not(target_os = "linux"))]
        return libc::__error();
    }
}

/// # Safety
/// A descriptor that nobody owns yet, or the sign of an error.
fn own(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// # Safety
/// Where the result is 0 the system has filled in the answer.
unsafe fn answered(result: libc::c_int, stat: &MaybeUninit<libc::stat>) -> io::Result<Look> {
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: promised by the caller.
    let stat = unsafe { stat.assume_init_ref() };
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Kind::File { is_executable: stat.st_mode & 0o100 != 0 },
        libc::S_IFLNK => Kind::Link,
        libc::S_IFDIR => Kind::Folder,
        _ => Kind::Special,
    };
    // Truncated as in every index of Git's: only compared, never counted with.
    let time = |secs: i64, nsecs: i64| Time { secs: secs as u32, nsecs: nsecs as u32 };
    Ok(Look {
        kind,
        size: stat.st_size as u64,
        stat: Stat {
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
            ino: stat.st_ino as u32,
            size: stat.st_size as u32,
            ..Stat::default()
        },
    })
}

/// Opens a path beneath a folder; never through a link, never on another file system.
#[cfg(target_os = "linux")]
fn open_beneath(folder: &OwnedFd, path: &BStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let name = CString::new(path.to_vec())?;
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;
    how.resolve =
        libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_XDEV;
    // SAFETY: an open descriptor, a C string, and a structure of the size that is said.
    let descriptor = unsafe {
        libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), name.as_ptr(), &raw const how, size_of::<libc::open_how>())
    };
    match own(descriptor as libc::c_int) {
        // An old kernel, or a container's filter that does not know the call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            step_beneath(folder, path, flags)
        }
        other => other,
    }
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(folder: &OwnedFd, path: &BStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    step_beneath(folder, path, flags)
}

/// The same, one component at a time: what every Unix can.
fn step_beneath(folder: &OwnedFd, path: &BStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let device = device(folder)?;
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        if part == b".." {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let part = CString::new(part)?;
        let flags = if parts.peek().is_some() { libc::O_RDONLY | libc::O_DIRECTORY } else { flags };
        let from = at.as_ref().unwrap_or(folder).as_raw_fd();
        // SAFETY: an open descriptor and a C string; the descriptor that comes back is new and ours.
        let next = own(unsafe { libc::openat(from, part.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC) })?;
        if self::device(&next)? != device {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        at = Some(next);
    }
    at.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

fn device(descriptor: &OwnedFd) -> io::Result<libc::dev_t> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: an open descriptor and room for the answer, which is there where the result is 0.
    unsafe {
        if libc::fstat(descriptor.as_raw_fd(), stat.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stat.assume_init_ref().st_dev)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    type Open = fn(&OwnedFd, &BStr, libc::c_int) -> io::Result<OwnedFd>;

    #[test]
    fn nothing_is_opened_through_a_link_or_upwards_by_either_way() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("root/inner")).unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        fs::write(place.path().join("root/inner/file"), "file").unwrap();
        symlink("..", place.path().join("root/up")).unwrap();
        symlink("inner/file", place.path().join("root/link")).unwrap();
        symlink("inner", place.path().join("root/within")).unwrap();
        let root = Folder::root(&place.path().join("root")).unwrap();
        for open in [open_beneath as Open, step_beneath] {
            assert!(open(&root.0, "inner/file".into(), libc::O_RDONLY).is_ok());
            for path in ["up/secret", "../secret", "inner/../../secret", "link", "within/file", "/etc/passwd", "none"] {
                assert!(open(&root.0, path.into(), libc::O_RDONLY).is_err(), "{path}");
            }
        }
    }
}
