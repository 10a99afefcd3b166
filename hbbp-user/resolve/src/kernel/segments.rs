//! The parts of a drain between which kernel text changed, and the part that a count belongs to.
//!
//! A count carries the time of its first sample. What was executed first after a switch was made of the new text: a
//! stream that ends at a jump where there was none before is first seen when the jump is there.

use std::ops::Range;

/// Switching a key patches many sites within a few milliseconds; so long is one switch.
const ONE_SWITCH: u64 = 1_000_000;

/// The parts of one drain, each an interval of the snapshot.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Index of the first interval.
    first: u32,
    time: Range<u64>,
    splits: Vec<u64>,
}

impl Segments {
    /// Splits a drain of this time at the times of switches, in any order; `first` is the index of its first interval.
    pub(crate) fn new(first: u32, time: Range<u64>, switches: impl Iterator<Item = u64>) -> Self {
        let mut switches: Vec<u64> = switches.filter(|at| time.start < *at && *at < time.end).collect();
        switches.sort_unstable();
        let mut splits: Vec<u64> = Vec::new();
        for at in switches {
            if splits.last().is_none_or(|last| ONE_SWITCH <= at - last) {
                splits.push(at);
            }
        }
        Self { first, time, splits }
    }

    /// Which of the parts, by number, holds a time; what lies outside of the drain belongs to the nearest.
    pub(crate) fn part(&self, time: u64) -> usize {
        self.splits.partition_point(|split| *split <= time)
    }

    /// Index of the interval that holds a time.
    pub(crate) fn interval(&self, time: u64) -> u32 {
        let part = u32::try_from(self.part(time)).unwrap_or(u32::MAX);
        self.first.saturating_add(part)
    }

    /// Index of the first interval.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// Start and end of the drain.
    pub(crate) const fn time(&self) -> &Range<u64> {
        &self.time
    }

    /// Start and end of each part.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::once(self.time.start).chain(self.splits.iter().copied());
        let ends = self.splits.iter().copied().chain(std::iter::once(self.time.end));
        starts.zip(ends).map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_are_split_at_their_switches_alone() {
        let ms = |n: u64| n * 1_000_000;
        let switches = [ms(70), ms(20), ms(20) + 400, ms(1), ms(500), ms(100)];
        let all = Segments::new(5, ms(10)..ms(100), switches.into_iter());
        let bounds: Vec<_> = all.bounds().collect();
        assert_eq!(bounds, [ms(10)..ms(20), ms(20)..ms(70), ms(70)..ms(100)]);
        let at = |time| all.interval(time);
        assert_eq!((at(0), at(ms(20)), at(ms(69)), at(u64::MAX)), (5, 6, 6, 7));
        assert_eq!(Segments::new(0, 7..7, [7].into_iter()).bounds().count(), 1);
    }
}
