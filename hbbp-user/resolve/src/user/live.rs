//! Following the processes of a live run: their records as they come, and their files and memory while they live.

use std::ops::Range;

use super::fresh_mappings::Before;
use super::hit_process::hit_process;
use super::known_mapping::may_be_patched;
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
            is_patched = match self.before(mmap, timed.time) {
                Before::Same => may_be_patched(mmap),
                // The sooner the first turn is followed by a drain, the fewer counts are without their time.
                Before::Other => self.note_turn(mmap.pid, timed.time),
                Before::Unknown => false,
            };
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

    /// What a mapping, made at `time`, replaces, by the records that were applied and those that were not yet.
    fn before(&mut self, mmap: &Mmap, time: u64) -> Before {
        let file = (Backing::of(&mmap.path) == Backing::File).then(|| self.index.intern_mmap(mmap));
        let Origin::Live(live) = &mut self.origin else {
            return Before::Unknown;
        };
        match live.fresh.add(mmap, file) {
            Before::Unknown if live.fresh.keeps_older(mmap.pid) => self.index.before(mmap, time),
            before => before,
        }
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

    /// Applies what the last comparison found, before a snapshot. Where libraries take turns, the record of one that came before the
    /// memory was read may not have been read, and no later comparison decides.
    pub(crate) fn settle(&mut self, losses: &mut Losses) {
        if let Origin::Live(live) = &mut self.origin {
            let processes = &mut self.processes;
            let (turning, found) = (&live.turning, &mut live.comparison.found);
            let n_found = found.len();
            found.retain(|found| {
                let process = hit_process(processes, found.process);
                process.is_none_or(|process| !turning.contains_key(&process.task.tgid))
            });
            losses.add(Loss::TextNotCompared, (n_found - found.len()) as u64);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_elf::parser::Parser;
    use hbbp_model::addr::{FileOff, Va};
    use hbbp_model::record::FileIdentity;

    fn map(path: &str, start: u64) -> Mmap {
        Mmap {
            pid: 7,
            start: Va(start),
            len: 0x2000,
            offset: FileOff(0x1000),
            identity: FileIdentity::Unknown,
            shared: false,
            path: path.into(),
        }
    }

    /// Whether each of these mappings, none of which was applied yet, was noticed as a change of text.
    fn noticed(records: &[Record]) -> Vec<bool> {
        let mut space = UserSpace::live(&Parser::default());
        let start = Record::Fork {
            pid: 7,
            tid: 7,
            parent_pid: 1,
        };
        let records = [start].into_iter().chain(records.iter().cloned());
        let of_each = records.zip(1..).map(|(record, time)| {
            space.take(Timed { time, record }, &mut Losses::default());
            space.take_patched()
        });
        of_each.skip(1).collect()
    }

    /// A program makes its text writable, patches it and makes it executable again, before a drain has applied that it was mapped.
    #[test]
    fn text_that_is_mapped_again_is_noticed_before_it_is_applied() {
        let [a, b] = ["/a", "/b"].map(|path| Record::Mmap(map(path, 0x10_0000)));
        let shared = Record::Mmap(Mmap {
            shared: true,
            ..map("/a", 0x10_0000)
        });
        let elsewhere = Record::Mmap(map("/a", 0x50_0000));
        assert_eq!(noticed(&[a.clone(), a.clone()]), [false, true]);
        assert_eq!(noticed(&[a.clone(), elsewhere, a.clone()]), [false, false, true]);
        assert_eq!(noticed(&[shared.clone(), shared]), [false, false]);
        // The first turn is noticed at once, those after it are followed already; then the text of `b` is patched.
        let turns = [a.clone(), b.clone(), a.clone(), b.clone(), b];
        assert_eq!(noticed(&turns), [false, true, false, false, true]);
        let exec = Record::Comm {
            pid: 7,
            tid: 7,
            comm: "next".into(),
            exec: true,
        };
        assert_eq!(noticed(&[a.clone(), exec, a]), [false, false, false]);
    }
}
