//! Attacks from inside, each of which worked on a jail less careful than this one. As this user, and where that is
//! root as an unprivileged one too.

use std::fs;

use courier_keeper::protocol::Request;

use crate::support::{Draft, Sandbox, as_both_users, wait_for};

/// Runs a script in a sandbox of each user. It must print nothing but `expected`.
pub fn attack(script: &str, expected: &str) {
    for draft in as_both_users() {
        let sandbox = draft.start();
        let ended = sandbox.run(script);
        assert_eq!(ended.out, expected, "standard error: {}", ended.err);
    }
}

#[test]
pub fn homes_and_passwords_are_not_there() {
    attack(
        "for path in /etc/shadow /etc/gshadow /etc/ssl/private /etc/ssh /var/lib /var/log /sys /boot /mnt /media /srv /opt; do
           ls $path >/dev/null 2>&1 && echo $path
         done
         find /root /home -type f 2>/dev/null; cat /etc/passwd | wc -l; id -u; id -un",
        "2\n1000\ncourier\n",
    );
}

#[test]
pub fn the_keepers_own_files_and_its_neighbours_are_not_there() {
    for draft in as_both_users() {
        let place = draft.place().to_owned();
        fs::write(place.join("secret"), "of another sandbox").unwrap();
        let sandbox = draft.start();
        let ended = sandbox.run(&format!("cd {}; ls -A . sandbox /run /var", place.display()));
        assert_eq!(ended.out, ".:\nsandbox\n\n/run:\ncourier\n\n/var:\nrun\ntmp\n\nsandbox:\nhome\nworkspace\n");
    }
}

#[test]
pub fn nothing_but_workspace_home_and_tmp_can_be_written() {
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

/// The whole list, so that a new mount is thought about.
#[test]
pub fn every_other_mount_is_read_only_and_none_gives_rights_or_devices() {
    for draft in as_both_users() {
        let own = [draft.spec.workspace.clone(), draft.spec.home.clone()].map(|place| place.display().to_string());
        let ended = draft.start().run("awk '{print $5, $6}' /proc/self/mountinfo");
        for line in ended.out.lines() {
            let (place, options) = line.split_once(' ').unwrap();
            let has = |option| options.split(',').any(|one| one == option);
            let is_own = own.iter().any(|one| one == place) || ["/tmp", "/dev/shm", "/dev/pts"].contains(&place);
            let is_device = place
                .strip_prefix("/dev/")
                .is_some_and(|name| ["null", "zero", "full", "random", "urandom", "tty", "console"].contains(&name));
            assert!(has("ro") || is_own || is_device, "{line} can be written");
            assert!(has("nosuid"), "{line} gives rights");
            assert!(has("nodev") || is_device || place == "/dev/pts", "{line} has devices");
        }
        assert!(ended.out.lines().count() > 5, "{ended:?}");
    }
}

#[test]
pub fn what_is_kept_in_memory_has_a_size() {
    attack(
        "df -k /tmp /dev/shm | awk 'NR > 1 { print ($2 <= 1048576) ? \"bounded\" : $2 }'; (: > /dev/x) 2>/dev/null && echo wrote",
        "bounded\nbounded\n",
    );
}

#[test]
pub fn nothing_can_be_mounted_or_mounted_again() {
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
pub fn no_capability_is_left_and_none_can_be_had() {
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

#[test]
pub fn nobody_outside_is_seen_or_reached() {
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
pub fn init_cannot_be_looked_into() {
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
pub fn a_log_cannot_be_erased_by_who_writes_it() {
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
pub fn what_is_read_only_stays_so_and_what_it_links_to_is_not_there() {
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

/// As a container's runtime was once replaced: by who opens, for writing, the program that somebody else runs.
#[test]
pub fn a_program_cannot_be_replaced_through_whoever_runs_it() {
    attack(
        "mkfifo pipe; /run/courier/courier-keeper keep < pipe > /dev/null 2>&1 & exec 9> pipe
         readlink /proc/$!/exe; (: >> /proc/$!/exe) 2>/dev/null && echo opened; (: >> /proc/1/exe) 2>/dev/null && echo opened init
         exec 9>&-; wait",
        "/run/courier/courier-keeper\n",
    );
}

#[test]
pub fn no_key_is_on_a_command_line() {
    const KEY: &str = "sk-ant-api03-canary-of-the-command-lines";
    for draft in as_both_users() {
        let sandbox = draft.start();
        let turn = sandbox.begin_with("echo here; sleep 60", &[("KEY", KEY)], &[KEY]);
        sandbox.wait_for_output(&turn, "here");
        let ended = sandbox
            .run("for file in /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $file; done | grep -c 'canary-of-th[e]' ");
        assert_eq!(ended.out, "0\n", "{ended:?}");
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            assert!(!line.windows(KEY.len()).any(|window| window == KEY.as_bytes()), "{}", process.path().display());
        }
    }
}

/// What an agent leaves lies where the keeper's next life begins.
#[test]
pub fn what_was_planted_leads_the_next_keeper_nowhere() {
    for draft in as_both_users() {
        let outside = draft.place().join("outside");
        fs::write(&outside, "precious").unwrap();
        fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let sandbox = draft.start();
        let planted = sandbox.run(&format!(
            "for place in . \"$HOME\"; do
               cd \"$place\"; rm -rf \"$PWD\" 2>/dev/null; mv \"$PWD\" \"$PWD.old\" 2>/dev/null && echo moved
               (rmdir \"$PWD\" && ln -s /etc \"$PWD\") 2>/dev/null && echo replaced
               for name in turns keeper.lock keeper.json keeper.log ended refused.log out exit .profile .bashrc; do
                 ln -s {} $name; ln -s /etc/shadow $name.shadow; mkfifo $name.pipe
               done
               cd - >/dev/null
             done; echo planted",
            outside.display()
        ));
        assert_eq!(planted.out, "planted\n", "{planted:?}");
        let again = sandbox.killed_and_started_again();
        assert_eq!(again.run("cat out .profile 2>/dev/null; ls -d /etc/shadow 2>/dev/null; echo on").out, "on\n");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "precious");
    }
}

#[test]
pub fn nobody_survives_the_sandbox() {
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
pub fn a_path_that_would_open_the_jail_is_refused() {
    for bad in ["/", "/etc", "/tmp", "/proc", "workspace/tools"] {
        let mut draft = Draft::new();
        // What is absolute stays so; the other lies where an agent could put a link to anywhere.
        draft.spec.read_only = vec![draft.spec.directory.join(bad)];
        let (_, readiness) = draft.try_start();
        assert!(format!("{readiness:?}").contains("cannot be bound"), "{bad}: {readiness:?}");
    }
}

#[test]
pub fn memory_has_a_limit_where_no_cgroup_counts_it() {
    let sandbox = Sandbox::start();
    if sandbox.status().limits_enforced {
        return;
    }
    let ended = sandbox.run("perl -e '$x = \"a\" x (1500 << 20); print \"had it\\n\"' || echo refused");
    assert_eq!(ended.out, "refused\n", "{}", ended.err);
}
