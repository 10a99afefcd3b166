//! The loops of one run, and what all formats say of one.

use hbbp_analysis::loops::{Entered, Loop, Loops};
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::Snapshot;

/// The loops of one run within a limit.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct RunLoops<'a> {
    /// The run.
    pub(in crate::report) snapshot: &'a Snapshot,
    /// Its loops.
    pub(in crate::report) loops: &'a Loops,
    /// Most loops; `None` for all.
    pub(in crate::report) top: Option<usize>,
}

/// Where a loop is: its source lines, or its first and last address in the module.
pub(super) fn place(it: &Loop) -> String {
    let place = match &it.region.lines {
        Some(lines) => harmless(lines),
        None => format!("{:x}..{:x}", it.header.0, it.tail.0),
    };
    let depth = usize::try_from(it.depth).unwrap_or(usize::MAX).min(8);
    "›".repeat(depth) + &place
}

pub(super) fn entered(it: &Loop) -> Option<Entered> {
    it.rounds?.entered
}

pub(super) fn share(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}
