//! `cargo xtask build`: leaves `target/release/hbbp-sys`, with the eBPF object in it, and its debug information next to
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::setup::{self, Install, Needs};

/// The program.
const PROGRAM: &str = "target/release/hbbp-sys";

/// Sets up what is missing and builds the program.
pub(crate) fn build(install: Install) -> Result<()> {
    setup::setup(Needs::Build, install)?;
    command::run(command::cargo().args(["build", "--release", "--package", "hbbp-sys"]))?;
    split(&command::workspace().join(PROGRAM)).map(drop)
}

/// Moves debug information and symbols to a file of their own, next to the program, and gives its path: they are six
/// times as large as the program, and debuggers find them by the link in it.
///
/// cargo keeps the linked program under another name, and puts it back here with its next build.
pub(crate) fn split(program: &Path) -> Result<PathBuf> {
    let (debug, small) = (program.with_extension("debug"), program.with_extension("small"));
    command::run(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([program, &debug]),
    )?;
    let mut strip = Command::new("objcopy");
    strip.arg("--strip-all");
    strip.arg(format!("--add-gnu-debuglink={}", debug.display()));
    command::run(strip.args([program, &small]))?;
    fs::rename(&small, program).with_context(|| format!("failed to replace {}", program.display()))?;
    Ok(debug)
}
