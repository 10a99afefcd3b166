//! Following the processes of a live run: their records as they come, and their files and memory while they live.

use std::collections::HashSet;

use super::proc_scan::{Scanned, read_process};
use super::process_image::Backing;
use super::process_memory::ProcessMemory;
use super::space::{Origin, UserSpace};
use crate::record::{Record, Timed};
use crate::snapshot::{Loss, Losses};

/// Records wait for those of other CPUs, which may come later and be older; beyond this number the oldest are taken.
const MAX_PENDING: usize = 1 << 16;
/// No CPU's records come later than this, in ns: its ring is read at least as often.
const LATEST: u64 = 2_000_000_000;
/// Processes whose /proc entry is read once more in one interval, for addresses that no record explains.
const MAX_RESCANNED: usize = 256;

/// What is there of live processes between two drains.
#[derive(Debug, Default)]
pub struct LiveProcesses {
    pub(super) memory: ProcessMemory,
    pending: Vec<Timed>,
    rescanned: HashSet<u32>,
}

impl UserSpace {
    fn live_processes(&mut self) -> Option<&mut LiveProcesses> {
        match &mut self.origin {
            Origin::Live(live) => Some(live),
            Origin::Recorded(..) => None,
        }
    }

    /// Takes over the processes that were there before the run, and opens their files.
    pub fn scanned(&mut self, processes: &[Scanned]) {
        for process in processes {
            self.index.scanned(process, 0);
            for mmap in &process.mappings {
                self.open_early(&Timed {
                    time: 0,
                    record: Record::Mmap(mmap.clone()),
                });
            }
        }
    }

    /// Takes a record as it comes, in any order, and opens the file of a new mapping while its process lives.
    pub fn take(&mut self, timed: Timed) {
        self.open_early(&timed);
        let Some(live) = self.live_processes() else {
            return;
        };
        live.pending.push(timed);
        if MAX_PENDING <= live.pending.len() {
            let newest = live.pending.iter().map(|t| t.time).max().unwrap_or(0);
            self.catch_up(newest.saturating_sub(LATEST));
        }
    }

    /// Applies the records up to `time`, in the order of time.
    pub fn catch_up(&mut self, time: u64) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        live.pending.sort_by_key(|t| t.time);
        let n_due = live.pending.partition_point(|t| t.time <= time);
        if n_due == 0 {
            return;
        }
        for timed in live.pending.drain(..n_due) {
            self.index.apply(&timed);
        }
        self.changed();
    }

    fn open_early(&mut self, timed: &Timed) {
        if let Record::Mmap(mmap) = &timed.record
            && Backing::of(&mmap.path) == Backing::File
        {
            let file = self.index.intern_mmap(mmap);
            // Where it fails, the reason is counted when the mapping is hit.
            let _ = self.images.open(file, mmap, &[]);
        }
    }

    /// Reads a live process once more, once in an interval: records may have been lost, and some changes have none.
    pub(super) fn rescan(&mut self, tgid: u32, time: u64) -> bool {
        let Some(live) = self.live_processes() else {
            return false;
        };
        if MAX_RESCANNED <= live.rescanned.len() || !live.rescanned.insert(tgid) {
            return false;
        }
        let scanned = read_process(tgid);
        if let Some(scanned) = &scanned {
            self.index.scanned(scanned, time);
            self.changed();
        }
        scanned.is_some()
    }

    /// Reads memory that was hit before once more, at the end of the interval `idx`.
    pub fn reread(&mut self, idx: u32, losses: &mut Losses) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        let index = &self.index;
        let is_live = |tgid, generation| index.is_live(tgid, Some(generation));
        let n_changed = self.images.reread(idx, is_live, &mut live.memory);
        losses.add(Loss::TextUncertain, n_changed);
    }

    /// Ends an interval: what ended before `time` has had its last sample.
    pub fn forget_before(&mut self, time: u64) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        self.index.forget_before(time);
        let awaited = live.pending.iter().filter_map(|timed| match &timed.record {
            Record::Mmap(mmap) => Some(mmap),
            _ => None,
        });
        if self.index.forget_files(awaited) {
            self.images.forget_files(|file| self.index.file(file).is_some());
        }
        live.memory.close();
        live.rescanned.clear();
    }
}
