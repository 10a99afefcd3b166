//! Ambiguous attribution: how much of a drain may have been counted for the wrong bytes.
//!
//! A count has the time of its first sample. One that began before a patch of the instructions it passes, and may have
//! gone on after it, is attributed to the bytes before. Of its later samples, the share of the time after the patch is
//! ambiguous.

use std::collections::BTreeMap;
use std::ops::Range;

use hbbp_model::addr::Va;

use crate::text::versions::Poke;

/// No instruction is longer (SDM vol. 2, 2.3.11).
const MAX_INSTRUCTION: u64 = 15;

/// The patches of one drain, by address.
#[derive(Debug, Default)]
pub(crate) struct Ambiguity {
    /// Length and times by the first address.
    sites: BTreeMap<u64, (u64, Vec<u64>)>,
    /// All of them lie here.
    within: Range<u64>,
    end: u64,
}

impl Ambiguity {
    /// The patches of a drain that ended at `end`; others are left out.
    pub(crate) fn new<'a>(pokes: impl Iterator<Item = &'a Poke>, end: u64) -> Self {
        let mut sites: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
        for poke in pokes.filter(|poke| poke.time < end) {
            let (len, times) = sites.entry(poke.start.0).or_default();
            *len = (*len).max(poke.new.len() as u64);
            times.push(poke.time);
        }
        let first = sites.first_key_value().map_or(0, |(at, _)| *at);
        let ends = sites.iter().map(|(at, (len, _))| at.saturating_add(*len));
        let within = first..ends.max().unwrap_or(0);
        Self { sites, within, end }
    }

    /// How many of `hits` may have executed other bytes than those at `first_time`, the time of the first hit. They executed the
    /// instructions from `start` to the last one at `end`.
    #[inline]
    pub(crate) fn of(&self, start: Va, end: Va, first_time: u64, hits: u64) -> u64 {
        let near = start.0 < self.within.end && self.within.start <= end.max(start).0;
        if !near || hits < 2 || self.end <= first_time {
            return 0;
        }
        self.of_several(start, end, first_time, hits)
    }

    fn of_several(&self, Va(start): Va, Va(end): Va, first_time: u64, hits: u64) -> u64 {
        // A patch starts with an instruction and is one, or two or three of them.
        let near = self
            .sites
            .range(start.saturating_sub(MAX_INSTRUCTION)..=end.max(start));
        let passing = near.filter(|(at, (len, _))| start < at.saturating_add(*len));
        let later = passing.flat_map(|(_, (_, times))| times.iter().filter(|time| first_time < **time));
        let Some(patched) = later.min() else { return 0 };
        let (after, all) = (self.end - patched, self.end - first_time);
        let ambiguous = (u128::from(hits - 1) * u128::from(after)).div_ceil(u128::from(all));
        u64::try_from(ambiguous).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::ImageAddr;

    /// Counts that began before a patch they pass are ambiguous for the remainder of the drain.
    #[test]
    fn counts_that_span_a_patch_are_ambiguous() {
        let poke = |time, start| Poke {
            time,
            start: ImageAddr(start),
            old: vec![0; 5],
            new: vec![1; 5],
        };
        let pokes = [poke(80, 0x1000), poke(90, 0x1000), poke(200, 0x2000)];
        let ambiguity = Ambiguity::new(pokes.iter(), 100);
        let of = |start, end, first| ambiguity.of(Va(start), Va(end), first, 101);
        assert_eq!(of(0xff0, 0x1010, 0), 20);
        assert_eq!(of(0x1004, 0x1004, 60), 50);
        assert_eq!(of(0x1000, 0x1000, 85), 67);
        assert_eq!(
            (of(0xff0, 0xfff, 0), of(0x1005, 0x1010, 0), of(0x1000, 0x1000, 90)),
            (0, 0, 0)
        );
        assert_eq!(of(0x2000, 0x2000, 0), 0, "after the drain");
        assert_eq!(
            ambiguity.of(Va(0x1000), Va(0x1000), 0, 1),
            0,
            "the first sample is known"
        );
    }
}
