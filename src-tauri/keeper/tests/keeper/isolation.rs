//! Attacks from inside, each of which worked on a jail less careful than this one. As this user, and where that is
//! root as an unprivileged one too.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use courier_keeper::protocol::{Network, Request};

use crate::support::{Draft, Ended, Sandbox, as_both_users, wait_for};

/// Runs a script in a sandbox of each user. It must print nothing but `expected`.
fn attack(script: &str, expected: &str) {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let ended = sandbox.run(script);
        assert_eq!(ended.out, expected, "standard error: {}", ended.err);
    }
}

#[test]
fn homes_and_passwords_are_not_there() {
    attack(
        "for path in /etc/shadow /etc/gshadow /etc/ssl/private /etc/ssh /var/lib /var/log /sys /boot /mnt /media /srv /opt; do
           ls $path >/dev/null 2>&1 && echo $path
         done
         find /root /home -type f 2>/dev/null; cat /etc/passwd | wc -l; id -u; id -un",
        "2\n1000\ncourier\n",
    );
}

#[test]
fn the_keepers_own_files_and_its_neighbours_are_not_there() {
    for draft in as_both_users() {
        let place = draft.place().to_owned();
        fs::write(place.join("secret"), "of another sandbox").unwrap();
        let sandbox = draft.start();
        let ended = sandbox.run(&format!("cd {}; ls -A . sandbox /run /var", place.display()));
        assert_eq!(ended.out, ".:\nsandbox\n\n/run:\ncourier\n\n/var:\nrun\ntmp\n\nsandbox:\nhome\nworkspace\n");
    }
}

#[test]
fn nothing_but_workspace_home_and_tmp_can_be_written() {
    attack(
        "for place in / /usr /usr/bin /etc /etc/passwd /run /run/courier /run/courier/courier-keeper /var /lib /proc/sys/kernel; do
           if [ -f $place ]; then (: >> $place) 2>/dev/null && echo wrote $place
           else (: > $place/x) 2>/dev/null && echo wrote $place/x; fi
         done
         for file in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness /proc/irq/*/smp_affinity /proc/sysrq-trigger; do
           # Opened for writing only: should an attack work, the machine is not to suffer.
           (: >> $file) 2>/dev/null && echo opened $file
         done
         for place in . \"$HOME\" /tmp /var/tmp /dev/shm; do : > $place/x && rm $place/x && echo ok; done",
        "ok\nok\nok\nok\nok\n",
    );
}

#[test]
fn nothing_can_be_mounted_or_mounted_again() {
    attack(
        "mount -o remount,rw / 2>/dev/null && echo remounted
         mount -o remount,rw,bind /usr 2>/dev/null && echo remounted
         mount -t tmpfs none /tmp 2>/dev/null && echo mounted
         mount --bind / /tmp 2>/dev/null && echo bound
         umount -l /etc/passwd 2>/dev/null && echo unmounted
         mkdir -p /tmp/c && chroot /tmp/c /bin/true 2>/dev/null && echo chroot
         echo done",
        "done\n",
    );
}

#[test]
fn no_capability_is_left_and_none_can_be_had() {
    attack(
        "grep -h ^Cap /proc/self/status | awk '{print $2}' | sort -u; grep NoNewPrivs /proc/self/status; grep ^Seccomp: /proc/self/status
         unshare -U true 2>/dev/null && echo user namespace
         unshare -Ur true 2>/dev/null && echo root in it
         unshare -m true 2>/dev/null && echo mount namespace
         unshare -n true 2>/dev/null && echo network namespace
         nsenter -t 1 -n true 2>/dev/null && echo entered
         su -c true 2>/dev/null && echo su
         echo done",
        "0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\ndone\n",
    );
}

/// Numbers are x86-64's. Perl is in every Debian; elsewhere the filter's own tests say the same.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_kernel_does_not_even_look() {
    attack(
        r#"perl -e 'sub try { my ($name, $number, @rest) = @_; $! = 0; my $r = syscall($number, @rest); printf "%s %d\n", $name, $r < 0 ? $! : 0 }
           try "clone user", 56, 0x10000000|17, 0, 0, 0, 0;
           try "clone3", 435, 0, 0;
           try "keyctl", 250, 0, -3, 0, 0, 0;
           try "add_key", 248, 0, 0, 0, 0, 0;
           try "bpf", 321, 0, 0, 0;
           try "io_uring", 425, 1, 0;
           try "perf", 298, 0, 0, 0, 0, 0;
           try "userfaultfd", 323, 1;
           try "handle", 304, 0, 0, 0;
           try "vsock", 41, 40, 1, 0;
           try "tiocsti", 16, 0, 0x5412, 0;' 2>&1"#,
        "clone user 1\nclone3 38\nkeyctl 1\nadd_key 1\nbpf 1\nio_uring 38\nperf 1\nuserfaultfd 1\nhandle 1\nvsock 97\ntiocsti 1\n",
    );
}

#[test]
fn nobody_outside_is_seen_or_reached() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let keeper = sandbox.record.keeper.clone();
        let init = sandbox.record.init.clone().unwrap();
        let ended = sandbox.run(&format!(
            "ls -d /proc/[0-9]* | wc -l | awk '{{print ($1 < 8) ? \"few\" : \"many\"}}'
             kill -9 {} {} 2>/dev/null && echo killed; kill -STOP 1; kill -KILL 1; echo done",
            keeper.pid, init.pid
        ));
        assert_eq!(ended.out, "few\ndone\n", "{ended:?}");
        assert_eq!(sandbox.run("echo alive").out, "alive\n", "and init does not hear the agent");
    }
}

#[test]
fn init_cannot_be_looked_into() {
    attack(
        "cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null | head -c 1 | wc -c
         for number in 0 1 2 3 4 5 6 7 8 9; do
           readlink /proc/1/fd/$number; (: < /proc/1/fd/$number) 2>/dev/null && echo opened; (: > /proc/1/fd/$number) 2>/dev/null && echo opened
         done
         cat /proc/1/root/etc/hostname 2>/dev/null; readlink /proc/1/exe /proc/1/cwd
         ls /proc/self/fd | wc -l",
        "0\n4\n",
    );
}

#[test]
fn a_log_cannot_be_erased_by_who_writes_it() {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let ended = sandbox.run(
            "echo evidence; : > /proc/self/fd/1; truncate -s 0 /proc/self/fd/1 2>/dev/null; : > /dev/stdout
             readlink /proc/self/fd/1 | cut -d: -f1; find / -name out -path '*turns*' 2>/dev/null; echo end",
        );
        assert_eq!(ended.out, "evidence\npipe\nend\n", "{ended:?}");
    }
}

#[test]
fn a_service_on_this_machine_is_not_reached() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(|stream| _ = stream.unwrap().write_all(b"reached")));
    for network in [Network::Open, Network::None] {
        for mut draft in as_both_users() {
            draft.spec.network = network;
            let ended: Ended = draft.start().run(&format!(
                "for host in 127.0.0.1 localhost ::1 1.1.1.1 10.0.0.1; do
                   bash -c \"exec 3<>/dev/tcp/$host/{port} && cat <&3\" 2>/dev/null && echo $host
                 done; cat /proc/net/dev | awk -F: 'NR > 2 {{print $1}}'"
            ));
            assert_eq!(ended.out.trim(), "lo", "{ended:?}");
        }
    }
}

#[test]
fn an_abstract_socket_of_this_machine_is_not_reached() {
    let name = format!("courier-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(|stream| _ = stream.unwrap().read(&mut [0])));
    attack(
        &format!(
            "perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die;
             print connect($s, pack_sockaddr_un(\"\\0{name}\")) ? \"reached\\n\" : \"refused\\n\"'
             grep -c @ /proc/net/unix; echo ${{DBUS_SESSION_BUS_ADDRESS:-no bus}}"
        ),
        "refused\n0\nno bus\n",
    );
}

#[test]
fn what_is_read_only_stays_so_and_what_it_links_to_is_not_there() {
    for draft in as_both_users() {
        let objects = draft.place().join("mirror/objects");
        fs::create_dir_all(&objects).unwrap();
        fs::write(objects.join("object"), "precious").unwrap();
        std::os::unix::fs::symlink("/etc/shadow", objects.join("link")).unwrap();
        let mut draft = draft;
        draft.spec.read_only = vec![objects.clone()];
        let sandbox = draft.start();
        let ended = sandbox.run(&format!(
            "cd {}; cat object; (echo x > object) 2>/dev/null && echo written; rm -f object 2>/dev/null; chmod 777 object 2>/dev/null
             ln object hard 2>/dev/null && echo linked; ln object $HOME/hard 2>/dev/null && echo linked
             mv object other 2>/dev/null; cat link 2>/dev/null; ls",
            objects.display()
        ));
        assert_eq!(ended.out, "preciouslink\nobject\n", "{ended:?}");
        assert_eq!(fs::read_to_string(objects.join("object")).unwrap(), "precious");
    }
}

#[test]
fn nobody_survives_the_sandbox() {
    for draft in as_both_users() {
        let mut sandbox: Sandbox = draft.start();
        sandbox.run(
            "(env -i setsid sh -c 'trap \"\" TERM HUP INT; (setsid sh -c \"trap : TERM; sleep 4712.1; :\" &) ; sleep 4712.1' \
             >/dev/null 2>&1 &) >/dev/null 2>&1",
        );
        wait_for("both", || (Sandbox::processes_with("4712.1").len() == 2).then_some(()));
        sandbox.done(&Request::Destroy);
        sandbox.wait_until_gone();
        assert!(Sandbox::processes_with("4712.1").is_empty());
    }
}

#[test]
fn a_path_that_would_open_the_jail_is_refused() {
    for bad in ["/", "/etc", "/tmp", "/proc"] {
        let mut draft = Draft::new();
        draft.spec.read_only = vec![bad.into()];
        let (_, readiness) = draft.try_start();
        assert!(format!("{readiness:?}").contains("cannot be bound"), "{bad}: {readiness:?}");
    }
}

#[test]
fn an_agents_tools_work() {
    let script = r#"
        set -e
        git init -q repo && cd repo && echo text > file && git add .
        git -c user.name=a -c user.email=a@b commit -qm first && git log --format=%s
        cat <(echo substitution)
        echo through > /dev/stdout
        echo tee | tee /dev/stderr 2>/dev/null
        (exec 9> "$(mktemp)"; flock -n 9 echo locked)
        date +%Z >/dev/null; getent hosts localhost >/dev/null; hostname
        [ "$(nproc)" -ge 1 ]; ulimit -c
        if command -v node >/dev/null; then node -e '
            const { Worker } = require("worker_threads");
            new WebAssembly.Memory({ initial: 10, maximum: 1000 });
            new Worker("console.log(\"worker\")", { eval: true });'
        else echo worker; fi
        if command -v gdb >/dev/null; then gdb -q -batch -ex run /bin/true 2>&1 | grep -o "exited normally"
        else echo exited normally; fi
        echo end"#;
    for draft in as_both_users() {
        let sandbox = draft.start();
        fs::write(sandbox.workspace().join("script"), script).unwrap();
        let ended = sandbox.run("bash script");
        assert_eq!(
            ended.out, "first\nsubstitution\nthrough\ntee\nlocked\nsandbox\n0\nworker\nexited normally\nend\n",
            "standard error: {}",
            ended.err
        );
    }
}

#[test]
fn memory_has_a_limit_where_no_cgroup_counts_it() {
    let sandbox = Sandbox::start();
    if sandbox.status().limits_enforced {
        return;
    }
    let ended = sandbox.run("perl -e '$x = \"a\" x (1500 << 20); print \"had it\\n\"' || echo refused");
    assert_eq!(ended.out, "refused\n", "{}", ended.err);
}
