//! `hbbp-sys merge`: profiles of many runs and hosts in one file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

use super::profile_output::open_output;
use super::report::assignment_of;
use super::runs::read_saved;
use super::units::check_one_unit;
use hbbp_estimate::EventAssignment;
use hbbp_model::segments::TimeRange;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::Compression;
use hbbp_model::snapshot::merge::merged;

/// What to merge, and where to write it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MergeOptions {
    /// The profiles and folders of segments; each may be a merged one.
    pub inputs: Vec<PathBuf>,
    /// Of folders of segments, only this time.
    pub range: TimeRange,
    /// Where to write all their runs.
    pub output: PathBuf,
}

/// Merges the profiles; returns what the user must know.
pub(crate) fn merge(options: &MergeOptions, out: &mut dyn Write) -> anyhow::Result<Vec<String>> {
    let output = open_output(&options.output)?;
    let mut runs = Vec::new();
    for path in &options.inputs {
        runs.extend(read_saved(path, options.range)?);
    }
    check_units(&runs)?;
    let runs = merged(runs).context("failed to merge")?;
    let twice = runs
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a == b))
        .count();
    output.save(&runs, Compression::Small, out)?;
    Ok(Vec::from_iter((0 < twice).then(|| {
        format!("{twice} of the runs are there twice: they are counted twice")
    })))
}

/// Refuses runs whose figures have no sum.
fn check_units(runs: &[Snapshot]) -> anyhow::Result<()> {
    if runs.is_empty() {
        bail!("no profiles to merge");
    }
    let rule = super::rule::read("paper")?;
    let assignments: Vec<EventAssignment> = runs.iter().map(|run| assignment_of(run, &rule)).collect();
    check_one_unit(runs.iter().map(|run| &run.run).zip(&assignments))
}
