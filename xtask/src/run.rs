//! `cargo xtask run -- ARGS`: builds hbbp-sys and becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, anyhow};

use crate::setup::Install;
use crate::{build, command, system};

/// Builds the program and runs it as root, through sudo where we are not.
///
/// xtask gives its place to it, so that Ctrl-C and the exit code are the program's own.
pub(crate) fn run(args: &[OsString], install: Install) -> Result<()> {
    build::build(install)?;
    let program = command::workspace().join("target/release/hbbp-sys");
    let mut command = if system::is_root() {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg(program);
        sudo
    };
    let err = command.args(args).exec();
    Err(anyhow!("failed to start {command:?}: {err}"))
}
