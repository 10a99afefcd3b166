//! `cargo xtask vm slope` and `cargo xtask vm calibration`: whether the errors fall as those of unbiased estimates do, and
//! whether they are as large as the report says, on a model of a processor.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use kernel_tests::accuracy::{PERIODS, Setup};
use kernel_tests::kernel::Kernel;
use kernel_tests::repeat::{
    Deviation, MIXED, Periods, Point, Run, coverage, deviations, mean, periods_about, repeat, slope,
};

use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What is common to both.
#[derive(Debug, Parser)]
struct Runs {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Hardware profile: a file of kernel-tests/hardware-profiles, or a path.
    #[arg(long, default_value = "ideal")]
    hardware_profile: String,
    #[command(flatten)]
    results: results::Options,
    /// Directory in which to keep profiles and references.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// How the error falls with the number of samples.
#[derive(Debug, Parser)]
pub(crate) struct SlopeArgs {
    #[command(flatten)]
    runs: Runs,
    /// Independent runs at each period.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// How often the true value lies within two standard errors.
#[derive(Debug, Parser)]
pub(crate) struct CalibrationArgs {
    #[command(flatten)]
    runs: Runs,
    /// Independent runs.
    #[arg(long, default_value_t = 20)]
    repeat: usize,
    /// Sampling period in instructions.
    #[arg(long, default_value_t = PERIODS.0)]
    period: u64,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, default_value_t = PERIODS.1)]
    branch_period: u64,
}

/// From the densest period to one a hundred times as long, in steps of the root of ten.
/// At the densest, one taken branch in thirteen is in a stack; more of them would make the stacks no longer independent.
const LADDER: [Periods; 5] = [
    (1_009, 401),
    (3_191, 1_277),
    (10_007, 4_001),
    (31_907, 12_689),
    (100_003, 40_009),
];

/// Mnemonics with fewer samples are not judged: the error of the error is large then.
const LEAST_SAMPLES: f64 = 100.0;

impl Runs {
    fn measure(&self, periods: &[Periods]) -> Result<Vec<Run>> {
        let setup = Setup::new(hardware_profile(&self.hardware_profile)?);
        repeat(&Kernel::get(&self.kernel)?, &setup, periods, self.keep.as_deref())
    }

    /// Begins the results with what they are of.
    fn begin(&self, of: &str) -> Result<Results> {
        let results = Results::begin(&self.results)?;
        results.text(format_args!(
            "kernel {}, hardware profile {}: on a model of a processor\n{of}\nworkload: {MIXED}",
            self.kernel, self.hardware_profile
        ));
        Ok(results)
    }
}

/// Measures and prints the errors by period, and their slopes.
pub(crate) fn slopes(args: &SlopeArgs) -> Result<()> {
    ensure!(0 < args.repeat, "--repeat takes at least one run");
    let mut results = args
        .runs
        .begin("average weighted errors in % of the reference, means over the runs of each period")?;
    let periods: Vec<Periods> = LADDER
        .iter()
        .flat_map(|about| periods_about(*about, args.repeat))
        .collect();
    let runs = args.runs.measure(&periods)?;
    let points: Vec<Point> = LADDER
        .iter()
        .zip(runs.chunks(args.repeat))
        .map(|(about, runs)| mean(*about, runs))
        .collect();
    results.text("  period   branches  runs     stacks    samples  %there   hybrid      LBR      EBS");
    for point in &points {
        let (period, branch_period) = point.periods;
        let errors = [point.error.hybrid, point.error.lbr, point.error.ebs];
        results.figures(&serde_json::json!({
            "kernel": args.runs.kernel, "hardware_profile": args.runs.hardware_profile,
            "period": period, "branch_period": branch_period, "runs": args.repeat,
            "stacks": point.stacks, "samples": point.samples, "completeness": point.completeness, "average_weighted_error": errors,
        }))?;
        let errors = errors.map(|error| format!("{:>8.3}", 100.0 * error.unwrap_or(f64::NAN)));
        results.text(format_args!(
            "{period:>8} {branch_period:>10} {:>5} {:>10.0} {:>10.0} {:>7.2} {}",
            args.repeat,
            point.stacks,
            point.samples,
            100.0 * point.completeness,
            errors.join(" ")
        ));
    }
    let of = |x: fn(&Point) -> f64, y: fn(&Point) -> Option<f64>| -> Result<f64> {
        let line: Vec<(f64, f64)> = points.iter().map(|p| (x(p), y(p).unwrap_or(0.0))).collect();
        slope(&line)
    };
    let hybrid = of(|p| p.stacks, |p| p.error.hybrid)?;
    let lbr = of(|p| p.stacks, |p| p.error.lbr)?;
    let ebs = of(|p| p.samples, |p| p.error.ebs)?;
    results.text(format_args!(
        "slope in log-log over samples: hybrid {hybrid:.3}, LBR {lbr:.3}, EBS {ebs:.3} (1/sqrt(n): -0.5)"
    ));
    results.figures(&serde_json::json!({ "slope": { "hybrid": hybrid, "lbr": lbr, "ebs": ebs } }))
}

/// Measures and prints how often the true value lies within two standard errors.
pub(crate) fn calibration(args: &CalibrationArgs) -> Result<()> {
    ensure!(0 < args.repeat, "--repeat takes at least one run");
    let mut results = args.runs.begin(&format!(
        "mnemonics with more than {LEAST_SAMPLES} samples, figures and errors of the report; within 1, 2 and 3 standard \
         errors a normal distribution has 68.3, 95.4 and 99.7 %"
    ))?;
    let periods = periods_about((args.period, args.branch_period), args.repeat);
    let runs = args.runs.measure(&periods)?;
    for (name, ring) in [
        ("both rings", None),
        ("kernel", Some("kernel")),
        ("user", Some("user")),
    ] {
        let of_runs: Result<Vec<Vec<Deviation>>> = runs
            .iter()
            .map(|run| deviations(run, ring, LEAST_SAMPLES))
            .collect();
        print(args, &mut results, name, &of_runs?)?;
    }
    Ok(())
}

fn print(
    args: &CalibrationArgs,
    results: &mut Results,
    rings: &str,
    of_runs: &[Vec<Deviation>],
) -> Result<()> {
    let all = || of_runs.iter().flatten();
    let n = all().count();
    let within = |bound: f64| all().filter(|d| d.standard.abs() <= bound).count() as f64 / n.max(1) as f64;
    let spread = (all().map(|d| d.standard * d.standard).sum::<f64>() / n.max(1) as f64).sqrt();
    let mut mnemonics: Vec<&str> = all().map(|d| d.mnemonic.as_str()).collect();
    mnemonics.sort_unstable();
    mnemonics.dedup();
    results.figures(&serde_json::json!({
        "kernel": args.runs.kernel, "hardware_profile": args.runs.hardware_profile,
        "rings": rings, "period": args.period, "branch_period": args.branch_period, "runs": of_runs.len(),
        "mnemonics": mnemonics.len(), "figures": n,
        "within_1": within(1.0), "within_2": coverage(all()), "within_3": within(3.0), "rms": spread,
    }))?;
    results.text(format_args!(
        "\n{rings}: {n} figures of {} mnemonics in {} runs\nwithin 1: {:.1} %, within 2: {:.1} %, within 3: {:.1} %; root \
         mean square of (estimate - truth) / error: {spread:.2}",
        mnemonics.len(),
        of_runs.len(),
        100.0 * within(1.0),
        100.0 * coverage(all()),
        100.0 * within(3.0),
    ));
    results.text("mnemonic      runs  samples  error %   within 2   mean z    rms z");
    for mnemonic in mnemonics {
        let of: Vec<&Deviation> = all().filter(|d| d.mnemonic == mnemonic).collect();
        let mean = |value: fn(&Deviation) -> f64| of.iter().map(|d| value(d)).sum::<f64>() / of.len() as f64;
        let (samples, within_2) = (mean(|d| d.samples), coverage(of.iter().copied()));
        let error = mean(|d| d.relative * d.relative).sqrt();
        let (mean_z, rms_z) = (mean(|d| d.standard), mean(|d| d.standard * d.standard).sqrt());
        results.text(format_args!(
            "{mnemonic:<12} {:>5} {samples:>8.0} {:>8.2} {within_2:>10.2} {mean_z:>8.2} {rms_z:>8.2}",
            of.len(),
            100.0 * error,
        ));
        results.figures(&serde_json::json!({
            "rings": rings, "mnemonic": mnemonic, "runs": of.len(), "samples": samples, "error": error,
            "within_2": within_2, "mean": mean_z, "rms": rms_z,
        }))?;
    }
    Ok(())
}
