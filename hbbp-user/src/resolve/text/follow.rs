//! How text that is kept follows the text that runs: patches that are told, readings that are compared, and copies
//! that are made before a hit.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use crate::addr::ImageAddr;

use super::reading::{Window, read_range, readings};
use super::versions::{Compared, Patched, Poke, Records, rewind};
use super::{ModuleText, Stretch, Why};

/// What is known when text is read again.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Time of the reading in ns.
    pub time: u64,
    /// The interval that a change belongs to which no record told.
    pub interval: u32,
    /// Whether records come.
    pub records: Records,
    /// Patches, in the order of time, that belong to intervals behind that one, but may be in the text already.
    pub pending: &'a [Poke],
}

/// A reading of the stretches of a module that were hit, as far as it says more than that they are what they were.
#[derive(Debug, Default)]
pub struct Live {
    /// What was read first since this reading was not read again.
    fresh: Option<u64>,
    /// What stands in those that differ, or wait for a record since they did, by their starts in their order.
    differing: Vec<(ImageAddr, Vec<u8>)>,
    /// Starts of those that can no longer be read, in their order.
    unreadable: Vec<ImageAddr>,
}

impl ModuleText {
    /// Reads all stretches that were hit again, but for those that were read first since the reading `fresh` before: no
    /// count knows yet what becomes of them.
    pub fn read_live(&self, fresh: Option<u64>, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) -> Live {
        let hit = self.stretches.iter().filter(|(_, s)| s.is_compared(fresh));
        let hit: Vec<(Range<u64>, &Stretch)> = hit.map(|(start, s)| (start..start + s.len, s)).collect();
        let mut window = Window::default();
        let mut live = Live {
            fresh,
            ..Live::default()
        };
        for reading in readings(&hit) {
            let ([(first, _), ..], [.., (last, _)]) = (reading, reading) else {
                continue;
            };
            window.open(&(first.start..last.end), read);
            for (range, stretch) in reading {
                let start = ImageAddr(range.start);
                match window.part(range, read) {
                    Some(bytes) if stretch.generations.stands(bytes) => {}
                    Some(bytes) => live.differing.push((start, bytes.to_vec())),
                    None => live.unreadable.push(start),
                }
            }
        }
        live
    }

    /// Compares a reading with what is known. Returns the number of changes that no record told.
    pub fn compare(&mut self, known: &Known<'_>, live: Live) -> u64 {
        let pending = known.pending.iter();
        let about_to: BTreeSet<u64> = pending.flat_map(|poke| self.touched(poke)).collect();
        let said = |start: &ImageAddr| {
            let differs = live.differing.binary_search_by_key(start, |(start, _)| *start);
            differs.is_ok() || live.unreadable.binary_search(start).is_ok()
        };
        // What may be patched already, and is as it was.
        let same = about_to.into_iter().map(ImageAddr).filter(|start| !said(start));
        let same: Vec<ImageAddr> = same.collect();
        let mut n_changed = 0;
        for start in same {
            let stretch = self.stretches.get_mut(start.0);
            let stretch = stretch.filter(|s| s.is_compared(live.fresh));
            if let Some(stretch) = stretch {
                let bytes = stretch.generations.last().to_vec();
                n_changed += stretch.compare(start, known, bytes);
            }
        }
        for (start, bytes) in live.differing {
            if let Some(stretch) = self.stretches.get_mut(start.0) {
                n_changed += stretch.compare(start, known, bytes);
            }
        }
        n_changed
    }

    /// Starts of the stretches that a patch changes.
    fn touched(&self, poke: &Poke) -> impl Iterator<Item = u64> {
        let end = poke.start.0.saturating_add(poke.new.len() as u64);
        let before = self.stretches.before(end);
        let touched = before.take_while(move |(start, s)| poke.start.0 < *start + s.len);
        touched.map(|(start, _)| start)
    }

    /// Takes over a patch that the kernel told, valid from the interval `since` on.
    /// Returns the number of stretches in which other bytes stood before it than was known.
    pub fn patch(&mut self, poke: &Poke, since: u32) -> u64 {
        let end = poke.start.0.saturating_add(poke.new.len() as u64);
        let touched = self.stretches.before_mut(end);
        let touched = touched.take_while(|(start, s)| poke.start.0 < *start + s.len);
        let outcomes = touched.map(|(start, s)| s.generations.patch(ImageAddr(start), poke, since));
        outcomes.filter(|patched| *patched == Patched::Unexpected).count() as u64
    }

    /// What the last reading added, until it was [dated](Self::date).
    pub fn added(&self) -> Range<ImageAddr> {
        ImageAddr(self.added.start)..ImageAddr(self.added.end)
    }

    /// Tells the time of the last reading to the stretches that came by it, that it was the first since the reading
    /// `since` of all, and all patches since then that are known, each with its interval.
    pub fn date<'a>(
        &mut self,
        time: u64,
        since: u64,
        patches: &(impl Iterator<Item = (&'a Poke, u32)> + Clone),
    ) {
        let added = mem::take(&mut self.added);
        if added.is_empty() {
            return;
        }
        for (start, stretch) in self.stretches.range_mut(added) {
            if stretch.generations.is_undated() {
                stretch.read_since = Some(since);
                stretch.generations.date(time);
                for (poke, interval) in patches.clone() {
                    stretch.generations.patch(ImageAddr(start), poke, interval);
                }
            }
        }
    }

    /// Says that the text around `at` was copied before it was hit.
    pub fn set_early(&mut self, at: ImageAddr) {
        if let Some((_, stretch)) = self.holding(at) {
            stretch.why = Why::Early;
            // What becomes of it before the hit counts.
            stretch.read_since = None;
        }
    }

    /// Says that a stream ran from the stretch before into the one that starts at `at`.
    pub fn set_entered(&mut self, at: ImageAddr) {
        self.entered.insert(at.0);
    }

    pub(super) fn holding(&mut self, at: ImageAddr) -> Option<(u64, &mut Stretch)> {
        let (start, stretch) = self.stretches.last_upto_mut(at.0)?;
        (at.0 - start < stretch.len).then_some((start, stretch))
    }

    /// Takes differences that still wait for a record as they are. Returns their number.
    pub fn settle(&mut self) -> u64 {
        let waited = self
            .stretches
            .iter_mut()
            .map(|(_, s)| u64::from(s.generations.settle()));
        waited.sum()
    }

    /// Reads all stretches once more and forgets what they were before; what cannot be read now is not there.
    pub fn replace(&mut self, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) {
        for (start, stretch) in self.stretches.iter_mut() {
            stretch
                .generations
                .replace(read_range(&(start..start + stretch.len), read));
        }
    }
}

impl Stretch {
    /// Whether it is read again, where what was read first since the reading `fresh` is not.
    fn is_compared(&self, fresh: Option<u64>) -> bool {
        let is_fresh = fresh.is_some() && self.read_since == fresh;
        self.why == Why::Hit && !self.generations.is_empty() && !is_fresh
    }

    /// Compares a reading of the stretch at `start`. Returns the number of changes that no record told.
    fn compare(&mut self, start: ImageAddr, known: &Known<'_>, mut live: Vec<u8>) -> u64 {
        rewind(start, &mut live, known.pending.iter().rev());
        let Known {
            time,
            interval,
            records,
            ..
        } = *known;
        let compared = self.generations.compare(live, time, interval, records);
        u64::from(compared == Compared::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::versions::Generations;
    use super::*;
    use proptest::prelude::*;

    fn stretches(bytes: &[u8]) -> ModuleText {
        let mut text = ModuleText::default();
        for (start, bytes) in (0u64..).step_by(4).zip(bytes.chunks(4)) {
            text.insert(start..start + 4, Generations::read_first(bytes.to_vec()));
        }
        for (_, stretch) in text.stretches.iter_mut() {
            stretch.generations.date(0);
        }
        text
    }

    fn histories(text: &ModuleText) -> Vec<(u64, u32, Vec<u8>)> {
        let of = |(start, s): (u64, &Stretch)| {
            let all = s.generations.iter();
            all.map(|(since, bytes)| (start, since, bytes.to_vec()))
                .collect::<Vec<_>>()
        };
        text.stretches.iter().flat_map(of).collect()
    }

    #[test]
    fn text_that_was_read_just_now_waits_for_the_next_reading() {
        let mut text = ModuleText::default();
        let bounds = ImageAddr(0x1000)..ImageAddr(0x2000);
        let mut read = |_: ImageAddr, bytes: &mut [u8]| {
            bytes.fill(1);
            true
        };
        text.cover(ImageAddr(0x1100), bounds, None, &mut read);
        text.date(5, 3, &std::iter::empty());
        let mut patched = |_: ImageAddr, bytes: &mut [u8]| {
            bytes.fill(2);
            true
        };
        let mut n_differing = |fresh| text.read_live(fresh, &mut patched).differing.len();
        assert_eq!([Some(3), Some(4), None].map(&mut n_differing), [0, 1, 1]);
        text.set_early(ImageAddr(0x1100));
        text.hit(ImageAddr(0x1100));
        let n_differing = text.read_live(Some(3), &mut patched).differing.len();
        assert_eq!(n_differing, 1, "a copy that was made before the hit");
    }

    proptest! {
        /// Leaving out what is as it was makes no difference, whatever is patched and about to be.
        #[test]
        fn readings_that_say_nothing_new_need_not_be_compared(
            readings in prop::collection::vec(
                (
                    prop::collection::vec(1u8..4, 12),
                    prop::collection::vec((0u64..11, 1u8..4, 1u8..4), 0..3),
                    prop::option::of(0u64..3),
                    any::<bool>(),
                ),
                1..6,
            ),
        ) {
            let (mut some, mut all) = (stretches(&[1; 12]), stretches(&[1; 12]));
            for ((live, pending, gone, told), interval) in readings.into_iter().zip(1..) {
                let poke = |(at, old, new): (u64, u8, u8)| Poke {
                    time: u64::MAX,
                    start: ImageAddr(at),
                    old: vec![old; 2],
                    new: vec![new; 2],
                };
                let pending: Vec<Poke> = pending.into_iter().map(poke).collect();
                let records = if told { Records::Come } else { Records::NoneYet };
                let known = Known { time: 5, interval, records, pending: &pending };
                let mut read = |at: ImageAddr, bytes: &mut [u8]| {
                    let from = usize::try_from(at.0).expect("short");
                    bytes.copy_from_slice(&live[from..from + bytes.len()]);
                    let hole = gone.map_or(u64::MAX, |nth| 4 * nth);
                    at.0 + bytes.len() as u64 <= hole || hole < at.0
                };
                let reading = some.read_live(None, &mut read);
                let n_changed = some.compare(&known, reading);
                let mut n_expected = 0;
                for (start, stretch) in all.stretches.iter_mut() {
                    if let Some(bytes) = read_range(&(start..start + 4), &mut read) {
                        n_expected += stretch.compare(ImageAddr(start), &known, bytes);
                    }
                }
                prop_assert_eq!(n_changed, n_expected);
                prop_assert_eq!(histories(&some), histories(&all));
            }
        }
    }
}
