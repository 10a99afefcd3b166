//! The code that is shown.

use hbbp_analysis::annotate::Annotated;
use hbbp_estimate::Unit;
use hbbp_model::snapshot::Snapshot;

/// The annotated code of some functions of a snapshot.
#[derive(Debug)]
pub struct AnnotatedReport<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) unit: Unit,
    pub(super) functions: &'a [Annotated],
    pub(super) notes: &'a [String],
}

/// Which instructions text shows; JSON has all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shown {
    /// Those that were executed, with a few around them.
    #[default]
    Executed,
    /// All.
    All,
}

/// `part / whole`, 0 of nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if 0.0 < whole { part / whole } else { 0.0 }
}
