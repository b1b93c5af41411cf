//! How work was checked, read from a transcript: the commands an agent ran that test, build or lint. Pure.

use crate::model::{Item, ToolKind, ToolState};

/// A command that checks, and what came of its last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub command: String,
    /// `None`: it did not end.
    pub has_passed: Option<bool>,
    pub exit_code: Option<i32>,
}

/// What is run in front of another command.
const BEFORE: [&str; 14] = [
    "time", "env", "sudo", "npx", "bunx", "pnpx", "exec", "command", "nice", "xvfb-run", "timeout", "uvx", "--", "run",
];

/// A program that checks whatever it is given.
const CHECKERS: [&str; 26] = [
    "pytest",
    "tox",
    "nox",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "cypress",
    "eslint",
    "tsc",
    "svelte-check",
    "ruff",
    "mypy",
    "pyright",
    "flake8",
    "pylint",
    "phpunit",
    "rspec",
    "rubocop",
    "ctest",
    "bats",
    "shellcheck",
    "golangci-lint",
    "ktlint",
    "swiftlint",
    "playwright",
];

/// A program that checks when its arguments say so.
const WITH_WORD: [&str; 26] = [
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "deno",
    "go",
    "make",
    "just",
    "mvn",
    "gradle",
    "gradlew",
    "mvnw",
    "dotnet",
    "rake",
    "mix",
    "swift",
    "xcodebuild",
    "zig",
    "sbt",
    "stack",
    "cabal",
    "python",
    "python3",
    "bazel",
    "rails",
];

/// Those words.
const WORDS: [&str; 18] = [
    "test",
    "tests",
    "t",
    "check",
    "verify",
    "lint",
    "clippy",
    "nextest",
    "typecheck",
    "type-check",
    "build",
    "vet",
    "fmt",
    "compile",
    "unittest",
    "pytest",
    "spec",
    "ci",
];

/// The checks in a transcript, in the order in which each was run last.
pub fn checks(items: &[Item]) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for item in items {
        let Item::Tool { tool: ToolKind::Command, input, summary, state, exit_code, .. } = item else { continue };
        let written = serde_json::from_str::<serde_json::Value>(input).ok();
        let written = written.as_ref().and_then(|input| input["command"].as_str()).unwrap_or(summary);
        if !is_check(written) {
            continue;
        }
        let command = written.split_whitespace().collect::<Vec<_>>().join(" ");
        let has_passed = match state {
            ToolState::Running => None,
            ToolState::Failed => Some(false),
            ToolState::Done => Some(exit_code.is_none_or(|code| code == 0)),
        };
        checks.retain(|known| known.command != command);
        checks.push(Check { command, has_passed, exit_code: *exit_code });
    }
    checks
}

/// The last thing an agent said in its last turn that it said anything in.
pub fn final_words(items: &[Item]) -> Option<&str> {
    items.iter().rev().find_map(|item| match item {
        Item::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    })
}

/// Whether any part of a command line tests, builds or lints.
fn is_check(line: &str) -> bool {
    line.split(['\n', ';', '|', '&']).any(|part| {
        let is_set = |word: &str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
        let mut words = part.split_whitespace().map(|word| word.trim_matches(['(', ')', '"', '\'']));
        let mut program = words.next();
        // Settings, wrappers and their options come first; `uv run` and `poetry run` are two words.
        while let Some(word) = program {
            let is_before =
                is_set(word) || BEFORE.contains(&word) || ["uv", "poetry", "pipenv", "hatch"].contains(&word);
            let is_bundle = word == "bundle" || word.starts_with('-') || word.bytes().all(|b| b.is_ascii_digit());
            if !is_before && !is_bundle {
                break;
            }
            program = words.next();
        }
        let Some(program) = program else { return false };
        let name = program.rsplit('/').next().unwrap_or(program);
        if CHECKERS.contains(&name) {
            return true;
        }
        let is_script = |word: &str| word.ends_with(".sh") && word.to_ascii_lowercase().contains("test");
        if is_script(name) || (["sh", "bash"].contains(&name) && words.clone().any(is_script)) {
            return true;
        }
        WITH_WORD.contains(&name) && words.any(|word| WORDS.iter().any(|known| is_word(word, known)))
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `test`, and also `test:unit`.
fn is_word(word: &str, known: &str) -> bool {
    word == known || word.strip_prefix(known).is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(command: &str, state: ToolState, exit_code: Option<i32>) -> Item {
        Item::Tool {
            call: "1".into(),
            tool: ToolKind::Command,
            name: "Bash".into(),
            summary: command.into(),
            input: serde_json::json!({ "command": command }).to_string(),
            state,
            result: None,
            exit_code,
            duration_ms: None,
            diff: None,
        }
    }

    #[test]
    fn commands_that_check_are_told_from_others() {
        for command in [
            "cargo test -p engine",
            "cd ui && npm run test:unit -- --run",
            "RUST_BACKTRACE=1 cargo nextest run",
            "npx vitest run",
            "uv run pytest -q | tail -5",
            "python3 -m pytest tests",
            "poetry run mypy .",
            "bundle exec rspec",
            "./gradlew test",
            "make check",
            "bash scripts/test-all.sh",
            "timeout 60 go test ./...",
            "ls; ./node_modules/.bin/eslint .",
        ] {
            assert!(is_check(command), "{command}");
        }
        for command in [
            "ls -la",
            "git commit -m 'test'",
            "cat test.txt",
            "echo cargo",
            "npm install",
            "grep -r test .",
            "rm -rf target",
            "python3 test_data.py",
        ] {
            assert!(!is_check(command), "{command}");
        }
    }

    #[test]
    fn the_last_run_of_a_check_counts() {
        let items = [
            ran("cargo test", ToolState::Done, Some(101)),
            ran("ls", ToolState::Done, Some(0)),
            ran("cargo clippy", ToolState::Failed, Some(1)),
            ran("cargo   test", ToolState::Done, None),
            ran("npm test", ToolState::Running, None),
        ];
        let found = checks(&items);
        let found: Vec<_> = found.iter().map(|check| (check.command.as_str(), check.has_passed)).collect();
        assert_eq!(found, [("cargo clippy", Some(false)), ("cargo test", Some(true)), ("npm test", None)]);
    }

    #[test]
    fn the_last_words_are_the_last_text() {
        let text = |text: &str| Item::Text { text: text.into() };
        let items = [text("first"), text("Done."), ran("ls", ToolState::Done, None), text("  ")];
        assert_eq!(final_words(&items), Some("Done."));
        assert_eq!(final_words(&[]), None);
    }
}
