//! `cargo xtask vm optimizers`: what exported profiles are worth to clang and llvm-bolt, compared with those of LLVM's
//! converters of the same recording, on a model of a processor.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use kernel_tests::bolt::{Gaps, Pair, SCOPES, workload_gaps};
use kernel_tests::kernel::Kernel;
use kernel_tests::optimizers::{Optimized, Work, measure};
use kernel_tests::workload::Workload;
use serde_json::Value;

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

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
    #[command(flatten)]
    results: results::Options,
}

/// Primes: whether one profile is better than another must not hang on one recording.
const PERIODS: [u64; 3] = [1_009, 2_003, 4_001];

/// Measures and prints, recording by recording.
pub(crate) fn optimizers(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let kernel = Kernel::get(&args.kernel)?;
    for name in &args.hardware_profile {
        let text = hardware_profile(name)?;
        results.text(format_args!(
            "kernel {}, hardware profile {name}: on a model of a processor",
            args.kernel
        ));
        for period in &args.period {
            let keep = args
                .keep
                .as_ref()
                .map(|folder| folder.join(format!("{name}-{period}")));
            let optimized = measure(&kernel, &text, *period, keep.as_deref())?;
            results.text(format_args!(
                "\nzstd, every {period}th taken branch, {} stacks\n{WORK}",
                optimized.stacks
            ));
            let of = Of {
                kernel: &args.kernel,
                hardware_profile: name,
                workload: "zstd",
                period: *period,
            };
            print_work(&mut results, &of, &optimized)?;
            print_gaps(&mut results, &of, &optimized.gaps)?;
        }
        for named in &args.workload {
            let workload = Workload::named(named).with_context(|| format!("unknown workload `{named}`"))?;
            let events = format!("-b -e cpu/event=0xc4,umask=0x20/pp -c {WORKLOAD_PERIOD}");
            let gaps = workload_gaps(workload, &kernel, &text, &events)?;
            results.text(format_args!("\n{named}, every {WORKLOAD_PERIOD}th taken branch"));
            let of = Of {
                kernel: &args.kernel,
                hardware_profile: name,
                workload: named,
                period: WORKLOAD_PERIOD,
            };
            print_gaps(&mut results, &of, &gaps)?;
        }
        results.text("");
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

/// What figures are of.
struct Of<'a> {
    kernel: &'a str,
    hardware_profile: &'a str,
    workload: &'a str,
    period: u64,
}

impl Of<'_> {
    /// These figures with what they are of.
    fn figures(&self, figures: Value) -> Value {
        let mut line = serde_json::json!({
            "kernel": self.kernel, "hardware_profile": self.hardware_profile, "workload": self.workload, "period": self.period,
        });
        if let (Some(line), Value::Object(mut figures)) = (line.as_object_mut(), figures) {
            line.append(&mut figures);
        }
        line
    }
}

fn print_work(results: &mut Results, of: &Of<'_>, optimized: &Optimized) -> Result<()> {
    let Optimized {
        plain, clang, bolt, ..
    } = optimized;
    let works = [*plain, clang.ours, clang.theirs, bolt.ours, bolt.theirs];
    let line = |what: &str, of: fn(Work) -> u64| {
        let cells = works.map(|work| format!("{:>14.3}", of(work) as f64 / 1e6));
        format!("{what:<16}{}", cells.concat())
    };
    results.text(line("M instructions", |work| work.instructions));
    results.text(line("M taken branches", |work| work.taken));
    let builds = [
        "plain",
        "clang",
        "clang by llvm-profgen",
        "BOLT",
        "BOLT by perf2bolt",
    ];
    let by_build = |of: fn(Work) -> u64| -> Value {
        let figures = builds
            .into_iter()
            .map(str::to_owned)
            .zip(works.map(|work| Value::from(of(work))));
        figures.collect::<serde_json::Map<_, _>>().into()
    };
    results.figures(&of.figures(serde_json::json!({
        "stacks": optimized.stacks,
        "instructions": by_build(|work| work.instructions), "taken_branches": by_build(|work| work.taken),
    })))
}

fn print_gaps(results: &mut Results, of: &Of<'_>, gaps: &[Pair<Gaps>]) -> Result<()> {
    results.text(TITLES);
    for ((_, percentile), Pair { ours, theirs }) in SCOPES.iter().zip(gaps) {
        let both = |of: fn(&Gaps) -> f64| format!("{:.2} / {:.2}", of(ours), of(theirs));
        let functions = format!("{} / {}", ours.functions, theirs.functions);
        results.text(format_args!(
            "{functions:>18} {percentile:>11} {:>18} {:>17} {:>17}",
            both(|gaps| gaps.discontinuity),
            both(|gaps| gaps.call_graph),
            both(|gaps| gaps.flow),
        ));
        let figures = |gaps: &Gaps| {
            serde_json::json!({
                "functions": gaps.functions, "discontinuity": gaps.discontinuity, "call_graph": gaps.call_graph, "flow": gaps.flow,
            })
        };
        results.figures(&of.figures(serde_json::json!({
            "percentile": percentile, "hbbp-sys": figures(ours), "perf2bolt": figures(theirs),
        })))?;
    }
    Ok(())
}
