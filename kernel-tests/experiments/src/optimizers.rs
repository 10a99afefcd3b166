//! `cargo xtask vm optimizers`: what exported profiles are worth to clang and llvm-bolt, beside those of LLVM's converters of
//! the same recording, on a model of a processor.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use kernel_tests::bolt::{Gaps, Pair, SCOPES, workload_gaps};
use kernel_tests::kernel::Kernel;
use kernel_tests::optimizers::{Optimized, Work, measure};
use kernel_tests::workload::Workload;

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
    /// Sampling periods in taken branches, comma-separated: one recording of zstd each.
    #[arg(long, value_delimiter = ',', default_values_t = PERIODS)]
    period: Vec<u64>,
    /// Workloads whose profiles only BOLT judges, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "perl,gzip")]
    workload: Vec<String>,
    /// Directory in which to keep recordings, profiles and programs.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Primes: whether one profile is better than another must not hang on one recording.
const PERIODS: [u64; 3] = [1_009, 2_003, 4_001];

/// Measures and prints, recording by recording.
pub(crate) fn optimizers(args: &Args) -> Result<()> {
    let kernel = Kernel::get(&args.kernel)?;
    for name in &args.hardware_profile {
        let text = hardware_profile(name)?;
        println!(
            "kernel {}, hardware profile {name}: on a model of a processor",
            args.kernel
        );
        for period in &args.period {
            let keep = args
                .keep
                .as_ref()
                .map(|folder| folder.join(format!("{name}-{period}")));
            let optimized = measure(&kernel, &text, *period, keep.as_deref())?;
            println!(
                "\nzstd, every {period}th taken branch, {} stacks\n{WORK}",
                optimized.stacks
            );
            print_work("M instructions", &optimized, |work| work.instructions);
            print_work("M taken branches", &optimized, |work| work.taken);
            print_gaps(&optimized.gaps);
        }
        for named in &args.workload {
            let workload = Workload::named(named).with_context(|| format!("unknown workload `{named}`"))?;
            let events = format!("-b -e cpu/event=0xc4,umask=0x20/pp -c {WORKLOAD_PERIOD}");
            let gaps = workload_gaps(workload, &kernel, &text, &events)?;
            println!("\n{named}, every {WORKLOAD_PERIOD}th taken branch");
            print_gaps(&gaps);
        }
        println!();
    }
    Ok(())
}

/// Taken branches from stack to stack of the workloads.
const WORKLOAD_PERIOD: u64 = 1_009;

/// What each build executes in user code.
const WORK: &str = "                         plain    clang: ours  llvm-profgen    BOLT: ours     perf2bolt";

/// BOLT's metrics in per cent of profiles by hbbp-sys and by perf2bolt: functions that it judges, and the percentile of them that
/// it prints.
const TITLES: &str = "BOLT:    functions  percentile  CFG discontinuity    call graph gap      CFG flow gap   (hbbp-sys / perf2bolt)";

fn print_work(what: &str, optimized: &Optimized, of: fn(Work) -> u64) {
    let Optimized {
        plain, clang, bolt, ..
    } = optimized;
    let works = [*plain, clang.ours, clang.theirs, bolt.ours, bolt.theirs];
    let cells = works.map(|work| format!("{:>14.3}", of(work) as f64 / 1e6));
    println!("{what:<16}{}", cells.concat());
}

fn print_gaps(gaps: &[Pair<Gaps>]) {
    println!("{TITLES}");
    for ((_, percentile), Pair { ours, theirs }) in SCOPES.iter().zip(gaps) {
        let both = |of: fn(&Gaps) -> f64| format!("{:.2} / {:.2}", of(ours), of(theirs));
        let functions = format!("{} / {}", ours.functions, theirs.functions);
        println!(
            "{functions:>18} {percentile:>11} {:>18} {:>17} {:>17}",
            both(|gaps| gaps.discontinuity),
            both(|gaps| gaps.call_graph),
            both(|gaps| gaps.flow),
        );
    }
}
