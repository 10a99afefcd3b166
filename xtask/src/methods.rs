//! `cargo xtask vm methods`: the sampling methods of "Establishing a Base of Trust with Performance Counters for Enterprise
//! Workloads" (ATC 2015) side by side, by its accuracy error over blocks (section 3.3), on a model of a processor.
//!
//! | method | event, period |
//! |---|---|
//! | classic | imprecise, even and fixed: what `perf record -c N` takes |
//! | precise | `:pp`, even and fixed |
//! | precise-prime | `:pp`, prime |
//! | distributed | `:ppp` on a processor whose precise records have no shadow, prime |
//! | lbr | branch stacks of taken branches alone |
//! | hybrid | both, by the rule of this program |
//!
//! The paper's correction of addresses by one instruction has no column: the emulated precise records hold the address of
//! the instruction itself, as those of processors since Haswell do, so there is nothing to correct.

use anyhow::{Context as _, Result};
use clap::Parser;
use kernel_tests::accuracy::{Errors, Fractions, Setup, measure};
use kernel_tests::kernel::Kernel;
use kernel_tests::recording::record;
use kernel_tests::workload::Workload;

use crate::vm::hardware_profile;

/// What to measure.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Workloads by name: the paper's kernels, and virtual calls in place of its test40.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "latency,callchain,g4box,virtual"
    )]
    workload: Vec<String>,
}

/// Hardware profile and options of perf record of the methods that sample addresses.
const SAMPLED: [(&str, &str, &str); 4] = [
    ("classic", "precise", "-e cpu/event=0xc0/ -c 10000"),
    ("precise", "precise", "-e cpu/event=0xc0/pp -c 10000"),
    ("precise-prime", "precise", "-e cpu/event=0xc0/pp -c 10007"),
    ("distributed", "pdir", "-e cpu/event=0xc0/ppp -c 10007"),
];

/// The hardware profile of the methods with branch stacks.
const WITH_STACKS: &str = "precise";

/// Measures and prints, line by line as the runs end.
pub(crate) fn methods(args: &Args) -> Result<()> {
    let kernel = Kernel::get(&args.kernel)?;
    println!(
        "kernel {}: accuracy errors of user code over blocks, in %, on a model of a processor",
        args.kernel
    );
    print!("{:<14}", "workload");
    for name in SAMPLED
        .iter()
        .map(|(name, ..)| *name)
        .chain(["lbr", "hybrid", "classic/lbr"])
    {
        print!(" {name:>13}");
    }
    println!();
    for name in &args.workload {
        let workload = Workload::named(name).with_context(|| format!("unknown workload `{name}`"))?;
        let mut errors = Vec::new();
        for (_, profile, events) in SAMPLED {
            let recorded = record(workload, &kernel, &hardware_profile(profile)?, events)?;
            errors.push(of_user(&recorded.errors("balanced")?)?.ebs);
        }
        let measured = measure(workload, &kernel, &Setup::new(hardware_profile(WITH_STACKS)?))?;
        let with_stacks = of_user(&measured.rings)?;
        errors.extend([with_stacks.lbr, with_stacks.hybrid]);
        let factor = errors.first().copied().flatten().zip(with_stacks.lbr);
        print!("{name:<14}");
        for error in errors {
            print!(
                " {:>13}",
                error.map_or_else(|| "-".to_owned(), |error| format!("{:.2}", 100.0 * error))
            );
        }
        println!(
            " {:>13}",
            factor.map_or_else(
                || "-".to_owned(),
                |(classic, lbr)| format!("{:.1}", classic / lbr)
            )
        );
    }
    Ok(())
}

fn of_user(errors: &Errors) -> Result<Fractions> {
    Ok(errors.named("user")?.block_error)
}
