//! `cargo xtask vm accuracy`: how exact EBS, LBR and their hybrid are, over the workloads, on a model of a processor.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use kernel_tests::accuracy::{Errors, Fractions, Measured, Setup, measure};
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Clock;
use kernel_tests::workload::{ALL, HELD_OUT, Workload};

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// Which machines, and what they run.
#[derive(Debug, Parser)]
pub(crate) struct Selection {
    /// Kernel series, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "6.1,6.12")]
    pub(crate) kernel: Vec<String>,
    /// Hardware profiles, comma-separated: files of kernel-tests/hardware-profiles, or paths.
    #[arg(long, value_delimiter = ',', default_value = "ideal,ivb")]
    pub(crate) hardware_profile: Vec<String>,
    /// Workloads by name. Default: all.
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// The workloads that nothing was tuned on, instead of the suite.
    #[arg(long, conflicts_with = "workload")]
    held_out: bool,
}

impl Selection {
    /// The workloads that were named, or all.
    ///
    /// # Errors
    /// When a name is unknown.
    pub(crate) fn workloads(&self) -> Result<Vec<&'static Workload>> {
        if self.held_out {
            return Ok(HELD_OUT.iter().collect());
        }
        if self.workload.is_empty() {
            return Ok(ALL.iter().collect());
        }
        let named = self
            .workload
            .iter()
            .map(|name| Workload::named(name).with_context(|| format!("unknown workload `{name}`")));
        named.collect()
    }
}

/// What to measure. The table has the columns of the paper's Figure 2.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Sampling period in instructions.
    #[arg(long, default_value_t = kernel_tests::accuracy::PERIODS.0)]
    period: u64,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, default_value_t = kernel_tests::accuracy::PERIODS.1)]
    branch_period: u64,
    /// What chance begins with: addresses, the skid of samples, the branches that stick.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Virtual CPUs. More than one go by the host's clock, so that two runs differ.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// More options of `hbbp-sys record`, such as `--rings-apart`.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
    #[command(flatten)]
    results: results::Options,
    /// Directory in which to keep profiles and references.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Measures and prints, line by line as the runs end.
pub(crate) fn accuracy(args: &Args) -> Result<()> {
    let workloads = args.selection.workloads()?;
    let mut results = Results::begin(&args.results)?;
    let mut failed = Vec::new();
    for series in &args.selection.kernel {
        let kernel = Kernel::get(series)?;
        for name in &args.selection.hardware_profile {
            let mut setup = Setup::new(hardware_profile(name)?);
            (setup.period, setup.branch_period) = (args.period, args.branch_period);
            (setup.seed, setup.cpus) = (args.seed, args.cpus);
            if 1 < args.cpus {
                setup.clock = Clock::Host;
            }
            setup.options = args.options.split_whitespace().map(str::to_owned).collect();
            results.text(format_args!(
                "kernel {series}, hardware profile {name}: on a model of a processor, in % of the reference\n{TITLES}"
            ));
            let mut lines = Vec::new();
            for workload in &workloads {
                match measure(workload, &kernel, &setup) {
                    Ok(measured) => {
                        let place = format!("{series}-{name}-{}", workload.name);
                        if let Some(directory) = &args.keep {
                            measured.keep(&directory.join(&place))?;
                        }
                        print(args, &mut results, [series, name, workload.name], &measured)?;
                        lines.push(Line {
                            by_default: measured.rings.whole.average_weighted_error,
                            by_paper: measured.by_paper.whole.average_weighted_error.hybrid,
                        });
                    }
                    Err(error) => {
                        eprintln!("{:<14}failed: {error:#}", workload.name);
                        failed.push(workload.name);
                    }
                }
            }
            summary(&results, &lines);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("not measured: {}", failed.join(", "))
    }
}

/// Columns of the table: instructions in millions, share of the kernel in %, numbers of stacks and samples, received samples in % of
/// those expected. Then average weighted errors of the three methods, of the rule of the paper, and of the hybrid in each ring. At
/// last accuracy errors over blocks.
const TITLES: &str = "workload       M instr. %kernel   stacks  samples  %there   hybrid      LBR      EBS    paper   kernel     user \
                      hybrid/b    LBR/b    EBS/b";

/// The errors of a workload over all code.
struct Line {
    by_default: Fractions,
    by_paper: Option<f64>,
}

fn print(
    args: &Args,
    results: &mut Results,
    [series, hardware_profile, workload]: [&str; 3],
    measured: &Measured,
) -> Result<()> {
    let Errors {
        whole,
        stacks,
        samples,
        ..
    } = &measured.rings;
    let ring = |name: &str| measured.rings.named(name).ok();
    let hybrid_of = |name: &str| ring(name).and_then(|group| group.average_weighted_error.hybrid);
    let by_paper = measured.by_paper.whole.average_weighted_error.hybrid;
    let total = whole.instructions.reference;
    let kernel = ring("kernel").map_or(0.0, |group| group.instructions.reference);
    results.figures(&serde_json::json!({
        "kernel": series, "hardware_profile": hardware_profile, "workload": workload,
        "period": args.period, "branch_period": args.branch_period,
        "instructions": total, "kernel_instructions": kernel, "stacks": stacks, "samples": samples, "completeness": measured.completeness,
        "average_weighted_error": columns(whole.average_weighted_error),
        "block_error": columns(whole.block_error),
        "paper_error": by_paper, "kernel_hybrid_error": hybrid_of("kernel"), "user_hybrid_error": hybrid_of("user"),
    }))?;
    let errors = columns(whole.average_weighted_error).into_iter();
    let errors = errors
        .chain([by_paper, hybrid_of("kernel"), hybrid_of("user")])
        .chain(columns(whole.block_error));
    let errors: Vec<String> = errors.map(percent).collect();
    results.text(format_args!(
        "{workload:<14} {:>8.1} {:>7.1} {stacks:>8.0} {samples:>8.0} {:>7.2} {}",
        total / 1e6,
        100.0 * kernel / total.max(1.0),
        100.0 * measured.completeness,
        errors.join(" ")
    ));
    Ok(())
}

/// Mean and worst of each column, and how often the hybrid is at most 1.1 x the better of its sources and 1.1 x the rule of the
/// paper.
fn summary(results: &Results, lines: &[Line]) {
    let column = |of: fn(&Line) -> Option<f64>| -> Vec<f64> { lines.iter().filter_map(of).collect() };
    let columns = [
        column(|line| line.by_default.hybrid),
        column(|line| line.by_default.lbr),
        column(|line| line.by_default.ebs),
        column(|line| line.by_paper),
    ];
    let mean = columns
        .clone()
        .map(|of| of.iter().sum::<f64>() / of.len().max(1) as f64);
    let worst = columns.map(|of| of.into_iter().fold(0.0, f64::max));
    for (name, values) in [("mean", mean), ("worst", worst)] {
        results.text(format_args!(
            "{name:<14} {:>42} {}",
            "",
            values.map(Some).map(percent).join(" ")
        ));
    }
    // Errors within a tenth of each other count as equal.
    let good = |bound: fn(&Line) -> Option<f64>| {
        let holds = |line: &&Line| {
            let both = line.by_default.hybrid.zip(bound(line));
            both.is_some_and(|(hybrid, bound)| hybrid <= 1.1 * bound)
        };
        lines.iter().filter(holds).count()
    };
    results.text(format_args!(
        "hybrid at most 1.1 x the better of LBR and EBS: {} of {}; at most 1.1 x the rule of the paper: {}\n",
        good(|line| Some(line.by_default.lbr?.min(line.by_default.ebs?))),
        lines.len(),
        good(|line| line.by_paper)
    ));
}

fn columns(errors: Fractions) -> [Option<f64>; 3] {
    [errors.hybrid, errors.lbr, errors.ebs]
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(
        || format!("{:>8}", "-"),
        |fraction| format!("{:>8.2}", 100.0 * fraction),
    )
}
