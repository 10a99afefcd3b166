//! What is known of changes of kernel text in the current drain: patches that records notified of, modules that came or
//! went, and readings of all that was hit.
//!
//! This is bookkeeping by time and address; [`ModuleText::change`](crate::text::ModuleText::change) is where a
//! change becomes a version of text.

use std::ops::Range;

use super::ambiguous::Ambiguity;
use super::map::Region;
use super::segments::Segments;
use crate::text::Known;
use crate::text::versions::{Poke, Records};
use hbbp_model::addr::{ImageAddr, Va};

/// No patch is longer: the longest writes a whole page of a trampoline.
const MAX_PATCH: u64 = 16 << 10;

/// Changes of kernel text.
#[derive(Debug, Default)]
pub(super) struct TextChanges {
    /// Patches since the last part of a drain, sorted by address from [`Self::begin`] on.
    pokes: Vec<Poke>,
    records: Records,
    /// When modules came or went since the last part.
    switches: Vec<u64>,
    /// The part of a drain at hand.
    segments: Segments,
    ambiguity: Ambiguity,
    /// How often all that was hit was read once more.
    n_readings: u64,
}

impl TextChanges {
    /// Applies a patch that a record notifies of.
    pub(super) fn notified(&mut self, time: u64, start: Va, old: &[u8], new: &[u8]) {
        self.records = Records::Come;
        self.pokes.push(Poke {
            time,
            start: ImageAddr(start.0),
            old: old.to_vec(),
            new: new.to_vec(),
        });
    }

    /// A module came or went.
    pub(super) fn switched(&mut self, time: u64) {
        self.switches.push(time);
    }

    /// Opens a part of a drain; `take` gets the patches in it, in the order of time, with the interval of each.
    pub(super) fn begin(
        &mut self,
        first: u32,
        time: Range<u64>,
        take: &mut dyn FnMut(&Poke, u32),
    ) -> Segments {
        let end = time.end;
        let switched = self.switches.extract_if(.., |at| *at <= end);
        let times = self.pokes.iter().map(|poke| poke.time).chain(switched);
        self.segments = Segments::new(first, time, times);
        self.pokes.sort_by_key(|poke| poke.time);
        for poke in self.pokes.iter().filter(|poke| poke.time <= end) {
            take(poke, self.segments.interval(poke.time));
        }
        self.pokes.sort_by_key(|poke| poke.start);
        self.ambiguity = Ambiguity::new(self.pokes.iter(), end);
        self.segments.clone()
    }

    /// Closes the current part: its patches are taken over.
    pub(super) fn close(&mut self) {
        let end = self.segments.time().end;
        self.pokes.retain(|poke| end < poke.time);
    }

    /// When the current part began.
    pub(super) const fn start(&self) -> u64 {
        self.segments.time().start
    }

    /// How many of `hits` on the instructions from `start` to the one at `end`, the first of which came at `first_time`, are ambiguous.
    pub(super) fn ambiguous(&self, start: Va, end: Va, first_time: u64, hits: u64) -> u64 {
        self.ambiguity.of(start, end, first_time, hits)
    }

    /// Begins a reading of all that was hit. Returns how many there were before.
    pub(super) const fn next_reading(&mut self) -> u64 {
        self.n_readings += 1;
        self.n_readings - 1
    }

    /// How many readings there were.
    pub(super) const fn n_readings(&self) -> u64 {
        self.n_readings
    }

    /// The patches, in the order of time, after the current part.
    pub(super) fn pending(&self) -> Vec<Poke> {
        let end = self.segments.time().end;
        let mut pending: Vec<Poke> = self.pokes.iter().filter(|p| end < p.time).cloned().collect();
        pending.sort_by_key(|poke| poke.time);
        pending
    }

    /// What is known of a reading at `time`.
    pub(super) const fn known<'a>(&self, time: u64, pending: &'a [Poke]) -> Known<'a> {
        Known {
            time,
            interval: self.segments.first(),
            records: self.records,
            pending,
        }
    }

    /// The patches of the current part that may overlap the text `added` of a region, in the order of time, each with its
    /// interval.
    pub(super) fn near(&self, region: &Region, added: &Range<ImageAddr>) -> Vec<(&Poke, u32)> {
        let first = added.start.0.saturating_sub(MAX_PATCH);
        let from = self.pokes.partition_point(|poke| poke.start.0 < first);
        let near = self.pokes.iter().skip(from);
        let near = near.take_while(|poke| poke.start < added.end);
        let end = self.segments.time().end;
        // What is written there when the region has gone belongs to another, such as a slot of a kprobe.
        let there = |p: &&Poke| region.from <= p.time && p.time < region.until && p.time <= end;
        let mut near: Vec<&Poke> = near.filter(there).collect();
        near.sort_by_key(|poke| poke.time);
        let dated = near.into_iter();
        dated
            .map(|poke| (poke, self.segments.interval(poke.time)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_that_came_early_are_taken_in_the_order_of_time() {
        let mut changes = TextChanges::default();
        // The younger one has the lower address.
        for (time, start) in [(30, 0x2000), (40, 0x1000)] {
            changes.notified(time, Va(start), &[0x90], &[0xcc]);
        }
        let mut taken = |first, time| {
            let mut times = Vec::new();
            changes.begin(first, time, &mut |poke, _| times.push(poke.time));
            changes.close();
            times
        };
        assert_eq!(taken(0, 1..20), [0; 0]);
        assert_eq!(taken(1, 20..50), [30, 40]);
        assert_eq!(taken(2, 50..60), [0; 0]);
    }
}
