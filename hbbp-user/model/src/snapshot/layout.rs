//! Which mapping of a process image covers an address, where later mappings shadow earlier ones.
//!
//! ```text
//! from 0   [ libold ------------------- ]
//! from 7              [ libnew -- ]
//! layout   [ libold - ][ libnew -- ][ - ]
//! ```
//!
//! The kernel does not report munmap (callers of `perf_event_mmap`, Linux v6.12), so only overlaps show it.
//!
//! Mappings are laid over each other in the order of time, so that a run costs n log n, however many intervals it has.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::{Mapping, ModuleIdx};
use crate::addr::{ImageAddr, Va};

/// The mappings of one process image that are visible at a time of the run, as disjoint ranges.
#[derive(Debug)]
pub struct Layout {
    /// Mappings that are not visible yet, the next one last.
    later: Vec<Mapping>,
    /// By start: the end of the range, and what is mapped there.
    ranges: BTreeMap<Va, (Va, Mapping)>,
}

impl Layout {
    /// The layout before the first of `mappings`, which are sorted by start.
    pub fn new(mappings: &[Mapping]) -> Self {
        let mut later: Vec<Mapping> = mappings.iter().rev().copied().collect();
        // Stable: of mappings of the same time, the one with the higher start is laid over the other.
        later.sort_by_key(|mapping| Reverse(mapping.from));
        Self {
            later,
            ranges: BTreeMap::new(),
        }
    }

    /// Makes all mappings visible that begin before `end`. Time 0 means before the run, regardless of the clock.
    pub fn advance(&mut self, end: u64) {
        let is_visible = |mapping: &mut Mapping| mapping.from == 0 || mapping.from < end;
        while let Some(mapping) = self.later.pop_if(is_visible) {
            self.lay(mapping);
        }
    }

    /// Lays a mapping over all that are there.
    pub(crate) fn lay(&mut self, mapping: Mapping) {
        let Mapping { start, end, .. } = mapping;
        if end <= start {
            return;
        }
        // The range that begins before may reach into it, or beyond its end.
        if let Some((_, (before_end, before))) = self.ranges.range_mut(..start).next_back()
            && start < *before_end
        {
            let reached = std::mem::replace(before_end, start);
            let before = *before;
            if end < reached {
                self.ranges.insert(end, (reached, before));
            }
        }
        while let Some((&hidden_start, &(hidden_end, hidden))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&hidden_start);
            if end < hidden_end {
                self.ranges.insert(end, (hidden_end, hidden));
            }
        }
        self.ranges.insert(start, (end, mapping));
    }

    /// The visible ranges that overlap `range`, each with what is mapped there, in the order of addresses.
    pub(crate) fn over(&self, range: Range<Va>) -> impl Iterator<Item = (Range<Va>, &Mapping)> {
        let reaching = self.ranges.range(..range.start).next_back();
        let ranges = reaching.into_iter().chain(self.ranges.range(range.clone()));
        ranges
            .map(|(start, (end, mapping))| (*start..*end, mapping))
            .filter(move |(it, _)| range.start < it.end)
    }

    /// Module and address in it of `va`.
    pub fn find(&self, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let (_, (end, mapping)) = self.ranges.range(..=va).next_back()?;
        if *end <= va {
            return None;
        }
        let image = mapping.image_start.checked_add(va.since(mapping.start)?)?;
        Some((mapping.module, image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(start: u64, end: u64, module: u32, from: u64) -> Mapping {
        let module = ModuleIdx(module);
        Mapping {
            start: Va(start),
            end: Va(end),
            module,
            image_start: ImageAddr(0x1000),
            from,
        }
    }

    fn until(mappings: &[Mapping], end: u64) -> Layout {
        let mut layout = Layout::new(mappings);
        layout.advance(end);
        layout
    }

    #[test]
    fn layout_later_mappings_shadow_earlier_ones() {
        let mappings = [mapping(10, 50, 0, 0), mapping(20, 30, 1, 7)];
        let mut layout = until(&mappings, 7);
        assert_eq!(layout.find(Va(25)), Some((ModuleIdx(0), ImageAddr(0x100f))));
        layout.advance(8);
        assert_eq!(layout.find(Va(25)), Some((ModuleIdx(1), ImageAddr(0x1005))));
        assert_eq!(layout.find(Va(30)), Some((ModuleIdx(0), ImageAddr(0x1014))));
        assert_eq!(layout.find(Va(50)), None);
    }

    proptest! {
        #[test]
        fn layout_agrees_with_linear_search(
            drawn in prop::collection::vec((0u64..40, 1u64..20, 0u64..5), 0..12),
            va in 0u64..64,
        ) {
            let mappings: Vec<Mapping> = drawn
                .iter()
                .zip(0u32..)
                .map(|(&(start, len, from), module)| mapping(start, start + len, module, from))
                .collect();
            let on_top = mappings
                .iter()
                .filter(|m| m.from < 3 && m.start.0 <= va && va < m.end.0)
                .max_by_key(|m| (m.from, m.module))
                .map(|m| m.module);
            let mut layout = Layout::new(&mappings);
            (1..=3).for_each(|end| layout.advance(end));
            prop_assert_eq!(layout.find(Va(va)).map(|(module, _)| module), on_top);
        }
    }
}
