//! How text that is kept follows the text that runs: patches that are told, readings that are compared, and copies
//! that are made before a hit.

use crate::addr::ImageAddr;

use super::super::generations::{Compared, Patched, Poke, Records, rewind};
use super::super::reading::{Window, read_range, reading_ends};
use super::{MAX_FUNCTION, ModuleText, Stretch, Why};

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

/// What stands in the stretches of a module now, by their starts.
pub type Live = Vec<(ImageAddr, Vec<u8>)>;

impl ModuleText {
    /// Reads all stretches that were hit again; what can no longer be read is left out.
    pub fn read_live(&self, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) -> Live {
        let mut window = Window::default();
        let ends = reading_ends(self.stretches.iter().map(|(start, s)| *start..*start + s.len));
        let hit = self.stretches.iter().filter(|(_, s)| s.why == Why::Hit);
        let live = hit
            .filter(|(_, s)| !s.generations.is_empty())
            .filter_map(|(start, stretch)| {
                let range = *start..*start + stretch.len;
                let end = ends.range(range.end..).next().copied().unwrap_or(range.end);
                Some((ImageAddr(*start), window.read(&range, end, read)?))
            });
        live.collect()
    }

    /// Compares a reading with what is known. Returns the number of changes that no record told.
    pub fn compare(&mut self, known: &Known<'_>, live: Live) -> u64 {
        let mut n_changed = 0;
        for (start, mut live) in live {
            let Some(stretch) = self.stretches.get_mut(&start.0) else {
                continue;
            };
            rewind(start, &mut live, known.pending.iter().rev());
            let Known {
                time,
                interval,
                records,
                ..
            } = *known;
            let compared = stretch.generations.compare(live, time, interval, records);
            n_changed += u64::from(compared == Compared::Changed);
        }
        n_changed
    }

    /// Takes over a patch that the kernel told, valid from the interval `since` on.
    /// Returns the number of stretches in which other bytes stood before it than was known.
    pub fn patch(&mut self, poke: &Poke, since: u32) -> u64 {
        let end = poke.start.0.saturating_add(poke.new.len() as u64);
        let touched = self.stretches.range_mut(..end).rev();
        let touched = touched.take_while(|(start, s)| poke.start.0 < **start + s.len);
        let outcomes = touched.map(|(start, s)| s.generations.patch(ImageAddr(*start), poke, since));
        outcomes.filter(|patched| *patched == Patched::Unexpected).count() as u64
    }

    /// Tells the time of readings around `at` to the stretches that came by them, and all patches since then that
    /// are known, each with its interval.
    pub fn date<'a>(
        &mut self,
        at: ImageAddr,
        time: u64,
        patches: &(impl Iterator<Item = (&'a Poke, u32)> + Clone),
    ) {
        let around = at.0.saturating_sub(MAX_FUNCTION)..at.0.saturating_add(MAX_FUNCTION);
        for (start, stretch) in self.stretches.range_mut(around) {
            if stretch.generations.is_undated() {
                stretch.generations.date(time);
                for (poke, since) in patches.clone() {
                    stretch.generations.patch(ImageAddr(*start), poke, since);
                }
            }
        }
    }

    /// Says that the text around `at` was copied before it was hit.
    pub fn set_early(&mut self, at: ImageAddr) {
        if let Some((_, stretch)) = self.holding(at) {
            stretch.why = Why::Early;
        }
    }

    /// Says that text was hit that may have been copied before.
    pub fn set_hit(&mut self, at: ImageAddr) {
        if let Some((_, stretch)) = self.holding(at) {
            stretch.why = Why::Hit;
        }
    }

    /// Says that a stream ran from the stretch before into the one that starts at `at`.
    pub fn set_entered(&mut self, at: ImageAddr) {
        self.entered.insert(at.0);
    }

    fn holding(&mut self, at: ImageAddr) -> Option<(u64, &mut Stretch)> {
        let (start, stretch) = self.stretches.range_mut(..=at.0).next_back()?;
        (at.0 - start < stretch.len).then_some((*start, stretch))
    }

    /// Takes differences that still wait for a record as they are. Returns their number.
    pub fn settle(&mut self) -> u64 {
        let waited = self
            .stretches
            .values_mut()
            .map(|s| u64::from(s.generations.settle()));
        waited.sum()
    }

    /// Reads all stretches once more and forgets what they were before; what cannot be read now is not there.
    pub fn replace(&mut self, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) {
        for (start, stretch) in &mut self.stretches {
            stretch
                .generations
                .replace(read_range(&(*start..*start + stretch.len), read));
        }
    }
}
