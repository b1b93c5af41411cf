//! THREAT_MODEL.md promises nothing that no test attacks.

use std::path::Path;

/// A link of the page: `[name](path)`, where a name in code quotes is a test's.
fn links(page: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("](") {
        let (Some((_, name)), Some((target, after))) = (before.rsplit_once('['), after.split_once(')')) else { break };
        links.push((name, target));
        rest = after;
    }
    links
}

#[test]
fn every_link_of_the_threat_model_leads_to_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("THREAT_MODEL.md")).unwrap();
    let mut tests = 0;
    for (name, target) in links(&page) {
        let path = root.join(target);
        assert!(path.exists(), "{target} is not there");
        let Some(test) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        let source = std::fs::read_to_string(&path).unwrap();
        let (before, _) = source.split_once(&format!("fn {test}(")).unwrap_or_else(|| panic!("{target} has no {test}"));
        // Between a function and its attribute are at most other attributes and a word or two.
        let attributes = before.rsplit("\n\n").next().unwrap();
        assert!(["test]", "test("].iter().any(|mark| attributes.contains(mark)), "{test} in {target} is no test");
        tests += 1;
    }
    assert!(tests > 30, "only {tests} tests are named");
}

/// Each row of a table of promises names what attacks it.
#[test]
fn every_promise_names_a_test() {
    let page = include_str!("../../THREAT_MODEL.md");
    let promises = page.split("\n## ").find(|section| section.starts_with("What is promised")).unwrap();
    let rows = promises.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Promise"));
    for row in rows.filter(|row| !row.starts_with("| ---")) {
        assert!(!links(row).is_empty(), "{row}");
    }
}
