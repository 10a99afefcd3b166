//! Whose a sample of a recording is, and when the addresses of a recording get another meaning.
//!
//! Counts carry no times, so all of an interval are read with the mappings of its end. Where a mapping replaces another
//! file, as when a program unloads a library and loads another, the recording is split into intervals.

use super::mapping::ImageMapping;
use super::process_index::ProcessIndex;
use hbbp_model::addr::Va;
use hbbp_model::record::{Mmap, Record, Timed};

/// No recording is split more often than this: compilers at run time map without end.
const MAX_SPLITS: usize = 255;

/// The time of a recording.
#[derive(Debug, Default)]
pub(crate) struct RecordedTime {
    /// Where the intervals meet, rising.
    splits: Vec<u64>,
    /// Processes with mappings, to whom samples without a pid may belong.
    tgids: Vec<u32>,
}

impl RecordedTime {
    /// Fills an index with the records, which must be in the order of time.
    pub(crate) fn new(records: &[Timed], index: &mut ProcessIndex) -> Self {
        let mut time = Self::default();
        for timed in records {
            if let Record::Mmap(mmap) = &timed.record
                && mmap.pid != u32::MAX
            {
                time.tgids.push(mmap.pid);
                time.note(mmap, timed.time, index);
            }
            index.apply(timed);
        }
        time.tgids.sort_unstable();
        time.tgids.dedup();
        time
    }

    /// Notes a split if a mapping, made at `time`, changes what its addresses mean. `index` holds those before.
    fn note(&mut self, mmap: &Mmap, time: u64, index: &ProcessIndex) {
        let image = index.image_at(mmap.pid, time);
        let last = Va(mmap.start.0.saturating_add(mmap.len.saturating_sub(1)));
        let hidden = |at| image.and_then(|image| image.mapping_at(at, time));
        let means_other = |old: &ImageMapping| {
            let base = |start: Va, offset: u64| start.0.wrapping_sub(offset);
            let moved = base(old.start, old.offset.0) != base(mmap.start, mmap.offset.0);
            moved || index.file(old.file).is_some_and(|file| file.path != mmap.path)
        };
        let changes = [mmap.start, last].into_iter().filter_map(hidden).any(means_other);
        // What was mapped before the recording began has time 0.
        if changes && 0 < time && self.splits.len() < MAX_SPLITS && self.splits.last() != Some(&time) {
            self.splits.push(time);
        }
    }

    /// The process of a sample: where only one process has mappings, it is that of samples without a pid.
    pub(crate) fn tgid(&self, tgid: u32) -> u32 {
        match (tgid, self.tgids.as_slice()) {
            (0, [only]) => *only,
            _ => tgid,
        }
    }

    /// Start and end of each interval, between `start` and `end`.
    pub(crate) fn bounds(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let starts = std::iter::once(start).chain(self.splits.iter().copied());
        let ends = self.splits.iter().copied();
        let ends = ends.chain([end.saturating_add(1).max(start)]);
        starts.zip(ends).collect()
    }

    /// The interval that a time falls into.
    pub(crate) fn interval_at(&self, time: u64) -> usize {
        self.splits.partition_point(|split| *split <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::FileOff;
    use hbbp_model::record::FileIdentity;

    fn splits(mappings: &[(u64, u64, u64, &str)]) -> Vec<u64> {
        let record = |(time, start, offset, path): &(u64, u64, u64, &str)| {
            let mmap = Mmap {
                pid: 5,
                start: Va(*start),
                len: 0x1000,
                offset: FileOff(*offset),
                identity: FileIdentity::Unknown,
                shared: false,
                path: (*path).into(),
            };
            Timed {
                time: *time,
                record: Record::Mmap(mmap),
            }
        };
        let records: Vec<Timed> = mappings.iter().map(record).collect();
        RecordedTime::new(&records, &mut ProcessIndex::default()).splits
    }

    #[test]
    fn only_another_meaning_splits() {
        let none: [u64; 0] = [];
        assert_eq!(
            splits(&[(0, 0x1000, 0, "a"), (5, 0x8000, 0, "b"), (6, 0x1000, 0, "a")]),
            none
        );
        assert_eq!(
            splits(&[(0, 0x1000, 0, "a"), (5, 0x1800, 0x800, "a")]),
            none,
            "a part that is mapped again"
        );
        assert_eq!(
            splits(&[(0, 0x1000, 0, "a"), (5, 0x1000, 0, "b"), (7, 0x1800, 0, "b")]),
            [5, 7]
        );
        assert_eq!(splits(&[(0, 0x1000, 0, "a"), (0, 0x1000, 0, "b")]), none);
    }

    #[test]
    fn intervals_meet_at_the_splits() {
        let time = RecordedTime {
            splits: vec![5, 7],
            tgids: vec![3],
        };
        assert_eq!([0, 4].map(|tgid| time.tgid(tgid)), [3, 4]);
        assert_eq!(time.bounds(1, 9), [(1, 5), (5, 7), (7, 10)]);
        assert_eq!([4, 5, 6, 7, 99].map(|at| time.interval_at(at)), [0, 1, 1, 2, 2]);
        assert_eq!(RecordedTime::default().bounds(3, 3), [(3, 4)]);
    }
}
