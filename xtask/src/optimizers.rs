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
    #[arg(long, value_delimiter = ',', default_value = "perl,sqlite3")]
    workload: Vec<String>,
    /// Directory in which to keep recordings, profiles and programs.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Primes: whether one profile is better than another must not hang on one recording.
const PERIODS: [u64; 3] = [1_009, 2_003, 4_001];

/// Measures and prints, line by line as the runs end.
pub(crate) fn optimizers(args: &Args) -> Result<()> {
    let kernel = Kernel::get(&args.kernel)?;
    for name in &args.hardware_profile {
        let text = hardware_profile(name)?;
        println!(
            "kernel {}, hardware profile {name}: on a model of a processor\nuser code of zstd in millions{:>19}{:>14}{:>14}{:>14}{:>14}",
            args.kernel, "plain", "clang: ours", "llvm-profgen", "BOLT: ours", "perf2bolt"
        );
        let mut all = Vec::new();
        for period in &args.period {
            let keep = args
                .keep
                .as_ref()
                .map(|folder| folder.join(format!("{name}-{period}")));
            let optimized = measure(&kernel, &text, *period, keep.as_deref())?;
            print_work(*period, &optimized);
            all.push((format!("zstd, every {period}th branch"), optimized.gaps));
        }
        for named in &args.workload {
            let workload = Workload::named(named).with_context(|| format!("unknown workload `{named}`"))?;
            let events = format!("-b -e cpu/event=0xc4,umask=0x20/pp -c {}", PERIODS[0]);
            let gaps = workload_gaps(workload, &kernel, &text, &events)?;
            all.push((format!("{named}, every {}th branch", PERIODS[0]), gaps));
        }
        println!("\nBOLT's metrics of profiles in %: of hbbp-sys / of perf2bolt\n{TITLES}");
        for (what, gaps) in &all {
            print_gaps(what, gaps);
        }
        println!();
    }
    Ok(())
}

/// Functions that BOLT judges, and the percentile of them that is printed.
const TITLES: &str = "recording                      functions  percentile  CFG discontinuity    call graph gap      CFG flow gap";

fn print_work(period: u64, optimized: &Optimized) {
    let Optimized {
        plain, clang, bolt, ..
    } = optimized;
    let works = [*plain, clang.ours, clang.theirs, bolt.ours, bolt.theirs];
    let line = |of: fn(Work) -> u64| -> String {
        let cells = works.map(|work| format!("{:>14.3}", of(work) as f64 / 1e6));
        cells.concat()
    };
    let stacks = format!("{period}, {} stacks", optimized.stacks);
    println!("{stacks:<20} instructions  {}", line(|work| work.instructions));
    println!("{:<20} taken branches{}", "", line(|work| work.taken));
}

fn print_gaps(what: &str, gaps: &[Pair<Gaps>]) {
    for ((_, percentile), Pair { ours, theirs }) in SCOPES.iter().zip(gaps) {
        let both = |of: fn(&Gaps) -> f64| format!("{:.2} / {:.2}", of(ours), of(theirs));
        let functions = format!("{} / {}", ours.functions, theirs.functions);
        println!(
            "{what:<30} {functions:>9} {percentile:>11} {:>18} {:>17} {:>17}",
            both(|gaps| gaps.discontinuity),
            both(|gaps| gaps.call_graph),
            both(|gaps| gaps.flow),
        );
    }
}
