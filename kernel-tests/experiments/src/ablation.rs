//! `cargo xtask vm ablation`: what each stage of the estimate is worth, on a model of a processor.
//!
//! Profiles are recorded once and kept; each is then evaluated with the default rule, and with that rule without one
//! stage after the other. A stage is there for the error of the mix or for the size of its standard errors; one that is
//! worth less than a twentieth of that figure is not worth its code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use kernel_tests::accuracy::{Errors, PERIODS, Setup, measure, said};
use kernel_tests::kernel::Kernel;
use kernel_tests::repeat::{Deviation, Periods, Run, deviations, periods_about, repeat};
use kernel_tests::workload::Workload;
use kernel_tests::{artifacts, host, reference};

use crate::accuracy::Selection;
use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to evaluate.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Independent runs of the mixed workload, for the standard errors.
    #[arg(long, default_value_t = 20)]
    repeat: usize,
    /// Directory of profiles and references; existing ones are not recorded again.
    #[arg(long, default_value = "target/vm/ablation")]
    profiles: PathBuf,
    #[command(flatten)]
    results: results::Options,
}

/// The default rule, to which `without STAGE` is added.
const RULE: &str = "hbbp-user/estimate/src/rule/balanced.rule";

/// What a stage is there for.
#[derive(Clone, Copy)]
enum Figure {
    /// The mean average weighted error.
    Error,
    /// The root mean square of (estimate - truth) / standard error, which should be 1.
    Calibration,
}

/// The stages by their names in rule files, with the purpose of each.
const STAGES: [(&str, Figure); 12] = [
    ("balance", Figure::Error),
    ("chance", Figure::Error),
    ("return_sites", Figure::Error),
    ("samples", Figure::Error),
    ("skid", Figure::Error),
    ("times", Figure::Error),
    ("bias_variance", Figure::Error),
    ("totals", Figure::Error),
    ("fallback", Figure::Error),
    ("classes", Figure::Error),
    ("bootstrap", Figure::Calibration),
    ("phases", Figure::Calibration),
];

/// Mnemonics with fewer samples are not judged: the error of the error is large then.
const LEAST_SAMPLES: f64 = 100.0;

/// A profile with its reference.
struct Recorded {
    profile: PathBuf,
    reference: PathBuf,
    periods: Periods,
}

/// All profiles of a kernel and a hardware profile.
struct Profiles {
    /// One of each workload.
    workloads: Vec<Recorded>,
    /// Runs of the mixed workload.
    mixed: Vec<Recorded>,
}

/// The figures of a rule over the profiles.
struct Figures {
    mean: f64,
    worst: f64,
    within_2: f64,
    rms: f64,
}

/// Records what is missing, evaluates and prints, line by line.
pub(crate) fn ablation(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let workloads = args.selection.workloads()?;
    let text =
        fs::read_to_string(host::workspace().join(RULE)).with_context(|| format!("failed to read {RULE}"))?;
    let program = artifacts::hbbp_sys()?;
    for series in &args.selection.kernel {
        for name in &args.selection.hardware_profile {
            let profiles = profiles(args, series, name, &workloads)?;
            results.text(format_args!(
                "kernel {series}, hardware profile {name}: on a model of a processor\n{TITLES}"
            ));
            let all = figures(&program, &profiles, &args.profiles, &text)?;
            print(&mut results, [series, name], None, &all, None)?;
            for (stage, figure) in STAGES {
                // No line can follow the last one of a rule.
                let rule = format!("without {stage}\n{text}");
                let without = figures(&program, &profiles, &args.profiles, &rule)?;
                let worth = worth(figure, &all, &without);
                print(&mut results, [series, name], Some(stage), &without, Some(worth))?;
            }
            results.text("");
        }
    }
    Ok(())
}

/// Means over the workloads, in % of the reference; figures of the mixed workload within two of their standard errors.
const TITLES: &str = "without            mean    worst   within 2      rms   worth";

/// Gives the figures without a stage, and what that stage is worth as a fraction; or those with all stages.
fn print(
    results: &mut Results,
    [series, hardware_profile]: [&str; 2],
    stage: Option<&str>,
    figures: &Figures,
    worth: Option<(f64, &str)>,
) -> Result<()> {
    let Figures {
        mean,
        worst,
        within_2,
        rms,
    } = figures;
    results.figures(&serde_json::json!({
        "kernel": series, "hardware_profile": hardware_profile, "without": stage,
        "mean": mean, "worst": worst, "within_2": within_2, "rms": rms,
        "worth": worth.map(|(worth, _)| worth),
    }))?;
    let worth = worth.map(|(worth, of)| format!("{:+.1} % {of}", 100.0 * worth));
    results.text(format_args!(
        "{:<14} {:>8.3} {:>8.2} {:>8.1} % {rms:>8.3}   {}",
        stage.unwrap_or("(all stages)"),
        100.0 * mean,
        100.0 * worst,
        100.0 * within_2,
        worth.unwrap_or_default()
    ));
    Ok(())
}

/// By how much the figure that a stage is there for is worse without it, as a fraction, and which figure that is.
fn worth(figure: Figure, all: &Figures, without: &Figures) -> (f64, &'static str) {
    // How far an error is from what it should be is the same for half of it as for twice of it.
    let off = |figures: &Figures| figures.rms.ln().abs().exp();
    let (with, without, of) = match figure {
        Figure::Error => (all.mean, without.mean, "of the mean error"),
        Figure::Calibration => (off(all), off(without), "of the standard errors"),
    };
    (without / with - 1.0, of)
}

/// The figures of the rule with this text.
fn figures(program: &Path, profiles: &Profiles, directory: &Path, rule: &str) -> Result<Figures> {
    let path = host::workspace().join(directory).join("rule");
    fs::write(&path, rule).with_context(|| format!("failed to write {}", path.display()))?;
    let of = |of: &Recorded| evaluate(program, of, &path);
    let mut errors = Vec::new();
    for recorded in &profiles.workloads {
        let whole = of(recorded)?.whole.average_weighted_error;
        errors.push(whole.hybrid.context("a profile without executions")?);
    }
    let mut all: Vec<Deviation> = Vec::new();
    for recorded in &profiles.mixed {
        let rule = path.to_str().context("a path that is not text")?;
        let words = ["report", "--by", "mnemonic", "--top", "100000", "--rule", rule];
        let report = said(program, &words, &[&recorded.profile])?;
        let run = Run {
            periods: recorded.periods,
            errors: of(recorded)?,
            report: serde_json::from_str(&report)
                .context("failed to understand what hbbp-sys report says")?,
        };
        all.extend(deviations(&run, None, LEAST_SAMPLES)?);
    }
    let n = |of: usize| of.max(1) as f64;
    let within = all
        .iter()
        .filter(|deviation| deviation.standard.abs() <= 2.0)
        .count();
    let squares: f64 = all
        .iter()
        .map(|deviation| deviation.standard * deviation.standard)
        .sum();
    Ok(Figures {
        mean: errors.iter().sum::<f64>() / n(errors.len()),
        worst: errors.iter().copied().fold(0.0, f64::max),
        within_2: within as f64 / n(all.len()),
        rms: (squares / n(all.len())).sqrt(),
    })
}

fn evaluate(program: &Path, recorded: &Recorded, rule: &Path) -> Result<Errors> {
    let rule = rule.to_str().context("a path that is not text")?;
    let words = ["eval", "--by", "ring", "--rule", rule, "--reference"];
    let text = said(program, &words, &[&recorded.reference, &recorded.profile])?;
    serde_json::from_str(&text).context("failed to understand what hbbp-sys eval says")
}

/// The profiles of a kernel and a hardware profile; those that are not kept yet are recorded.
fn profiles(args: &Args, series: &str, name: &str, workloads: &[&'static Workload]) -> Result<Profiles> {
    ensure!(0 < args.repeat, "--repeat takes at least one run");
    let directory = host::workspace().join(&args.profiles);
    let kernel = Kernel::get(series)?;
    let setup = Setup::new(hardware_profile(name)?);
    let mut recorded = Vec::new();
    for workload in workloads {
        let place = directory.join(format!("{series}-{name}-{}", workload.name));
        if !place.join("reference").exists() {
            measure(workload, &kernel, &setup)?.keep(&place)?;
        }
        recorded.push(Recorded {
            profile: place.join("profile"),
            reference: place.join("reference"),
            periods: PERIODS,
        });
    }
    let place = directory.join(format!("{series}-{name}-mixed"));
    let periods = periods_about(PERIODS, args.repeat);
    let run = |(n, periods): (u32, &Periods)| Recorded {
        profile: place.join(format!("profile.{n}")),
        reference: place.join(reference::file(n)),
        periods: *periods,
    };
    let mixed: Vec<Recorded> = (0..).zip(&periods).map(run).collect();
    if !mixed.iter().all(|recorded| recorded.reference.exists()) {
        repeat(&kernel, &setup, &periods, Some(&place))?;
    }
    Ok(Profiles {
        workloads: recorded,
        mixed,
    })
}
