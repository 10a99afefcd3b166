//! `cargo xtask ci`: all that must pass before a change is accepted.

use std::time::Instant;

use anyhow::Result;

use crate::command;
use crate::setup::{self, Install, Needs};
use crate::test::{self, TestArgs};
use crate::tidy;

/// Formatting, our own rules, lints and documentation with warnings as errors, dependencies, and all tests; stops at
/// the first that fails. The quick checks come first.
pub(crate) fn ci(install: Install) -> Result<()> {
    step("set-up", || setup::setup(Needs::Test, install))?;
    step("formatting", || {
        command::run(command::cargo().args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", tidy::tidy)?;
    // In the profile of the tests: the eBPF object, build scripts and macros are built once.
    step("lints", || {
        let lints = [
            "clippy",
            "--release",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ];
        command::run(command::cargo().args(lints))
    })?;
    step("documentation", || {
        let mut doc = command::cargo();
        doc.args(["doc", "--release", "--workspace", "--no-deps"]);
        command::run(doc.env("RUSTDOCFLAGS", "--deny warnings"))
    })?;
    step("dependencies", dependencies)?;
    step("tests", || test::test(&TestArgs::default(), install))?;
    step("the other tests", || test::test(&TestArgs::rest(), install))
}

/// Licences, sources and known faults of the dependencies, by cargo-deny. It takes minutes to build, so it is used where it
/// is installed.
fn dependencies() -> Result<()> {
    let is_there = command::cargo().args(["deny", "--version"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        println!("not checked, as cargo-deny is missing; to install it: cargo install --locked cargo-deny");
        return Ok(());
    }
    command::run(command::cargo().args(["deny", "--config", ".github/deny.toml", "check"]))
}

fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    task()?;
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
