//! `cargo xtask build`: leaves `target/release/hbbp-sys`, with the eBPF object in it.

use anyhow::Result;

use crate::command;
use crate::setup::{self, Install, Needs};

/// Sets up what is missing and builds the program.
pub(crate) fn build(install: Install) -> Result<()> {
    setup::setup(Needs::Build, install)?;
    command::run(command::cargo().args(["build", "--release", "--package", "hbbp-user"]))
}
