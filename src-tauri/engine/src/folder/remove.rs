//! Removing a sandbox's folder, or what lies in it.
//!
//! `std::fs::remove_dir_all` does not follow links either, but it needs a descriptor and a frame of the stack for each
//! level, and fails on folders without permissions: an agent can leave a hundred thousand levels, and folders closed to
//! everybody. Here a folder that lies too deep is moved up and removed from there, and one that is closed is opened first.

use std::path::Path;

use super::{Error, MARKER};

/// A folder that is certain to be a sandbox's own.
#[derive(Debug)]
pub(crate) struct Owned {
    inner: inner::Owned,
}

impl Owned {
    /// The folder of a sandbox in the data folder `home`, where it is there; `name` is the sandbox's id.
    ///
    /// # Errors
    /// `NotOurs` where it carries no marker, or does not lie in the data folder once links are resolved.
    pub(crate) fn claim(home: &Path, name: &str) -> Result<Option<Self>, Error> {
        let path = home.join("sandboxes").join(name);
        let io = |source| Error::Io { path: path.clone(), source };
        let found = match path.symlink_metadata() {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let not_ours = |why| Err(Error::NotOurs { path: path.clone(), why });
        if found.is_symlink() {
            return not_ours("it is a link");
        }
        if !found.is_dir() {
            return not_ours("it is no folder");
        }
        let expected = home.canonicalize().map_err(io)?.join("sandboxes").join(name);
        if path.canonicalize().map_err(io)? != expected {
            return not_ours("it lies outside the data folder");
        }
        let inner = inner::Owned::open(&expected)?;
        if inner.has_marker() {
            return Ok(Some(Self { inner }));
        }
        if inner.is_empty()? {
            // Broken off between the marker and the folder: there is nothing to lose.
            inner.remove_folder()?;
            return Ok(None);
        }
        not_ours("it does not carry the marker of a sandbox")
    }

    /// Removes these of its entries, and everything in them.
    ///
    /// # Errors
    /// `Elsewhere`, `Io`; `BrokenOff` once `goes_on` says no. What was removed until then stays so.
    pub(crate) fn remove_entries(&self, names: &[&str], goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
        names.iter().try_for_each(|name| self.inner.remove_entry(name, goes_on))?;
        self.inner.remove_moved(goes_on)
    }

    /// Removes it: the marker goes last, so that what is left of a removal that was broken off is still known as ours.
    ///
    /// # Errors
    /// As for [`Self::remove_entries`].
    pub(crate) fn remove(self, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
        self.inner.empty_but(MARKER, goes_on)?;
        self.inner.remove_entry(MARKER, goes_on)?;
        self.inner.remove_folder()
    }
}

#[cfg(unix)]
mod inner {
    use std::{
        ffi::{CStr, CString, OsStr},
        io,
        os::{fd::OwnedFd, unix::ffi::OsStrExt},
        path::{Path, PathBuf},
    };

    use rustix::{
        fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat},
        io::Errno,
    };

    use super::{Error, MARKER};

    /// How many folders are open at once, one in another. What lies deeper is moved up.
    const DEPTH: usize = 48;
    /// How many folders of one folder are remembered at once.
    const NAMES: usize = 1024;
    /// What the name of a folder that was moved up begins with.
    const MOVED: &str = ".removing-";

    #[derive(Debug)]
    pub(super) struct Owned {
        path: PathBuf,
        parent: OwnedFd,
        name: CString,
        folder: OwnedFd,
        device: i128,
    }

    /// A folder that is being emptied.
    struct Level {
        name: CString,
        folder: OwnedFd,
        /// Folders in it that are still to be emptied.
        waiting: Vec<CString>,
    }

    impl Owned {
        pub(super) fn open(path: &Path) -> Result<Self, Error> {
            let io = |errno: Errno| Error::Io { path: path.to_owned(), source: errno.into() };
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(io(Errno::INVAL)) };
            let name = CString::new(name.as_bytes()).map_err(|_| io(Errno::INVAL))?;
            let parent = openat(CWD, above, folder_flags(), Mode::empty()).map_err(io)?;
            let folder = open_folder(&parent, &name).map_err(io)?;
            let device = device(&folder).map_err(io)?;
            Ok(Self { path: path.to_owned(), parent, name, folder, device })
        }

        pub(super) fn has_marker(&self) -> bool {
            statat(&self.folder, MARKER, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
        }

        pub(super) fn is_empty(&self) -> Result<bool, Error> {
            let mut entries = Dir::read_from(&self.folder).map_err(|errno| self.io(&[], errno))?;
            Ok(entries.all(|entry| entry.is_ok_and(|entry| is_dots(entry.file_name()))))
        }

        pub(super) fn remove_folder(&self) -> Result<(), Error> {
            match unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(self.io(&[], errno)),
            }
        }

        pub(super) fn remove_entry(&self, name: &str, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            let name = CString::new(name).expect("the names are ours");
            if self.unlink(&self.folder, &[], &name)? {
                self.empty_and_remove(name, goes_on)?;
            }
            Ok(())
        }

        /// Removes what was moved up by a removal that was broken off.
        pub(super) fn remove_moved(&self, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            let mut moved = Vec::new();
            for entry in Dir::read_from(&self.folder).map_err(|errno| self.io(&[], errno))? {
                let name = entry.map_err(|errno| self.io(&[], errno))?.file_name().to_owned();
                if name.to_bytes().starts_with(MOVED.as_bytes()) {
                    moved.push(name);
                }
            }
            moved.into_iter().try_for_each(|name| self.empty_and_remove(name, goes_on))
        }

        /// Removes everything but one name.
        pub(super) fn empty_but(&self, spared: &str, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            let spared = CString::new(spared).expect("the names are ours");
            loop {
                let folders = self.unlink_all(&self.folder, &[], Some(&spared))?;
                if folders.is_empty() {
                    return Ok(());
                }
                for name in folders {
                    self.empty_and_remove(name, goes_on)?;
                }
            }
        }

        /// Empties a folder of this one, and removes it. What is moved up lands in this one, and is removed as well.
        fn empty_and_remove(&self, name: CString, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            let mut roots = vec![name];
            let mut moved = 0_u64;
            while let Some(root) = roots.pop() {
                let mut levels = Vec::new();
                levels.extend(self.enter(&[], &self.folder, root)?);
                while let Some(level) = levels.last_mut() {
                    if !goes_on() {
                        return Err(Error::BrokenOff);
                    }
                    if let Some(next) = level.waiting.pop() {
                        let is_deep = levels.len() >= DEPTH;
                        let (above, level) = levels.split_at(levels.len() - 1);
                        let level = &level[0];
                        let path: Vec<&CStr> = above.iter().chain([level]).map(|level| level.name.as_c_str()).collect();
                        let entered = self.enter(&path, &level.folder, next.clone())?;
                        match entered {
                            Some(_) if is_deep => roots.push(self.move_up(&path, &level.folder, &next, &mut moved)?),
                            Some(entered) => levels.push(entered),
                            None => {}
                        }
                        continue;
                    }
                    let names: Vec<CString> = levels.iter().map(|level| level.name.clone()).collect();
                    let path: Vec<&CStr> = names.iter().map(CString::as_c_str).collect();
                    let level = levels.last_mut().expect("it was looked at just now");
                    level.waiting = self.unlink_all(&level.folder, &path, None)?;
                    if level.waiting.is_empty() {
                        let done = levels.pop().expect("it was looked at just now");
                        let parent = levels.last().map_or(&self.folder, |level| &level.folder);
                        match unlinkat(parent, &done.name, AtFlags::REMOVEDIR) {
                            Ok(()) | Err(Errno::NOENT) => {}
                            Err(errno) => return Err(self.io(&path, errno)),
                        }
                    }
                }
            }
            Ok(())
        }

        /// Opens a folder to empty it; `None` where it is gone.
        fn enter(&self, path: &[&CStr], parent: &OwnedFd, name: CString) -> Result<Option<Level>, Error> {
            let whole = || path.iter().copied().chain([name.as_c_str()]).collect::<Vec<_>>();
            let folder = match open_folder(parent, &name) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(self.io(&whole(), errno)),
            };
            if device(&folder).map_err(|errno| self.io(&whole(), errno))? != self.device {
                return Err(Error::Elsewhere(self.named(&whole())));
            }
            Ok(Some(Level { name, folder, waiting: Vec::new() }))
        }

        /// Removes everything in a folder that is no folder itself, and names some of those that are.
        fn unlink_all(&self, folder: &OwnedFd, path: &[&CStr], spared: Option<&CStr>) -> Result<Vec<CString>, Error> {
            let mut folders = Vec::new();
            loop {
                let mut has_removed = false;
                for entry in Dir::read_from(folder).map_err(|errno| self.io(path, errno))? {
                    let entry = entry.map_err(|errno| self.io(path, errno))?;
                    let name = entry.file_name();
                    if is_dots(name) || Some(name) == spared {
                        continue;
                    }
                    if entry.file_type() == FileType::Directory || self.unlink(folder, path, name)? {
                        folders.push(name.to_owned());
                        if folders.len() == NAMES {
                            return Ok(folders);
                        }
                    } else {
                        has_removed = true;
                    }
                }
                // Where entries vanish while it is read, a folder may not name all of them.
                if !has_removed || !folders.is_empty() {
                    return Ok(folders);
                }
            }
        }

        /// Removes a name, unless it is a folder's.
        fn unlink(&self, folder: &OwnedFd, path: &[&CStr], name: &CStr) -> Result<bool, Error> {
            match unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(false),
                // Linux says the one of a folder, other systems the other; so may they of what is protected.
                Err(Errno::ISDIR | Errno::PERM) if is_folder(folder, name) => Ok(true),
                Err(errno) => {
                    let whole: Vec<&CStr> = path.iter().copied().chain([name]).collect();
                    Err(self.io(&whole, errno))
                }
            }
        }

        /// Moves a folder that lies deep into this one, under a name of its own.
        fn move_up(&self, path: &[&CStr], from: &OwnedFd, name: &CStr, moved: &mut u64) -> Result<CString, Error> {
            loop {
                *moved += 1;
                let new = CString::new(format!("{MOVED}{moved}")).expect("it holds no zero");
                match renameat(from, name, &self.folder, &new) {
                    Ok(()) => return Ok(new),
                    // Something of the agent's has this name. (An empty folder would be replaced, and is to go as well.)
                    Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                    Err(errno) => {
                        let whole: Vec<&CStr> = path.iter().copied().chain([name]).collect();
                        return Err(self.io(&whole, errno));
                    }
                }
            }
        }

        fn named(&self, path: &[&CStr]) -> PathBuf {
            // Enough to find it; the whole of it may be longer than any path.
            const SHOWN: usize = 16;
            let shown = path.iter().take(SHOWN).map(|name| OsStr::from_bytes(name.to_bytes()));
            self.path.join(shown.collect::<PathBuf>())
        }

        fn io(&self, path: &[&CStr], errno: Errno) -> Error {
            Error::Io { path: self.named(path), source: io::Error::from(errno) }
        }
    }

    fn is_dots(name: &CStr) -> bool {
        matches!(name.to_bytes(), b"." | b"..")
    }

    fn folder_flags() -> OFlags {
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
    }

    fn device(folder: &OwnedFd) -> Result<i128, Errno> {
        // Of another type on each system; here only told apart.
        fstat(folder).map(|found| found.st_dev.into())
    }

    fn is_folder(parent: &OwnedFd, name: &CStr) -> bool {
        statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    /// Opens a folder by its name; one that is closed to its owner is opened to it first.
    fn open_folder(parent: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
        let folder = match openat(parent, name, folder_flags(), Mode::empty()) {
            Err(Errno::ACCESS) => {
                unlock(parent, name)?;
                openat(parent, name, folder_flags(), Mode::empty())?
            }
            other => other?,
        };
        let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
        if !mode.contains(Mode::RWXU) {
            // Its owner may still not be this user: then what it holds says so.
            _ = fchmod(&folder, Mode::RWXU);
        }
        Ok(folder)
    }

    /// Opens a folder that cannot even be read to its owner: through a handle, so that no link is followed.
    #[cfg(target_os = "linux")]
    fn unlock(parent: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        use std::os::fd::AsRawFd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(parent, name, flags, Mode::empty())?;
        rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)
    }

    #[cfg(not(target_os = "linux"))]
    fn unlock(parent: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Where there are no local sandboxes, nobody hostile has been in a folder.
#[cfg(not(unix))]
mod inner {
    use std::{
        fs, io,
        path::{Path, PathBuf},
    };

    use super::{Error, MARKER};

    #[derive(Debug)]
    pub(super) struct Owned(PathBuf);

    impl Owned {
        pub(super) fn open(path: &Path) -> Result<Self, Error> {
            Ok(Self(path.to_owned()))
        }

        pub(super) fn has_marker(&self) -> bool {
            self.0.join(MARKER).symlink_metadata().is_ok_and(|found| found.is_file())
        }

        pub(super) fn is_empty(&self) -> Result<bool, Error> {
            fs::read_dir(&self.0).map(|mut entries| entries.next().is_none()).map_err(|source| self.io(source))
        }

        pub(super) fn remove_folder(&self) -> Result<(), Error> {
            fs::remove_dir(&self.0).map_err(|source| self.io(source))
        }

        pub(super) fn remove_entry(&self, name: &str, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            if !goes_on() {
                return Err(Error::BrokenOff);
            }
            let path = self.0.join(name);
            let removed = match path.symlink_metadata() {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
                Ok(_) => fs::remove_file(&path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            removed.map_err(|source| Error::Io { path, source })
        }

        pub(super) fn remove_moved(&self, _goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            Ok(())
        }

        pub(super) fn empty_but(&self, spared: &str, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
            for entry in fs::read_dir(&self.0).map_err(|source| self.io(source))? {
                let name = entry.map_err(|source| self.io(source))?.file_name();
                match name.to_str() {
                    Some(name) if name == spared => {}
                    Some(name) => self.remove_entry(name, goes_on)?,
                    None => return Err(Error::NotOurs { path: self.0.join(name), why: "its name is no text" }),
                }
            }
            Ok(())
        }

        fn io(&self, source: io::Error) -> Error {
            Error::Io { path: self.0.clone(), source }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{
            ffi::OsStrExt,
            fs::{PermissionsExt, symlink},
        },
        path::PathBuf,
    };

    use tempfile::TempDir;

    use super::*;

    const NAME: &str = "01a228e4-1331-736e-954f-9721b578b557";

    fn home() -> (TempDir, PathBuf) {
        let home = TempDir::new().unwrap();
        let folder = home.path().join("sandboxes").join(NAME);
        fs::create_dir_all(folder.join("workspace")).unwrap();
        fs::write(folder.join(MARKER), "").unwrap();
        (home, folder)
    }

    fn remove(home: &TempDir) -> Result<(), Error> {
        match Owned::claim(home.path(), NAME)? {
            Some(owned) => owned.remove(&|| true),
            None => Ok(()),
        }
    }

    /// A folder of so many levels, made as an agent makes it: no path is that long.
    fn nest(folder: &Path, levels: usize) {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, folder, flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&at, "a", Mode::RWXU).unwrap();
            rustix::fs::symlinkat("/etc", &at, "l").unwrap();
            at = openat(&at, "a", flags, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn whatever_an_agent_leaves_is_removed_and_nothing_outside_is_touched() {
        let (home, folder) = home();
        let outside = TempDir::new().unwrap();
        fs::write(outside.path().join("kept"), "mine").unwrap();
        let workspace = folder.join("workspace");
        symlink(outside.path(), workspace.join("link")).unwrap();
        symlink("nowhere", workspace.join("dangling")).unwrap();
        fs::hard_link(outside.path().join("kept"), workspace.join("same")).unwrap();
        fs::write(workspace.join(OsStr::from_bytes(b"\xff\xfe no text\n")), "").unwrap();
        fs::create_dir(workspace.join(".removing-1")).unwrap();
        fs::write(workspace.join(".removing-1").join("x"), "").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            workspace.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for (name, mode) in [("read-only", 0o500), ("closed", 0o000), ("blind", 0o300)] {
            let closed = workspace.join(name);
            fs::create_dir_all(closed.join("in/it")).unwrap();
            fs::write(closed.join("in/it/file"), "").unwrap();
            fs::set_permissions(closed.join("in"), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        }
        for number in 0..3000 {
            fs::create_dir(workspace.join(format!("folder {number}"))).unwrap();
        }
        let mode = fs::metadata(outside.path()).unwrap().permissions().mode();
        remove(&home).unwrap();
        assert!(!folder.exists());
        assert_eq!(fs::read_to_string(outside.path().join("kept")).unwrap(), "mine");
        assert_eq!(fs::metadata(outside.path()).unwrap().permissions().mode(), mode);
        remove(&home).expect("once more does no harm");
    }

    #[test]
    fn no_depth_is_too_deep() {
        let (home, folder) = home();
        nest(&folder.join("workspace"), 2000);
        fs::write(folder.join(".removing-1"), "a name that is taken").unwrap();
        remove(&home).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_without_the_marker_is_left_alone() {
        let (home, folder) = home();
        fs::remove_file(folder.join(MARKER)).unwrap();
        assert!(matches!(remove(&home), Err(Error::NotOurs { .. })));
        symlink("/etc/hostname", folder.join(MARKER)).unwrap();
        assert!(matches!(remove(&home), Err(Error::NotOurs { .. })), "a link is no marker");
        assert!(folder.join("workspace").is_dir());
    }

    #[test]
    fn a_folder_that_lies_elsewhere_is_left_alone() {
        let (home, folder) = home();
        let elsewhere = TempDir::new().unwrap();
        let moved = elsewhere.path().join(NAME);
        fs::rename(&folder, &moved).unwrap();
        symlink(&moved, &folder).unwrap();
        assert!(matches!(remove(&home), Err(Error::NotOurs { .. })), "it is a link");
        fs::remove_file(&folder).unwrap();
        fs::remove_dir(folder.parent().unwrap()).unwrap();
        symlink(elsewhere.path(), folder.parent().unwrap()).unwrap();
        assert!(matches!(remove(&home), Err(Error::NotOurs { .. })), "it lies behind a link");
        assert!(moved.join("workspace").is_dir());
    }

    #[test]
    fn a_data_folder_behind_a_link_is_ours_all_the_same() {
        let (home, folder) = home();
        let other = TempDir::new().unwrap();
        let link = other.path().join("data");
        symlink(home.path(), &link).unwrap();
        Owned::claim(&link, NAME).unwrap().unwrap().remove(&|| true).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn what_was_broken_off_is_still_known_as_ours() {
        let (home, folder) = home();
        for number in 0..10 {
            fs::create_dir_all(folder.join(format!("workspace/{number}/a"))).unwrap();
        }
        let steps = std::cell::Cell::new(0);
        loop {
            let Some(owned) = Owned::claim(home.path(), NAME).unwrap() else { break };
            let mut left = 6;
            let goes_on = std::cell::RefCell::new(|| {
                left -= 1;
                left >= 0
            });
            match owned.remove(&|| (goes_on.borrow_mut())()) {
                Ok(()) => break,
                Err(error) => assert!(matches!(error, Error::BrokenOff), "{error}"),
            }
            assert!(folder.join(MARKER).is_file(), "the marker goes last");
            steps.set(steps.get() + 1);
        }
        assert!(!folder.exists());
        assert!(steps.get() > 3, "it was broken off several times");
        fs::create_dir(&folder).unwrap();
        remove(&home).expect("an empty folder is what a removal broken off at its end leaves");
        assert!(!folder.exists());
    }

    #[test]
    fn only_what_is_named_is_cleaned() {
        let (home, folder) = home();
        fs::create_dir_all(folder.join("home/.cache")).unwrap();
        fs::write(folder.join("keeper.log"), "last words").unwrap();
        Owned::claim(home.path(), NAME).unwrap().unwrap().remove_entries(&super::super::FILES, &|| true).unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [MARKER, "keeper.log"]);
    }
}
