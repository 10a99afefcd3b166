//! `cargo xtask book`: writes the generated parts of README and book, and builds the pages with mdBook.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::setup::{self, Install, Needs};
use crate::tidy;

/// Where the pages go, as the file `book.toml` says.
const FOLDER: &str = "target/book";

/// Writes the tables from the results and the reference from the program, then the pages where mdBook is installed.
pub(crate) fn book(install: Install) -> Result<()> {
    let root = command::workspace();
    for (path, text) in tidy::outdated_tables()? {
        fs::write(root.join(&path), text).with_context(|| format!("failed to write {path}"))?;
        println!("wrote the tables of {path}");
    }
    setup::setup(Needs::Build, install)?;
    let mut reference = command::cargo();
    reference.args(["test", "--release", "--package", "hbbp-user", "--test", "manual"]);
    command::run(reference.args(["--", "reference"]).env("HBBP_UPDATE", "1"))?;
    let is_there = Command::new("mdbook").arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        println!("no pages, as mdbook is missing; to install it: cargo install --locked mdbook");
        return Ok(());
    }
    let mut mdbook = Command::new("mdbook");
    command::run(mdbook.arg("build").arg(root.join("hbbp-user/book")))?;
    println!("the book is in {FOLDER}");
    Ok(())
}
