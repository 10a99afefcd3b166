//! What is there of live processes between two drains.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::comparison::Comparison;
use super::fresh_mappings::FreshMappings;
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
    /// What the pending records map.
    pub(super) fresh: FreshMappings,
    pub(super) rescanned: HashSet<u32>,
    /// Files that were opened since the last drain before they were hit.
    pub(super) n_opened: usize,
    /// Whether text was mapped again, at addresses that had text before, since the last call.
    pub(super) is_patched: bool,
    /// Processes in which mappings replaced others, and when they did last, in ns.
    pub(super) turning: HashMap<u32, u64>,
}

/// A process that did not replace a mapping for so long, in ns, does so no more. As many processes are followed at one time.
const LONGEST_TURN: u64 = 10_000_000_000;
const MAX_TURNING: usize = 64;

impl LiveProcesses {
    /// Notes that a mapping of a process replaced another one. Whether it is the first time.
    pub(super) fn note_turn(&mut self, tgid: u32, time: u64) -> bool {
        let is_first = !self.turning.contains_key(&tgid);
        if MAX_TURNING <= self.turning.len() && is_first {
            return false;
        }
        self.turning.insert(tgid, time);
        is_first
    }

    /// The processes in which mappings take turns at `time`.
    pub(super) fn turning(&mut self, time: u64) -> impl Iterator<Item = u32> {
        self.turning
            .retain(|_, last| time < last.saturating_add(LONGEST_TURN));
        self.turning.keys().copied()
    }

    /// Whether a process may be read once more in this interval; true once for each, up to [`MAX_RESCANNED`].
    pub(super) fn may_rescan(&mut self, tgid: u32) -> bool {
        self.rescanned.len() < MAX_RESCANNED && self.rescanned.insert(tgid)
    }
}
