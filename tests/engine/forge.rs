//! Pull requests, asked of a server that GitHub's own client and description have proven.

use std::{process::Command, time::Duration};

use courier_engine::{
    forge::{Forge, GitHub, Host, Listed, NewPullRequest, PullRequest, Reason, Repository, State, Wait, watch::Look},
    secrets::Secret,
    work::push::{Change, Push, Token},
};
use courier_test_support::{
    github::{Fault, GithubServer},
    judges,
    repositories::Repository as Work,
};
use tokio_util::sync::CancellationToken;

const CANARY: &str = "ghp_canary0123456789abcdefghij";

const BRANCH: &str = "courier/work-1a2b";

/// A server, a client of it, and the repository both speak of.
struct Side {
    server: GithubServer,
    github: GitHub,
    repository: Repository,
}

impl Side {
    fn new() -> Self {
        let server = GithubServer::start(CANARY).unwrap();
        let host: Host = server.host().parse().unwrap();
        let Forge::GitHub { host, repository } = Forge::of(&server.url(), Some(&host)) else { panic!("it is one") };
        let github = GitHub::new(host, Secret::new(CANARY)).unwrap();
        Self { server, github, repository }
    }

    /// A branch with a commit of its own, as if it had been pushed.
    fn branch(&self, name: &str) {
        let work = Work::ordinary().unwrap();
        work.write(&format!("{}.txt", name.replace('/', "-")), "made by an agent\n").unwrap();
        work.commit("Work of an agent").unwrap();
        let bare = self.server.git().repository().to_string_lossy().into_owned();
        work.git(&["push", "--quiet", &bare, &format!("HEAD:refs/heads/{name}")]).unwrap();
    }

    async fn open(&self, branch: &str) -> PullRequest {
        self.github.open(&self.repository, &new(branch)).await.unwrap().pull
    }

    fn look(&self, tag: Option<&str>, until: Option<&str>, numbers: &[u64]) -> Look {
        let place = (self.server.host(), self.repository.clone());
        Look { place, tag: tag.map(str::to_owned), until: until.map(str::to_owned), numbers: numbers.to_vec() }
    }

    async fn changed(&self, tag: Option<&str>) -> Listed {
        self.github.changed(&self.look(tag, None, &[1])).await.unwrap()
    }
}

fn new(branch: &str) -> NewPullRequest {
    NewPullRequest {
        title: "Retry idempotent requests".into(),
        body: "## Done\n\nRetried.".into(),
        branch: branch.into(),
        base: "main".into(),
        is_draft: false,
    }
}

#[tokio::test]
async fn a_branch_gets_one_pull_request_however_often_it_is_asked_for() {
    let side = Side::new();
    side.branch(BRANCH);
    let facts = side.github.repository(&side.repository).await.unwrap();
    assert_eq!((facts.default_branch.as_str(), facts.may_push, facts.is_archived), ("main", Some(true), false));
    assert_eq!(side.github.find_open(&side.repository, BRANCH).await.unwrap(), None);

    let opened = side.github.open(&side.repository, &new(BRANCH)).await.unwrap();
    assert!(!opened.is_reused);
    let pull = opened.pull;
    assert_eq!((pull.number, pull.state, pull.is_draft), (1, State::Open, false));
    assert_eq!(pull.url, format!("{}/owner/name/pull/1", side.server.host()));
    assert_eq!(pull.head, side.server.git().git(&["rev-parse", BRANCH]).unwrap());

    let again = side.github.open(&side.repository, &new(BRANCH)).await.unwrap();
    assert!(again.is_reused && again.pull.number == 1);
    assert_eq!(side.server.pulls().len(), 1);
    let stored = &side.server.pulls()[0];
    assert_eq!((stored.title.as_str(), stored.body.as_str()), ("Retry idempotent requests", "## Done\n\nRetried."));

    side.branch("courier/draft");
    let draft = NewPullRequest { is_draft: true, ..new("courier/draft") };
    assert!(side.github.open(&side.repository, &draft).await.unwrap().pull.is_draft);

    side.server.close(1).unwrap();
    assert_eq!(side.github.get(&side.repository, 1).await.unwrap().state, State::Closed);
    let another = side.github.open(&side.repository, &new(BRANCH)).await.unwrap();
    assert!(!another.is_reused && another.pull.number == 3, "a closed one is not used again");
}

#[tokio::test]
async fn an_answer_that_was_lost_makes_no_second_pull_request() {
    let side = Side::new();
    side.branch(BRANCH);
    side.server.fail(Fault::LostAnswer);
    let lost = side.github.create(&side.repository, &new(BRANCH)).await.unwrap_err();
    assert_eq!(lost.reason, Reason::Unreachable);
    assert_eq!(side.server.pulls().len(), 1, "it was made all the same");
    side.server.heal();
    assert!(side.github.open(&side.repository, &new(BRANCH)).await.unwrap().is_reused);
    // Somebody makes one between the look and the making.
    let exists = side.github.create(&side.repository, &new(BRANCH)).await.unwrap_err();
    assert_eq!(exists.reason, Reason::AlreadyExists);
    assert_eq!(side.server.pulls().len(), 1);
}

#[tokio::test]
async fn what_is_pushed_to_its_branch_is_in_the_same_pull_request() {
    let side = Side::new();
    let work = Work::ordinary().unwrap();
    work.git(&["switch", "--quiet", "--create", BRANCH]).unwrap();
    let bare = tempfile::TempDir::new().unwrap();
    let vault = bare.path().join("vault.git");
    let save = |name: &str| {
        work.write(name, "work\n").unwrap();
        work.commit(name).unwrap();
        if !vault.exists() {
            work.git(&["clone", "--quiet", "--bare", ".", &vault.to_string_lossy()]).unwrap();
            courier_test_support::repositories::git(&vault, &["remote", "remove", "origin"]).unwrap();
        }
        work.git(&["push", "--quiet", &vault.to_string_lossy(), BRANCH]).unwrap();
    };
    let token = Token { host: "127.0.0.1".into(), secret: Secret::new(CANARY) };
    let push = Push::new(&vault, side.server.url(), BRANCH).token(Some(token));
    let limit = Duration::from_secs(60);
    save("one.txt");
    push.run(&CancellationToken::new(), limit).await.unwrap();
    let first = side.open(BRANCH).await;
    save("two.txt");
    assert_eq!(push.run(&CancellationToken::new(), limit).await.unwrap().change, Change::Updated);
    let second = side.open(BRANCH).await;
    assert_eq!(second.number, first.number);
    assert_ne!(second.head, first.head);
    let edited = side.github.edit(&side.repository, 1, "Another title", "Another body").await.unwrap();
    assert_eq!(edited.title, "Another title");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let side = Side::new();
    side.branch(BRANCH);
    let reason =
        async |request: &NewPullRequest| side.github.create(&side.repository, request).await.unwrap_err().reason;
    assert_eq!(reason(&new("topic")).await, Reason::NothingToPropose);
    assert_eq!(reason(&new("no/such")).await, Reason::NoBranch);
    assert_eq!(reason(&NewPullRequest { title: " ".into(), ..new(BRANCH) }).await, Reason::Invalid);
    let long = NewPullRequest { title: "é".repeat(999), body: "é".repeat(99_999), ..new(BRANCH) };
    side.github.create(&side.repository, &long).await.expect("what is too long is cut");

    let other = Repository { owner: "owner".into(), name: "other".into() };
    assert_eq!(side.github.repository(&other).await.unwrap_err().reason, Reason::NoAccess);
    let host: Host = side.server.host().parse().unwrap();
    let wrong = GitHub::new(host, Secret::new("ghp_wrong0123456789abcdef")).unwrap();
    assert_eq!(wrong.repository(&side.repository).await.unwrap_err().reason, Reason::TokenRefused);

    let sso = "https://github.com/orgs/o/sso?authorization_request=A";
    let pause = Duration::from_secs(77);
    for (fault, reason) in [
        (Fault::Unauthorized, Reason::TokenRefused),
        (Fault::SignOn(sso.into()), Reason::SignOn),
        (Fault::Forbidden("Resource not accessible by personal access token".into()), Reason::Scope),
        (Fault::Gone, Reason::Gone),
        (Fault::Moved(format!("{}/repositories/1", side.server.api())), Reason::Moved),
        (Fault::Status(500), Reason::ServerFailed),
        (Fault::Status(503), Reason::ServerFailed),
        (Fault::Garbage, Reason::Unreadable),
        (Fault::LostAnswer, Reason::Unreachable),
        (Fault::SecondaryLimit { after: 77 }, Reason::RateLimited),
        (Fault::TooMany { after: 77 }, Reason::RateLimited),
        (Fault::RateLimited { reset: 1_767_229_200 }, Reason::RateLimited),
    ] {
        side.server.fail(fault.clone());
        let error = side.github.repository(&side.repository).await.unwrap_err();
        assert_eq!(error.reason, reason, "{fault:?}: {error}");
        match fault {
            Fault::SecondaryLimit { .. } | Fault::TooMany { .. } => assert_eq!(error.wait, Some(Wait::For(pause))),
            Fault::RateLimited { .. } => assert!(matches!(error.wait, Some(Wait::Until(_)))),
            Fault::SignOn(_) => assert_eq!(error.link.as_deref(), Some(sso)),
            _ => assert_eq!(error.wait, None),
        }
    }
    side.server.heal();
    side.github.repository(&side.repository).await.expect("nothing stays of it");
}

#[tokio::test]
async fn who_is_not_there_is_unreachable() {
    let side = Side::new();
    drop(side.server);
    let error = side.github.repository(&side.repository).await.unwrap_err();
    assert_eq!((error.reason, error.status), (Reason::Unreachable, None), "{error}");
}

#[tokio::test]
async fn a_round_costs_nothing_where_nothing_changed() {
    let side = Side::new();
    side.branch(BRANCH);
    side.open(BRANCH).await;
    let Listed::Pulls { pulls, tag } = side.changed(None).await else { panic!("a first look has no tag") };
    assert_eq!(pulls.len(), 1);
    let spent = |side: &Side| side.server.exchanges().iter().filter(|exchange| exchange.status != 304).count();
    let before = spent(&side);
    for _ in 0..3 {
        assert_eq!(side.changed(tag.as_deref()).await, Listed::Unchanged);
    }
    assert_eq!(spent(&side), before);
    side.server.merge(1).unwrap();
    let Listed::Pulls { pulls, .. } = side.changed(tag.as_deref()).await else { panic!("it was merged") };
    assert_eq!(pulls[0].state, State::Merged);
}

#[tokio::test]
async fn no_change_is_missed_where_more_changed_than_a_page_holds() {
    let side = Side::new();
    for number in 1..=101 {
        let branch = format!("courier/{number}");
        // One commit serves them all.
        if number == 1 {
            side.branch(&branch);
        } else {
            side.server.git().git(&["branch", &branch, "courier/1"]).unwrap();
        }
        side.github.create(&side.repository, &new(&branch)).await.unwrap();
    }
    let pages = |side: &Side| side.server.exchanges().len();
    let look = async |until: Option<&str>, numbers: &[u64]| {
        let before = pages(&side);
        let answer = side.github.changed(&side.look(None, until, numbers)).await.unwrap();
        let Listed::Pulls { pulls, .. } = answer else { panic!("it had no tag") };
        (pulls, pages(&side) - before)
    };
    let (pulls, asked) = look(None, &[101]).await;
    assert_eq!((pulls.len(), asked), (100, 1), "the one that is watched is on the first page");
    let (pulls, asked) = look(None, &[1, 101]).await;
    assert_eq!((pulls.len(), asked), (101, 2), "and now one is on the second");
    let known = pulls[0].updated_at.clone();
    side.server.close(1).unwrap();
    let (pulls, asked) = look(Some(&known), &[1]).await;
    assert_eq!((pulls[0].number, pulls[0].state, asked), (1, State::Closed, 1), "one page reaches back far enough");
    let (_, asked) = look(Some("2026-01-01T00:00:00Z"), &[1]).await;
    assert_eq!(asked, 2, "what changed since then is on two");
}

#[tokio::test]
async fn the_token_is_only_in_its_header() {
    let side = Side::new();
    side.branch(BRANCH);
    let mut told = format!("{:?}", side.github);
    side.open(BRANCH).await;
    side.server.fail(Fault::Forbidden(format!("{CANARY} may not")));
    let error = side.github.repository(&side.repository).await.unwrap_err();
    told += &format!("{error} {error:?}");
    assert!(told.contains("[redacted] may not") && !told.contains("canary"), "{told}");
    for exchange in side.server.exchanges() {
        let text = format!("{} {} {:?} {}", exchange.path, exchange.query, exchange.request_headers, exchange.request);
        assert!(!text.contains("canary") && exchange.is_signed_in, "{text}");
        assert_eq!(exchange.request_headers["accept"], "application/vnd.github+json");
        assert_eq!(exchange.request_headers["x-github-api-version"], "2022-11-28");
        assert!(exchange.request_headers["user-agent"].starts_with("CodeCourier/"));
    }
}

fn node(arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_methods, reason = "a program of the tests")]
    let mut command = Command::new("node");
    let script = judges::github("conformance.mjs").unwrap();
    let output = command.arg(script).args(arguments).output().expect("node is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{said}\n{errors}");
    said
}

/// Two judges nobody here wrote: GitHub's own client, and GitHub's own description of every request and answer.
#[test]
fn the_server_and_our_requests_are_as_github_describes_them() {
    let side = Side::new();
    for branch in [BRANCH, "courier/second", "courier/third"] {
        side.branch(branch);
    }
    let said = node(&["drive", &side.server.api(), CANARY, BRANCH, "courier/second", "topic"]);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 7, "{said}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let theirs = side.server.exchanges().len();
    runtime.block_on(async {
        side.github.repository(&side.repository).await.unwrap();
        side.github.open(&side.repository, &new("courier/third")).await.unwrap();
        side.github.open(&side.repository, &new("courier/third")).await.unwrap();
        side.github.create(&side.repository, &new("courier/third")).await.unwrap_err();
        side.github.create(&side.repository, &new("topic")).await.unwrap_err();
        side.github.create(&side.repository, &NewPullRequest { is_draft: true, ..new("none") }).await.unwrap_err();
        side.server.merge(3).unwrap();
        side.github.edit(&side.repository, 3, "Edited", "words").await.unwrap();
        assert_eq!(side.github.get(&side.repository, 3).await.unwrap().state, State::Merged);
        let Listed::Pulls { tag, .. } = side.changed(None).await else { panic!("no tag was given") };
        side.changed(tag.as_deref()).await;
        for fault in [Fault::Unauthorized, Fault::SecondaryLimit { after: 1 }, Fault::TooMany { after: 1 }, Fault::Gone]
        {
            side.server.fail(fault);
            side.github.repository(&side.repository).await.unwrap_err();
        }
    });
    let exchanges = side.server.exchanges();
    assert!(exchanges.len() > theirs + 14, "ours were recorded");
    let recorded = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(recorded.path(), serde_json::to_vec(&exchanges).unwrap()).unwrap();
    let said = node(&["validate", &recorded.path().to_string_lossy()]);
    assert!(said.contains(" 0 problems"), "{said}");
}

/// A judge that lets everything pass would be none.
#[test]
fn the_description_finds_what_is_wrong() {
    let side = Side::new();
    side.branch(BRANCH);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { side.open(BRANCH).await });
    let good = serde_json::to_value(side.server.exchanges()).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let spoiled = |name: &str, spoil: &dyn Fn(&mut serde_json::Value)| {
        let mut exchanges = good.clone();
        spoil(exchanges.as_array_mut().unwrap().iter_mut().find(|exchange| exchange["method"] == "POST").unwrap());
        let path = folder.path().join(name);
        std::fs::write(&path, exchanges.to_string()).unwrap();
        path
    };
    let files = [
        spoiled("as it was", &|_| ()),
        spoiled("a request without a head", &|exchange| exchange["request"]["head"] = serde_json::Value::Null),
        spoiled("a property GitHub does not know", &|exchange| exchange["request"]["drafts"] = true.into()),
        spoiled("an address that is a number", &|exchange| exchange["answer"]["html_url"] = 1.into()),
        spoiled("a path that is none", &|exchange| exchange["path"] = "/repos/owner/name/pull".into()),
        spoiled("a parameter GitHub does not know", &|exchange| exchange["query"] = "sorted=yes".into()),
        spoiled("a status it never has", &|exchange| exchange["status"] = 200.into()),
    ];
    #[expect(clippy::disallowed_methods, reason = "a program of the tests")]
    let mut command = Command::new("node");
    let output = command.arg(judges::github("conformance.mjs").unwrap()).arg("validate").args(&files).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdicts: Vec<&str> = said.lines().collect();
    assert_eq!(verdicts.len(), files.len(), "{said}");
    assert!(verdicts[0].ends_with(" 0 problems"), "{said}");
    assert!(verdicts[1..].iter().all(|verdict| !verdict.ends_with(" 0 problems")), "{said}");
}
