#![cfg(unix)]

use std::{fs, os::unix::fs::PermissionsExt};

use tempfile::TempDir;

use super::*;

const CLI: Cli = Cli {
    program: "claude",
    version_argument: "--version",
    minimum_version: (2, 1, 0),
    install: "npm i",
    native: None,
    node: None,
};

fn home() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().canonicalize().unwrap();
    (home, path)
}

fn put(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn prints(version: &'static str) -> impl FnMut(&Path, &str) -> io::Result<String> {
    move |_, argument| {
        assert_eq!(argument, "--version");
        Ok(version.to_owned())
    }
}

#[test]
fn the_login_path_comes_first_and_version_managers_newest_first() {
    let (_guard, home) = home();
    for version in ["v9.0.0", "v20.11.1", "v20.2.0"] {
        fs::create_dir_all(home.join(".nvm/versions/node").join(version).join("bin")).unwrap();
    }
    let all = candidates("claude", &home, Some("/a:relative::/usr/local/bin:/a"));
    let at = |wanted: &str| all.iter().position(|candidate| candidate.path.ends_with(wanted)).unwrap();
    assert_eq!(all[0], Candidate { path: "/a/claude".into(), source: Source::LoginPath });
    assert_eq!(all[1].path, Path::new("/usr/local/bin/claude"));
    assert!(at("v20.11.1/bin/claude") < at("v20.2.0/bin/claude"));
    assert!(at("v20.2.0/bin/claude") < at("v9.0.0/bin/claude"));
    assert!(at(".claude/local/claude") < at("v20.11.1/bin/claude"));
    assert_eq!(all.iter().filter(|candidate| candidate.path.starts_with("/usr/local/bin")).count(), 1);
}

#[test]
fn a_package_is_bound_whole_and_a_lone_program_alone() {
    let (_guard, home) = home();
    let package = home.join("lib/node_modules/@anthropic-ai/claude-code");
    put(&package.join("package.json"), "{}", 0o644);
    put(&package.join("bin/claude.exe"), "\x7fELF", 0o755);
    fs::create_dir_all(home.join("bin")).unwrap();
    std::os::unix::fs::symlink("../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe", home.join("bin/claude"))
        .unwrap();
    let path = home.join("bin").display().to_string();
    let found = find(&CLI, None, &home, Some(&path), prints("2.1.332 (Claude Code)\n"));
    let program = found.program.unwrap();
    assert_eq!((program.version, found.fix), ((2, 1, 332), None));
    assert_eq!(program.path, package.join("bin/claude.exe"), "a link may not be visible inside");
    assert_eq!(program.read_only, [package]);

    put(&home.join(".local/bin/claude"), "\x7fELF", 0o755);
    let found = find(&CLI, None, &home, None, prints("claude 2.1.0")).program.unwrap();
    assert_eq!(found.read_only, [home.join(".local/bin/claude")]);
}

#[test]
fn each_fault_is_named_with_its_remedy() {
    let (_guard, home) = home();
    let at = |name: &str| home.join(name);
    put(&at("plain"), "x", 0o644);
    put(&at("good"), "\x7fELF", 0o755);
    put(&at("script"), "#!/usr/bin/env -S no-such-interpreter --flag\n", 0o755);
    std::os::unix::fs::symlink("/nowhere", at("dangling")).unwrap();
    let problem = |name: &str, version: &'static str| {
        let found = find(&CLI, Some(&at(name)), &home, None, prints(version));
        assert_eq!((found.program, found.looked.len()), (None, 1), "a path set by hand is the only one");
        (found.looked[0].found.clone().unwrap_err(), found.fix.unwrap())
    };
    assert_eq!(problem("missing", "").0, Problem::Missing);
    assert!(problem("missing", "").1.contains("in the settings"));
    assert_eq!(problem("dangling", "").0, Problem::DanglingLink);
    assert_eq!(problem("", "").0, Problem::NotAFile);
    assert!(problem("plain", "").1.contains("chmod +x"));
    let interpreter = "no-such-interpreter".to_owned();
    assert_eq!(problem("script", "").0, Problem::NoInterpreter { interpreter });
    assert_eq!(problem("good", "1.0.128").0, Problem::TooOld { found: (1, 0, 128), needed: (2, 1, 0) });
    assert!(problem("good", "1.0.128").1.contains("npm i"));
    assert!(matches!(problem("good", "hello").0, Problem::NoVersion { .. }));
}

#[test]
fn where_nothing_is_found_everything_looked_at_is_told() {
    let (_guard, home) = home();
    let cli = Cli { program: "no-such-agent", ..CLI };
    let found = find(&cli, None, &home, Some("/a"), |_, _| Err(io::ErrorKind::TimedOut.into()));
    assert!(found.looked.len() > 15);
    assert!(found.looked.iter().all(|looked| looked.found == Err(Problem::Missing)));
    assert_eq!(found.fix.unwrap(), "no-such-agent is not installed. Install it with: npm i");
}

#[test]
fn an_unusable_one_does_not_hide_a_usable_one() {
    let (_guard, home) = home();
    put(&home.join("first/claude"), "x", 0o644);
    put(&home.join(".local/bin/claude"), "\x7fELF", 0o755);
    let path = home.join("first").display().to_string();
    let found = find(&CLI, None, &home, Some(&path), prints("2.9.0"));
    assert_eq!(found.looked[0].found, Err(Problem::NotExecutable));
    assert_eq!(found.program.unwrap().version, (2, 9, 0));
}
