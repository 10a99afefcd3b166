//! What a user may say about the events to sample.

use std::time::Duration;

use super::counters::StackEvents;
use hbbp_model::slices::SliceCut;
use hbbp_model::snapshot::run::Period;

/// What a user may say about events.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--event`: a name of [`NAMES`], or `PMU/config=0x..,name=../`.
    pub event: Option<String>,
    /// `--period` or `--frequency`, for the event that samples instruction pointers.
    pub period: Option<Period>,
    /// `--branch-period`, for the event that samples branch stacks.
    pub branch_period: Option<u64>,
    /// How long the run is expected to last.
    pub duration: Option<Duration>,
    /// `--time`: the period of cycles that are sampled in addition to executions; `None` where they are not.
    pub time: Option<u64>,
    /// `--callers`: the samples of time carry call chains.
    pub callers: bool,
    /// Whether each ring has branch stacks by an event of its own.
    pub stacks: StackEvents,
    /// What makes a slice, whose length is followed by periods that were not said; `None` where slices are not
    /// distinguished. With them, kernel code is counted separately for each process.
    pub slices: Option<SliceCut>,
}

/// The names that `--event` knows in addition to `PMU/../`.
pub(crate) const NAMES: [&str; 5] = ["branches", "instructions", "cycles", "cpu-clock", "task-clock"];
