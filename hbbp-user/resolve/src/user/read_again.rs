//! Processes that are read again from /proc, because records of them were lost or left out.
//!
//! A flood of mappings by one process overwrites the records of others. So after a loss all processes are read again,
//! and those that make very many mappings are read instead of their records, all of it within a share of the time.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::proc_scan::{read_process, read_tgids};
use super::space::{Origin, UserSpace};
use crate::clock::{now, thread_time};
use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::{Loss, Losses};

/// Mapping records of one process that are taken over between two drains; a compiler at run time makes a few hundred.
const MAX_MAPPED: u32 = 1 << 14;
/// Minimum gap between two readings, as a multiple of the CPU time of the last one: they take at most 2 % of the time.
const GAP: u32 = 49;

/// What is not known of processes.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// Until when all records are known, where some were lost since, in ns.
    lost_since: Option<u64>,
    /// The same of single processes.
    processes: HashMap<u32, u64>,
    /// Mapping records of each process since the last drain.
    n_mapped: HashMap<u32, u32>,
    /// Time of the newest record, before the last ones came and with them.
    known_until: (u64, u64),
    /// When the next reading may be.
    next: Option<Instant>,
    /// Whether records rest, so that nothing is known of what processes do.
    is_resting: bool,
    /// Processes that may have begun another program while records rested, until a record or a reading says which they run.
    unsure: HashSet<u32>,
}

impl Unknown {
    /// Begins to take over records.
    pub(super) fn begin_records(&mut self) {
        self.known_until.0 = self.known_until.1;
    }

    /// Notes a record. Returns whether it is to be taken over.
    pub(super) fn note(&mut self, timed: &Timed, losses: &mut Losses) -> bool {
        self.known_until.1 = self.known_until.1.max(timed.time);
        if let Record::Comm { pid, exec: true, .. } = &timed.record {
            self.unsure.remove(pid);
        }
        let Record::Mmap(mmap) = &timed.record else {
            return true;
        };
        let n = self.n_mapped.entry(mmap.pid).or_default();
        *n = n.saturating_add(1);
        let is_known = *n <= MAX_MAPPED;
        if !is_known {
            losses.add(Loss::SidebandSkipped, 1);
            self.processes.entry(mmap.pid).or_insert(timed.time);
        }
        is_known
    }

    /// Notes that records were lost since the last ones were read.
    pub(super) fn lost(&mut self) {
        self.lost_since.get_or_insert(self.known_until.0);
    }

    /// Ends a drain.
    pub(super) fn forget(&mut self) {
        self.n_mapped.clear();
    }
}

impl UserSpace {
    /// Records rest: processes are read again where they are hit, once in each drain.
    pub fn rest(&mut self) {
        if let Origin::Live(live) = &mut self.origin {
            live.unknown.is_resting = true;
        }
    }

    /// Records are written again. Processes that ended meanwhile are forgotten; the others are read where they are hit first.
    pub fn resume(&mut self) {
        let live: HashSet<u32> = read_tgids().into_iter().collect();
        self.index.end_others(&live, now());
        if let Origin::Live(of) = &mut self.origin {
            of.unknown.is_resting = false;
            of.unknown.unsure = live;
        }
    }

    /// Reads a process again that may run another program than the one that is known, as records rest or rested.
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

    /// Reads the processes again of which something is not known, where there is time for it.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::{FileOff, Va};
    use hbbp_model::record::{FileIdentity, Mmap};

    fn mapped(pid: u32, time: u64) -> Timed {
        let record = Record::Mmap(Mmap {
            pid,
            start: Va(time << 12),
            len: 0x1000,
            offset: FileOff(0),
            identity: FileIdentity::Unknown,
            shared: false,
            path: "//anon".into(),
        });
        Timed { time, record }
    }

    #[test]
    fn a_flood_of_one_process_leaves_the_records_of_others() {
        let (mut unknown, mut losses) = (Unknown::default(), Losses::default());
        let n = u64::from(MAX_MAPPED) + 10;
        let taken = (0..n).filter(|time| unknown.note(&mapped(7, *time), &mut losses));
        assert_eq!(taken.count() as u64, n - 10);
        assert!(unknown.note(&mapped(8, n), &mut losses));
        assert_eq!(losses.get(Loss::SidebandSkipped), 10);
        assert_eq!(unknown.processes, HashMap::from([(7, n - 10)]));
        unknown.forget();
        assert!(unknown.note(&mapped(7, n), &mut losses));
    }

    #[test]
    fn what_was_lost_begins_with_the_last_record_before() {
        let (mut unknown, mut losses) = (Unknown::default(), Losses::default());
        for times in [[5, 9], [30, 40]] {
            unknown.begin_records();
            for time in times {
                unknown.note(&mapped(7, time), &mut losses);
            }
        }
        unknown.lost();
        unknown.begin_records();
        unknown.lost();
        assert_eq!(unknown.lost_since, Some(9), "the first loss counts");
    }
}
