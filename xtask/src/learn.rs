//! `cargo xtask learn`: learns the rule between EBS and LBR from recordings with exact counts.
//!
//! The work is that of a package of its own (`kernel-tests/learn`), built when it is asked for: nothing else needs the crates
//! for classification trees, and xtask is compiled before anything else.

use std::env;
use std::ffi::OsString;

use anyhow::{Context as _, Result};

use crate::command;

/// Builds the program and runs it in the directory from which xtask was called, so that paths are those of the caller.
pub(crate) fn learn(args: &[OsString]) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.current_dir(env::current_dir().context("no current directory")?);
    cargo.args(["run", "--quiet", "--release", "--package", "kernel-tests-learn"]);
    cargo
        .arg("--manifest-path")
        .arg(command::workspace().join("Cargo.toml"));
    command::run(cargo.arg("--").args(args))
}
