//! `cargo xtask vm`, `cargo xtask bench` and `cargo xtask demo`: what measures, and prints what it measured. One file per experiment.
//!
//! xtask installs what these need, builds this program and becomes it (`xtask/src/experiments.rs`). So help and errors name
//! `cargo xtask` as the program.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program prints its progress"
)]

mod ablation;
mod accuracy;
mod bench;
mod bench_exports;
mod classes;
mod cost;
mod demo;
mod guards;
mod methods;
mod optimizers;
mod profile_file;
mod recordings;
mod results;
mod statistics;
mod vm;
mod without_stacks;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measure how exact hbbp-sys is, and what it costs.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    task: Task,

    // xtask acts on it; here it is a part of the help, after the options of each experiment.
    /// Print what would be installed instead of installing it, and stop if the task needs it.
    #[arg(long, global = true, display_order = 100)]
    no_install: bool,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure what stacks, processes, hostile profiles and a run of ten seconds under load cost; as root.
    Bench(bench::BenchArgs),
    /// Run a command on the emulated machine, with exact counts of what it executed.
    Vm(Box<vm::Args>),
    /// Measure a load of kernel and user code on the emulated machine, and print the estimated and the exact mix.
    Demo,
}

fn main() -> ExitCode {
    match run(&Args::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Bench(args) => bench::bench(args),
        Task::Vm(args) => vm::vm(args),
        Task::Demo => demo::demo(),
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
