//! Two profiles that are compared.

use hbbp_analysis::diff::{Diff, Gate, Per};
use hbbp_model::snapshot::Snapshot;

/// The difference of two profiles, with its notes.
#[derive(Debug)]
pub struct DiffReport<'a> {
    /// The runs of both profiles, and what the user called them.
    pub sides: [(&'a str, &'a [Snapshot]); 2],
    /// Amounts of everything in both profiles, in the unit of the difference.
    pub totals: [f64; 2],
    /// What changed.
    pub diff: &'a Diff,
    /// What amounts are counted per; `None` of shares.
    pub per: Option<&'a Per>,
    /// What became of the conditions.
    pub gates: &'a [Gate],
    /// What the reader must know, such as that the machines differ.
    pub notes: &'a [String],
    /// Most rows; `None` for all.
    pub top: Option<usize>,
}
