//! `cargo xtask`: the one build script of the project. One file per task.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program tells what it does as it goes"
)]

mod ablation;
mod accuracy;
mod bench;
mod bench_exports;
mod build;
mod ci;
mod classes;
mod clean_room;
mod command;
mod cost;
mod demo;
mod guards;
mod learn;
mod man;
mod methods;
mod optimizers;
mod package;
mod recordings;
mod run;
mod setup;
mod statistics;
mod system;
mod test;
mod tidy;
mod totals;
mod vm;
mod without_stacks;

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

    /// Print what would be installed instead of installing it, and stop if the task needs it.
    #[arg(long, global = true)]
    no_install: bool,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install the dependencies of builds and tests.
    Setup,
    /// Build target/release/hbbp-sys.
    Build,
    /// Write man pages and shell completions to target/man.
    Man,
    /// Build a Debian package of the program, its service and its man pages in target/debian.
    Package,
    /// Build hbbp-sys and run it as root.
    Run {
        /// Arguments of hbbp-sys.
        #[arg(last = true)]
        args: Vec<OsString>,
    },
    /// Run the decisive tests of each subsystem, or with --all every test: all tiers, or those that are named.
    Test(test::TestArgs),
    /// Measure what stacks, processes, hostile profiles and a run of ten seconds under load cost; as root.
    Bench(bench::BenchArgs),
    /// Check our own rules: import order, sizes, names, docs.
    Tidy,
    /// Print the circles of files, and how many there are.
    Circles,
    /// Run every check of a change: formatting, lints, tidy rules, tests.
    Ci,
    /// Run a command on the emulated machine, with exact counts of what it executed.
    Vm(Box<vm::Args>),
    /// Measure a load of kernel and user code on the emulated machine, and print the estimated and the exact mix.
    Demo,
    /// Learn the rule that chooses between EBS and LBR from recordings with exact counts; `cargo xtask learn --help` says how.
    #[command(disable_help_flag = true)]
    Learn {
        /// Arguments of the program in kernel-tests/learn.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run and time the commands of the README on a fresh Debian 12 by debootstrap.
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
        Task::Setup => setup::setup(Needs::AllTests, install),
        Task::Build => build::build(install),
        Task::Man => man::man(install),
        Task::Package => package::package(install),
        Task::Run { args } => run::run(&args, install),
        Task::Test(args) => test::test(&args, install),
        Task::Bench(args) => bench::bench(&args, install),
        Task::Tidy => tidy::tidy(),
        Task::Circles => tidy::circles(),
        Task::Ci => ci::ci(install),
        Task::Vm(args) => vm::vm(&args, install),
        Task::Demo => demo::demo(install),
        Task::Learn { args } => learn::learn(&args),
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
