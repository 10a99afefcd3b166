//! `cargo xtask book`: writes the generated parts of README and book, and builds the pages with mdBook.

mod pages;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command;
use crate::setup::{self, Install, Needs};
use crate::tidy;

/// Where the pages go, as the file `book.toml` says.
const FOLDER: &str = "target/book";

/// The version of mdBook that is installed where the machine has none.
const VERSION: &str = "0.5.4";

/// Where it is installed: in the workspace, so that no program of the user changes.
const TOOL: &str = "target/mdbook";

/// Writes the tables from the results and the reference from the program, then the pages.
pub(crate) fn book(install: Install) -> Result<()> {
    let root = command::workspace();
    for (path, text) in tidy::outdated_tables()? {
        fs::write(root.join(&path), text).with_context(|| format!("failed to write {path}"))?;
        println!("wrote the tables of {path}");
    }
    setup::setup(Needs::Build, install)?;
    let mut reference = command::cargo();
    reference.args(["test", "--package", "hbbp-sys", "--test", "manual"]);
    command::run(reference.args(["--", "reference"]).env("HBBP_UPDATE", "1"))?;
    let mut mdbook = Command::new(mdbook(install)?);
    command::run(mdbook.arg("build").arg(root.join("hbbp-user/book")))?;
    let links = pages::check(&root.join(FOLDER))?;
    println!("the book is in {FOLDER}, with {links} links");
    Ok(())
}

/// The mdBook of the machine, else that of the workspace, which is installed if it is missing.
fn mdbook(install: Install) -> Result<PathBuf> {
    let of_machine = PathBuf::from("mdbook");
    let version = Command::new(&of_machine).arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return Ok(of_machine);
    }
    let folder = command::workspace().join(TOOL);
    let program = folder.join("bin/mdbook");
    if program.is_file() {
        return Ok(program);
    }
    let arguments = [
        "install",
        "--quiet",
        "--locked",
        "--no-default-features",
        "--version",
        VERSION,
    ];
    let line = format!("cargo {} mdbook --root {TOOL}", arguments.join(" "));
    ensure!(
        install == Install::Do,
        "mdbook is missing; install it with `{line}`"
    );
    println!("mdbook is missing; installing it with `{line}`");
    let mut cargo = command::cargo();
    command::run(cargo.args(arguments).arg("mdbook").arg("--root").arg(&folder))?;
    Ok(program)
}
