//! The totals of test programs, read from what they print.
//!
//! libtest has no test that skips itself. A test that cannot run here returns early and prints a line
//! `skipped: NAME: REASON` past the capture of its output; it counts as skipped and not as passed.

use std::fmt;

/// Begins the line of a test that skipped itself.
const SKIPPED: &str = "skipped: ";

/// The sums over several test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
    /// Tests that are marked as ignored.
    ignored: u64,
    /// Names and reasons of the tests that skipped themselves.
    reasons: Vec<String>,
    /// Commands that failed: also one whose tests did not build has no passed tests.
    failed_commands: u64,
}

impl Totals {
    /// Adds a line of output: `test result: ok. 2 passed; 0 failed; 1 ignored; ...` or `skipped: NAME: REASON`; any
    /// other adds nothing.
    pub(crate) fn add(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix(SKIPPED) {
            self.reasons.push(reason.to_owned());
        }
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|line| line.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count
                .split_once(' ')
                .and_then(|(number, what)| Some((number.parse::<u64>().ok()?, what)))
            {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds how a command ended.
    pub(crate) fn end(&mut self, is_success: bool) {
        self.failed_commands += u64::from(!is_success);
    }

    /// Adds the totals of another tier.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.reasons.extend(other.reasons.iter().cloned());
        self.failed_commands += other.failed_commands;
    }

    pub(crate) const fn is_success(&self) -> bool {
        self.failed == 0 && self.failed_commands == 0
    }

    /// Names and reasons of the tests that skipped themselves.
    pub(crate) fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl fmt::Display for Totals {
    /// `N passed, N failed, N skipped`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let returned_early = self.reasons.len() as u64;
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed.saturating_sub(returned_early),
            self.failed,
            self.ignored + returned_early
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn totals_are_the_sums_of_the_closing_lines() {
        let mut totals = Totals::default();
        totals.add("running 2 tests");
        totals.add(
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s",
        );
        totals.add("test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s");
        assert_eq!(totals.to_string(), "7 passed, 1 failed, 1 skipped");
        assert!(!totals.is_success());
    }

    #[test]
    fn tests_that_skip_themselves_are_not_passed() {
        let mut totals = Totals::default();
        totals.add("skipped: run::cgroup: no cgroup2 hierarchy here");
        totals.add("test run::cgroup ... ok");
        totals.add("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(totals.to_string(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(totals.reasons(), ["run::cgroup: no cgroup2 hierarchy here"]);
        assert!(totals.is_success());
    }

    #[test]
    fn tests_that_do_not_build_fail() {
        let mut totals = Totals::default();
        totals.end(false);
        assert_eq!(totals.to_string(), "0 passed, 0 failed, 0 skipped");
        assert!(!totals.is_success());
    }
}
