//! The versions of one text range: its bytes, and the first interval of each.
//!
//! A version comes from a reading of the text, or from a record that notifies of a patch, with its time and the bytes
//! before and after it (PERF_RECORD_TEXT_POKE). Where both are there, they check each other:
//!
//! ```text
//! interval     0          1          2          3
//! records            |A>B       |B>A
//! readings                 B                 A       -> since 0: A, since 1: B, since 2: A
//! ```
//!
//! The kernel patches in steps: a breakpoint, the tail, the record, the first byte (arch/x86/kernel/alternative.c,
//! `smp_text_poke_batch_finish`), so that a reading may see a patch before its record, and half of it.

use std::ops::Range;

use hbbp_model::addr::ImageAddr;

/// A patch as its record describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Poke {
    /// Time in ns.
    pub time: u64,
    /// First byte.
    pub start: ImageAddr,
    /// Bytes before; empty if the text is new.
    pub old: Vec<u8>,
    /// Bytes after.
    pub new: Vec<u8>,
}

/// Between the breakpoint and the record lie two interrupts to all CPUs; a virtual CPU may be away for so long.
const STEPS: u64 = 20_000_000;

/// Whether the kernel notifies of its patches.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Records {
    /// No notification came yet: perhaps none ever does.
    #[default]
    NoneYet,
    /// It does.
    Come,
}

/// What became of a patch that a record notified of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Patched {
    /// It is nowhere in this range, or changes nothing.
    No,
    /// It is a version.
    Yes,
    /// It is a version, and other bytes were expected before it: a patch in between had no record.
    Unexpected,
}

/// What a reading says about what was expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Compared {
    /// The same.
    Same,
    /// It differs, which a record to come may explain.
    Ambiguous,
    /// It differs, which is a version.
    Changed,
}

/// No reading is so late.
const UNDATED: u64 = u64::MAX;

/// The bytes of a text range.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextVersions {
    /// First interval and bytes of each; all have one length.
    list: Vec<(u32, Vec<u8>)>,
    /// Time of the last reading that became a version, and the number of that.
    read: (u64, usize),
    /// A reading that differs and is not explained, with its interval.
    ambiguous: Option<(u32, Vec<u8>)>,
}

impl Poke {
    /// The part of `len` bytes at `start` that this changes, and the same part of its own bytes.
    fn site(&self, start: ImageAddr, len: usize) -> Option<(Range<usize>, Range<usize>)> {
        let (before, after) = (start.since(self.start), self.start.since(start));
        let skip = usize::try_from(before.unwrap_or(0)).ok()?;
        let from = usize::try_from(after.unwrap_or(0)).ok()?;
        let n = self.new.len().checked_sub(skip)?.min(len.checked_sub(from)?);
        (0 < n).then_some((from..from + n, skip..skip + n))
    }

    /// The bytes before, where the record has them for all bytes after.
    fn before(&self, part: Range<usize>) -> Option<&[u8]> {
        (self.old.len() == self.new.len())
            .then(|| self.old.get(part))
            .flatten()
    }
}

/// Takes patches back, the newest first, from text that was read after them.
pub(crate) fn rewind<'a>(start: ImageAddr, bytes: &mut [u8], newest_first: impl Iterator<Item = &'a Poke>) {
    for poke in newest_first {
        let Some((site, part)) = poke.site(start, bytes.len()) else {
            continue;
        };
        if let (Some(site), Some(old)) = (bytes.get_mut(site), poke.before(part)) {
            site.copy_from_slice(old);
        }
    }
}

impl TextVersions {
    /// Text as it was read first. It may have seen patches whose records are still to be taken over.
    pub(crate) fn read_first(bytes: Vec<u8>) -> Self {
        Self {
            list: vec![(0, bytes)],
            read: (UNDATED, 0),
            ambiguous: None,
        }
    }

    /// Whether the time of the first reading is not set yet.
    pub(crate) fn is_undated(&self) -> bool {
        self.read.0 == UNDATED
    }

    /// Sets the time of the first reading; it must be set before the first patch.
    pub(crate) fn date(&mut self, time: u64) {
        self.read.0 = time;
    }

    /// Whether nothing could be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// First interval and bytes of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.list.iter().map(|(since, bytes)| (*since, bytes.as_slice()))
    }

    /// The same, handed over.
    pub(crate) fn into_each(self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        self.list.into_iter()
    }

    /// The bytes of the last one.
    pub(crate) fn last(&self) -> &[u8] {
        self.list.last().map_or(&[], |(_, bytes)| bytes)
    }

    /// Whether a reading says nothing new: it is what is known, and none before it differed.
    pub(crate) fn stands(&self, live: &[u8]) -> bool {
        self.ambiguous.is_none() && self.last() == live
    }

    /// The bytes in an interval.
    fn at(&self, interval: u32) -> &[u8] {
        let upto = self.list.partition_point(|(since, _)| *since <= interval);
        let found = self.list.get(upto.saturating_sub(1));
        found.map_or(&[], |(_, bytes)| bytes)
    }

    /// Applies a patch of the range at `start`, valid from the interval `since` on.
    pub(crate) fn patch(&mut self, start: ImageAddr, poke: &Poke, since: u32) -> Patched {
        let Some((_, last)) = self.list.last() else {
            return Patched::No;
        };
        let Some((site, part)) = poke.site(start, last.len()) else {
            return Patched::No;
        };
        let (Some(stood), Some(new)) = (last.get(site.clone()), poke.new.get(part.clone())) else {
            return Patched::No;
        };
        let stood = stood.to_vec();
        let mut patched = Patched::Yes;
        if let Some(old) = poke.before(part).filter(|old| *old != stood) {
            let (read_at, first) = self.read;
            if poke.time <= read_at.saturating_add(STEPS) {
                // The reading saw it, whole or half done; what was made of that reading saw too much.
                for (_, bytes) in self.list.iter_mut().skip(first) {
                    if let Some(bytes) = bytes.get_mut(site.clone()).filter(|b| **b == *stood) {
                        bytes.copy_from_slice(old);
                    }
                }
            } else {
                self.push(since, &site, old);
                patched = Patched::Unexpected;
            }
            self.push(since, &site, new);
        } else if stood == new {
            return Patched::No;
        } else {
            self.push(since, &site, new);
        }
        patched
    }

    fn push(&mut self, since: u32, site: &Range<usize>, new: &[u8]) {
        let Some((last, bytes)) = self.list.last_mut() else {
            return;
        };
        let mut next = bytes.clone();
        if let Some(site) = next.get_mut(site.clone()) {
            site.copy_from_slice(new);
        }
        if *last < since {
            self.list.push((since, next));
        } else {
            *bytes = next;
        }
    }

    /// Compares with a reading at `time` from which patches after the interval `interval` were taken back. Where the
    /// kernel notifies of its patches, a difference waits for the next reading: its record may arrive later.
    pub(crate) fn compare(&mut self, live: Vec<u8>, time: u64, interval: u32, records: Records) -> Compared {
        let same = self.list.last().is_none_or(|(_, bytes)| *bytes == live);
        if same
            || self
                .list
                .last()
                .is_some_and(|(_, bytes)| bytes.len() != live.len())
        {
            self.ambiguous = None;
            return Compared::Same;
        }
        let since = match (self.ambiguous.take(), records) {
            (Some((since, before)), _) if before == live => since,
            (_, Records::NoneYet) => interval,
            _ => {
                self.ambiguous = Some((interval, live));
                return Compared::Ambiguous;
            }
        };
        self.accept(since, live, time);
        Compared::Changed
    }

    /// Accepts an unexplained difference as a new version of the text. Returns whether there was one.
    pub(crate) fn settle(&mut self) -> bool {
        let ambiguous = self.ambiguous.take();
        let waited = ambiguous.is_some();
        if let Some((since, live)) = ambiguous {
            self.accept(since, live, 0);
        }
        waited
    }

    fn accept(&mut self, since: u32, live: Vec<u8>, time: u64) {
        match self.list.last_mut() {
            Some((last, bytes)) if since <= *last => *bytes = live,
            _ => self.list.push((since, live)),
        }
        self.read = (time, self.list.len() - 1);
    }

    /// Forgets all but what was read last, or everything where that cannot be read.
    pub(crate) fn replace(&mut self, bytes: Option<Vec<u8>>) {
        *self = bytes.map(Self::read_first).unwrap_or_default();
    }

    /// Forgets all but the last one, which is valid from the first interval on.
    pub(crate) fn keep_last(&mut self) {
        self.list.drain(..self.list.len().saturating_sub(1));
        if let Some((since, _)) = self.list.first_mut() {
            *since = 0;
        }
        self.read.1 = 0;
    }

    /// Bytes of all versions.
    pub(crate) fn n_bytes(&self) -> usize {
        self.list.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Whether another range changed in the same intervals.
    pub(crate) fn same_times(&self, other: &Self) -> bool {
        let mut both = self.list.iter().zip(&other.list);
        self.list.len() == other.list.len() && both.all(|((since, _), (other, _))| since == other)
    }

    /// Appends the bytes of the next range, which also was read; where only one of the two changed, both have a
    /// version.
    pub(crate) fn append(&mut self, next: &Self) {
        if self.same_times(next) {
            for ((_, bytes), (_, next)) in self.list.iter_mut().zip(&next.list) {
                bytes.extend_from_slice(next);
            }
            return;
        }
        let mut times: Vec<u32> = self.iter().chain(next.iter()).map(|(since, _)| since).collect();
        times.sort_unstable();
        times.dedup();
        let joined = times
            .into_iter()
            .map(|since| (since, [self.at(since), next.at(since)].concat()));
        self.list = joined.collect();
    }
}

#[cfg(test)]
mod tests;
