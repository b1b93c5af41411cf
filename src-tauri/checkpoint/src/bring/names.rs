//! Names that must never become a file: `.git` as any file system may spell it, and ways out of the folder.

/// The longest name taken, in bytes.
const LONGEST: usize = 4096;

/// Whether a tree's entry may have this name. What Windows and macOS take for `.git` counts everywhere: the work may be
/// checked out there.
pub fn is_safe(name: &[u8]) -> bool {
    let is_bad = |part: &[u8]| part == b"." || part == b".." || is_git(part);
    !name.is_empty()
        && name.len() <= LONGEST
        && !name.contains(&b'/')
        && !name.contains(&0)
        && !name.split(|byte| *byte == b'\\').any(is_bad)
}

/// `.gitmodules` as any file system may spell it: as a link it would be read from elsewhere.
pub(super) fn is_gitmodules(name: &[u8]) -> bool {
    let name = folded(name);
    name == b".gitmodules" || name.starts_with(b"gitmod~") || name.starts_with(b"gi7eba~")
}

fn is_git(name: &[u8]) -> bool {
    let name = folded(name);
    name == b".git" || name == b"git~1"
}

/// A name as the file systems that are lenient compare it: small letters, without what HFS+ ignores, without the stream
/// and the dots and spaces that NTFS drops.
fn folded(name: &[u8]) -> Vec<u8> {
    let kept: Vec<u8> = match std::str::from_utf8(name) {
        Ok(text) => text.chars().filter(|character| !is_ignored(*character)).collect::<String>().into_bytes(),
        Err(_) => name.to_vec(),
    };
    let before_stream = kept.split(|byte| *byte == b':').next().unwrap_or_default();
    let end = before_stream.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    before_stream[..end].to_ascii_lowercase()
}

/// What HFS+ leaves out when it compares names.
fn is_ignored(character: char) -> bool {
    matches!(character, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_repository_is_refused() {
        let odd = [
            ".git",
            ".GIT",
            ".gIt",
            ".git.",
            ".git ",
            ".git. . ",
            ".git::$INDEX_ALLOCATION",
            ".git:x",
            "git~1",
            "GIT~1",
            "git~1.",
            ".g\u{200c}it",
            ".git\u{feff}",
            "\u{200e}.git",
            ".\u{206a}GIT",
            ".git\\hooks",
            "a\\.git",
            "a\\..",
        ];
        for name in odd {
            assert!(!is_safe(name.as_bytes()), "{name:?}");
        }
        for name in ["", ".", "..", "a/b", "/", "../x", "a\0b", "..\\x", &"x".repeat(LONGEST + 1)] {
            assert!(!is_safe(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn names_that_only_look_like_it_are_taken() {
        let fine = [
            ".gitignore",
            ".github",
            ".gitattributes",
            "git",
            "git~2",
            "...",
            "..a",
            "a.git",
            ".gi t",
            "-x",
            "a\nb",
            "a\\b",
        ];
        for name in fine {
            assert!(is_safe(name.as_bytes()), "{name:?}");
        }
        assert!(is_safe(b"\xff\xfe"), "not every name is text");
        assert!(is_gitmodules(b".GITMODULES ") && is_gitmodules(b"gitmod~1") && !is_gitmodules(b".gitignore"));
    }
}
