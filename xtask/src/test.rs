//! `cargo xtask test`: tests in the build that users run, tier by tier, and a closing line of totals.
//!
//! The tiers are distinguished by test target, so that a new target belongs to the unit tier until it is named here. By default
//! each subsystem has its decisive tests: the others are marked `#[ignore]`, and the emulated machine boots one kernel.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::command;
use crate::setup::{self, Install, Needs};
use crate::totals::Totals;

/// Which tests to run; all tiers where none is named.
#[derive(Debug, Default, Args)]
pub(crate) struct TestArgs {
    /// Run every test, on each kernel of the emulated machine, and install the programs that read exports.
    #[arg(long)]
    all: bool,
    /// Run what is left for --all once the default run has passed.
    #[arg(long, conflicts_with = "all")]
    rest: bool,
    /// Run the unit tier alone: no root, no emulated machine.
    #[arg(long, conflicts_with = "tier")]
    quick: bool,
    /// Run this tier; may be given again.
    #[arg(long, value_enum)]
    tier: Vec<Tier>,
    /// Boot only this kernel in the vm tier: 6.1 or 6.12.
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Arguments of `cargo test`.
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Tests with the same needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Unit, report, snapshot, import and resolve tests: needs nothing.
    Unit,
    /// Samples the kernel of this machine: needs root.
    Live,
    /// Boots the emulated machine: needs QEMU and minutes.
    Vm,
}

/// From the fastest to the slowest.
const TIERS: [Tier; 3] = [Tier::Unit, Tier::Live, Tier::Vm];

/// Test targets of the workspace that are not in the unit tier.
const LIVE_TARGET: &str = "live";
const VM_TARGET: &str = "vm";

/// Passes the vm tier the only kernel to boot.
const ONLY_KERNEL: &str = "HBBP_TEST_KERNEL";

/// The kernel of the default run, and the one that `--rest` boots.
const DEFAULT_KERNEL: &str = "6.12";
const OTHER_KERNEL: &str = "6.1";

/// Builds the tests of the tiers, then runs tier by tier; a tier that fails does not stop the next one.
pub(crate) fn test(args: &TestArgs, install: Install) -> Result<()> {
    let tiers = args.tiers();
    let needs = if args.all || args.rest {
        Needs::AllTests
    } else if tiers == [Tier::Unit] {
        Needs::Build
    } else {
        Needs::Test
    };
    setup::setup(needs, install)?;
    let targets = Targets::of_workspace()?;
    let mut failed = Vec::new();
    let mut lines = Vec::new();
    let mut all = Totals::default();
    for tier in tiers {
        let mut build = tier.cargo_test(&targets);
        command::run(build.arg("--no-run"))?;
        let begun = Instant::now();
        let totals = tier.run(&targets, args)?;
        lines.push(tier.line(&totals, begun.elapsed()));
        if !totals.is_success() {
            failed.push(tier.name());
        }
        all.merge(&totals);
    }
    for reason in all.reasons() {
        println!("skipped: {reason}");
    }
    for line in &lines {
        println!("{line}");
    }
    println!("{all}");
    ensure!(failed.is_empty(), "failed tests in: {}", failed.join(", "));
    Ok(())
}

/// A run of a tier's test programs.
#[derive(Debug, PartialEq, Eq)]
struct Part<'a> {
    /// The only kernel that the emulated machine boots; all of them without one.
    kernel: Option<&'a str>,
    /// The argument of the test program that says whether ignored tests run; they do not without one.
    ignored: Option<&'static str>,
}

impl TestArgs {
    /// What the default run leaves.
    pub(crate) fn rest() -> Self {
        Self {
            rest: true,
            ..Self::default()
        }
    }

    /// The runs of a tier. What the default run and `--rest` run is together what `--all` runs.
    fn parts(&self, tier: Tier) -> Vec<Part<'_>> {
        let kernel = self.kernel.as_deref();
        if self.all {
            let ignored = Some("--include-ignored");
            return vec![Part { kernel, ignored }];
        }
        if !self.rest {
            let kernel = kernel.or(Some(DEFAULT_KERNEL));
            return vec![Part {
                kernel,
                ignored: None,
            }];
        }
        let ignored = Some("--ignored");
        let mut parts = vec![Part { kernel, ignored }];
        if tier == Tier::Vm && kernel.is_none() {
            parts.push(Part {
                kernel: Some(OTHER_KERNEL),
                ignored: None,
            });
        }
        parts
    }

    fn tiers(&self) -> Vec<Tier> {
        if self.quick {
            return vec![Tier::Unit];
        }
        let is_wanted = |tier: &Tier| self.tier.is_empty() || self.tier.contains(tier);
        TIERS.into_iter().filter(is_wanted).collect()
    }
}

impl Tier {
    const fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Live => LIVE_TARGET,
            Self::Vm => VM_TARGET,
        }
    }

    /// `cargo test` of the tier's targets, without arguments of the test programs. All tiers select the same packages: with
    /// others, cargo would give some dependencies other features, and compile them and all that is above them once more.
    fn cargo_test(self, targets: &Targets) -> Command {
        let mut cargo = command::cargo();
        cargo.args(["test", "--release", "--no-fail-fast", "--workspace"]);
        for package in &targets.untested {
            cargo.args(["--exclude", package]);
        }
        match self {
            Self::Unit => {
                cargo.args(["--lib", "--bins"]);
                for name in &targets.unit {
                    cargo.args(["--test", name]);
                }
            }
            Self::Live => {
                cargo.args(["--test", LIVE_TARGET]);
            }
            Self::Vm => {
                cargo.args(["--test", VM_TARGET]);
            }
        }
        cargo
    }

    /// Runs the tier and shows what it prints.
    fn run(self, targets: &Targets, args: &TestArgs) -> Result<Totals> {
        let mut totals = Totals::default();
        for part in args.parts(self) {
            let mut cargo = self.cargo_test(targets);
            cargo.args(&args.args);
            if part.ignored.is_some() && !args.args.iter().any(|word| word == "--") {
                cargo.arg("--");
            }
            cargo.args(part.ignored);
            cargo.envs(part.kernel.map(|series| (ONLY_KERNEL, series)));
            totals.run(&mut cargo)?;
        }
        if self == Self::Unit && !args.rest {
            let mut docs = command::cargo();
            docs.args(["test", "--release", "--workspace", "--doc"])
                .args(&args.args);
            totals.run(&mut docs)?;
        }
        Ok(totals)
    }

    fn line(self, totals: &Totals, took: Duration) -> String {
        format!("{:<4} {totals} in {:.1} s", self.name(), took.as_secs_f64())
    }
}

impl Totals {
    /// Runs `cargo test`, shows its output and adds its totals.
    fn run(&mut self, cargo: &mut Command) -> Result<()> {
        let mut child = cargo
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {cargo:?}"))?;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line.with_context(|| format!("failed to read the output of {cargo:?}"))?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                self.add(&line);
            }
        }
        let status = child
            .wait()
            .with_context(|| format!("failed to wait for {cargo:?}"))?;
        self.end(status.success());
        Ok(())
    }
}

/// What the workspace has to test.
#[derive(Default)]
struct Targets {
    /// Packages without any test: `--lib` would build their libraries all the same.
    untested: Vec<String>,
    /// Test targets of the unit tier: all but those that sample this kernel or boot a machine.
    unit: Vec<String>,
}

impl Targets {
    fn of_workspace() -> Result<Self> {
        let mut cargo = command::cargo();
        cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: serde_json::Value = serde_json::from_str(&command::stdout(&mut cargo)?)
            .context("failed to understand cargo metadata")?;
        let mut found = Self::default();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let targets = || package["targets"].as_array().into_iter().flatten();
            let is_untested =
                |target: &serde_json::Value| target["kind"][0] == "cdylib" && target["test"] == false;
            if targets().any(is_untested) {
                let name = package["name"].as_str().unwrap_or_default();
                found.untested.push(name.to_owned());
            }
            let tests = targets().filter(|target| target["kind"][0] == "test");
            let names = tests.filter_map(|target| target["name"].as_str());
            let unit = names.filter(|name| ![LIVE_TARGET, VM_TARGET].contains(name));
            found.unit.extend(unit.map(str::to_owned));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{LIVE_TARGET, Targets, TestArgs, Tier, VM_TARGET};

    #[test]
    fn tiers_run_from_the_fastest_to_the_slowest() {
        let quick = TestArgs {
            quick: true,
            ..TestArgs::default()
        };
        assert_eq!(quick.tiers(), [Tier::Unit]);
        let two = TestArgs {
            tier: vec![Tier::Vm, Tier::Live],
            ..TestArgs::default()
        };
        assert_eq!(two.tiers(), [Tier::Live, Tier::Vm]);
        assert_eq!(TestArgs::default().tiers(), super::TIERS);
    }

    #[test]
    fn default_run_and_rest_are_all() {
        let rest = TestArgs::rest();
        let ran = |args: &TestArgs| -> Vec<(Option<String>, Option<&'static str>)> {
            let parts = args.parts(Tier::Vm).into_iter();
            parts
                .map(|part| (part.kernel.map(str::to_owned), part.ignored))
                .collect()
        };
        let (first, second) = (super::DEFAULT_KERNEL, super::OTHER_KERNEL);
        assert_eq!(ran(&TestArgs::default()), [(Some(first.to_owned()), None)]);
        assert_eq!(
            ran(&rest),
            [(None, Some("--ignored")), (Some(second.to_owned()), None)]
        );
        assert_eq!(rest.parts(Tier::Live).len(), 1);
    }

    #[test]
    fn unit_tier_has_all_other_targets() {
        let targets = Targets::of_workspace().unwrap().unit;
        for expected in ["report", "import", "snapshot_file"] {
            assert!(targets.iter().any(|it| it == expected), "{targets:?}");
        }
        for other in [LIVE_TARGET, VM_TARGET] {
            assert!(!targets.iter().any(|it| it == other), "{targets:?}");
        }
    }
}
