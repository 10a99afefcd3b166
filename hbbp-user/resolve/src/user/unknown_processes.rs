//! Gaps in what is known of processes: records of them were lost, left out or paused.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use hbbp_model::record::{Record, Timed};
use hbbp_model::snapshot::{Loss, Losses};

/// Mapping records of one process that are taken over between two drains; a compiler at run time makes a few hundred.
const MAX_MAPPED: u32 = 1 << 14;

/// What is not known of processes.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// Until when all records are known, where some were lost since, in ns.
    pub(super) lost_since: Option<u64>,
    /// The same of single processes.
    pub(super) processes: HashMap<u32, u64>,
    /// Mapping records of each process since the last drain.
    n_mapped: HashMap<u32, u32>,
    /// Time of the newest record, before the last ones came and with them.
    known_until: (u64, u64),
    /// When the next reading may be.
    pub(super) next: Option<Instant>,
    /// Whether records are paused, so that changes of processes are not seen.
    pub(super) is_resting: bool,
    /// Processes that may have begun another program while records rested, until a record or a reading says which they run.
    pub(super) unsure: HashSet<u32>,
}

impl Unknown {
    /// Begins to apply records.
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
