//! `cargo xtask man`: writes man pages and shell completions to `target/man`.

use anyhow::Result;

use crate::command;
use crate::setup::{self, Install, Needs};

/// Where they go.
const FOLDER: &str = "target/man";

/// Builds the program's command line and writes what is made from it.
pub(crate) fn man(install: Install) -> Result<()> {
    setup::setup(Needs::Build, install)?;
    let example = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "hbbp-user",
        "--example",
        "man",
    ];
    command::run(command::cargo().args(example).args(["--", FOLDER]))?;
    println!("man pages and completions are in {FOLDER}");
    Ok(())
}
