//! What is there of live processes between two drains.

use std::collections::HashSet;
use std::ops::Range;

use super::comparison::Comparison;
use super::process_memory::ProcessMemory;
use super::unknown_processes::Unknown;
use super::watch::Watch;
use hbbp_model::record::Timed;

/// Processes whose /proc entry is read once more in one interval, for addresses that no record explains.
const MAX_RESCANNED: usize = 256;

/// What is there of live processes between two drains.
#[derive(Debug, Default)]
pub(crate) struct LiveProcesses {
    pub(super) memory: ProcessMemory,
    pub(super) comparison: Comparison,
    pub(super) unknown: Unknown,
    pub(super) watch: Watch,
    /// Start and end of the current drain, or of the last one, in ns.
    pub(super) drain: Range<u64>,
    pub(super) pending: Vec<Timed>,
    pub(super) rescanned: HashSet<u32>,
    /// Files that were opened since the last drain before they were hit.
    pub(super) n_opened: usize,
    /// Whether text was mapped again, at addresses that had text before, since the last call.
    pub(super) is_patched: bool,
}

impl LiveProcesses {
    /// Whether a process may be read once more in this interval; true once for each, up to [`MAX_RESCANNED`].
    pub(super) fn may_rescan(&mut self, tgid: u32) -> bool {
        self.rescanned.len() < MAX_RESCANNED && self.rescanned.insert(tgid)
    }
}
