//! Pushing, with the real `git http-backend` on the other side, and git itself as the judge of what arrived.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use courier_engine::{
    secrets::Secret,
    work::push::{Change, Error, Push, Pushed, Reason, Token, Way, workflows_changed},
};
use courier_test_support::{
    git_http::{Fault, GitServer, When},
    repositories::{Repository, git},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const CANARY: &str = "ghp_canary0123456789abcdefghij";

const BRANCH: &str = "courier/work-1a2b";

const LIMIT: Duration = Duration::from_secs(60);

/// A vault whose branch has a commit that no remote has.
struct Vault {
    _folder: TempDir,
    path: PathBuf,
    work: Repository,
}

impl Vault {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("vault.git");
        let work = Repository::ordinary().unwrap();
        git(folder.path(), &["init", "--quiet", "--bare", &path.to_string_lossy()]).unwrap();
        let vault = Self { _folder: folder, path, work };
        vault.save("made.txt", "made by an agent\n");
        vault
    }

    /// One more commit on the branch.
    fn save(&self, name: &str, content: &str) {
        self.work.write(name, content).unwrap();
        self.work.commit("Work of an agent").unwrap();
        let vault = self.path.to_string_lossy().into_owned();
        self.work.git(&["push", "--quiet", &vault, &format!("HEAD:refs/heads/{BRANCH}")]).unwrap();
    }

    fn head(&self) -> String {
        git(&self.path, &["rev-parse", BRANCH]).unwrap()
    }

    fn push(&self, url: impl Into<String>) -> Push {
        Push::new(&self.path, url, BRANCH).token(Some(token(CANARY)))
    }
}

fn token(secret: &str) -> Token {
    Token { host: "127.0.0.1".to_owned(), secret: Secret::new(secret) }
}

async fn run(push: &Push) -> Result<Pushed, Error> {
    push.run(&CancellationToken::new(), LIMIT).await
}

async fn refused(push: &Push) -> Error {
    run(push).await.expect_err("it is not taken")
}

#[tokio::test]
async fn a_branch_arrives_once_and_whole_and_the_token_is_shown_when_asked_for() {
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    let pushed = run(&vault.push(server.url())).await.unwrap();
    assert_eq!((pushed.branch.as_str(), pushed.change), (BRANCH, Change::Created));
    assert_eq!(pushed.commit.to_string(), vault.head());
    assert_eq!(server.git(&["rev-parse", BRANCH]).unwrap(), vault.head());
    server.git(&["fsck", "--strict"]).unwrap();
    let expected = Way::Https { host: "127.0.0.1".into(), has_token: true, is_instead_of_ssh: false };
    assert_eq!(pushed.way, expected);
    let requests = server.requests();
    assert!(requests[0].user.is_none(), "the first one carries nothing");
    let shown: Vec<_> = requests.iter().filter_map(|request| request.user.clone()).collect();
    assert!(!shown.is_empty() && shown.iter().all(|user| *user == ("x-access-token".into(), CANARY.into())));
    assert!(requests.iter().all(|request| !format!("{}?{}", request.path, request.query).contains(CANARY)));

    let posts = |server: &GitServer| server.requests().iter().filter(|request| request.method == "POST").count();
    let before = posts(&server);
    assert_eq!(run(&vault.push(server.url())).await.unwrap().change, Change::None, "it is there already");
    assert_eq!(posts(&server), before, "and is not sent again");

    vault.save("more.txt", "more\n");
    assert_eq!(run(&vault.push(server.url())).await.unwrap().change, Change::Updated);
    assert_eq!(server.git(&["rev-parse", BRANCH]).unwrap(), vault.head());
}

#[tokio::test]
async fn what_a_remote_prints_is_kept() {
    let (vault, server) = (Vault::new(), GitServer::start(None).unwrap());
    let link = "Create a pull request by visiting:\n  https://example.org/owner/name/pull/new";
    server.hook("post-receive", &format!("printf '\\033[1m{link}\\033[0m\\n' >&2")).unwrap();
    let pushed = run(&vault.push(server.url())).await.unwrap();
    let expected = "Create a pull request by visiting:\nhttps://example.org/owner/name/pull/new";
    assert_eq!(pushed.said, expected, "in plain text");
}

#[tokio::test]
async fn a_declined_hook_is_no_success() {
    let vault = Vault::new();
    for (words, reason) in [
        (
            "error: GH013: Repository rule violations found for refs/heads/x.\n- Push cannot contain secrets",
            Reason::SecretFound,
        ),
        (
            "error: GH013: Repository rule violations found for refs/heads/x.\n- Cannot update this branch",
            Reason::Protected,
        ),
        ("error: GH006: Protected branch update failed for refs/heads/x.", Reason::Protected),
        (
            "error: GH001: Large files detected.\nFile a.bin is 120.00 MB; this exceeds the limit of 100.00 MB",
            Reason::TooLarge,
        ),
        (
            "refusing to allow a Personal Access Token to create or update workflow .github/workflows/ci.yml without `workflow` scope",
            Reason::WorkflowScope,
        ),
        ("GitLab: You are not allowed to push code to protected branches on this project.", Reason::Protected),
        ("every commit must name a ticket", Reason::Declined),
    ] {
        let server = GitServer::start(Some(CANARY)).unwrap();
        server.decline(words).unwrap();
        let error = refused(&vault.push(server.url())).await;
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.said.contains(words.lines().last().unwrap()), "the words are kept: {error}");
        assert!(server.git(&["rev-parse", "--verify", BRANCH]).is_err(), "nothing arrived");
    }
}

#[tokio::test]
async fn answers_of_the_server_are_told_apart() {
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    let status = |status: u16, words: &str| Fault::Status(status, words.to_owned());
    let away = format!("{}/owner/other.git/info/refs?service=git-receive-pack", server.url());
    for (when, fault, reason) in [
        (When::Always, status(401, "Invalid username or token."), Reason::TokenRefused),
        (When::SignedIn, status(403, "Write access to repository not granted."), Reason::NoPermission),
        (When::SignedIn, status(403, "This repository was archived so it is read-only."), Reason::Archived),
        (When::SignedIn, status(403, "The 'o' organization has enabled or enforced SAML SSO."), Reason::SignOn),
        (When::SignedIn, status(403, ""), Reason::NoPermission),
        (When::SignedIn, status(404, "Repository not found."), Reason::NotFound),
        (When::Receiving, status(413, ""), Reason::TooLarge),
        (When::Receiving, status(403, ""), Reason::NoPermission),
        (When::Receiving, status(500, ""), Reason::ServerFailed),
        (When::Always, status(503, ""), Reason::ServerFailed),
        (When::Always, status(429, ""), Reason::Busy),
        (When::Always, Fault::Page, Reason::NotGit),
        (When::Always, Fault::Redirect("/owner/other.git/info/refs?service=git-receive-pack".into()), Reason::Moved),
        (When::SignedIn, Fault::Redirect(away), Reason::Moved),
        (When::Receiving, Fault::Redirect("/owner/other.git/git-receive-pack".into()), Reason::Moved),
        (When::Receiving, Fault::Drop, Reason::Unreachable),
    ] {
        server.fail(when, fault.clone());
        let error = refused(&vault.push(server.url())).await;
        assert_eq!(error.reason, reason, "{when:?} {fault:?}: {error}");
        assert!(
            error.way.is_some() && error.to_string().contains("HTTPS to 127.0.0.1 with the stored token"),
            "{error}"
        );
        if let Fault::Status(_, words) = &fault
            && when != When::Receiving
        {
            assert!(error.said.contains(words.as_str()), "{error}");
        }
    }
    server.heal();
    run(&vault.push(server.url())).await.expect("nothing stays of it");
}

#[tokio::test]
async fn a_repository_that_moved_is_not_followed() {
    let (vault, server, other) =
        (Vault::new(), GitServer::start(Some(CANARY)).unwrap(), GitServer::start(Some(CANARY)).unwrap());
    for when in [When::Always, When::SignedIn] {
        let target = format!("{}/info/refs?service=git-receive-pack", other.url());
        server.fail(when, Fault::Redirect(target.clone()));
        let error = refused(&vault.push(server.url())).await;
        assert_eq!(error.reason, Reason::Moved);
        assert!(error.said.contains(&other.url()), "a person is told where to: {error}");
    }
    assert!(other.requests().is_empty(), "nobody went there");
}

#[tokio::test]
async fn without_a_token_or_with_a_wrong_one_the_cause_is_named() {
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    let error = refused(&vault.push(server.url()).token(None)).await;
    assert_eq!(error.reason, Reason::NoToken);
    assert!(error.to_string().contains("HTTPS to 127.0.0.1 without a token"), "{error}");
    let error = refused(&vault.push(server.url()).token(Some(token("ghp_expired0123456789abcdef")))).await;
    assert_eq!(error.reason, Reason::TokenRefused);
    assert!(!error.to_string().contains("ghp_expired"), "{error}");
    let elsewhere = Token { host: "github.com".into(), secret: Secret::new(CANARY) };
    let before = server.requests().len();
    let error = refused(&vault.push(server.url()).token(Some(elsewhere))).await;
    assert_eq!(error.reason, Reason::NoToken, "a token of another host is none");
    assert!(server.requests()[before..].iter().all(|request| request.user.is_none()));
}

#[tokio::test]
async fn where_others_moved_on_a_sibling_is_pushed_and_nothing_forced() {
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    let other = Repository::ordinary().unwrap();
    other.write("theirs.txt", "somebody else's\n").unwrap();
    other.commit("Somebody else's work").unwrap();
    let bare = server.repository().to_string_lossy().into_owned();
    for name in [BRANCH.to_owned(), format!("{BRANCH}-2")] {
        other.git(&["push", "--quiet", &bare, &format!("HEAD:refs/heads/{name}")]).unwrap();
    }
    let theirs = server.git(&["rev-parse", BRANCH]).unwrap();
    let error = refused(&vault.push(server.url())).await;
    assert_eq!(error.reason, Reason::NotFastForward);

    let never = CancellationToken::new();
    let pushed = vault.push(server.url()).run_or_sibling(&never, LIMIT).await.unwrap();
    assert_eq!((pushed.branch, pushed.change), (format!("{BRANCH}-3"), Change::Created));
    let again = vault.push(server.url()).run_or_sibling(&never, LIMIT).await.unwrap();
    assert_eq!((again.branch, again.change), (format!("{BRANCH}-3"), Change::None), "the same one is found again");
    assert_eq!(server.git(&["rev-parse", BRANCH]).unwrap(), theirs);
    assert_eq!(server.git(&["rev-parse", &format!("{BRANCH}-3")]).unwrap(), vault.head());
}

#[tokio::test]
async fn a_name_that_is_in_the_way_is_told() {
    let (vault, server) = (Vault::new(), GitServer::start(None).unwrap());
    server.git(&["branch", "courier", "main"]).unwrap();
    assert_eq!(refused(&vault.push(server.url())).await.reason, Reason::NameTaken);
}

#[tokio::test]
async fn a_folder_of_this_machine_is_pushed_to_as_well() {
    let (vault, upstream) = (Vault::new(), Repository::bare().unwrap());
    let pushed = run(&vault.push(upstream.source())).await.unwrap();
    assert_eq!((pushed.change, pushed.way), (Change::Created, Way::Folder));
    assert_eq!(run(&vault.push(format!("file://{}", upstream.source()))).await.unwrap().change, Change::None);
    assert_eq!(upstream.git(&["rev-parse", BRANCH]).unwrap(), vault.head());
    upstream.git(&["fsck", "--strict"]).unwrap();
    let gone = refused(&vault.push(upstream.path().join("gone").to_string_lossy())).await;
    assert!(matches!(gone.reason, Reason::NotFound | Reason::Unreachable | Reason::Failed), "{gone}");
}

#[tokio::test]
async fn silence_ends_with_the_limit_and_a_cancelled_push_ends_at_once() {
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    server.fail(When::Receiving, Fault::Stall);
    let push = vault.push(server.url());
    let error = push.run(&CancellationToken::new(), Duration::from_millis(700)).await.unwrap_err();
    assert_eq!(error.reason, Reason::TimedOut);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = push.run(&cancelled, LIMIT).await.unwrap_err();
    assert_eq!(error.reason, Reason::Cancelled);
    drop(server);
}

#[tokio::test]
async fn who_is_not_there_or_does_not_speak_tls_is_told_apart() {
    let (vault, server) = (Vault::new(), GitServer::start(None).unwrap());
    let port = server.port();
    let error = refused(&vault.push(format!("https://127.0.0.1:{port}/owner/name.git"))).await;
    assert_eq!(error.reason, Reason::Tls, "{error}");
    drop(server);
    let error = refused(&vault.push(format!("http://127.0.0.1:{port}/owner/name.git"))).await;
    assert_eq!(error.reason, Reason::Unreachable, "{error}");
    let error = refused(&vault.push(format!("ssh://git@127.0.0.1:{port}/owner/name.git")).token(None)).await;
    assert_eq!(error.reason, Reason::Unreachable, "{error}");
    assert!(error.to_string().contains("SSH to 127.0.0.1 as git"), "{error}");
}

#[tokio::test]
async fn what_is_not_there_is_not_pushed() {
    let (vault, server) = (Vault::new(), GitServer::start(None).unwrap());
    for name in ["courier/nothing", "a b", "x:refs/heads/main", "+x", "*"] {
        let error = refused(&Push::new(&vault.path, server.url(), name)).await;
        assert_eq!(error.reason, Reason::NoSuchBranch, "{name}");
    }
    assert!(server.requests().iter().all(|request| request.method != "POST"));
}

/// The vault's configuration is ours and empty. Should anything ever write there, it must not lead a push astray.
#[tokio::test]
async fn no_configuration_leads_a_push_elsewhere() {
    let (server, evil) = (GitServer::start(Some(CANARY)).unwrap(), GitServer::start(None).unwrap());
    let (ours, theirs) = (server.url(), evil.url());
    for setting in [
        format!("[url \"{theirs}\"]\n\tinsteadOf = {ours}\n"),
        format!("[url \"{theirs}\"]\n\tpushInsteadOf = {ours}\n"),
        format!("[http]\n\tproxy = http://127.0.0.1:{}\n", evil.port()),
        format!("[remote \"origin\"]\n\turl = {ours}\n\tpushurl = {theirs}\n"),
        format!("[include]\n\tpath = {}\n", Path::new("/nowhere/config").display()),
    ] {
        let vault = Vault::new();
        let config = vault.path.join("config");
        let kept = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{kept}{setting}")).unwrap();
        let error = refused(&vault.push(ours.clone())).await;
        assert_eq!(error.reason, Reason::Failed, "{setting}");
    }
    assert!(evil.requests().is_empty(), "{:?}", evil.requests());
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The log of this process, of every test from now on: one of a thread alone misses what another thread met first.
    fn of_all() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let begin = || {
            let log = Log::default();
            let writer = log.clone();
            let filter = "courier_engine=trace,reqwest=trace,hyper_util=trace";
            let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || writer.clone());
            tracing::subscriber::set_global_default(subscriber.finish()).expect("nobody else listens");
            log
        };
        LOG.get_or_init(begin).clone()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn the_token_is_found_nowhere() {
    let log = Log::of_all();
    let (vault, server) = (Vault::new(), GitServer::start(Some(CANARY)).unwrap());
    let push = vault.push(server.url());
    let mut told = format!("{push:?}");
    // A server that repeats the token to whoever pushes.
    server.fail(When::SignedIn, Fault::Status(403, format!("the token {CANARY} may not")));
    let error = refused(&push).await;
    told += &format!("{error} {error:?} {}", error.remedy());
    server.heal();
    server.decline(&format!("declined for {CANARY}")).unwrap();
    let error = refused(&push).await;
    told += &format!("{error} {error:?}");
    server.hook("pre-receive", "cat >/dev/null").unwrap();
    server.hook("post-receive", &format!("echo 'thanks, {CANARY}' >&2")).unwrap();
    told += &format!("{:?}", run(&push).await.unwrap());
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains(" pushed ") && logged.contains("not pushed"), "the log was heard");
    told += &logged;
    assert!(told.contains("[redacted]") && !told.contains(CANARY) && !told.contains("canary"), "{told}");
    for path in files_under(&vault.path) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()), "{}", path.display());
    }
}

#[test]
fn changes_of_workflows_are_seen_before_they_are_pushed() {
    let work = Repository::ordinary().unwrap();
    let commit = || git2_id(&work.git(&["rev-parse", "HEAD"]).unwrap());
    let first = commit();
    work.write("src/workflows/ci.yml", "not one\n").unwrap();
    work.write(".github/workflows.md", "not one either\n").unwrap();
    work.commit("Nothing that runs").unwrap();
    let second = commit();
    work.write(".github/workflows/ci.yml", "on: push\n").unwrap();
    work.write(".github/workflows/deep/more.yml", "on: push\n").unwrap();
    work.commit("Add a workflow").unwrap();
    let third = commit();
    work.git(&["mv", ".github/workflows/ci.yml", "ci.yml"]).unwrap();
    work.commit("Move it away").unwrap();
    let fourth = commit();
    let repository = git2::Repository::open(work.path()).unwrap();
    let changed = |from, to| workflows_changed(&repository, from, to).unwrap();
    assert!(changed(Some(first), second).is_empty());
    let both = [".github/workflows/ci.yml", ".github/workflows/deep/more.yml"];
    assert_eq!(changed(Some(second), third), both);
    assert_eq!(changed(None, third), both, "a branch from nothing brings all it has");
    assert_eq!(changed(Some(third), fourth), [".github/workflows/ci.yml"], "also what is taken away");
    assert!(changed(Some(third), third).is_empty());
}

fn git2_id(text: &str) -> git2::Oid {
    git2::Oid::from_str(text).unwrap()
}
