//! `cargo xtask`: the one build script of the project. One file per task.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program tells what it does as it goes"
)]

mod ablation;
mod accuracy;
mod build;
mod ci;
mod clean_room;
mod command;
mod cost;
mod demo;
mod run;
mod setup;
mod statistics;
mod system;
mod test;
mod tidy;
mod toolchain;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use setup::{Install, Needs};

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

    /// Install nothing: print what would be installed, and stop if the task cannot do without it.
    #[arg(long, global = true)]
    no_install: bool,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building and testing need.
    Setup,
    /// Build target/release/hbbp-sys.
    Build,
    /// Build hbbp-sys and run it as root.
    Run {
        /// Arguments of hbbp-sys.
        #[arg(last = true)]
        args: Vec<OsString>,
    },
    /// Run all tests; as root, also those that sample this machine's kernel.
    Test {
        /// Arguments of `cargo test`.
        #[arg(last = true)]
        args: Vec<OsString>,
    },
    /// Check our own rules: import order, sizes, names, docs.
    Tidy,
    /// Do all that must pass before a change is accepted: formatting, lints, tidy rules, tests.
    Ci,
    /// Run a command on the emulated machine, with exact counts of what it executed.
    Vm(Box<vm::Args>),
    /// Measure a load of kernel and user code on the emulated machine, and print the mix beside the exact one.
    Demo,
    /// Prove the README's commands on a fresh Debian 12 made by debootstrap, and time them.
    CleanRoom,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let install = if args.no_install {
        Install::Print
    } else {
        Install::Do
    };
    match args.task {
        Task::Setup => setup::setup(Needs::Test, install),
        Task::Build => build::build(install),
        Task::Run { args } => run::run(&args, install),
        Task::Test { args } => test::test(&args, install),
        Task::Tidy => tidy::tidy(),
        Task::Ci => ci::ci(install),
        Task::Vm(args) => vm::vm(&args),
        Task::Demo => demo::demo(),
        Task::CleanRoom => clean_room::clean_room(),
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
