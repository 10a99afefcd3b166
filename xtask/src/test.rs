//! `cargo xtask test`: all tests, in the build that users run, and one closing line of totals.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::setup::{self, Install, Needs};
use crate::{command, system};

/// Runs every test of the workspace; `args` are for `cargo test`.
pub(crate) fn test(args: &[OsString], install: Install) -> Result<()> {
    setup::setup(Needs::Test, install)?;
    if !system::is_root() {
        println!("not root: skipping tests that sample the kernel of this machine");
    }
    let mut cargo = command::cargo();
    cargo
        .args(["test", "--release", "--workspace", "--no-fail-fast"])
        .args(args)
        .stdout(Stdio::piped());
    let mut child = cargo
        .spawn()
        .with_context(|| format!("failed to start {cargo:?}"))?;
    let mut totals = Totals::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("failed to read the output of {cargo:?}"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            totals.add(&line);
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("failed to wait for {cargo:?}"))?;
    println!(
        "{} passed, {} failed, {} skipped",
        totals.passed, totals.failed, totals.skipped
    );
    ensure!(status.success(), "failed to run {cargo:?}: {status}");
    Ok(())
}

/// The sums of the closing lines of all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    /// Adds a line such as `test result: ok. 2 passed; 0 failed; 1 ignored; ...`; any other adds nothing.
    fn add(&mut self, line: &str) {
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
                Some((number, "ignored")) => self.skipped += number,
                _ => {}
            }
        }
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
        assert_eq!(
            totals,
            Totals {
                passed: 7,
                failed: 1,
                skipped: 1
            }
        );
    }
}
