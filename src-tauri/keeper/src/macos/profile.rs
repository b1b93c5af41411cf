//! What a sandbox may do: a Seatbelt profile. Deny by default: what is not named here does not happen.

use std::{fmt::Write, io, path::Path};

use crate::protocol::StartSpec;

/// What programs cannot do without. `system.sb` is Apple's own base for confined programs: the dynamic linker, time
/// zones, `/dev/null` and the like.
const BASE: &str = r#"(version 1)
(deny default)
(import "system.sb")
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-shm* ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
(allow file-write* (literal "/dev/null") (literal "/dev/tty"))
(allow file-read-metadata)
(allow file-read* (literal "/"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
"#;

/// The part of the system programs are made of, read-only.
const SYSTEM: &[&str] = &[
    "/bin",
    "/sbin",
    "/usr",
    "/System",
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/opt/homebrew",
    "/private/etc/ssl",
    "/private/etc/protocols",
    "/private/etc/services",
    "/private/var/db/timezone",
    "/private/var/select",
];

/// The profile of a sandbox whose proxy listens on these ports.
pub(super) fn text(spec: &StartSpec, ports: &[u16]) -> io::Result<String> {
    let mut text = BASE.to_owned();
    for place in SYSTEM {
        add(&mut text, "file-read*", Path::new(place))?;
    }
    for place in &spec.read_only {
        if spec.directory.starts_with(place) {
            let message = format!("{} cannot be shown: the sandbox's own folder lies in it", place.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        add(&mut text, "file-read*", place)?;
    }
    for place in [&spec.workspace, &spec.home] {
        add(&mut text, "file-read* file-write*", place)?;
    }
    // Servers of its own, but of everything on the loopback, which is the whole machine's, only the proxy
    // and the model's endpoint.
    text += "(allow network-bind network-inbound (local ip \"localhost:*\"))\n";
    for port in ports {
        writeln!(text, "(allow network-outbound (remote ip \"localhost:{port}\"))").expect("a string takes everything");
    }
    Ok(text)
}

/// Seatbelt sees real paths: a link in the way would make the rule one for nothing.
fn add(text: &mut String, what: &str, place: &Path) -> io::Result<()> {
    let real = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let path = real.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path that is not text"))?;
    let quoted = path.replace('\\', "\\\\").replace('"', "\\\"");
    writeln!(text, "(allow {what} (subpath \"{quoted}\"))").expect("a string takes everything");
    Ok(())
}
