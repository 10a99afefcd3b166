//! When the addresses of a recording get another meaning.
//!
//! Counts carry no times, so all of an interval are read with the mappings of its end. Where a mapping takes the place
//! of another file, as when a program unloads a library and loads another, the recording is cut into intervals.

use super::process_image::ImageMapping;
use super::process_index::ProcessIndex;
use crate::addr::Va;
use crate::record::Mmap;

/// No recording is cut more often than this: compilers at run time map without end.
const MAX_CUTS: usize = 255;

/// The times of the cuts, rising.
#[derive(Debug, Default)]
pub(super) struct Cuts(Vec<u64>);

impl Cuts {
    /// Notes a cut if a mapping, made at `time`, changes what its addresses mean. Mappings come in the order of time;
    /// `index` holds those before.
    pub(super) fn note(&mut self, mmap: &Mmap, time: u64, index: &ProcessIndex) {
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
        if changes && 0 < time && self.0.len() < MAX_CUTS && self.0.last() != Some(&time) {
            self.0.push(time);
        }
    }

    /// Whether the whole recording is one interval.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Start and end of each interval, between `start` and `end`.
    pub(super) fn bounds(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let starts = std::iter::once(start).chain(self.0.iter().copied());
        let ends = self.0.iter().copied().chain([end.saturating_add(1).max(start)]);
        starts.zip(ends).collect()
    }

    /// The interval that a time falls into.
    pub(super) fn interval_at(&self, time: u64) -> usize {
        self.0.partition_point(|cut| *cut <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::FileOff;
    use crate::record::{FileIdentity, Record, Timed};

    fn cuts(mappings: &[(u64, u64, u64, &str)]) -> Vec<u64> {
        let mut index = ProcessIndex::default();
        let mut cuts = Cuts::default();
        for (time, start, offset, path) in mappings {
            let mmap = Mmap {
                pid: 5,
                start: Va(*start),
                len: 0x1000,
                offset: FileOff(*offset),
                identity: FileIdentity::Unknown,
                path: (*path).to_owned(),
            };
            cuts.note(&mmap, *time, &index);
            index.apply(&Timed {
                time: *time,
                record: Record::Mmap(mmap),
            });
        }
        cuts.0
    }

    #[test]
    fn only_another_meaning_cuts() {
        let none: [u64; 0] = [];
        assert_eq!(
            cuts(&[(0, 0x1000, 0, "a"), (5, 0x8000, 0, "b"), (6, 0x1000, 0, "a")]),
            none
        );
        assert_eq!(
            cuts(&[(0, 0x1000, 0, "a"), (5, 0x1800, 0x800, "a")]),
            none,
            "a part that is mapped again"
        );
        assert_eq!(
            cuts(&[(0, 0x1000, 0, "a"), (5, 0x1000, 0, "b"), (7, 0x1800, 0, "b")]),
            [5, 7]
        );
        assert_eq!(cuts(&[(0, 0x1000, 0, "a"), (0, 0x1000, 0, "b")]), none);
    }

    #[test]
    fn intervals_meet_at_the_cuts() {
        let cuts = Cuts(vec![5, 7]);
        assert_eq!(cuts.bounds(1, 9), [(1, 5), (5, 7), (7, 10)]);
        assert_eq!(
            [4, 5, 6, 7, 99].map(|time| cuts.interval_at(time)),
            [0, 1, 1, 2, 2]
        );
        assert_eq!(Cuts::default().bounds(3, 3), [(3, 4)]);
    }
}
