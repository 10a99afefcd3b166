//! Processes that are read again from /proc, because records of them were lost or left out.
//!
//! A flood of mappings by one process overwrites the records of others. So after a loss all processes are read again.
//! Those with very many mappings are read instead of their records. All of it has a share of the time.

use std::collections::HashSet;
use std::time::Instant;

use super::mapping::Backing;
use super::proc_scan::{read_process, read_tgids};
use super::space::{Origin, UserSpace};
use crate::clock::{now, thread_time};
use hbbp_model::record::Mmap;

/// Files that are opened between two drains before they are hit; others are opened when they are.
const MAX_OPENED: usize = 4096;

/// Minimum gap between two readings, as a multiple of the CPU time of the last one: they take at most 2 % of the time.
const GAP: u32 = 49;

impl UserSpace {
    /// Records are paused: processes are read again when they are hit, once in each drain.
    pub(crate) fn rest(&mut self) {
        if let Origin::Live(live) = &mut self.origin {
            live.unknown.is_resting = true;
        }
    }

    /// Records are written again. Processes that ended meanwhile are forgotten; the others are read where they are hit first.
    pub(crate) fn resume(&mut self) {
        let live: HashSet<u32> = read_tgids().into_iter().collect();
        self.index.end_others(&live, now());
        if let Origin::Live(of) = &mut self.origin {
            of.unknown.is_resting = false;
            of.unknown.unsure = live;
        }
    }

    /// Reads a process again that may have started another program while records were paused.
    pub(super) fn read_unsure(&mut self, tgid: u32) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        let is_unsure = match live.unknown.is_resting {
            true => live.may_rescan(tgid),
            false => live.unknown.unsure.remove(&tgid),
        };
        if !is_unsure {
            return;
        }
        let since = live.drain.start;
        if let Some(scanned) = read_process(tgid) {
            for mmap in &scanned.mappings {
                self.open_early(mmap);
            }
            self.index.scanned_again(&scanned, since);
            self.changed();
        }
    }

    /// Reads incompletely known processes again, as far as time allows.
    pub(super) fn read_again(&mut self) {
        let crowded = self.index.take_crowded();
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        let unknown = &mut live.unknown;
        for tgid in crowded {
            unknown.processes.entry(tgid).or_insert(live.drain.end);
        }
        let is_any = unknown.lost_since.is_some() || !unknown.processes.is_empty();
        if !is_any || unknown.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let start = thread_time();
        let (lost_since, processes) = (unknown.lost_since.take(), std::mem::take(&mut unknown.processes));
        match lost_since {
            Some(since) => self.read_all_again(since),
            None => {
                for (tgid, since) in processes {
                    self.read_one_again(tgid, since);
                }
            }
        }
        self.changed();
        if let Origin::Live(live) = &mut self.origin {
            live.unknown.next = Some(Instant::now() + GAP * thread_time().saturating_sub(start));
        }
    }

    fn read_all_again(&mut self, since: u64) {
        let tgids = read_tgids();
        for tgid in &tgids {
            self.read_one_again(*tgid, since);
        }
        let live: HashSet<u32> = tgids.into_iter().collect();
        self.index.end_others(&live, since.saturating_add(1));
    }

    fn read_one_again(&mut self, tgid: u32, since: u64) {
        let Some(scanned) = read_process(tgid) else {
            self.index.forget_older_mappings(tgid);
            return;
        };
        for mmap in &scanned.mappings {
            self.open_early(mmap);
        }
        self.index.scanned_again(&scanned, since);
    }

    /// Opens the file of a new mapping while its process lives.
    pub(super) fn open_early(&mut self, mmap: &Mmap) {
        if Backing::of(&mmap.path) != Backing::File {
            return;
        }
        if let Some(live) = self.live_processes() {
            live.memory.note_mapped(mmap.pid, &mmap.path);
        }
        let file = self.index.intern_mmap(mmap);
        let is_open = self.images.is_open(file);
        if let Some(live) = self
            .live_processes()
            .filter(|live| !is_open && live.n_opened < MAX_OPENED)
        {
            live.n_opened += 1;
            // Where it fails, the reason is counted when the mapping is hit.
            let _ = self.images.open(file, mmap, &[]);
        }
    }
}
