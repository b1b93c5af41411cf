//! The seccomp filter: system calls an agent has no business with, answered before the kernel looks at them.
//!
//! A deny-list. The jail itself is made of namespaces and dropped capabilities; this takes away what namespaces do not
//! cover (the kernel's keyrings, vsock, terminals) and what has most often been the way out of one (new user
//! namespaces, io_uring, bpf, userfaultfd). `ptrace` and `process_vm_readv` stay allowed: debuggers are an agent's
//! tools, there is nobody inside to attack but the agent itself, and init, which holds the control socket, is not
//! dumpable.

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

// Offsets in `struct seccomp_data`; arguments are 64 bits wide, and the low half comes first on both machines.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
#[cfg(target_arch = "x86_64")]
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const NOT_PERMITTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// "This kernel has no such call": programs then use the older one, which can be looked into.
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const NO_SUCH_FAMILY: u32 = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;

/// Every flag that asks for a new namespace. CLONE_NEWTIME (0x80) is a signal number's bit to `clone`, and harmless
/// to refuse to `unshare`.
const CLONE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;
const UNSHARE_FLAGS: u32 = CLONE_FLAGS | 0x80;

/// `open_tree` that changes what it opens. Not in every library's list yet; the number is the same everywhere.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Refused whatever the arguments.
const REFUSED: &[libc::c_long] = &[
    // The kernel's keyrings know no namespaces.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    // Other namespaces, and files by handle from whichever file system.
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The kernel's own programs, counters and modules.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_syslog,
    // The machine's clock and name.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// Answered as if the kernel were older.
const ABSENT: &[libc::c_long] = &[
    // Its flags are in memory, where a filter cannot look.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Sockets that stay inside the sandbox's own network namespace. Not so vsock, for one.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Terminal requests that type for somebody else.
const TERMINAL_REQUESTS: &[u32] = &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

/// The program as bubblewrap wants it: an array of `struct sock_filter`.
pub(super) fn program() -> Vec<u8> {
    let bytes = |one: libc::sock_filter| {
        let [code, k] = [one.code.to_ne_bytes().to_vec(), one.k.to_ne_bytes().to_vec()];
        [code, vec![one.jt, one.jf], k].concat()
    };
    instructions().into_iter().flat_map(bytes).collect()
}

fn instructions() -> Vec<libc::sock_filter> {
    let mut program = vec![
        step(LOAD, MACHINE, 0, 0),
        step(IF_EQUAL, ARCHITECTURE, 1, 0),
        // Calls of another architecture have other numbers: this list would not know them.
        step(ANSWER, KILL, 0, 0),
        step(LOAD, NUMBER, 0, 0),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([step(IF_AT_LEAST, 0x4000_0000, 0, 1), step(ANSWER, KILL, 0, 0)]); // x32
    for &call in REFUSED {
        program.extend([step(IF_EQUAL, number(call), 0, 1), step(ANSWER, NOT_PERMITTED, 0, 0)]);
    }
    for &call in ABSENT {
        program.extend([step(IF_EQUAL, number(call), 0, 1), step(ANSWER, NO_SUCH_CALL, 0, 0)]);
    }
    for (call, flags) in [(libc::SYS_clone, CLONE_FLAGS), (libc::SYS_unshare, UNSHARE_FLAGS)] {
        program.extend([
            step(IF_EQUAL, number(call), 0, 4),
            step(LOAD, FIRST_ARGUMENT, 0, 0),
            step(IF_ANY_BIT, flags, 0, 1),
            step(ANSWER, NOT_PERMITTED, 0, 0),
            step(ANSWER, ALLOW, 0, 0),
        ]);
    }
    let requests = TERMINAL_REQUESTS.iter().map(|&request| (request, NOT_PERMITTED));
    listed(&mut program, libc::SYS_ioctl, SECOND_ARGUMENT, requests.collect(), ALLOW);
    let families = FAMILIES.iter().map(|&family| (family.unsigned_abs(), ALLOW));
    listed(&mut program, libc::SYS_socket, FIRST_ARGUMENT, families.collect(), NO_SUCH_FAMILY);
    // Of no use for another family, but asking for one would make the kernel load its module.
    let pairs = vec![(libc::AF_UNIX.unsigned_abs(), ALLOW)];
    listed(&mut program, libc::SYS_socketpair, FIRST_ARGUMENT, pairs, NO_SUCH_FAMILY);
    program.push(step(ANSWER, ALLOW, 0, 0));
    program
}

/// For one call: an answer for each of these values of an argument, and one for all others.
fn listed(program: &mut Vec<libc::sock_filter>, call: libc::c_long, at: u32, values: Vec<(u32, u32)>, other: u32) {
    let length = u8::try_from(2 * values.len() + 2).expect("a short list");
    program.extend([step(IF_EQUAL, number(call), 0, length), step(LOAD, at, 0, 0)]);
    for (value, answer) in values {
        program.extend([step(IF_EQUAL, value, 0, 1), step(ANSWER, answer, 0, 0)]);
    }
    program.push(step(ANSWER, other, 0, 0));
}

fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("system calls have small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer, by running the program as it does.
    fn answer(machine: u32, call: libc::c_long, first: u64, second: u64) -> u32 {
        let program = instructions();
        let (mut at, mut value) = (0, 0);
        loop {
            let one = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { one.jt } else { one.jf });
            match one.code {
                LOAD => {
                    value = match one.k {
                        NUMBER => number(call),
                        MACHINE => machine,
                        FIRST_ARGUMENT => first as u32,
                        SECOND_ARGUMENT => second as u32,
                        other => panic!("loads from {other}"),
                    }
                }
                IF_EQUAL => at += jump(value == one.k),
                IF_ANY_BIT => at += jump(value & one.k != 0),
                #[cfg(target_arch = "x86_64")]
                IF_AT_LEAST => at += jump(value >= one.k),
                ANSWER => return one.k,
                other => panic!("instruction {other}"),
            }
        }
    }

    #[test]
    fn everyday_calls_pass() {
        for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_ptrace, libc::SYS_close_range] {
            assert_eq!(answer(ARCHITECTURE, call, 0, 0), ALLOW, "{call}");
        }
        let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(answer(ARCHITECTURE, libc::SYS_clone, thread as u64, 0), ALLOW);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_unshare, libc::CLONE_FILES as u64, 0), ALLOW);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_ioctl, 0, libc::TIOCGWINSZ), ALLOW);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_socket, libc::AF_INET6 as u64, 0), ALLOW);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_socketpair, libc::AF_UNIX as u64, 0), ALLOW);
    }

    #[test]
    fn every_listed_call_is_refused() {
        REFUSED.iter().for_each(|&call| assert_eq!(answer(ARCHITECTURE, call, 0, 0), NOT_PERMITTED, "{call}"));
        ABSENT.iter().for_each(|&call| assert_eq!(answer(ARCHITECTURE, call, 0, 0), NO_SUCH_CALL, "{call}"));
    }

    #[test]
    fn arguments_are_looked_into_and_their_upper_halves_hide_nothing() {
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET] {
            assert_eq!(answer(ARCHITECTURE, libc::SYS_clone, flag as u64 | 17, 0), NOT_PERMITTED);
            assert_eq!(answer(ARCHITECTURE, libc::SYS_unshare, flag as u64, 0), NOT_PERMITTED);
        }
        let sneaky = (1 << 32) | u64::from(libc::TIOCSTI as u32);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_ioctl, 0, sneaky), NOT_PERMITTED);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_socket, libc::AF_VSOCK as u64, 0), NO_SUCH_FAMILY);
        assert_eq!(answer(ARCHITECTURE, libc::SYS_socketpair, libc::AF_TIPC as u64, 0), NO_SUCH_FAMILY);
    }

    #[test]
    fn another_architecture_is_the_end() {
        assert_eq!(answer(0x4000_0003, libc::SYS_read, 0, 0), KILL, "32-bit calls have other numbers");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(answer(ARCHITECTURE, 0x4000_0000 + libc::SYS_read, 0, 0), KILL);
    }
}
