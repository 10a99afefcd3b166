//! `cargo xtask vm without-stacks`: how exact the mix is where there are samples alone, over kept profiles, on a model of a processor.
//!
//! Profiles are those that `cargo xtask vm accuracy --keep DIR` left. Their branch stacks are left out, and each is evaluated with
//! its samples as reported, and traced back along the code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use kernel_tests::accuracy::{Errors, errors};
use kernel_tests::artifacts;
use kernel_tests::workload::ALL;
use tempfile::TempDir;

use crate::results::{self, Results};

/// Which profiles, and what they have to keep.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Directory of `cargo xtask vm accuracy --keep`.
    profiles: PathBuf,
    /// Kernel series, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "6.1,6.12")]
    kernel: Vec<String>,
    /// Hardware profiles, comma-separated, each with the greatest mean error that is allowed, in %.
    #[arg(long, value_delimiter = ',', value_parser = bounded, default_value = "ivb=2.5,skid=5")]
    hardware_profile: Vec<(String, f64)>,
    #[command(flatten)]
    results: results::Options,
}

fn bounded(text: &str) -> Result<(String, f64)> {
    let (name, bound) = text.split_once('=').context("NAME=PERCENT is expected")?;
    Ok((
        name.to_owned(),
        bound.parse().context("a percentage is expected")?,
    ))
}

/// Samples as reported, and traced back.
const RULES: [&str; 2] = ["without stacks\nwithout landing\nlbr\n", "without stacks\nlbr\n"];

/// Share of mnemonics within two standard errors, in %, that counts as calibrated; a normal distribution has 95.4 %.
const WITHIN: std::ops::RangeInclusive<f64> = 90.0..=99.0;

/// Evaluates and prints, profile by profile.
///
/// # Errors When there is no profile, one cannot be read, or a bound is exceeded.
pub(crate) fn without_stacks(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let program = artifacts::hbbp_sys()?;
    let directory = TempDir::new().context("failed to make a directory")?;
    let rules = RULES.each_ref().map(|rule| {
        let path = directory.path().join(format!("{}.rule", rule.len()));
        fs::write(&path, rule).map(|()| path)
    });
    let [landed, traced] = rules;
    let rules = [landed?, traced?];
    let mut broken = Vec::new();
    for series in &args.kernel {
        for (hardware_profile, bound) in &args.hardware_profile {
            results.text(format_args!(
                "kernel {series}, hardware profile {hardware_profile}: on a model of a processor, in % of the reference\n{TITLES}"
            ));
            let mut lines = Vec::new();
            for workload in ALL {
                let kept = args
                    .profiles
                    .join(format!("{series}-{hardware_profile}-{}", workload.name));
                if kept.exists() {
                    let of = [series, hardware_profile, workload.name];
                    lines.push(evaluate(&mut results, of, &program, &kept, &rules)?);
                }
            }
            ensure!(
                !lines.is_empty(),
                "{} has no profile of {hardware_profile} on {series}: record them with `cargo xtask vm accuracy --keep`",
                args.profiles.display()
            );
            let (mean, within) = summary(&results, &lines);
            if *bound < mean || !WITHIN.contains(&within) {
                broken.push(format!("{hardware_profile} on {series}"));
            }
        }
    }
    ensure!(
        broken.is_empty(),
        "more than is allowed, or not calibrated: {}",
        broken.join(", ")
    );
    Ok(())
}

/// The figures of a workload; errors as fractions.
struct Line {
    landed: f64,
    traced: f64,
    mnemonics: u64,
    within: u64,
}

/// Average weighted errors of all code by both rules, and of each ring traced back; mnemonics within two standard errors.
const TITLES: &str = "workload       untraced   traced   kernel     user   within two errors";

fn evaluate(
    results: &mut Results,
    [series, hardware_profile, workload]: [&str; 3],
    program: &Path,
    kept: &Path,
    rules: &[PathBuf; 2],
) -> Result<Line> {
    let by = |rule: &PathBuf| -> Result<Errors> {
        let rule = rule.to_str().context("a path that is not text")?;
        errors(
            program,
            &kept.join("reference"),
            &kept.join("profile"),
            "ring",
            rule,
        )
    };
    let [landed, traced] = [by(&rules[0])?, by(&rules[1])?];
    let whole = |errors: &Errors| errors.whole.average_weighted_error.hybrid.context("nothing ran");
    let calibration = traced.calibration.context("the reference leaves code out")?;
    let line = Line {
        landed: whole(&landed)?,
        traced: whole(&traced)?,
        mnemonics: calibration.mnemonics,
        within: calibration.within,
    };
    let ring = |name: &str| {
        let group = traced.named(name).ok();
        group.and_then(|group| group.average_weighted_error.hybrid)
    };
    results.figures(&serde_json::json!({
        "kernel": series, "hardware_profile": hardware_profile, "workload": workload,
        "average_weighted_error": {
            "landed": line.landed, "traced": line.traced, "kernel": ring("kernel"), "user": ring("user"),
        },
        "mnemonics": line.mnemonics, "within_2": line.within,
    }))?;
    let ring = |name: &str| ring(name).map_or_else(|| format!("{:>8}", "-"), percent);
    results.text(format_args!(
        "{workload:<14} {} {} {} {} {:>6} of {}",
        percent(line.landed),
        percent(line.traced),
        ring("kernel"),
        ring("user"),
        line.within,
        line.mnemonics
    ));
    Ok(line)
}

/// Adds mean and worst to the table. Returns the mean error and the mnemonics that are within two standard errors, in %.
fn summary(results: &Results, lines: &[Line]) -> (f64, f64) {
    let n = lines.len() as f64;
    let mean = |of: fn(&Line) -> f64| lines.iter().map(of).sum::<f64>() / n;
    let worst = |of: fn(&Line) -> f64| lines.iter().map(of).fold(0.0, f64::max);
    let all = |of: fn(&Line) -> u64| lines.iter().map(of).sum::<u64>() as f64;
    let within = 100.0 * all(|line| line.within) / all(|line| line.mnemonics).max(1.0);
    results.text(format_args!(
        "{:<14} {} {} {within:>24.1} % ({} workloads)",
        "mean",
        percent(mean(|line| line.landed)),
        percent(mean(|line| line.traced)),
        lines.len()
    ));
    results.text(format_args!(
        "{:<14} {} {}\n",
        "worst",
        percent(worst(|line| line.landed)),
        percent(worst(|line| line.traced))
    ));
    (100.0 * mean(|line| line.traced), within)
}

fn percent(fraction: f64) -> String {
    format!("{:>8.2}", 100.0 * fraction)
}
