//! `cargo xtask`: the one build script of the project. One file per task.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program tells what it does as it goes"
)]

mod build;
mod command;
mod toolchain;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Set up, build, run and test hbbp-sys.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build target/release/hbbp-sys.
    Build,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    match &args.task {
        Task::Build => build::build(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Args;

    #[test]
    fn the_flag_table_is_consistent() {
        Args::command().debug_assert();
    }
}
