//! Which mapping of a process image covers an address, where later mappings shadow earlier ones.
//!
//! ```text
//! from 0   [ libold ------------------- ]
//! from 7              [ libnew -- ]
//! layout   [ libold - ][ libnew -- ][ - ]
//! ```
//!
//! The kernel does not report munmap (callers of `perf_event_mmap`, Linux v6.12), so only overlaps show it.

use std::collections::BTreeSet;

use crate::addr::{ImageAddr, Va};
use crate::snapshot::{Interval, Mapping, ModuleIdx};

/// The mappings of one process image that are visible in one interval, as disjoint ranges sorted by address.
#[derive(Debug, Default)]
pub(super) struct Layout {
    n_visible: usize,
    ranges: Box<[VisibleRange]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct VisibleRange {
    start: Va,
    end: Va,
    mapping: Mapping,
}

/// Whether a mapping existed at any time of an interval. Time 0 means before the run, regardless of the clock.
fn visible(mapping: &Mapping, interval: &Interval) -> bool {
    mapping.from == 0 || mapping.from < interval.end
}

impl Layout {
    /// The layout of `mappings` in `interval`.
    pub(super) fn new(mappings: &[Mapping], interval: &Interval) -> Self {
        let seen: Vec<&Mapping> = mappings.iter().filter(|m| visible(m, interval)).collect();
        Self {
            n_visible: seen.len(),
            ranges: visible_ranges(&seen),
        }
    }

    /// Whether it is valid for another interval too: visibility is a threshold in time, so equal numbers of visible
    /// mappings mean the same mappings.
    pub(super) fn holds_in(&self, mappings: &[Mapping], interval: &Interval) -> bool {
        self.n_visible == mappings.iter().filter(|m| visible(m, interval)).count()
    }

    /// Module and address in it of `va`.
    pub(super) fn find(&self, va: Va) -> Option<(ModuleIdx, ImageAddr)> {
        let after = self.ranges.partition_point(|range| range.start <= va);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        if range.end <= va {
            return None;
        }
        let image = range
            .mapping
            .image_start
            .checked_add(va.since(range.mapping.start)?)?;
        Some((range.mapping.module, image))
    }
}

/// Sweeps over all bounds of the mappings; between two bounds the latest open mapping is visible.
fn visible_ranges(mappings: &[&Mapping]) -> Box<[VisibleRange]> {
    let starts = mappings.iter().enumerate().map(|(i, m)| (m.start, true, i));
    let ends = mappings.iter().enumerate().map(|(i, m)| (m.end, false, i));
    let mut bounds: Vec<(Va, bool, usize)> = starts.chain(ends).collect();
    bounds.sort_unstable();

    let mut open: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut ranges: Vec<VisibleRange> = Vec::with_capacity(mappings.len());
    let mut reached = Va(0);
    for (bound, opens, i) in bounds {
        let Some(mapping) = mappings.get(i) else { continue };
        let top = open.last().and_then(|(_, top)| mappings.get(*top));
        if let Some(&&mapping) = top.filter(|_| reached < bound) {
            match ranges
                .last_mut()
                .filter(|last| last.end == reached && last.mapping == mapping)
            {
                Some(last) => last.end = bound,
                None => ranges.push(VisibleRange {
                    start: reached,
                    end: bound,
                    mapping,
                }),
            }
        }
        reached = bound;
        if opens {
            open.insert((mapping.from, i));
        } else {
            open.remove(&(mapping.from, i));
        }
    }
    ranges.into()
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

    fn until(end: u64) -> Interval {
        Interval {
            end,
            ..Interval::default()
        }
    }

    #[test]
    fn layout_later_mappings_shadow_earlier_ones() {
        let mappings = [mapping(10, 50, 0, 0), mapping(20, 30, 1, 7)];
        let before = Layout::new(&mappings, &until(7));
        let after = Layout::new(&mappings, &until(8));
        assert_eq!(before.find(Va(25)), Some((ModuleIdx(0), ImageAddr(0x100f))));
        assert_eq!(after.find(Va(25)), Some((ModuleIdx(1), ImageAddr(0x1005))));
        assert_eq!(after.find(Va(30)), Some((ModuleIdx(0), ImageAddr(0x1014))));
        assert_eq!(after.find(Va(50)), None);
        assert!(!before.holds_in(&mappings, &until(8)) && before.holds_in(&mappings, &until(3)));
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
            let found = Layout::new(&mappings, &until(3)).find(Va(va)).map(|(module, _)| module);
            prop_assert_eq!(found, on_top);
        }
    }
}
