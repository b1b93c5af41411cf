use proptest::prelude::*;

use super::*;

fn conversation<'a>(asked: &'a [String], answer: &'a str) -> Conversation<'a> {
    Conversation {
        title: "Retry idempotent requests",
        asked,
        answer: Some(answer),
        files: &[],
        checks: &[],
        agent: "Claude Code",
        model: Some("sonnet"),
        turns: 1,
        usage: Usage::default(),
        cost: None,
        issue: None,
        workspace: "/data/sandboxes/0198/workspace",
        private: &[],
        secrets: &[],
    }
}

fn done(answer: &str) -> String {
    let body = write(&conversation(&[], answer)).body;
    let (_, done) = body.split_once("## Done\n\n").unwrap_or_default();
    done.split_once("\n\n## Checked").map_or(done, |(done, _)| done).to_owned()
}

#[test]
fn a_conversation_becomes_a_title_and_a_body() {
    let asked = [
        "Retry idempotent requests\n\nOnly GET and HEAD, at most **three** times.".to_owned(),
        "And add a test, please. cc @maria, see #4".to_owned(),
    ];
    let answer = "Requests are retried now.\n\n```rust\nlet at_most: Vec<u8> = retries(3);\n```\n\n- `src/client.rs`: the loop\n- see <b>docs</b> and /data/sandboxes/0198/workspace/src/client.rs";
    let file = |path: &str, added, removed| ChangedFile { path: path.to_owned(), added, removed };
    let files = [file("src/client.rs", 40, 3), file("tests/odd `name`.rs", 12, 0)];
    let check = |command: &str, has_passed, exit_code| Check { command: command.to_owned(), has_passed, exit_code };
    let checks = [check("cargo clippy", Some(false), Some(101)), check("cargo test", Some(true), Some(0))];
    let text = write(&Conversation {
        files: &files,
        checks: &checks,
        turns: 2,
        usage: Usage { input: 1_200, output: 3_456, cache_write: 0, cache_read: 1_000_000 },
        cost: Some(417_000_000),
        issue: Some(12),
        ..conversation(&asked, answer)
    });
    insta::assert_snapshot!(format!("{}\n\n{}", text.title, text.body));
}

#[test]
fn little_to_tell_is_told_in_few_words() {
    let text = write(&Conversation { title: "  ", answer: None, agent: "Shell", model: None, ..conversation(&[], "") });
    insta::assert_snapshot!(format!("{}\n\n{}", text.title, text.body));
}

#[test]
fn nobody_is_pinged_and_no_issue_is_touched() {
    for (answer, harmless) in [
        ("thanks @octocat", "thanks @\u{200b}octocat"),
        ("@team/name, (@x) and `@y`", "@\u{200b}team/name, (@\u{200b}x) and `@\u{200b}y`"),
        ("fixes #3, owner/name#4, GH-5", "fixes #\u{200b}3, owner/name#\u{200b}4, GH-\u{200b}5"),
        ("closes https://github.com/o/n/issues/3", "closes https://github.com/o/n/\u{200b}issues/3"),
        ("&#64;octocat &commat;octocat", "&\u{200b}#\u{200b}64;octocat &\u{200b}commat;octocat"),
        ("@<!-- -->octocat", "@\u{200b}octocat"),
        ("a<!-- <!-- -->b --> c", "ab --> c"),
        ("seen <!-- hidden", "seen"),
        ("mail me@example.org", "mail me@example.org"),
        ("<img src=x> ![p](https://x) <https://y>", "&lt;img src=x> [p](https://x) &lt;https://y>"),
        ("`Vec<String>` and Vec<String>", "`Vec<String>` and Vec&lt;String>"),
        ("```\nopen", "```\nopen\n```"),
        ("~~~~\n```\n~~~\nx", "~~~~\n```\n~~~\nx\n~~~~"),
        ("\u{1b}[31mred\u{1b}[0m\u{202e}", "red"),
    ] {
        assert_eq!(done(answer), harmless, "{answer:?}");
    }
}

#[test]
fn nothing_private_is_told() {
    for (answer, harmless) in [
        ("in /data/sandboxes/0198/workspace/src/a.rs", "in src/a.rs"),
        ("in (/data/sandboxes/0198/workspace)", "in (.)"),
        ("see /home/maria/.ssh/id, and \"/Users/x/y z\"", "see [local path], and \"[local path] z\""),
        ("see C:\\Users\\maria\\x.txt.", "see [local path]"),
        ("open http://localhost:3000/x or https://127.0.0.1/y)", "open [local address] or [local address])"),
        ("file:///etc/passwd", "[local path]"),
        ("https://example.org/home/x stays", "https://example.org/home/x stays"),
        ("session 0198f3a2-1111-7222-8333-944445555666.", "session [id]."),
        ("token ghp_0123456789abcdefghij!", "token [redacted]!"),
        ("KEY=sk-ant-api03-0123456789abcdef", "KEY=[redacted]"),
        ("x\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\ny", "x\n[redacted]\ny"),
    ] {
        assert_eq!(done(answer), harmless, "{answer:?}");
    }
    let secrets = [Secret::new("a known canary")];
    let private = ["maria-laptop".to_owned(), "x".to_owned()];
    let asked = ["on maria-laptop with a known canary".to_owned()];
    let title = "maria-laptop: a known canary";
    let text = write(&Conversation { title, secrets: &secrets, private: &private, ..conversation(&asked, "x") });
    assert!(!format!("{text:?}").contains("canary") && !format!("{text:?}").contains("maria"), "{text:?}");
}

#[test]
fn titles_are_one_line_and_not_too_long() {
    let title = |title: &str| write(&Conversation { title, ..conversation(&[], "") }).title;
    assert_eq!(title("# Fix   the\tbuild\nmore"), "Fix the build");
    let long = title(&"word ".repeat(60));
    assert!(long.ends_with("word…") && long.chars().count() <= TITLE, "{long}");
    assert!(title(&"x".repeat(500)).chars().count() <= TITLE);
}

#[test]
fn amounts_read_well() {
    assert_eq!(dollars(0), "$0.00");
    assert_eq!(dollars(1), "less than $0.01");
    assert_eq!(dollars(12_345_678_901), "$12.35");
    assert_eq!(grouped(1_234_567), "1,234,567");
    assert_eq!(grouped(12), "12");
    assert_eq!(code("a `b``c"), "``` a `b``c ```");
}

/// Whether GitHub could take something in it for a mention or a reference.
fn pings(text: &str) -> bool {
    let characters: Vec<char> = text.chars().collect();
    characters.windows(2).enumerate().any(|(at, pair)| {
        let before = at.checked_sub(1).map(|at| characters[at]);
        match pair {
            ['@', next] => next.is_alphanumeric() && !before.is_some_and(char::is_alphanumeric),
            ['#', next] => next.is_ascii_digit(),
            _ => false,
        }
    })
}

proptest! {
    /// From pieces of which each is a trap, and from anything at all.
    #[test]
    fn whatever_is_said_is_harmless_and_bounded(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("@a".to_owned()), Just("#1".to_owned()), Just("<!--".to_owned()), Just("-->".to_owned()),
                Just("```".to_owned()), Just("`".to_owned()), Just("\n".to_owned()), Just("&#64;".to_owned()),
                Just("ghp_0123456789abcdefghij".to_owned()), Just(" /home/me/x ".to_owned()), Just("~~~".to_owned()),
                Just("</details>".to_owned()), Just("\u{1b}[1m".to_owned()), Just("canary-known".to_owned()),
                ".{0,8}",
            ],
            0..40,
        ),
    ) {
        let said = pieces.concat();
        let secrets = [Secret::new("canary-known")];
        let asked = [said.clone(), said.clone()];
        let text = write(&Conversation { title: &said, secrets: &secrets, ..conversation(&asked, &said) });
        prop_assert!(!pings(&text.body), "{:?}", text.body);
        prop_assert!(!text.body.contains("<!--") && !text.body.contains("canary-known"), "{:?}", text.body);
        prop_assert!(!text.body.contains(char::from(27)), "an escape is left");
        prop_assert!(text.title.chars().count() <= TITLE && !text.title.contains('\n') && !text.title.is_empty());
        prop_assert!(text.body.chars().count() < 60_000);
        // What is ours at the end is not inside somebody's fence.
        let open = text.body.lines().fold(None::<(char, usize)>, |open, line| {
            let line = line.strip_prefix("> ").unwrap_or(line);
            let text = line.trim_start_matches(' ');
            let first = text.chars().next().unwrap_or(' ');
            let length = text.chars().take_while(|c| *c == first).count();
            let is_fence = "`~".contains(first) && length >= 3 && line.len() - text.len() <= 3;
            let after = text.get(length..).unwrap_or_default().trim();
            match open {
                None if is_fence && !(first == '`' && after.contains('`')) => Some((first, length)),
                Some((mark, least)) if is_fence && first == mark && length >= least && after.is_empty() => None,
                other => other,
            }
        });
        prop_assert!(open.is_none(), "{:?}", text.body);
    }
}
