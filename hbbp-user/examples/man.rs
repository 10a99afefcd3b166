//! Writes man pages and shell completions of hbbp-sys, made from its command line, into a folder.
//!
//! An example and no part of the program, so that users need not build what makes them: `cargo xtask man` runs it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;
use hbbp_user::cli::Cli;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.context("usage: man FOLDER")?;
    let failed = || format!("failed to write to {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), &folder).with_context(failed)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "hbbp-sys", &folder).with_context(failed)?;
    }
    Ok(())
}
