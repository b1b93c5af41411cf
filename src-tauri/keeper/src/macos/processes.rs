//! The machine's process table, as far as this user may see it.

use std::{ffi::c_void, mem};

use crate::{protocol::TURN_VARIABLE, tree::Process};

/// Every living process of this user.
pub(super) fn table() -> Vec<Process> {
    // SAFETY: a null buffer asks for the number only.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    let mut pids = vec![0_i32; usize::try_from(count).unwrap_or(0) + 64];
    let size = i32::try_from(mem::size_of_val(pids.as_slice())).unwrap_or(i32::MAX);
    // SAFETY: the buffer is as large as is said.
    let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast::<c_void>(), size) };
    pids.truncate(usize::try_from(count).unwrap_or(0));
    // SAFETY: a system call without arguments that cannot fail.
    let user = unsafe { libc::getuid() };
    pids.into_iter().filter(|&pid| pid > 1).filter_map(|pid| read(pid, user)).collect()
}

fn read(pid: i32, user: libc::uid_t) -> Option<Process> {
    // SAFETY: zero is a valid value of this plain struct.
    let mut info: libc::proc_bsdinfo = unsafe { mem::zeroed() };
    let size = i32::try_from(mem::size_of_val(&info)).expect("a small struct");
    // SAFETY: the buffer is the struct this flavour fills, and its size is given.
    let got = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), size) };
    if got != size || info.pbi_status == libc::SZOMB || info.pbi_uid != user {
        return None;
    }
    let start = info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec;
    // SAFETY: a system call without pointers.
    let session = unsafe { libc::getsid(pid) };
    Some(Process { pid, parent: i32::try_from(info.pbi_ppid).ok()?, session, start, marker: marker(pid) })
}

/// The turn the process's environment names. The system hides the environment of its own programs.
fn marker(pid: i32) -> Option<String> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut bytes = vec![0_u8; 1 << 20];
    let mut length = bytes.len();
    // SAFETY: name and buffer are as long as is said.
    let answer = unsafe {
        libc::sysctl(name.as_mut_ptr(), 3, bytes.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    if answer != 0 {
        return None;
    }
    bytes.truncate(length);
    // Arguments come first: one that looks like the marker is taken for it, which ends a process of this sandbox's too.
    bytes.split(|&byte| byte == 0).find_map(|text| {
        let value = text.strip_prefix(TURN_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}
