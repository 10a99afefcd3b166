//! `cargo xtask run -- ARGS`: builds hbbp-sys and becomes it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::setup::Install;
use crate::{build, command, system};

/// Builds the program and becomes it as root, through sudo where we are not.
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
    Err(command::exec(command.args(args)))
}
