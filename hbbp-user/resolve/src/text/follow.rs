//! The one door for changes of text: patches that records notify of, and what reading again finds.
//!
//! Both become versions of the ranges that they touch ([`ModuleText::change`]); [`super::versions`] lets one check the
//! other. Copies that are made before a hit, and the times of first readings, belong here as well.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use super::module_text::{ModuleText, TextRange, Why};
use super::reading::{ReadText, Window, read_range, readings};
use super::versions::{Compared, Patched, Poke, Records, TextVersions, rewind};
use hbbp_model::addr::ImageAddr;

/// A change of text.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// A record notifies of this patch, which is valid from the interval on.
    Notified(&'a Poke, u32),
    /// The text was read again.
    Observed(Live, Known<'a>),
}

/// What is known when text is read again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known<'a> {
    /// Time of the reading in ns.
    pub time: u64,
    /// The interval that a change without a record belongs to.
    pub interval: u32,
    /// Whether records come.
    pub records: Records,
    /// Patches, in the order of time, that belong to later intervals, but may be in the text already.
    pub pending: &'a [Poke],
}

/// A reading of the ranges of a module that were hit, as far as it differs from what is known.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Ranges that were first read since this reading were left out.
    fresh: Option<u64>,
    /// The bytes of those that differ, or wait for a record since they did, by their starts in their order.
    differing: Vec<(ImageAddr, Vec<u8>)>,
    /// Starts of those that can no longer be read, in their order.
    unreadable: Vec<ImageAddr>,
}

impl Live {
    /// Whether anything differs.
    pub(crate) fn is_any(&self) -> bool {
        !self.differing.is_empty()
    }
}

impl ModuleText {
    /// Applies a change. Returns the number of ranges that also changed without a record.
    pub(crate) fn change(&mut self, change: Change<'_>) -> u64 {
        match change {
            Change::Notified(poke, since) => self.patch(poke, since),
            Change::Observed(live, known) => self.compare(&known, live),
        }
    }

    /// Reads all ranges that were hit again, but for those that were first read since the reading `fresh`: no count
    /// depends yet on what becomes of them.
    pub(crate) fn read_live(&self, fresh: Option<u64>, read: &mut ReadText<'_>) -> Live {
        let hit = self.ranges.iter().filter(|(_, r)| r.is_compared(fresh));
        let hit: Vec<(Range<u64>, &TextRange)> = hit.map(|(start, r)| (start..start + r.len, r)).collect();
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
            for (range, text) in reading {
                let start = ImageAddr(range.start);
                match window.part(range, read) {
                    Some(bytes) if text.versions.stands(bytes) => {}
                    Some(bytes) => live.differing.push((start, bytes.to_vec())),
                    None => live.unreadable.push(start),
                }
            }
        }
        live
    }

    /// Compares a reading with what is known. What can no longer be read stays as it was.
    fn compare(&mut self, known: &Known<'_>, live: Live) -> u64 {
        let pending = known.pending.iter();
        let about_to: BTreeSet<u64> = pending.flat_map(|poke| self.touched(poke)).collect();
        let differs = |start: &ImageAddr| {
            let differing = live.differing.binary_search_by_key(start, |(start, _)| *start);
            differing.is_ok() || live.unreadable.binary_search(start).is_ok()
        };
        // What may be patched already, and is as it was.
        let same = about_to
            .into_iter()
            .map(ImageAddr)
            .filter(|start| !differs(start));
        let same: Vec<ImageAddr> = same.collect();
        let mut n_changed = 0;
        for start in same {
            let range = self.ranges.get_mut(start.0);
            if let Some(range) = range.filter(|r| r.is_compared(live.fresh)) {
                let bytes = range.versions.last().to_vec();
                n_changed += range.compare(start, known, bytes, &mut self.n_bytes);
            }
        }
        for (start, bytes) in live.differing {
            if let Some(range) = self.ranges.get_mut(start.0) {
                n_changed += range.compare(start, known, bytes, &mut self.n_bytes);
            }
        }
        n_changed
    }

    /// Starts of the ranges that a patch changes.
    fn touched(&self, poke: &Poke) -> impl Iterator<Item = u64> {
        let end = poke.start.0.saturating_add(poke.new.len() as u64);
        let before = self.ranges.before(end);
        let touched = before.take_while(move |(start, r)| poke.start.0 < *start + r.len);
        touched.map(|(start, _)| start)
    }

    /// Applies a patch. Returns the number of ranges whose bytes before it differ from the known ones.
    fn patch(&mut self, poke: &Poke, since: u32) -> u64 {
        let end = poke.start.0.saturating_add(poke.new.len() as u64);
        let touched = self.ranges.before_mut(end);
        let touched = touched.take_while(|(start, r)| poke.start.0 < *start + r.len);
        let mut n_unexpected = 0;
        for (start, range) in touched {
            let patched = range.grow(&mut self.n_bytes, |versions| {
                versions.patch(ImageAddr(start), poke, since)
            });
            n_unexpected += u64::from(patched == Patched::Unexpected);
        }
        n_unexpected
    }

    /// What the last reading added, until it was [dated](Self::date).
    pub(crate) fn added(&self) -> Range<ImageAddr> {
        ImageAddr(self.added.start)..ImageAddr(self.added.end)
    }

    /// Sets the time of the last reading for the ranges that it added: it was the first since the reading `since` of
    /// all. `patches` are all known patches since then, each with its interval.
    pub(crate) fn date<'a>(
        &mut self,
        time: u64,
        since: u64,
        patches: &(impl Iterator<Item = (&'a Poke, u32)> + Clone),
    ) {
        let added = mem::take(&mut self.added);
        if added.is_empty() {
            return;
        }
        for (start, range) in self.ranges.range_mut(added) {
            if range.versions.is_undated() {
                range.read_since = Some(since);
                range.versions.date(time);
                for (poke, interval) in patches.clone() {
                    range.grow(&mut self.n_bytes, |versions| {
                        versions.patch(ImageAddr(start), poke, interval)
                    });
                }
            }
        }
    }

    /// Says that the text around `at` was copied before it was hit.
    pub(crate) fn set_early(&mut self, at: ImageAddr) {
        if let Some((_, range)) = self.holding(at) {
            range.why = Why::Early;
            // What becomes of it before the hit counts.
            range.read_since = None;
        }
    }

    /// Marks the range that starts at `at` as entered by fall-through.
    pub(crate) fn set_entered(&mut self, at: ImageAddr) {
        self.entered.insert(at.0);
    }

    pub(super) fn holding(&mut self, at: ImageAddr) -> Option<(u64, &mut TextRange)> {
        let (start, range) = self.ranges.last_upto_mut(at.0)?;
        (at.0 - start < range.len).then_some((start, range))
    }

    /// Takes differences that still wait for a record as they are. Returns their number.
    pub(crate) fn settle(&mut self) -> u64 {
        let mut n_settled = 0;
        for (_, range) in self.ranges.iter_mut() {
            n_settled += u64::from(range.grow(&mut self.n_bytes, TextVersions::settle));
        }
        n_settled
    }

    /// Forgets the bytes of each range before the last change.
    pub(crate) fn forget_versions(&mut self) {
        for (_, range) in self.ranges.iter_mut() {
            range.grow(&mut self.n_bytes, TextVersions::keep_last);
        }
    }

    /// Reads all ranges once more and forgets what they were before; what cannot be read now is not there.
    pub(crate) fn replace(&mut self, read: &mut ReadText<'_>) {
        for (start, range) in self.ranges.iter_mut() {
            let bytes = read_range(&(start..start + range.len), read);
            range.grow(&mut self.n_bytes, |versions| versions.replace(bytes));
        }
    }
}

impl TextRange {
    /// Whether it is read again, where what was first read since the reading `fresh` is not.
    fn is_compared(&self, fresh: Option<u64>) -> bool {
        let is_fresh = fresh.is_some() && self.read_since == fresh;
        self.why == Why::Hit && !self.versions.is_empty() && !is_fresh
    }

    /// Changes its versions, and the bytes that all ranges together hold by as much.
    fn grow<R>(&mut self, n_bytes: &mut usize, change: impl FnOnce(&mut TextVersions) -> R) -> R {
        *n_bytes -= self.versions.n_bytes();
        let changed = change(&mut self.versions);
        *n_bytes += self.versions.n_bytes();
        changed
    }

    /// Compares a reading of the range at `start`. Returns the number of changes without a record.
    fn compare(
        &mut self,
        start: ImageAddr,
        known: &Known<'_>,
        mut live: Vec<u8>,
        n_bytes: &mut usize,
    ) -> u64 {
        rewind(start, &mut live, known.pending.iter().rev());
        let compared = self.grow(n_bytes, |versions| {
            versions.compare(live, known.time, known.interval, known.records)
        });
        u64::from(compared == Compared::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::module_text::End;
    use super::super::versions::TextVersions;
    use super::*;
    use proptest::prelude::*;

    fn ranges(bytes: &[u8]) -> ModuleText {
        let mut text = ModuleText::default();
        for (start, bytes) in (0u64..).step_by(4).zip(bytes.chunks(4)) {
            text.insert(
                start..start + 4,
                End::Code,
                TextVersions::read_first(bytes.to_vec()),
            );
        }
        for (_, range) in text.ranges.iter_mut() {
            range.versions.date(0);
        }
        text
    }

    fn histories(text: &ModuleText) -> Vec<(u64, u32, Vec<u8>)> {
        let of = |(start, r): (u64, &TextRange)| {
            let all = r.versions.iter();
            all.map(|(since, bytes)| (start, since, bytes.to_vec()))
                .collect::<Vec<_>>()
        };
        text.ranges.iter().flat_map(of).collect()
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
        /// Leaving out unchanged text makes no difference, for every kind of patch.
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
            let (mut some, mut all) = (ranges(&[1; 12]), ranges(&[1; 12]));
            for ((live, pending, gone, notified), interval) in readings.into_iter().zip(1..) {
                let poke = |(at, old, new): (u64, u8, u8)| Poke {
                    time: u64::MAX,
                    start: ImageAddr(at),
                    old: vec![old; 2],
                    new: vec![new; 2],
                };
                let pending: Vec<Poke> = pending.into_iter().map(poke).collect();
                let records = if notified { Records::Come } else { Records::NoneYet };
                let known = Known { time: 5, interval, records, pending: &pending };
                let mut read = |at: ImageAddr, bytes: &mut [u8]| {
                    let from = usize::try_from(at.0).expect("short");
                    bytes.copy_from_slice(&live[from..from + bytes.len()]);
                    let hole = gone.map_or(u64::MAX, |nth| 4 * nth);
                    at.0 + bytes.len() as u64 <= hole || hole < at.0
                };
                let reading = some.read_live(None, &mut read);
                let n_changed = some.change(Change::Observed(reading, known));
                let mut n_expected = 0;
                for (start, range) in all.ranges.iter_mut() {
                    if let Some(bytes) = read_range(&(start..start + 4), &mut read) {
                        n_expected += range.compare(ImageAddr(start), &known, bytes, &mut all.n_bytes);
                    }
                }
                prop_assert_eq!(n_changed, n_expected);
                prop_assert_eq!(histories(&some), histories(&all));
                prop_assert_eq!(some.n_bytes(), all.n_bytes());
            }
        }
    }
}
