//! Repeated measurements of one workload in one boot: how errors decrease with the number of samples, and whether the
//! standard errors of the report are calibrated.
//!
//! The clock of these runs counts instructions, so a boot is repeatable and two boots are one measurement. Runs within
//! a boot are independent for two reasons: kernel memory, process ids and the positions of timer interrupts differ
//! between runs, and each run has different prime periods. So two runs sample the same instructions only by chance. The
//! seed of the hardware profile has no effect: `ideal` uses no random numbers.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::accuracy::{Errors, Fractions, Mnemonic, Setup, said};
use crate::kernel::Kernel;
use crate::machine::{Machine, Marks};
use crate::{artifacts, reference};

/// A load of user and kernel code, about half of each in instructions, with many different paths.
pub const MIXED: &str = "heapsort 40000; storms syscalls 4000; storms forks 12; busybox seq 3000 | busybox sort -r | busybox md5sum";

/// Capacity of the count map (`--map-entries`).
const MAP_ENTRIES: &str = "65536";

/// At the shortest periods the ring of the emulated PMU would overflow between two ticks of the driver.
const DRAIN_OFTEN: &str = "drain_us=100";

/// Sampling periods of one run: instructions, taken branches.
pub type Periods = (u64, u64);

/// One run of the workload.
pub struct Run {
    /// Its periods.
    pub periods: Periods,
    /// Its errors, by ring.
    pub errors: Errors,
    /// `hbbp-sys report --by mnemonic --format json` of its profile, with all mnemonics.
    pub report: Value,
}

/// Measures [`MIXED`] once with each of the periods, in one boot. Profiles and references stay in `keep`.
///
/// # Errors
/// When something does not build, the guest does not end well, or a comparison fails.
pub fn repeat(kernel: &Kernel, setup: &Setup, periods: &[Periods], keep: Option<&Path>) -> Result<Vec<Run>> {
    let mut machine = Machine::new(kernel)
        .cpus(setup.cpus)
        .clock(setup.clock)
        .marks(Marks::Events)
        .hardware_profile(&setup.hardware_profile)
        .driver(DRAIN_OFTEN);
    machine.files().hbbp_sys()?;
    let program = artifacts::hbbp_sys()?;
    machine.files().copy("bin/busybox", Path::new("/bin/busybox"))?;
    for source in ["heapsort.c", "storms.c", "write_reference.c"] {
        let workload = artifacts::workload(source)?;
        let name = workload.file_stem().context("a workload has a name")?;
        machine
            .files()
            .copy(&format!("bin/{}", name.to_string_lossy()), &workload)?;
    }
    let outcome = machine.run(&["/bin/busybox", "sh", "-e", "-c", &script(periods)])?;
    outcome.stdout()?;
    let of_run = |(n, periods): (u32, &Periods)| -> Result<Run> {
        let profile = outcome.directory().join(name(n));
        let bytes = outcome.files.get(&name(n));
        fs::write(&profile, bytes.context("hbbp-sys left no profile")?)?;
        let reference = outcome.directory().join(reference::file(n));
        if let Some(directory) = keep {
            fs::create_dir_all(directory)
                .with_context(|| format!("failed to make {}", directory.display()))?;
            fs::copy(&profile, directory.join(name(n)))?;
            fs::copy(&reference, directory.join(reference::file(n)))?;
        }
        let errors = said(
            &program,
            &["eval", "--by", "ring", "--reference"],
            &[&reference, &profile],
        )?;
        let report = said(
            &program,
            &["report", "--by", "mnemonic", "--top", "100000"],
            &[&profile],
        )?;
        Ok(Run {
            periods: *periods,
            errors: serde_json::from_str(&errors).context("failed to understand what hbbp-sys eval says")?,
            report: serde_json::from_str(&report)
                .context("failed to understand what hbbp-sys report says")?,
        })
    };
    (0u32..).zip(periods).map(of_run).collect()
}

impl Run {
    /// The part of the due samples that reached the programs.
    fn completeness(&self) -> f64 {
        let count = |field: &str| self.report["accounting"][field].as_f64().unwrap_or(0.0);
        count("reached") / count("due").max(1.0)
    }
}

fn name(n: u32) -> String {
    format!("profile.{n}")
}

/// Records once with each of the periods, and has the reference of each run written.
fn script(periods: &[Periods]) -> String {
    let record = |(n, (period, branch_period)): (u32, &Periods)| {
        format!(
            "hbbp-sys record -o /out/{} --all --each-process --map-entries {MAP_ENTRIES} --duration 1h --period {period} \
             --branch-period {branch_period} -- /bin/busybox sh -c '{MIXED}'\nwrite_reference\n",
            name(n)
        )
    };
    // Reads all files once, so that the first run differs from the others no more than they do from each other.
    let warm_up = format!("{MIXED}\n");
    warm_up + &(0u32..).zip(periods).map(record).collect::<String>()
}

/// The first `n` primes from `least` on.
pub fn primes(least: u64, n: usize) -> Vec<u64> {
    let is_prime = |of: &u64| 2 <= *of && (2..).take_while(|d| d * d <= *of).all(|d| !of.is_multiple_of(d));
    (least..).filter(is_prime).take(n).collect()
}

/// Periods for `n` runs about a pair of periods: each run has primes of its own.
pub fn periods_about(periods: Periods, n: usize) -> Vec<Periods> {
    let (instructions, branches) = periods;
    primes(instructions, n)
        .into_iter()
        .zip(primes(branches, n))
        .collect()
}

/// A period of all runs, and the mean of their errors.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The nominal periods.
    pub periods: Periods,
    /// Mean number of branch stacks.
    pub stacks: f64,
    /// Mean number of samples of instructions.
    pub samples: f64,
    /// Least part of the due samples that reached the programs.
    pub completeness: f64,
    /// Mean average weighted error over kernel and user code.
    pub error: Fractions,
}

/// The mean over runs that have about the same periods.
pub fn mean(periods: Periods, runs: &[Run]) -> Point {
    let n = runs.len().max(1) as f64;
    let of = |value: fn(&Run) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> = runs.iter().map(value).collect();
        Some(values?.iter().sum::<f64>() / n)
    };
    Point {
        periods,
        stacks: of(|run| Some(run.errors.stacks)).unwrap_or(0.0),
        samples: of(|run| Some(run.errors.samples)).unwrap_or(0.0),
        completeness: runs.iter().map(Run::completeness).fold(1.0, f64::min),
        error: Fractions {
            hybrid: of(|run| run.errors.whole.average_weighted_error.hybrid),
            lbr: of(|run| run.errors.whole.average_weighted_error.lbr),
            ebs: of(|run| run.errors.whole.average_weighted_error.ebs),
        },
    }
}

/// Slope of a straight line through points in log-log, by least squares.
///
/// # Errors
/// When there are fewer than two points, or one of them is not positive.
pub fn slope(points: &[(f64, f64)]) -> Result<f64> {
    ensure!(
        points.iter().all(|(x, y)| 0.0 < *x && 0.0 < *y),
        "a logarithm needs numbers above 0: {points:?}"
    );
    let n = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / n;
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    ensure!(0.0 < spread, "a slope needs two points: {points:?}");
    let together: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    Ok(together / spread)
}

/// How far one figure of a report is from the true value.
#[derive(Clone, Debug)]
pub struct Deviation {
    /// The mnemonic.
    pub mnemonic: String,
    /// Samples that its executions are worth: their true number over the period of instructions.
    pub samples: f64,
    /// Estimate minus true value, over the true value.
    pub relative: f64,
    /// Estimate minus true value, over the standard error that the report gives.
    pub standard: f64,
}

/// The deviations of all mnemonics with more than `least` samples: in both rings together, or in one (`kernel`, `user`).
///
/// # Errors
/// When the report does not have such a mnemonic with its standard error.
pub fn deviations(run: &Run, ring: Option<&str>, least: f64) -> Result<Vec<Deviation>> {
    let group = ring.map_or(Ok(&run.errors.whole), |ring| run.errors.named(ring))?;
    let column = ring.unwrap_or("total");
    let rows = run.report["mix"]["rows"]
        .as_array()
        .context("a report has rows")?;
    let worth = |m: &&Mnemonic| least < m.executions.reference / run.periods.0 as f64;
    let deviation = |m: &Mnemonic| {
        let row = rows.iter().find(|row| row["key"][0] == *m.mnemonic);
        let figure = |field: &str| row.and_then(|row| row[column][field].as_f64());
        let estimate = figure("amount").unwrap_or(0.0);
        let error = figure("std_error").unwrap_or(0.0);
        let (truth, off) = (m.executions.reference, estimate - m.executions.reference);
        Deviation {
            mnemonic: m.mnemonic.clone(),
            samples: truth / run.periods.0 as f64,
            relative: off / truth,
            // Without a standard error the report claims to be exact.
            standard: if off == 0.0 { 0.0 } else { off / error },
        }
    };
    Ok(group.mnemonics.iter().filter(worth).map(deviation).collect())
}

/// The part of the deviations that lies within two standard errors.
pub fn coverage<'a>(deviations: impl IntoIterator<Item = &'a Deviation>) -> f64 {
    let within: Vec<bool> = deviations
        .into_iter()
        .map(|deviation| deviation.standard.abs() <= 2.0)
        .collect();
    within.iter().filter(|within| **within).count() as f64 / within.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_root_has_slope_one_half() {
        let points: Vec<(f64, f64)> = [1.0, 10.0, 100.0].map(|x: f64| (x, 3.0 / x.sqrt())).into();
        assert!((slope(&points).unwrap() + 0.5).abs() < 1e-12);
        assert!(slope(&[(1.0, 1.0)]).is_err() && slope(&[(1.0, 0.0), (2.0, 1.0)]).is_err());
    }

    #[test]
    fn runs_have_distinct_prime_periods() {
        assert_eq!(primes(1, 5), [2, 3, 5, 7, 11]);
        assert_eq!(
            periods_about((10_007, 1_009), 2),
            [(10_007, 1_009), (10_009, 1_013)]
        );
    }
}
