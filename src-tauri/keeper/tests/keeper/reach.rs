//! Attacks on what listens outside: this machine's services, its sockets, its network. Directly, and through both doors
//! of the proxy, by every name a place has.

use std::{
    fs,
    io::Write,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use courier_keeper::protocol::Network;

use crate::{isolation::attack, support::as_both_users};

/// A service on every address of this machine. It counts who came.
struct Service {
    port: u16,
    visitors: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        // Both kinds of address, where this machine has both.
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        let (port, visitors) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&visitors);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                _ = stream.unwrap().write_all(b"reached");
            }
        });
        Self { port, visitors }
    }
}

/// This machine by its other names, as far as it has them. Nothing is sent to find out.
fn own_names() -> Vec<String> {
    let address = |from: &str, to: &str| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    let addresses = [address("0.0.0.0:0", "192.0.2.1:9"), address("[::]:0", "[2001:db8::1]:9")];
    addresses.into_iter().chain([name]).flatten().collect()
}

const SPELLINGS: &[&str] = &[
    "127.0.0.1",
    "localhost",
    "LOCALHOST.",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0.0.0.0",
    "0",
    "::1",
    "::",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fe80::1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "fd00::1",
    "224.0.0.1",
    "255.255.255.255",
];

#[test]
pub fn a_service_on_this_machine_is_not_reached_by_any_way_or_name() {
    let service = Service::start();
    let hosts: Vec<String> = SPELLINGS.iter().map(|&host| host.to_owned()).chain(own_names()).collect();
    let [high, low] = service.port.to_be_bytes();
    let script = format!(
        r#"for host in {hosts}; do
             bracketed=$host; case $host in *:*) bracketed="[$host]";; esac
             (exec 3<>/dev/tcp/$host/{port} && timeout 5 cat <&3) 2>/dev/null && echo "$host: connected"
             exec 3<>/dev/tcp/127.0.0.1/${{HTTP_PROXY##*:}}
             printf 'CONNECT %s:{port} HTTP/1.1\r\n\r\n' "$bracketed" >&3
             read -t 20 -r version status rest <&3; exec 3>&-
             case $status in 403|502) ;; *) echo "$host: http $status";; esac
             exec 3<>/dev/tcp/127.0.0.1/${{HTTP_PROXY##*:}}
             printf 'GET http://%s:{port}/ HTTP/1.1\r\n\r\n' "$bracketed" >&3
             read -t 20 -r version status rest <&3; exec 3>&-
             case $status in 403|502) ;; *) echo "$host: plain $status";; esac
             exec 3<>/dev/tcp/127.0.0.1/${{ALL_PROXY##*:}}
             printf "\5\1\0\5\1\0\3\x$(printf %02x ${{#host}})%s\{high:03o}\{low:03o}" "$host" >&3
             reply=$(timeout 20 head -c 12 <&3 | od -An -tx1 | tr -d ' \n'); exec 3>&-
             case $reply in 0500050[245]*) ;; *) echo "$host: socks $reply";; esac
           done; echo done"#,
        hosts = hosts.join(" "),
        port = service.port,
    );
    for network in [Network::Open, Network::Listed, Network::None] {
        for mut draft in as_both_users() {
            draft.spec.network = network;
            draft.spec.allowed_hosts = vec!["other.example".into()];
            fs::write(draft.spec.workspace.join("knock"), &script).unwrap();
            let ended = draft.start().run("bash knock");
            assert_eq!(ended.out, "done\n", "{network:?}: {}", ended.err);
            assert_eq!(service.visitors.load(Ordering::SeqCst), 0, "{network:?}: somebody came");
        }
    }
}

#[test]
pub fn without_a_network_not_even_a_public_address_is_reached() {
    for draft in as_both_users() {
        let ended = draft.start().run(
            "bash -c 'for host in 1.1.1.1 2606:4700:4700::1111 example.com; do
               exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}
               case $host in *:*) host=\"[$host]\";; esac
               printf \"CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n\" \"$host\" >&3; read -t 20 -r version status rest <&3; echo $status; exec 3>&-
             done'",
        );
        assert_eq!(ended.out, "403\n403\n403\n", "{ended:?}");
    }
}

#[test]
pub fn there_is_no_other_way_out_than_the_doors() {
    attack(
        r#"awk -F: 'NR > 2 { print $1 }' /proc/net/dev; awk 'NR > 1' /proc/net/route; awk '$NF != "lo"' /proc/net/ipv6_route /proc/net/if_inet6 2>/dev/null
           bash -c 'for way in tcp/1.1.1.1/443 udp/1.1.1.1/53 udp/127.0.0.53/53 tcp/2606:4700:4700::1111/443 tcp/169.254.169.254/80; do
             (exec 3<>/dev/$way && echo ask >&3 && timeout 1 head -c 1 <&3 | grep -q .) 2>/dev/null && echo $way; done'
           perl -MSocket -e 'socket(my $s, AF_INET, SOCK_RAW, 1) and print "raw\n"; socket($s, 17, SOCK_RAW, 0x300) and print "packet\n"'
           ls /etc/resolv.conf /run/systemd /run/dbus /var/run/nscd /tmp/.X11-unix 2>/dev/null; echo done"#,
        "    lo\ndone\n",
    );
}

#[test]
pub fn an_abstract_socket_of_this_machine_is_not_reached() {
    // As the desktop's X server and a session bus may have them.
    let name = format!("/tmp/.X11-unix/courier-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    attack(
        &format!(
            "perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die;
             print connect($s, pack_sockaddr_un(\"\\0{name}\")) ? \"reached\\n\" : \"refused\\n\"'
             grep -c @ /proc/net/unix"
        ),
        "refused\n0\n",
    );
}

/// The session's bus leads to the keychain; the keeper knows where it is, to ask for a cgroup.
#[test]
pub fn the_keychains_bus_and_the_keepers_own_socket_are_not_reached() {
    for mut draft in as_both_users() {
        let bus = draft.place().join("bus");
        let _listener = UnixListener::bind(&bus).unwrap();
        fs::set_permissions(&bus, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let keeper = draft.spec.directory.join("keeper.sock");
        draft.env = vec![
            ("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", bus.display())),
            ("XDG_RUNTIME_DIR", draft.place().display().to_string()),
            ("ANTHROPIC_API_KEY", "of the app's own surroundings".into()),
        ];
        let sandbox = draft.start();
        assert!(keeper.exists());
        let ended = sandbox.run(&format!(
            "env | grep -c -e DBUS -e XDG -e ANTHROPIC
             for path in {} {}; do
               perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; print connect($s, pack_sockaddr_un($ARGV[0])) ? \"reached\\n\" : \"refused\\n\"' $path
             done",
            bus.display(),
            keeper.display()
        ));
        assert_eq!(ended.out, "0\nrefused\nrefused\n", "{ended:?}");
    }
}
