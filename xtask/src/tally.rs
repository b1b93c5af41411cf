//! Counting: what test programs say at their end, and which stages failed without counting.

/// The sum of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// What failed, for the end of the output.
    pub failures: Vec<String>,
}

impl Tally {
    /// A stage that does not count tests (a build, a lint) failed.
    pub fn stage_failed(&mut self, stage: &str, error: &anyhow::Error) {
        self.failed += 1;
        self.failures.push(format!("{stage}: {error:#}"));
    }

    /// A test program ended: with these counts, or without a word.
    pub fn program_ended(&mut self, name: &str, counts: Option<Counts>, is_good: bool) {
        let bad_end = if counts.is_some() { "ended badly although no test failed" } else { "ended without a result" };
        let counts = counts.unwrap_or_default();
        self.passed += counts.passed;
        self.failed += counts.failed;
        match (is_good, counts.failed) {
            (true, 0) => {}
            (_, failed @ 1..) => self.failures.push(format!("{name}: {failed} failed")),
            // It died (a signal, an abort), or something went wrong outside its tests.
            (false, 0) => {
                self.failed += 1;
                self.failures.push(format!("{name}: {bad_end}"));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
}

/// Reads libtest's `test result: ok. 12 passed; 0 failed; …`.
pub fn libtest(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(';').find_map(|part| part.trim().strip_suffix(word))?;
        before.rsplit(' ').find(|part| !part.is_empty())?.parse().ok()
    };
    Some(Counts { passed: number(" passed")?, failed: number(" failed")? })
}

/// Reads vitest's `Tests  1 failed | 12 passed (13)`, colours or not.
pub fn vitest(line: &str) -> Option<Counts> {
    let plain = without_colours(line);
    let rest = plain.trim().strip_prefix("Tests ")?;
    let rest = rest.split('(').next().unwrap_or_default();
    let number = |word: &str| {
        let part = rest.split('|').find_map(|part| part.trim().strip_suffix(word))?;
        part.trim().parse().ok()
    };
    let (passed, failed) = (number("passed"), number("failed"));
    (passed.is_some() || failed.is_some())
        .then(|| Counts { passed: passed.unwrap_or_default(), failed: failed.unwrap_or_default() })
}

fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            _ = characters.find(char::is_ascii_alphabetic); // The end of the sequence.
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_both_runners() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(libtest(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(libtest("test result for humans"), None);
        let line = "\u{1b}[2m      Tests \u{1b}[22m \u{1b}[31m1 failed\u{1b}[39m\u{1b}[2m | \u{1b}[22m\u{1b}[32m12 passed\u{1b}[39m (13)";
        assert_eq!(vitest(line), Some(Counts { passed: 12, failed: 1 }));
        assert_eq!(vitest(" Test Files  3 passed (3)"), None, "files are not tests");
        assert_eq!(vitest("      Tests  no tests"), None);
    }

    #[test]
    fn a_program_that_dies_counts_as_a_failure() {
        let mut tally = Tally::default();
        tally.program_ended("engine", None, false);
        assert_eq!((tally.passed, tally.failed), (0, 1));
        tally.program_ended("keeper", Some(Counts { passed: 4, failed: 0 }), true);
        tally.program_ended("shell", Some(Counts { passed: 2, failed: 0 }), false);
        assert_eq!((tally.passed, tally.failed), (6, 2), "good counts do not excuse a bad end");
    }
}
