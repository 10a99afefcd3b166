//! `cargo xtask package`: builds a Debian package of the program, its service and its man pages, by cargo-deb.
//!
//! What is in it stands in the manifest of hbbp-user (`package.metadata.deb`).

use anyhow::Result;

use crate::setup::{self, Install, Needs};
use crate::{build, command, manual};

/// Where cargo-deb puts the package.
const FOLDER: &str = "target/debian";

/// Builds the package.
pub(crate) fn package(install: Install) -> Result<()> {
    setup::setup(Needs::Package, install)?;
    build::build(install)?;
    manual::write(&command::workspace().join(build::PROGRAM))?;
    let package = ["deb", "--quiet", "--no-build", "--package", "hbbp-user"];
    command::run(command::cargo().args(package))?;
    println!("the package is in {FOLDER}; to install it: apt install ./{FOLDER}/*.deb");
    Ok(())
}
