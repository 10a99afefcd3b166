//! `cargo xtask vm classes`: what counts of classes of instructions are worth, on a model of a processor.
//!
//! Each workload is recorded once and kept, and evaluated with the default rule and with that rule `without classes`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;
use kernel_tests::accuracy::{Errors, PERIODS, Setup, errors, measure_command, said};
use kernel_tests::classes::uncounted;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Machine;
use kernel_tests::{artifacts, host, reference};
use serde_json::Value;

use crate::accuracy::Selection;
use crate::profile_file::hardware_profile;
use crate::results::{self, Results};

/// What to evaluate.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Sampling period in instructions.
    #[arg(long, default_value_t = PERIODS.0)]
    period: u64,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, default_value_t = PERIODS.1)]
    branch_period: u64,
    /// Run each workload this many times as long, with periods that are as many times as long.
    #[arg(long, default_value_t = 1)]
    longer: u32,
    /// Directory of profiles and references; existing ones are not recorded again.
    #[arg(long, default_value = "target/vm/classes")]
    profiles: PathBuf,
    #[command(flatten)]
    results: results::Options,
}

/// The default rule, to which `without classes` is added.
const RULE: &str = "hbbp-user/estimate/src/rule/balanced.rule";

/// Classes with a smaller share of all instructions are not judged.
const LEAST: f64 = 0.01;

/// Records what is missing, evaluates and prints, line by line.
pub(crate) fn classes(args: &Args) -> Result<()> {
    let mut results = Results::begin(&args.results)?;
    let workloads = args.selection.workloads()?;
    let program = artifacts::hbbp_sys()?;
    let directory = host::workspace().join(&args.profiles);
    fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
    let text =
        fs::read_to_string(host::workspace().join(RULE)).with_context(|| format!("failed to read {RULE}"))?;
    let rule = directory.join("rule");
    // No line can follow the last one of a rule.
    fs::write(&rule, format!("without classes\n{text}"))
        .with_context(|| format!("failed to write {}", rule.display()))?;
    for series in &args.selection.kernel {
        let kernel = Kernel::get(series)?;
        for name in &args.selection.hardware_profile {
            let mut setup = Setup::new(hardware_profile(name)?);
            setup.options.push("--classes".to_owned());
            setup.period = prime(args.period * u64::from(args.longer));
            setup.branch_period = prime(args.branch_period * u64::from(args.longer));
            results.text(format_args!(
                "kernel {series}, hardware profile {name}: on a model of a processor\n{TITLES}"
            ));
            let mut rows = Vec::new();
            for workload in &workloads {
                let place = directory.join(format!("{series}-{name}-{}-{}", workload.name, args.longer));
                if !place.join("reference").exists() {
                    let mut machine = setup.prepare(Machine::new(&kernel));
                    workload.install(&mut machine, &kernel)?;
                    let [busybox, shell, option, script] = workload.words();
                    let script = longer(&script, args.longer);
                    let words = [&busybox, &shell, &option, &script].map(String::as_str);
                    measure_command(machine, &words, &setup)?.keep(&place)?;
                }
                let row = evaluated(&program, &place, &rule)?;
                results.text(format_args!("{:<12}{row}", workload.name));
                let of = [series, name, workload.name];
                results.figures(&row.figures(of, [setup.period, setup.branch_period]))?;
                rows.push(row);
            }
            results.text(format_args!("{:<12}{}\n", "mean", Row::mean(&rows)));
        }
    }
    Ok(())
}

/// A command that runs this many times as long: by a larger number at its end, or else again and again.
fn longer(command: &str, times: u32) -> String {
    let number = command.rsplit_once(' ').and_then(|(words, last)| {
        let number: u64 = last.parse().ok()?;
        Some(format!("{words} {}", number * u64::from(times)))
    });
    number.unwrap_or_else(|| format!("for n in $(busybox seq {times}); do {command}; done"))
}

/// The next prime.
fn prime(least: u64) -> u64 {
    let is_prime = |n: u64| (2..=n.isqrt()).all(|divisor| !n.is_multiple_of(divisor));
    (least..).find(|n| is_prime(*n)).unwrap_or(least)
}

/// Errors in % of the reference: of all code, and of the mnemonics of no class. Then follows the largest residual of a class of 1 %
/// and more, with its count and by samples alone. The last two are the error of that count, and the least share of the run.
const TITLES: &str = "                 all code            no class            worst residual             run
             without     with   without     with   samples     with   count +-   share";

/// The figures of one recording, as fractions.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Average weighted error without classes and with them.
    whole: [f64; 2],
    /// The same of mnemonics of no class.
    others: [f64; 2],
    /// The largest residual of a large class, of samples and of the estimate.
    residual: [f64; 2],
    /// The largest relative standard error of the count of a large class.
    uncertain: f64,
    /// The least share of the run that a class was counted for.
    share: f64,
}

impl Row {
    fn mean(rows: &[Self]) -> Self {
        let n = rows.len().max(1) as f64;
        let mean = |of: fn(&Self) -> f64| rows.iter().map(of).sum::<f64>() / n;
        Self {
            whole: [mean(|row| row.whole[0]), mean(|row| row.whole[1])],
            others: [mean(|row| row.others[0]), mean(|row| row.others[1])],
            residual: [mean(|row| row.residual[0]), mean(|row| row.residual[1])],
            uncertain: mean(|row| row.uncertain),
            share: mean(|row| row.share),
        }
    }

    /// The figures as data, with what they are of and both periods.
    fn figures(&self, [series, hardware_profile, workload]: [&str; 3], periods: [u64; 2]) -> Value {
        let pair = |[without, with]: [f64; 2]| serde_json::json!({"without": without, "with": with});
        let [sampled, tied] = self.residual;
        serde_json::json!({
            "kernel": series, "hardware_profile": hardware_profile, "workload": workload,
            "period": periods[0], "branch_period": periods[1],
            "average_weighted_error": pair(self.whole), "error_of_no_class": pair(self.others),
            "residual": {"samples": sampled, "with": tied},
            "count_std_error": self.uncertain, "share": self.share,
        })
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for number in [self.whole, self.others, self.residual].concat() {
            write!(f, "{:>9.3}", 100.0 * number)?;
        }
        write!(f, "{:>10.3}{:>8.1}", 100.0 * self.uncertain, 100.0 * self.share)
    }
}

fn evaluated(program: &Path, place: &Path, rule: &Path) -> Result<Row> {
    let (profile, exact) = (place.join("profile"), place.join("reference"));
    let rule = rule.to_str().context("a path that is not text")?;
    let untied = errors(program, &exact, &profile, "ring", rule)?;
    let tied = errors(program, &exact, &profile, "ring", "balanced")?;
    let others = uncounted(&reference::read(&exact)?.blocks);
    let whole = |errors: &Errors| {
        errors
            .whole
            .average_weighted_error
            .hybrid
            .context("a profile without executions")
    };
    let report = said(program, &["report", "--top", "1"], &[&profile])?;
    let report: Value =
        serde_json::from_str(&report).context("failed to understand what hbbp-sys report says")?;
    let classes = report["classes"]
        .as_array()
        .context("the profile has no classes")?;
    let number = |class: &Value, field: &str| class[field].as_f64().unwrap_or(0.0);
    let all: f64 = classes
        .iter()
        .filter(|class| class["class"] == "instructions")
        .map(|class| number(class, "counted"))
        .sum();
    let large = || {
        let of_class = classes.iter().filter(|class| class["class"] != "instructions");
        of_class.filter(|class| LEAST * all <= number(class, "counted"))
    };
    let worst = |of: &dyn Fn(&Value) -> f64| large().map(of).fold(0.0, f64::max);
    let shares = classes.iter().map(|class| number(class, "share"));
    Ok(Row {
        whole: [whole(&untied)?, whole(&tied)?],
        others: [off(&untied, &others), off(&tied, &others)],
        residual: [
            worst(&|class| (number(class, "sampled") / number(class, "counted") - 1.0).abs()),
            worst(&|class| number(class, "residual").abs()),
        ],
        uncertain: worst(&|class| number(class, "counted_std_error") / number(class, "counted")),
        share: shares.fold(1.0, f64::min),
    })
}

/// The average weighted error of these mnemonics.
fn off(errors: &Errors, of: &BTreeSet<String>) -> f64 {
    let mnemonics = errors
        .whole
        .mnemonics
        .iter()
        .filter(|it| of.contains(&it.mnemonic));
    let (off, all) = mnemonics.fold((0.0, 0.0), |(off, all), it| {
        let exact = it.executions.reference;
        (off + (it.executions.hybrid - exact).abs(), all + exact)
    });
    if 0.0 < all { off / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_run_has_a_larger_number_or_more_rounds() {
        assert_eq!(longer("heapsort 200000", 10), "heapsort 2000000");
        assert_eq!(
            longer("gcc a.c", 3),
            "for n in $(busybox seq 3); do gcc a.c; done"
        );
    }
}
