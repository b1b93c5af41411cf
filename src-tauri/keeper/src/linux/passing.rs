//! Descriptors that travel over a socket, and files that exist in memory only.

use std::{
    fs::File,
    io::{self, Seek, Write},
    mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// The most descriptors one message carries.
const MOST: usize = 8;

/// Room for the control part of a message with [`MOST`] descriptors, aligned as it must be.
type ControlSpace = [u64; 8];

/// Two ends that exchange whole messages.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Sends one message and descriptors with it.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(descriptors.len() <= MOST, "more descriptors than a message carries");
    let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut space: ControlSpace = [0; 8];
    // SAFETY: zeroes are a valid message; its pointers are to values that live until the call returns; the control
    // part has room for MOST descriptors (CMSG_SPACE(32) is 48 of 64 bytes), and the numbers fit what CMSG_LEN says.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if !numbers.is_empty() {
            let size = u32::try_from(mem::size_of_val(numbers.as_slice())).expect("at most 32 bytes");
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), size as usize);
        }
        loop {
            if libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Receives one message and what came with it; `None`: the other end is gone.
pub fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut space: ControlSpace = [0; 8];
    // SAFETY: as in `send`; the kernel writes within the lengths given, and each descriptor it reports is new and ours.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&space) as _;
        let length = loop {
            match libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
                length if length >= 0 => break length.unsigned_abs(),
                _ => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EINTR) => {}
                        Some(libc::ECONNRESET) => return Ok(None),
                        _ => return Err(error),
                    }
                }
            }
        };
        let mut descriptors = Vec::new();
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / mem::size_of::<i32>() {
                    let number = libc::CMSG_DATA(header).cast::<i32>().add(index).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(number));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(if length == 0 && descriptors.is_empty() { None } else { Some((length, descriptors)) })
    }
}

/// A file without a name that holds these bytes, to be read from its beginning.
pub fn memory_file(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"courier".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new and nobody else's.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
