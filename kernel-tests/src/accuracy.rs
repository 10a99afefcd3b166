//! Accuracy of `hbbp-sys`: a workload is measured on the emulated machine and compared with exact counts.
//!
//! `hbbp-sys` runs in the guest and samples the whole system while the workload runs; the emulated PMU counts in the
//! same span. `hbbp-sys eval` compares the two on the host.
//! These are results on a model of a processor: they show how the estimators behave under that model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::kernel::Kernel;
use crate::machine::{Clock, Machine, Marks};
use crate::outcome::Outcome;
use crate::workload::Workload;
use crate::{artifacts, host};

/// What one measurement is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Text of the hardware profile.
    pub hardware_profile: String,
    /// Instructions from sample to sample.
    pub period: u64,
    /// Taken branches from stack to stack.
    pub branch_period: u64,
    /// Virtual CPUs.
    pub cpus: u32,
    /// The guest's clock.
    pub clock: Clock,
    /// What chance begins with: that of the machine and, where its profile has no seed of its own, of the emulated PMU.
    pub seed: u32,
    /// More options of `hbbp-sys record`.
    pub options: Vec<String>,
}

/// The periods of the paper for runs of seconds (HBBP, ISPASS 2018, Table 4), divided by a hundred and made prime again: the
/// workloads here run a hundredth of the instructions of a benchmark that runs for seconds, so that the number of
/// samples is the paper's.
pub const PERIODS: (u64, u64) = (10_007, 1_009);

/// Room for counts between two drains (`--map-entries`): at a hundred times the paper's rate of samples, a compiler
/// fills what is enough for the paper's.
const MAP_ENTRIES: &str = "262144";

/// The rule of estimates where none is named (`--rule`).
pub const DEFAULT_RULE: &str = "balanced";

impl Setup {
    /// A machine with this hardware profile, one CPU, and the periods of [`PERIODS`].
    pub fn new(hardware_profile: String) -> Self {
        let (period, branch_period) = PERIODS;
        // By the host's clock, a busy host makes the guest's timers late against its instructions, and the ring of the
        // emulated PMU overflows between two of them.
        let (cpus, clock) = (1, Clock::Instructions);
        Self {
            hardware_profile,
            period,
            branch_period,
            cpus,
            clock,
            seed: 1,
            options: Vec::new(),
        }
    }

    /// A machine with this hardware profile, these CPUs and this clock, that counts while events sample.
    pub fn prepare(&self, machine: Machine) -> Machine {
        machine
            .cpus(self.cpus)
            .clock(self.clock)
            .seed(self.seed)
            .marks(Marks::Events)
            .hardware_profile(&format!("seed = {}\n{}", self.seed, self.hardware_profile))
    }
}

/// A measurement, with everything that was left of it.
pub struct Measured {
    /// The errors of each ring.
    pub rings: Errors,
    /// The errors of each function.
    pub functions: Errors,
    /// The errors of each ring by the rule of the paper, with streams as they were counted.
    pub by_paper: Errors,
    /// `hbbp-sys report --format json` of the profile.
    pub report: serde_json::Value,
    /// Counters of the driver and the emulated PMU.
    pub counters: BTreeMap<String, u64>,
    /// The part of the due samples that reached the programs.
    pub completeness: f64,
    /// What the guest left.
    pub outcome: Outcome,
    profile: PathBuf,
}

/// What `hbbp-sys eval --format json` says (format `hbbp-sys.eval/1`).
#[derive(Clone, Debug, Deserialize)]
pub struct Errors {
    /// Near taken branches of the reference.
    pub taken: f64,
    /// Samples of instruction pointers.
    pub samples: f64,
    /// Branch stacks.
    pub stacks: f64,
    /// Mnemonics that are near the reference; `None` if it leaves code out.
    pub calibration: Option<Calibration>,
    /// Everything.
    pub whole: Group,
    /// The groups that were requested.
    pub groups: Vec<Group>,
}

/// How many of the mnemonics that are not rare, and of the functions with samples enough, are within two standard errors of the
/// reference.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Calibration {
    /// All of them.
    pub mnemonics: u64,
    /// Those that are.
    pub within: u64,
    /// All such functions.
    pub functions: u64,
    /// Those that are.
    pub functions_within: u64,
}

/// The errors of one group.
#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    /// Ring, module, function.
    pub key: Vec<String>,
    /// Executed instructions.
    pub instructions: Amounts,
    /// Average weighted error, as a fraction.
    pub average_weighted_error: Fractions,
    /// The same of shares of all instructions.
    pub share_error: Fractions,
    /// Accuracy error over blocks, as a fraction.
    pub block_error: Fractions,
    /// Executions by mnemonic.
    pub mnemonics: Vec<Mnemonic>,
}

/// One error for each method, as a fraction; `None` if the reference has nothing.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Fractions {
    /// The hybrid.
    pub hybrid: Option<f64>,
    /// Branch stacks alone.
    pub lbr: Option<f64>,
    /// Eventing IPs alone.
    pub ebs: Option<f64>,
}

/// Exact and estimated executions.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Amounts {
    /// Exact.
    pub reference: f64,
    /// By the hybrid.
    pub hybrid: f64,
    /// By branch stacks alone.
    pub lbr: f64,
    /// By eventing IPs alone.
    pub ebs: f64,
}

/// Executions of a mnemonic.
#[derive(Clone, Debug, Deserialize)]
pub struct Mnemonic {
    /// Its name.
    pub mnemonic: String,
    /// Its executions.
    #[serde(flatten)]
    pub executions: Amounts,
}

/// Measures a workload on a kernel.
///
/// # Errors
/// When something does not build, the guest does not end well, or the comparison fails.
pub fn measure(workload: &Workload, kernel: &Kernel, setup: &Setup) -> Result<Measured> {
    let mut machine = setup.prepare(Machine::new(kernel));
    workload.install(&mut machine, kernel)?;
    let words = workload.words();
    measure_command(machine, &words.each_ref().map(String::as_str), setup)
}

/// Measures a command on a machine that has all it needs and counts while events sample.
///
/// # Errors
/// As [`measure`].
pub fn measure_command(mut machine: Machine, command: &[&str], setup: &Setup) -> Result<Measured> {
    machine.files().hbbp_sys()?;
    let program = artifacts::hbbp_sys()?;
    let (period, branch_period) = (setup.period.to_string(), setup.branch_period.to_string());
    let record = [
        "/bin/hbbp-sys",
        "record",
        "-o",
        "/out/profile",
        "--all",
        "--each-process",
    ];
    let periods = [
        "--duration",
        "1h",
        "--period",
        &period,
        "--branch-period",
        &branch_period,
        "--",
    ];
    let room = ["--map-entries", MAP_ENTRIES];
    let options: Vec<&str> = setup.options.iter().map(String::as_str).collect();
    let outcome = machine.run(&[&record[..], &options, &room, &periods, command].concat())?;
    outcome.stdout()?;
    let profile = outcome.directory().join("profile");
    fs::write(
        &profile,
        outcome.files.get("profile").context("hbbp-sys left no profile")?,
    )?;
    let reference = outcome.directory().join("reference");
    let errors = |by, rule| errors(&program, &reference, &profile, by, rule);
    let report = said(&program, &["report", "--top", "1"], &[&profile])?;
    let report: serde_json::Value =
        serde_json::from_str(&report).context("failed to understand what hbbp-sys report says")?;
    let reported = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64);
    let completeness = reported("/accounting/reached").zip(reported("/accounting/due"));
    Ok(Measured {
        completeness: completeness.map_or(0.0, |(reached, due)| reached / due.max(1.0)),
        rings: errors("ring", DEFAULT_RULE)?,
        functions: errors("function", DEFAULT_RULE)?,
        by_paper: errors("ring", "paper")?,
        report,
        counters: outcome.counters()?,
        outcome,
        profile,
    })
}

/// The errors of a profile against a reference, for each group of `by` (`ring`, `function`), by a rule's name or file.
///
/// # Errors
/// When the comparison fails.
pub fn errors(program: &Path, reference: &Path, profile: &Path, by: &str, rule: &str) -> Result<Errors> {
    let words = ["eval", "--by", by, "--rule", rule, "--reference"];
    let text = said(program, &words, &[reference, profile])?;
    serde_json::from_str(&text).context("failed to understand what hbbp-sys eval says")
}

/// What a verb of the program prints as JSON.
///
/// # Errors
/// When the program fails.
pub fn said(program: &Path, words: &[&str], files: &[&Path]) -> Result<String> {
    host::output(
        Command::new(program)
            .args(words)
            .args(files)
            .args(["--format", "json"]),
    )
}

impl Measured {
    /// Keeps profile and reference in a directory on the host.
    ///
    /// # Errors
    /// When they cannot be copied there.
    pub fn keep(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        for file in [&self.profile, &self.outcome.directory().join("reference")] {
            let name = file.file_name().context("a file has a name")?;
            fs::copy(file, directory.join(name))?;
        }
        Ok(())
    }

    /// The errors of each ring by the default rule without some stages of the estimate.
    ///
    /// # Errors
    /// When the rule cannot be read or written, or the comparison fails.
    pub fn errors_without(&self, stages: &[&str]) -> Result<Errors> {
        let default = artifacts::package().join("../hbbp-user/estimate/src/rule/balanced.rule");
        let default =
            fs::read_to_string(&default).with_context(|| format!("failed to read {}", default.display()))?;
        // No line can follow the last one of a rule.
        let left_out: String = stages.iter().map(|stage| format!("without {stage}\n")).collect();
        let directory = self.outcome.directory();
        let rule = directory.join(format!("without-{}.rule", stages.join("-")));
        fs::write(&rule, left_out + &default)
            .with_context(|| format!("failed to write {}", rule.display()))?;
        let rule = rule.to_str().context("the directory of an outcome has a name")?;
        let reference = directory.join("reference");
        errors(&artifacts::hbbp_sys()?, &reference, &self.profile, "ring", rule)
    }

    /// The profile that `hbbp-sys record` left, as long as this lives.
    pub fn profile(&self) -> &Path {
        &self.profile
    }

    /// A number of the report, by its path such as `/accounting/due`; 0 if it is not there.
    pub fn reported(&self, path: &str) -> u64 {
        self.report
            .pointer(path)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    }
}

impl Errors {
    /// The group whose key ends with this name: a ring, or a function.
    ///
    /// # Errors
    /// When there is not exactly one.
    pub fn named(&self, name: &str) -> Result<&Group> {
        let mut named = self
            .groups
            .iter()
            .filter(|group| group.key.last().is_some_and(|last| last == name));
        let first = named.next().with_context(|| format!("nothing ran in {name}"))?;
        ensure!(named.next().is_none(), "several groups are called {name}");
        Ok(first)
    }
}
