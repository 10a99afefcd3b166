//! What figures that are samples follow from.

use super::origins::Origins;
use hbbp_code::locate::LocatedIp;

/// What figures that are samples follow from.
#[derive(Clone, Debug, PartialEq)]
pub struct Waited {
    /// The samples where they lie.
    pub landed: Vec<LocatedIp>,
    /// For each of [`crate::time_slices`], indices in [`crate::BlockCounts::parts`] and samples, sorted.
    pub slices: Vec<Vec<(usize, f64)>>,
    /// The share of the samples at instructions that turn interrupts on: their time passed with interrupts off before them, and
    /// the code does not show where.
    pub held_back: f64,
    /// The share of the samples at the starts of blocks that stay there, as the search for what came before was ended.
    pub unsearched: f64,
    /// The samples of each slice.
    pub(crate) totals: Vec<f64>,
    pub(super) origins: Origins,
}
