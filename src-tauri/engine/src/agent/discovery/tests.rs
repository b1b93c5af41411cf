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

/// A machine with Pi as npm puts it, and one Node beside it and others elsewhere.
fn with_pi(home: &Path, beside: Option<&str>) -> PathBuf {
    let package = home.join("lib/node_modules/@earendil-works/pi-coding-agent");
    put(&package.join("package.json"), r#"{"version":"1.6.0"}"#, 0o644);
    put(&package.join("dist/cli.js"), "#!/usr/bin/env node\n", 0o755);
    fs::create_dir_all(package.join("node_modules")).unwrap();
    fs::create_dir_all(home.join("bin")).unwrap();
    std::os::unix::fs::symlink(package.join("dist/cli.js"), home.join("bin/pi")).unwrap();
    if let Some(version) = beside {
        put(&home.join("bin/node"), version, 0o755);
    }
    package
}

/// Prints what stands in the program.
fn as_it_says(program: &Path, _argument: &str) -> io::Result<String> {
    fs::read_to_string(program)
}

const PI: Cli = Cli { program: "pi", minimum_version: (1, 6, 0), node: Some((22, 19, 0)), ..CLI };

#[test]
fn a_script_is_run_by_a_node_that_is_new_enough() {
    let (_guard, home) = home();
    let package = with_pi(&home, Some("v20.20.2"));
    let newer = home.join(".nvm/versions/node/v22.20.0/bin/node");
    put(&newer, "v22.20.0", 0o755);
    let path = home.join("bin").display().to_string();
    let found = find(&PI, None, &home, Some(&path), as_it_says).program.unwrap();
    assert_eq!((found.path, found.version), (package.join("dist/cli.js"), (1, 6, 0)), "the version is the package's");
    assert_eq!(found.interpreter.as_deref(), Some(&*newer), "the one beside it is too old");
    assert_eq!(found.read_only, [package, newer], "all that a sandbox must show");
}

#[test]
fn the_node_beside_a_script_is_the_first_to_be_asked() {
    let (_guard, home) = home();
    with_pi(&home, Some("v22.19.0"));
    put(&home.join("other/node"), "v24.0.0", 0o755);
    let path = format!("{0}/other:{0}/bin", home.display());
    let found = find(&PI, Some(&home.join("bin/pi")), &home, Some(&path), as_it_says).program.unwrap();
    assert_eq!(found.interpreter, Some(home.join("bin/node")));
}

#[test]
fn a_node_that_is_too_old_is_named() {
    let (_guard, home) = home();
    with_pi(&home, Some("v20.20.2"));
    let path = home.join("bin").display().to_string();
    // What the machine itself has is none of this test's.
    let found = find(&PI, None, &home, Some(&path), |program, argument| match program.starts_with(&home) {
        true => as_it_says(program, argument),
        false => Ok("v18.0.0".to_owned()),
    });
    assert_eq!(found.program, None);
    let fix = found.fix.unwrap();
    assert!(fix.contains("it needs Node 22.19.0 or newer; found 20.20.2"), "{fix}");
}
