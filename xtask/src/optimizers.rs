//! `cargo xtask vm optimizers`: what exported profiles are worth to clang and llvm-bolt, beside those of LLVM's converters of
//! the same recording, on a model of a processor.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use kernel_tests::kernel::Kernel;
use kernel_tests::optimizers::{Gaps, Optimized, Work, measure};

use crate::vm::hardware_profile;

/// Which recordings.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Hardware profiles, comma-separated: files of kernel-tests/hardware-profiles, or paths.
    #[arg(long, value_delimiter = ',', default_value = "ivb")]
    hardware_profile: Vec<String>,
    /// Sampling periods in taken branches, comma-separated: one recording each.
    #[arg(long, value_delimiter = ',', default_values_t = PERIODS)]
    period: Vec<u64>,
    /// Directory in which to keep recordings, profiles and programs.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Two primes: whether one profile is better than another must not hang on one recording.
const PERIODS: [u64; 2] = [2_003, 4_001];

/// Millions of instructions and of taken branches of user code, in this order of programs.
const TITLES: &str =
    "profile  period  stacks                plain    clang ours  llvm-profgen     BOLT ours     perf2bolt";

/// Measures and prints, line by line as the runs end.
pub(crate) fn optimizers(args: &Args) -> Result<()> {
    let kernel = Kernel::get(&args.kernel)?;
    println!(
        "kernel {}: on a model of a processor, in millions\n{TITLES}",
        args.kernel
    );
    for name in &args.hardware_profile {
        let text = hardware_profile(name)?;
        for period in &args.period {
            let keep = args
                .keep
                .as_ref()
                .map(|folder| folder.join(format!("{name}-{period}")));
            let optimized = measure(&kernel, &text, *period, keep.as_deref())?;
            print(name, *period, &optimized);
        }
    }
    Ok(())
}

fn print(name: &str, period: u64, optimized: &Optimized) {
    let Optimized {
        plain,
        clang,
        bolt,
        gaps,
        ..
    } = optimized;
    let works = [*plain, clang.ours, clang.theirs, bolt.ours, bolt.theirs];
    let line = |of: fn(Work) -> u64| -> String {
        let cells = works.map(|work| format!("{:>14.3}", of(work) as f64 / 1e6));
        cells.concat()
    };
    println!(
        "{name:<8} {period:>6} {:>7.0} instr. {}",
        optimized.stacks,
        line(|work| work.instructions)
    );
    println!("{:<24}taken  {}", "", line(|work| work.taken));
    for (whose, gaps) in [("hbbp-sys", gaps.ours), ("perf2bolt", gaps.theirs)] {
        let Gaps {
            functions,
            discontinuity,
            call_graph,
            flow,
        } = gaps;
        println!(
            "{:<24}{whose}: {functions} functions, CFG discontinuity {discontinuity} %, call graph gap {call_graph} %, CFG flow \
             gap {flow} %",
            ""
        );
    }
}
