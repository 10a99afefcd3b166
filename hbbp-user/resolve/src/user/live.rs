//! Following the processes of a live run: their records as they come, and their files and memory while they live.

use std::ops::Range;

use super::mapping::Backing;
use super::proc_scan::{Scanned, read_process};
use super::space::{Origin, UserSpace};
use crate::clock::now;
use hbbp_model::record::{Mmap, Record, Timed};
use hbbp_model::snapshot::{Loss, Losses};

/// Records wait for those of other CPUs, which may come later and be older; beyond this number the oldest are taken.
const MAX_PENDING: usize = 1 << 16;
/// No CPU's records come later than this, in ns: its ring is read at least as often.
const LATEST: u64 = 2_000_000_000;
impl UserSpace {
    /// Adds the processes that were there before the run, and opens their files.
    pub(crate) fn scanned(&mut self, processes: &[Scanned]) {
        for process in processes {
            self.index.scanned(process, 0);
            if let Some(read) = self.cgroups.read(process.tgid) {
                self.index.set_cgroup(process.tgid, u64::MAX, read);
            }
            for mmap in &process.mappings {
                self.open_early(mmap);
            }
        }
    }

    /// Begins to take records that were read at once.
    pub(crate) fn begin_records(&mut self) {
        if let Some(live) = self.live_processes() {
            live.unknown.begin_records();
        }
    }

    /// Notes that records were lost since the last ones were read.
    pub(crate) fn lost(&mut self) {
        if let Some(live) = self.live_processes() {
            live.unknown.lost();
        }
    }

    /// Takes a record as it comes, in any order, and opens the file of a new mapping while its process lives.
    pub(crate) fn take(&mut self, timed: Timed, losses: &mut Losses) {
        let Some(live) = self.live_processes() else {
            return;
        };
        if !live.unknown.note(&timed, losses) {
            return;
        }
        let mut is_patched = false;
        if let Record::Mmap(mmap) = &timed.record {
            self.open_early(mmap);
            is_patched = self.index.is_mapped_again(mmap, timed.time);
            // The sooner the first turn is followed by a drain, the fewer counts are without their time.
            is_patched |= self.replaces(mmap, timed.time) && self.note_turn(mmap.pid, timed.time);
        }
        if let Record::Comm { pid, exec: true, .. } = timed.record {
            self.cgroups.read_at_exec(pid, timed.time);
            if let Some(live) = self.live_processes() {
                live.fresh.exec(pid);
            }
        }
        let Some(live) = self.live_processes() else {
            return;
        };
        live.is_patched |= is_patched;
        live.pending.push(timed);
        if MAX_PENDING <= live.pending.len() {
            let newest = live.pending.iter().map(|t| t.time).max().unwrap_or(0);
            self.catch_up(newest.saturating_sub(LATEST));
        }
    }

    /// Whether a mapping, made at `time`, replaces another one, by the records that were applied and those that were not yet.
    fn replaces(&mut self, mmap: &Mmap, time: u64) -> bool {
        let file = (Backing::of(&mmap.path) == Backing::File).then(|| self.index.intern_mmap(mmap));
        let Origin::Live(live) = &mut self.origin else {
            return false;
        };
        let replaces_older = live.fresh.keeps_older(mmap.pid) && self.index.is_replacing(mmap, time);
        live.fresh.add(mmap, file) || replaces_older
    }

    fn note_turn(&mut self, tgid: u32, time: u64) -> bool {
        let live = self.live_processes();
        live.is_some_and(|live| live.note_turn(tgid, time))
    }

    /// Whether a program may have patched its text since the last call.
    pub(crate) fn take_patched(&mut self) -> bool {
        let live = self.live_processes();
        live.is_some_and(|live| std::mem::take(&mut live.is_patched))
    }

    /// The processes in which mappings take turns at one address, now.
    pub(crate) fn turning(&mut self) -> Vec<u32> {
        let live = self.live_processes();
        live.map_or_else(Vec::new, |live| live.turning(now()).collect())
    }

    /// Begins a drain of this time, to the end of which all records have been taken.
    /// Returns the times at which it is to be split.
    pub(crate) fn begin_drain(&mut self, time: Range<u64>, losses: &mut Losses) -> Vec<u64> {
        let end = time.end;
        if let Some(live) = self.live_processes() {
            live.memory.since = time.start;
            live.drain = time;
        }
        self.catch_up(end);
        self.take_functions(losses);
        // Each text range that runs in this drain is looked up once, so that it is compared with memory.
        self.changed();
        self.read_again();
        self.begin_comparison(losses)
    }

    /// Applies the records up to `time`, in the order of time.
    pub(crate) fn catch_up(&mut self, time: u64) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        live.pending.sort_by_key(|t| t.time);
        let n_due = live.pending.partition_point(|t| t.time <= time);
        if n_due == 0 {
            return;
        }
        live.fresh.clear();
        for timed in live.pending.drain(..n_due) {
            self.index.apply(&timed);
            self.threads.apply(&timed);
            if let Record::Comm { pid, exec: true, .. } = timed.record
                && let Some(read) = self.cgroups.take_at_exec(pid, timed.time)
            {
                self.index.set_cgroup(pid, timed.time, read);
            }
        }
        self.changed();
    }

    /// Reads a live process once more, once in an interval: records may have been lost, and some changes have none.
    pub(super) fn rescan(&mut self, tgid: u32, time: u64) -> bool {
        let Some(live) = self.live_processes() else {
            return false;
        };
        if !live.may_rescan(tgid) {
            return false;
        }
        let scanned = read_process(tgid);
        if let Some(scanned) = &scanned {
            self.index.scanned(scanned, time);
            self.changed();
        }
        scanned.is_some()
    }

    /// Applies what the last comparison found, before a snapshot.
    pub(crate) fn settle(&mut self, losses: &mut Losses) {
        self.begin_comparison(losses);
    }

    /// Reads what may change without a record once more, at the end of the interval `idx`.
    pub(crate) fn reread(&mut self, idx: u32, losses: &mut Losses) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        self.images.notice_writes();
        let index = &self.index;
        let is_live = |tgid, generation| index.is_live(tgid, Some(generation));
        let changing = self.images.changing(is_live);
        let n_changed = self.images.reread(&changing, idx, &mut live.memory);
        losses.add(Loss::TextUncertain, n_changed);
    }

    /// Ends a drain: what ended before `time` has had its last sample.
    pub(crate) fn end_drain(&mut self, time: u64, losses: &mut Losses) {
        self.compare_with_memory(losses);
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        self.index.forget_before(time);
        self.threads.forget_before(time);
        self.cgroups.end_drain();
        let awaited = live.pending.iter().filter_map(|timed| match &timed.record {
            Record::Mmap(mmap) => Some(mmap),
            _ => None,
        });
        if self.index.forget_files(awaited) {
            self.images.forget_files(|file| self.index.file(file).is_some());
        }
        live.memory.end_drain();
        live.rescanned.clear();
        live.unknown.forget();
        live.n_opened = 0;
        self.images.bound_text(losses);
        self.images.bound_names();
    }

    /// Looks whether memory or shared files that were hit have changed since they were read.
    pub(crate) fn has_memory_changed(&mut self) -> bool {
        let Origin::Live(live) = &mut self.origin else {
            return false;
        };
        self.images.notice_writes();
        let index = &self.index;
        let is_live = |tgid, generation| index.is_live(tgid, Some(generation));
        let changing = self.images.changing(is_live);
        let has_changed = live.watch.look(&changing, &self.images, &mut live.memory);
        // Process ids may be used again until the next time.
        live.memory.close();
        has_changed
    }

    /// Whether the last look saw everything that may change.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(&self.origin, Origin::Live(live) if live.watch.saw_all)
    }
}
