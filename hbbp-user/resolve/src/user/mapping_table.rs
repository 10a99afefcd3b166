//! The mappings of one process image, by address and time.
//!
//! What is visible now is a partition of addresses: a new mapping takes its range from those before it. What it hides
//! stays until the samples of its time have been read. Lookup and insertion take logarithmic time, so that a process may
//! have as many mappings as the kernel allows (`vm.max_map_count`).
//!
//! ```text
//! time 0   [ a ---------------- ]
//! time 7          [ b --- ]
//! visible  [ a - ][ b --- ][ a  ]
//! hidden          [ a --- ] until 7
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::mapping::ImageMapping;
use hbbp_model::addr::Va;

/// Beyond this number of hidden parts the half that was hidden first is forgotten.
const MAX_HIDDEN: usize = 1 << 16;
/// Starts of hidden parts that a lookup tries. Only a process that remaps without end has more below an address.
const MAX_TRIED: usize = 256;

/// The mappings of a process image.
#[derive(Clone, Debug, Default)]
pub(super) struct MappingTable {
    /// Visible parts by start. They do not overlap.
    visible: BTreeMap<Va, Part>,
    /// Hidden parts by start and by the time that hid them. Those of one time do not overlap.
    hidden: BTreeMap<(Va, u64), Part>,
    /// The latest time in `hidden`: what is looked up at that time or later, as records are, is not there.
    hidden_until: u64,
}

/// A part of a mapping.
#[derive(Clone, Copy, Debug)]
struct Part {
    end: Va,
    mapping: ImageMapping,
}

/// A mapping, with the addresses and times at which it is the visible one.
#[derive(Clone, Debug)]
pub(super) struct Visible<'a> {
    pub(super) mapping: &'a ImageMapping,
    pub(super) at: Range<Va>,
    pub(super) time: Range<u64>,
}

impl MappingTable {
    /// The mapping that was visible at an address and a time in ns.
    pub(super) fn find(&self, at: Va, time: u64) -> Option<Visible<'_>> {
        let nearest = self.visible.range(..=at).next_back();
        if let Some((start, part)) = nearest.filter(|(_, part)| at < part.end && part.mapping.from <= time) {
            let at = *start..part.end;
            let (mapping, time) = (&part.mapping, part.mapping.from..u64::MAX);
            return Some(Visible { mapping, at, time });
        }
        self.find_hidden(at, time)
    }

    /// Parts of one time do not overlap, so the nearest start below the address that was visible then decides.
    fn find_hidden(&self, at: Va, time: u64) -> Option<Visible<'_>> {
        if self.hidden_until <= time {
            return None;
        }
        let mut below = at;
        for _ in 0..MAX_TRIED {
            let (&(start, _), _) = self.hidden.range(..=(below, u64::MAX)).next_back()?;
            let after = time.checked_add(1)?;
            let of_start = self.hidden.range((start, after)..=(start, u64::MAX)).next();
            if let Some(((_, until), part)) = of_start.filter(|(_, part)| part.mapping.from <= time) {
                let (mapping, time) = (&part.mapping, part.mapping.from..*until);
                let at_part = start..part.end;
                return at_part.contains(&at).then_some(Visible {
                    mapping,
                    at: at_part,
                    time,
                });
            }
            below = Va(start.0.checked_sub(1)?);
        }
        None
    }

    /// Adds a mapping. What lies under it is hidden from its time on; where that is younger, the new mapping is hidden.
    pub(super) fn add(&mut self, new: ImageMapping) {
        let mut shown = new.start;
        for (start, part) in self.overlapping(&(new.start..new.end)) {
            self.visible.remove(&start);
            if start < new.start {
                let end = new.start;
                self.visible.insert(start, Part { end, ..part });
            }
            if new.end < part.end {
                self.visible.insert(new.end, part);
            }
            let under = start.max(new.start)..part.end.min(new.end);
            if part.mapping.from <= new.from {
                self.hide(&under, part.mapping, new.from);
            } else {
                self.show(&(shown..under.start), new);
                shown = under.end;
                self.show(&under, part.mapping);
            }
        }
        self.show(&(shown..new.end), new);
    }

    fn overlapping(&self, range: &Range<Va>) -> Vec<(Va, Part)> {
        self.parts_in(range)
            .map(|(start, part)| (*start, *part))
            .collect()
    }

    fn parts_in(&self, range: &Range<Va>) -> impl Iterator<Item = (&Va, &Part)> {
        let before = self.visible.range(..range.start).next_back();
        let before = before.filter(|(_, part)| range.start < part.end);
        before.into_iter().chain(self.visible.range(range.clone()))
    }

    /// The visible mappings that share addresses with a range.
    pub(super) fn within(&self, range: &Range<Va>) -> impl Iterator<Item = &ImageMapping> {
        self.parts_in(range).map(|(_, part)| &part.mapping)
    }

    fn show(&mut self, range: &Range<Va>, mapping: ImageMapping) {
        if range.start < range.end {
            let end = range.end;
            self.visible.insert(range.start, Part { end, mapping });
        }
    }

    fn hide(&mut self, range: &Range<Va>, mapping: ImageMapping, until: u64) {
        if mapping.from < until {
            if MAX_HIDDEN <= self.hidden.len() {
                self.forget_half();
            }
            let end = range.end;
            self.hidden.insert((range.start, until), Part { end, mapping });
            self.hidden_until = self.hidden_until.max(until);
        }
    }

    fn forget_half(&mut self) {
        let mut times: Vec<u64> = self.hidden.keys().map(|(_, until)| *until).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.hidden.retain(|(_, until), _| median < *until);
    }

    /// The nearest visible mappings around a range, as many on each side, the nearest first.
    pub(super) fn around(&self, range: &Range<Va>, n: usize) -> impl Iterator<Item = &ImageMapping> {
        let below = self.visible.range(..range.start).rev().take(n);
        let above = self.visible.range(range.end..).take(n);
        below.chain(above).map(|(_, part)| &part.mapping)
    }

    /// Whether anything is hidden.
    pub(super) fn is_any_hidden(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Forgets what was hidden before `time`.
    pub(super) fn forget_before(&mut self, time: u64) {
        self.hidden.retain(|(_, until), _| time < *until);
    }

    /// Hides, from `time` on, the visible parts that overlap none of these ranges, which are sorted by their starts.
    pub(super) fn retain_mapped(&mut self, mapped: &[Range<Va>], time: u64) {
        let is_gone = |(start, part): &(&Va, &Part)| {
            let n_before = mapped.partition_point(|range| range.start < part.end);
            let last = n_before.checked_sub(1).and_then(|n| mapped.get(n));
            last.is_none_or(|range| range.end <= **start)
        };
        let gone = self.visible.iter().filter(is_gone);
        let gone: Vec<(Va, Part)> = gone.map(|(start, part)| (*start, *part)).collect();
        for (start, part) in gone {
            self.visible.remove(&start);
            self.hide(&(start..part.end), part.mapping, time);
        }
    }

    /// Forgets the older half of what is visible.
    pub(super) fn forget_older_half(&mut self) {
        let mut times: Vec<u64> = self.visible.values().map(|part| part.mapping.from).collect();
        let middle = times.len() / 2;
        if middle < times.len() {
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.visible.retain(|_, part| median < part.mapping.from);
        }
    }

    /// Number of visible parts.
    pub(super) fn len(&self) -> usize {
        self.visible.len()
    }

    /// The mappings; one that has several parts is there several times.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ImageMapping> {
        let parts = self.visible.values().chain(self.hidden.values());
        parts.map(|part| &part.mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::FileIdx;
    use super::*;
    use hbbp_model::addr::FileOff;
    use proptest::prelude::*;

    fn mapping(start: u64, len: u64, from: u64, file: u32) -> ImageMapping {
        ImageMapping {
            start: Va(start),
            end: Va(start + len),
            offset: FileOff(0),
            file: FileIdx(file),
            shared: false,
            from,
        }
    }

    #[test]
    fn as_many_mappings_as_the_kernel_allows_stay_visible() {
        const N: u64 = 262_144;
        let mut table = MappingTable::default();
        table.add(mapping(0x10_0000, 0x1000, 0, 7));
        for n in 0..N {
            table.add(mapping(0x1000_0000 + n * 0x2000, 0x1000, n, 1));
        }
        assert_eq!(
            table.find(Va(0x10_0800), N).map(|v| v.mapping.file),
            Some(FileIdx(7))
        );
        for n in [0, 1, N / 2, N - 1] {
            let found = table.find(Va(0x1000_0000 + n * 0x2000 + 5), N);
            assert_eq!(found.map(|v| v.mapping.from), Some(n));
        }
        assert!(table.find(Va(0x1000_1800), N).is_none(), "a gap");
    }

    #[test]
    fn what_remaps_without_end_is_bounded_and_keeps_what_is_visible() {
        let mut table = MappingTable::default();
        table.add(mapping(0x10_0000, 0x1000, 0, 7));
        for n in 1..300_000 {
            table.add(mapping(0x1000_0000 + n % 7 * 0x800, 0x1000, n, 1));
        }
        assert!(table.hidden.len() <= MAX_HIDDEN);
        assert!(table.len() <= 9);
        assert_eq!(
            table.find(Va(0x10_0800), 5).map(|v| v.mapping.file),
            Some(FileIdx(7))
        );
        let last = table.find(Va(0x1000_0000), 299_999);
        assert_eq!(last.map(|v| v.mapping.from), Some(299_999));
        table.forget_before(299_999);
        assert!(!table.is_any_hidden());
    }

    #[test]
    fn mappings_that_went_without_a_record_are_hidden() {
        let mut table = MappingTable::default();
        for n in 0..100 {
            table.add(mapping(0x1000 * n, 0x1000, n, 1));
        }
        let mapped = [Va(0x5000)..Va(0x6000), Va(0x8800)..Va(0xa000)];
        table.retain_mapped(&mapped, 200);
        assert_eq!(table.len(), 3);
        assert!(table.find(Va(0x5000), 200).is_some() && table.find(Va(0x9fff), 200).is_some());
        assert!(table.find(Va(0x4000), 200).is_none());
        assert!(
            table.find(Va(0x4000), 199).is_some(),
            "samples of that time find it"
        );
        table.forget_older_half();
        assert_eq!(table.len(), 1);
    }

    proptest! {
        /// The same as a search through all mappings, where they come in the order of time.
        #[test]
        fn lookups_agree_with_a_linear_search(
            drawn in prop::collection::vec((0u64..24, 1u64..12, 0u64..3), 1..30),
            at in 0u64..40,
            time in 0u64..40,
        ) {
            let (mut table, mut all, mut now) = (MappingTable::default(), Vec::new(), 0);
            for ((start, len, later), file) in drawn.into_iter().zip(0..) {
                now += later;
                let new = mapping(start, len, now, file);
                table.add(new);
                all.push(new);
            }
            let expected = |at: Va, time: u64| {
                let holds = |m: &&ImageMapping| m.start <= at && at < m.end && m.from <= time;
                all.iter().filter(holds).max_by_key(|m| (m.from, m.file)).copied()
            };
            let found = table.find(Va(at), time);
            prop_assert_eq!(found.as_ref().map(|v| *v.mapping), expected(Va(at), time));
            if let Some(found) = found {
                prop_assert!(found.at.contains(&Va(at)) && found.time.contains(&time));
                for at in found.at.start.0..found.at.end.0 {
                    for time in found.time.start..found.time.end.min(80) {
                        prop_assert_eq!(expected(Va(at), time), Some(*found.mapping));
                    }
                }
            }
        }

        /// Records that come late change nothing that is younger.
        #[test]
        fn late_mappings_stay_below_younger_ones(
            drawn in prop::collection::vec((0u64..24, 1u64..12, 0u64..9), 1..30),
            at in 0u64..40,
        ) {
            let (mut table, mut all) = (MappingTable::default(), Vec::new());
            for ((start, len, from), file) in drawn.into_iter().zip(0..) {
                let new = mapping(start, len, from, file);
                table.add(new);
                all.push(new);
            }
            let holds = |m: &&ImageMapping| m.start.0 <= at && at < m.end.0;
            let expected = all.iter().filter(holds).max_by_key(|m| (m.from, m.file)).copied();
            prop_assert_eq!(table.find(Va(at), 100).map(|v| *v.mapping), expected);
        }
    }
}
