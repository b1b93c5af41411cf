//! Whether a host's key is the one the person's `known_hosts` names. Pure.
//!
//! libgit2 looks into the same file and must agree; it does not say, though, whether a key is unknown or another one than
//! before, and that is what a person has to know.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

/// What the file says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Known,
    /// Nothing of this host, or only keys of other types.
    Unknown,
    /// Another key of this type: the server was set up anew, or somebody stands between.
    Changed,
    /// The file says that this very key is not to be trusted any more.
    Revoked,
}

/// Judges a key by the text of a `known_hosts` file.
pub(crate) fn judge(file: &str, host: &str, port: u16, kind: &str, key: &[u8]) -> Verdict {
    let host = host.to_ascii_lowercase();
    let name = if port == 22 { host } else { format!("[{host}]:{port}") };
    let mut verdict = Verdict::Unknown;
    for line in file.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let (marker, names) = match first.strip_prefix('@') {
            Some(marker) => (Some(marker), words.next()),
            None => (None, Some(first)),
        };
        let (Some(names), Some(its_kind), Some(its_key)) = (names, words.next(), words.next()) else { continue };
        if its_kind != kind || !is_named(names, &name) {
            continue;
        }
        let is_same = STANDARD.decode(its_key).is_ok_and(|its_key| its_key == key);
        match marker {
            Some("revoked") if is_same => return Verdict::Revoked,
            // A certificate's authority: libgit2 has no certificates.
            Some(_) => {}
            None if is_same => verdict = Verdict::Known,
            None if verdict == Verdict::Unknown => verdict = Verdict::Changed,
            None => {}
        }
    }
    verdict
}

/// Whether a line's first word means this host: a hash of its name, or patterns of which none forbids it.
fn is_named(names: &str, name: &str) -> bool {
    if let Some(hashed) = names.strip_prefix("|1|") {
        return is_hash_of(hashed, name).unwrap_or(false);
    }
    let mut is_named = false;
    for pattern in names.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches(pattern, name) => return false,
            Some(_) => {}
            None => is_named |= matches(pattern, name),
        }
    }
    is_named
}

fn is_hash_of(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &STANDARD.decode(salt).ok()?);
    Some(hmac::verify(&key, name.as_bytes(), &STANDARD.decode(hash).ok()?).is_ok())
}

/// `*` is any text, `?` any character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[n]) => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"the key of the host";
    const OTHER: &[u8] = b"another key";

    fn line(names: &str, key: &[u8]) -> String {
        format!("{names} ssh-ed25519 {} a comment\n", STANDARD.encode(key))
    }

    fn ask(file: &str) -> Verdict {
        judge(file, "git.example.org", 22, "ssh-ed25519", KEY)
    }

    #[test]
    fn a_key_is_known_unknown_or_another_than_before() {
        assert_eq!(ask(""), Verdict::Unknown);
        assert_eq!(ask(&line("git.example.org", KEY)), Verdict::Known);
        assert_eq!(ask(&line("Git.Example.org,192.0.2.1", KEY)), Verdict::Known, "names have no case");
        assert_eq!(ask(&line("git.example.org", OTHER)), Verdict::Changed);
        let both = line("git.example.org", OTHER) + &line("git.example.org", KEY);
        assert_eq!(ask(&both), Verdict::Known, "a host may have several");
        assert_eq!(ask(&line("example.org", KEY)), Verdict::Unknown);
        let other_kind = line("git.example.org", OTHER).replace("ssh-ed25519", "ssh-rsa");
        assert_eq!(ask(&other_kind), Verdict::Unknown, "a key of another type says nothing of this one");
        assert_eq!(ask(&(line("@revoked git.example.org", KEY) + &line("git.example.org", KEY))), Verdict::Revoked);
        assert_eq!(ask(&line("@cert-authority *", KEY)), Verdict::Unknown);
        assert_eq!(ask("# git.example.org\n\ngit.example.org\ngit.example.org ssh-ed25519 %%%\n"), Verdict::Changed);
    }

    #[test]
    fn patterns_ports_and_hashes_are_read() {
        assert_eq!(ask(&line("*.example.org", KEY)), Verdict::Known);
        assert_eq!(ask(&line("gi?.exam*.org", KEY)), Verdict::Known);
        assert_eq!(ask(&line("*.example.org,!git.example.org", KEY)), Verdict::Unknown);
        let with_port = line("[git.example.org]:2222", KEY);
        assert_eq!(ask(&with_port), Verdict::Unknown);
        assert_eq!(judge(&with_port, "git.example.org", 2222, "ssh-ed25519", KEY), Verdict::Known);
        assert_eq!(judge(&line("git.example.org", KEY), "git.example.org", 2222, "ssh-ed25519", KEY), Verdict::Unknown);
        // Made with `ssh-keygen -H`.
        let salt = STANDARD.encode([7; 20]);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &[7; 20]);
        let hash = STANDARD.encode(hmac::sign(&key, b"git.example.org"));
        assert_eq!(ask(&line(&format!("|1|{salt}|{hash}"), KEY)), Verdict::Known);
        assert_eq!(ask(&line(&format!("|1|{salt}|{hash}"), OTHER)), Verdict::Changed);
        assert_eq!(ask(&line("|1|x", KEY)), Verdict::Unknown);
    }
}
