//! Attacks on the kernel's doors: system calls, devices, `/proc`, and what is counted.

use crate::{
    isolation::attack,
    support::{as_both_users, wait_for},
};

/// Numbers are x86-64's. Perl is in every Debian; elsewhere the filter's own tests say the same. Arguments are such that
/// a call that is let through does nothing.
#[test]
pub fn the_kernel_does_not_even_look() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    const NOT_PERMITTED: &[(&str, &str)] = &[
        ("clone user", "56, 0x10000000|17, 0, 0, 0, 0"),
        ("unshare user", "272, 0x10000000"),
        ("unshare time", "272, 0x80"),
        ("setns", "308, 0, 0"),
        ("keyctl", "250, 0, -3, 0, 0, 0"),
        ("add_key", "248, 0, 0, 0, 0, 0"),
        ("request_key", "249, 0, 0, 0, 0"),
        ("bpf", "321, 0, 0, 0"),
        ("perf", "298, 0, 0, 0, 0, 0"),
        ("userfaultfd", "323, 1"),
        ("name_to_handle", "303, 0, 0, 0, 0, 0"),
        ("open_by_handle", "304, 0, 0, 0"),
        ("mount", "165, 0, 0, 0, 0, 0"),
        ("umount", "166, 0, 0"),
        ("pivot_root", "155, 0, 0"),
        ("chroot", "161, 0"),
        ("open_tree", "428, -100, 0, 1"),
        ("open_tree_attr", "467, -100, 0, 1, 0, 0"),
        ("move_mount", "429, 0, 0, 0, 0, 0"),
        ("fsopen", "430, 0, 0"),
        ("fsmount", "432, 0, 0, 0"),
        ("fspick", "433, 0, 0, 0"),
        ("mount_setattr", "442, 0, 0, 0, 0, 0"),
        ("quotactl_fd", "443, 0, 0, 0, 0"),
        ("swapon", "167, 0, 0"),
        ("acct", "163, 0"),
        ("syslog", "103, 0, 0, 0"),
        ("reboot", "169, 0, 0, 0, 0"),
        ("init_module", "175, 0, 0, 0"),
        ("kexec_load", "246, 0, 0, 0, 0"),
        ("settimeofday", "164, 0, 0"),
        ("sethostname", "170, 0, 0"),
        ("tiocsti", "16, 0, 0x5412, 0"),
        ("tiocsti with a high half", "16, 0, 0x100005412, 0"),
        ("tioclinux", "16, 0, 0x541c, 0"),
    ];
    const ABSENT: &[(&str, &str)] =
        &[("clone3", "435, 0, 0"), ("io_uring", "425, 1, 0"), ("io_uring_enter", "426, 0, 0, 0, 0, 0")];
    const NO_FAMILY: &[(&str, &str)] = &[
        ("vsock", "41, 40, 1, 0"),
        ("packet", "41, 17, 3, 0"),
        ("tipc pair", "53, 30, 1, 0, 0"),
        ("alg", "41, 38, 5, 0"),
    ];
    let (mut script, mut expected) = (String::new(), String::new());
    for (calls, errno) in [(NOT_PERMITTED, 1), (ABSENT, 38), (NO_FAMILY, 97)] {
        for (name, arguments) in calls {
            script += &format!("try \"{name}\", {arguments};\n");
            expected += &format!("{name} {errno}\n");
        }
    }
    let attempt = r#"sub try { my ($name, $number, @rest) = @_; $! = 0; my $r = syscall($number, @rest); printf "%s %d\n", $name, $r < 0 ? $! : 0 }"#;
    attack(&format!("perl -e '{attempt}\n{script}' 2>&1"), &expected);
}

/// Tracing and its relatives are a debugger's tools and allowed, among equals.
#[test]
pub fn init_cannot_be_traced_read_written_or_robbed_of_a_descriptor() {
    if !cfg!(target_arch = "x86_64") {
        return; // The numbers are that machine's.
    }
    attack(
        r#"perl -e 'my $room = "x" x 64; my $part = pack("Q2", unpack("Q", pack("P", $room)), 64); my $held = syscall(434, 1, 0);
           sub try { my ($name, $number, @rest) = @_; $! = 0; my $r = syscall($number, @rest); printf "%s %d\n", $name, $r < 0 ? $! : 0 }
           try "attach", 101, 16, 1, 0, 0;
           try "seize", 101, 0x4206, 1, 0, 0;
           try "read", 310, 1, $part, 1, $part, 1, 0;
           try "write", 311, 1, $part, 1, $part, 1, 0;
           print "held\n" if $held >= 0;
           try "take", 438, $held, 3, 0;
           try "kcmp", 312, $$, 1, 0, 0, 0;
           try "limits", 302, 1, 7, 0, $room;' 2>&1"#,
        "attach 1\nseize 1\nread 1\nwrite 1\nheld\ntake 1\nkcmp 1\nlimits 0\n",
    );
}

#[test]
pub fn no_device_is_there_or_can_be_made() {
    attack(
        "ls -A /dev | tr '\\n' ' '; echo
         mknod c c 1 1 2>/dev/null && echo made; mknod b b 8 0 2>/dev/null && echo made
         for name in kvm fuse mem kmsg vsock uinput net/tun dri input sda vda loop-control mapper/control; do [ -e /dev/$name ] && echo $name; done
         (: < /dev/tty) 2>/dev/null && echo terminal; [ -t 0 ] || [ -t 1 ] || [ -t 2 ] && echo terminal
         ls -A /sys 2>/dev/null; echo done",
        "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero \ndone\n",
    );
}

/// Where the app runs as root these belong to the agent's own user, and not all of them ask for a capability.
#[test]
pub fn the_kernels_own_memory_and_messages_cannot_be_read() {
    attack(
        "for file in kcore kmsg kpagecount kpageflags kpagecgroup slabinfo vmallocinfo allocinfo timer_list; do
           (head -c 1 < /proc/$file) >/dev/null 2>&1 && echo $file
         done
         awk '$1 !~ /^0+$/ { bad = 1 } END { if (bad) print \"addresses\" }' /proc/kallsyms 2>/dev/null
         echo done",
        "done\n",
    );
}

#[test]
pub fn a_program_that_runs_as_its_owner_runs_as_its_caller() {
    attack(
        "cp /usr/bin/id own; chmod 6755 own; ./own -u; grep -c '^NoNewPrivs:.1' /proc/self/status
         find /usr/bin -perm -4000 -user root | head -1 | while read -r program; do timeout 5 $program </dev/null >/dev/null 2>&1; done; id -u",
        "1000\n1\n1000\n",
    );
}

#[test]
pub fn limits_cannot_be_lifted() {
    attack(
        "bash -c 'ulimit -Hc; [ $(ulimit -Hu) -le 8192 ] && echo few; (ulimit -c 1) 2>/dev/null && echo dumps
           (ulimit -Hu unlimited) 2>/dev/null && echo many; (ulimit -Hd unlimited) 2>/dev/null && [ $(ulimit -Hd) != unlimited ] && echo more
           cat /proc/self/oom_score_adj; (echo 0 > /proc/self/oom_score_adj) 2>/dev/null && echo spared
           nice -n -5 true 2>&1 | grep -c denied; chrt -f 1 true 2>/dev/null && echo real time; true'",
        "0\nfew\n500\n1\n",
    );
}

/// Bounded by itself, at a size every machine bears: what matters is that its end comes, whatever it forks meanwhile.
#[test]
pub fn a_fork_bomb_ends_with_its_sandbox() {
    for draft in as_both_users() {
        let mut sandbox = draft.start();
        let turn = sandbox.begin(
            r#"perl -e 'use POSIX; for (1 .. 6) { fork; setsid } while (1) { select undef, undef, undef, 0.2; exit if fork; setsid }' &
               echo lit; wait"#,
        );
        sandbox.wait_for_output(&turn, "lit");
        let init = sandbox.record.init.clone().unwrap().pid;
        let namespace = std::fs::read_link(format!("/proc/{init}/ns/pid")).unwrap();
        wait_for("the bomb", || (inside(&namespace) > 40).then_some(()));
        sandbox.done(&courier_keeper::protocol::Request::Destroy);
        sandbox.wait_until_gone();
        assert_eq!(inside(&namespace), 0);
    }
}

/// How many processes live in this pid namespace, seen from outside.
fn inside(namespace: &std::path::Path) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| std::fs::read_link(entry.path().join("ns/pid")).is_ok_and(|one| one == namespace)).count()
}
