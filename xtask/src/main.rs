//! `cargo xtask`: the one build script of the project. One file per task; what measures is in `kernel-tests`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program prints its progress"
)]

mod book;
mod build;
mod ci;
mod clean_room;
mod command;
mod experiments;
mod manual;
mod release;
mod root;
mod run;
mod setup;
mod system;
mod test;
mod tidy;
mod totals;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
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
    /// Make the files of a release in target/dist: a static program, packages, the source, a bill of materials, checksums.
    Release,
    /// Install, measure with and remove the packages in target/dist on fresh systems, their service on one that boots, and build
    /// the source release.
    TryRelease,
    /// Build the eBPF objects and copy them to a directory, for HBBP_EBPF_OBJECTS of builds elsewhere.
    Objects {
        /// Directory to write them to.
        directory: PathBuf,
    },
    /// Build hbbp-sys and run it as root.
    Run {
        /// Arguments of hbbp-sys.
        #[arg(last = true)]
        args: Vec<OsString>,
    },
    /// Run the decisive tests of each subsystem, or with --all every test: all tiers, or those that are named.
    Test(test::TestArgs),
    /// Measure what stacks, processes, hostile profiles and a run of ten seconds under load cost; as root.
    #[command(disable_help_flag = true)]
    Bench,
    /// Write the generated parts of README and book, and the pages to target/book.
    Book,
    /// Check our own rules: import order, sizes, names, docs.
    Tidy,
    /// Count long sentences, circles of files, public items, tuples as parameters and wide structs.
    Counts,
    /// Run every check of a change: formatting, lints, tidy rules, tests.
    Ci,
    /// Run a command on the emulated machine, with exact counts of what it executed.
    #[command(disable_help_flag = true)]
    Vm,
    /// Measure a load of kernel and user code on the emulated machine, and print the estimated and the exact mix.
    #[command(disable_help_flag = true)]
    Demo,
    /// Learn the rule that chooses between EBS and LBR from recordings with exact counts; `cargo xtask learn --help` says how.
    #[command(disable_help_flag = true)]
    Learn,
    /// Run and time the commands of the README on a fresh Debian 12 by debootstrap.
    CleanRoom,
}

fn main() -> ExitCode {
    let (own, passed_on) = experiments::split(env::args_os());
    match run(Args::parse_from(own), &passed_on) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task; some have arguments that are passed on to another program.
fn run(args: Args, passed_on: &[OsString]) -> Result<()> {
    let install = if args.no_install {
        Install::Print
    } else {
        Install::Do
    };
    match args.task {
        Task::Setup => setup::setup(Needs::AllTests, install),
        Task::Build => build::build(install),
        Task::Release => release::release(install),
        Task::TryRelease => release::trial::try_release(),
        Task::Objects { directory } => release::write_objects(&directory, install),
        Task::Run { args } => run::run(&args, install),
        Task::Test(args) => test::test(&args, install),
        Task::Bench => experiments::bench(passed_on, install),
        Task::Book => book::book(install),
        Task::Tidy => tidy::tidy(),
        Task::Counts => tidy::counts(),
        Task::Ci => ci::ci(install),
        Task::Vm => experiments::vm(passed_on, install),
        Task::Demo => experiments::demo(passed_on, install),
        Task::Learn => experiments::learn(passed_on),
        Task::CleanRoom => clean_room::clean_room(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory as _, Parser as _};

    use super::Args;
    use crate::{experiments, tidy};

    #[test]
    fn the_flag_table_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn commands_of_readme_and_book_parse() {
        let commands = tidy::commands_of_the_manual("cargo xtask").unwrap();
        assert!(commands.len() >= 6, "{commands:?}");
        for (place, words) in commands {
            let words = words.iter().map(OsString::from);
            let (own, _) = experiments::split(words.skip(1));
            Args::try_parse_from(own).unwrap_or_else(|err| panic!("{place}: {err}"));
        }
    }
}
